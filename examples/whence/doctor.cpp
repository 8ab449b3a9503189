// Prints what whence runs on, as it really is, and names whatever does not fit, with what to do.
#include <algorithm>
#include <iostream>

#include "examples/whence/cli/command.h"
#include "examples/whence/doctor/facts.h"
#include "examples/whence/run/commit.h"

namespace whence {
namespace {

void print(const MachineFacts& facts, const std::vector<Finding>& findings) {
  std::cout << program_and_version() << '\n';
  for (const auto& [name, value] : lines_of(facts))
    std::cout << name << std::string(11 - name.size(), ' ') << value << '\n';
  std::cout << '\n';
  for (const Finding& finding : findings)
    std::cout << to_string(finding.weight) << ": " << finding.text << "; " << finding.advice << '\n';
  if (findings.empty()) std::cout << "nothing found that does not fit\n";
}

int run(CommandLine& line) {
  bool json = false;
  line.flag("json", &json, {"the same as one JSON object"})
      .example("whence doctor",
          "build, processor, threads, BLAS, CUDA and what to change; ends with 1 only when something is broken");
  if (line.shows_page()) return 0;
  const MachineFacts facts = machine_facts();
  const std::vector<Finding> findings = findings_of(facts);
  if (json)
    std::cout << json_of(facts);
  else
    print(facts, findings);
  return std::ranges::count(findings, Finding::Weight::broken, &Finding::weight) > 0 ? 1 : 0;
}

const RegisterCommand registered{
    {"doctor", Purpose::machine, "what this build and machine have, what does not fit, and what to do", run}};

}  // namespace
}  // namespace whence
