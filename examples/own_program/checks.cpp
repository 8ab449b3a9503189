// Runs all generic checks on the op and the scheme, alone and with other schemes.
#include <iostream>

#include "examples/whence/verify/checks.h"

using namespace whence;

int main() {
  bool ok = true;
  for (const CheckReport& report : {check_op("softsign"), check_scheme("levelling"),
           check_scheme("levelling(depth=2) + rope"), check_scheme("dape(levelling, width=4)")}) {
    std::cout << report.text();
    ok = ok && report.ok();
  }
  return ok ? 0 : 1;
}
