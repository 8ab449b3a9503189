// Prints the build and machine as they are, and names whatever does not fit, with what to do.
#include <algorithm>
#include <iostream>

#include "examples/whence/cli/command.h"
#include "examples/whence/doctor/facts.h"
#include "examples/whence/run/commit.h"

namespace whence {
namespace {

std::string text_of(const MachineFacts& facts, const std::vector<Finding>& findings) {
  std::string text = program_and_version() + '\n';
  for (const auto& [name, value] : lines_of(facts)) text += name + std::string(11 - name.size(), ' ') + value + '\n';
  text += findings.empty() ? "\nnothing found that does not fit\n" : "\n";
  for (const Finding& finding : findings)
    text += std::string(to_string(finding.weight)) + ": " + finding.text + "; " + finding.advice + '\n';
  return text;
}

int run(CommandLine& line) {
  bool json = false;
  line.flag("json", &json, {"the same as one JSON object"})
      .example("whence doctor",
          "build, processor, threads, BLAS, CUDA and what to change; ends with 1 only when something is broken");
  if (line.shows_page()) return 0;
  const MachineFacts facts = machine_facts();
  const std::vector<Finding> findings = findings_of(facts);
  std::cout << (json ? json_of(facts) : text_of(facts, findings));
  return std::ranges::count(findings, Finding::Weight::broken, &Finding::weight) > 0 ? 1 : 0;
}

const RegisterCommand registered{
    {"doctor", Purpose::machine, "what this build and machine have, what does not fit, and what to do", run}};

}  // namespace
}  // namespace whence
