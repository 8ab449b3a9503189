// Checks of an op or a scheme in one call, for your own tests (examples/own_program/checks.cpp), in any framework or
// none:
//   const CheckReport report = check_op("softsign");
//   REQUIRE_MESSAGE(report.ok(), report.text());
#pragma once

#include <string>
#include <vector>

#include "autograd/samples/samples.h"

namespace whence {

struct CheckReport {
  std::string name;                        // of a scheme: its canonical text
  int checks = 0;                          // number of checks made
  std::vector<std::string> problems = {};  // the property that fails, and where
  [[nodiscard]] bool ok() const { return problems.empty(); }
  [[nodiscard]] std::string text() const;  // "softsign: 310 checks: ok", or a line for each problem
};

// Checks every sample of the op in several memory layouts: gradients by dual numbers and by differences; second
// derivatives, or their refusal if the op declares `once`; equal bits when repeated and on any number of threads; no write
// outside its results; values and gradients in f32, bf16 and f16 near those in f64; f64 values equal to those
// in duals. Then checks, if the op has them, its reference, its parts, and the calls that it must refuse.
// Throws InputError if no op of this name has samples.
[[nodiscard]] CheckReport check_op(const std::string& name);
[[nodiscard]] CheckReport check_op(const CheckedOp& op);

// Checks everything in the conformance matrix, by the scheme's claims: gradients of the scheme alone and of a whole
// model; no row sees later tokens, other sequences or padding; decoding gives the rows of the full pass; all executors
// agree. `text` names schemes, such as "mine(width=4) + rope". Throws InputError if it is no such text, or is refused.
[[nodiscard]] CheckReport check_scheme(const std::string& text);

}  // namespace whence
