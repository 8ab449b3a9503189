// Prints the conformance matrix, as a table and JSON: every positional scheme and composition against every check.
#include <iostream>

#include "examples/whence/cli/command.h"
#include "examples/whence/cli/json.h"
#include "examples/whence/cli/json_lines.h"
#include "examples/whence/cli/numbers.h"
#include "examples/whence/cli/progress.h"
#include "examples/whence/cli/text.h"
#include "examples/whence/machine/placement.h"
#include "examples/whence/report/table.h"
#include "examples/whence/verify/conformance.h"
#include "examples/whence/verify/device_check.h"
#include "examples/whence/verify/scheme_texts.h"
#include "nn/scheme.h"
#include "tensor/error.h"

namespace whence {
namespace {

using Mark = ConformanceCell::Mark;

struct Options {
  std::vector<std::string> schemes;
  std::string check, device = "cpu";
  bool list = false, json = false, quiet = false;
  std::vector<ConformanceCheck> checks;  // the checks that run
};

void declare_options(CommandLine& line, Options& options) {
  line.names("[SCHEME...]", &options.schemes,
          "scheme texts such as 'cope(p_max=8) + rope'; none: every scheme, option and sum")
      .heading("Checks")
      .text("check", &options.check, {.help = "run this check only; --list names them"})
      .flag("list", &options.list, {.help = "list checks and scheme texts, run nothing"})
      .heading("Device");
  declare_device(line, &options.device);
  declare_json(line.heading("Output"), &options.json)
      .flag("quiet", &options.quiet, {.help = "no progress on standard error"})
      .example("whence conformance", "the whole matrix")
      .example("whence conformance 'cdape(kerple, kernel=5)' --json", "one row, with all its figures");
}

std::vector<std::string> texts_of(const Options& options) {
  if (!options.schemes.empty()) return options.schemes;
  std::vector<std::string> texts = scheme_texts(16);
  for (const std::string& sum : scheme_sums()) texts.push_back(sum);
  return texts;
}

std::string short_figure(double value) {
  char text[32];
  std::snprintf(text, sizeof text, value == 0 ? "0" : value < 1e-3 || value >= 1e4 ? "%.0e" : "%.2g", value);
  return text;
}

std::string cell_text(const ConformanceCell& cell) {
  if (cell.mark == Mark::not_applicable) return "-";
  return (cell.mark == Mark::failed ? "FAIL " : "") + short_figure(cell.figure);
}

Json json_of(const ConformanceRow& row, const std::vector<ConformanceCheck>& checks) {
  Json entry{{"scheme", row.scheme}};
  if (!row.refusal.empty()) return entry.add("refused", row.refusal);
  Json cells;
  for (std::size_t k = 0; k < row.cells.size(); ++k) {
    const auto& [mark, figure, note] = row.cells[k];
    const char* text = mark == Mark::failed ? "failed" : mark == Mark::not_applicable ? "not applicable" : "passed";
    cells.add(checks[k].name, {{"mark", text}, {"figure", figure}, {"note", note}});
  }
  return entry.add("checks", cells);
}

void list_checks_and_texts(const Options& options) {
  std::vector<std::string> texts = texts_of(options);
  for (std::string& text : texts)
    if (!options.schemes.empty()) text = canonical_text(parse_schemes(text));  // before anything is printed
  for (const ConformanceCheck& check : options.checks) std::cout << check.name << ": " << check.meaning << '\n';
  std::cout << '\n' << joined(texts, {}, "\n") << '\n';
}

// On a GPU only the comparison with the CPU runs.
std::vector<ConformanceCheck> chosen_checks(const Options& options, Device device) {
  const std::vector<ConformanceCheck>& all = device.is_cpu() ? conformance_checks() : device_checks();
  if (options.check.empty()) return all;
  std::vector<std::string> names;
  for (const ConformanceCheck& check : all) {
    if (check.name == options.check) return {check};
    names.push_back(check.name);
  }
  refuse_name("--check", options.check, names);
}

// Returns the exit code: 1 if a check failed.
int check_all(const Options& options) {
  const JsonOutput json(options.json);
  const double begin = steady_seconds();
  const std::vector<std::string> texts = texts_of(options);
  std::vector<std::string> header{"scheme"};
  for (const ConformanceCheck& check : options.checks) header.push_back(check.name);
  Table table(header);
  Progress progress("conformance", std::ssize(texts), options.quiet);
  std::string failed;
  int done = 0, accepted = 0, refused = 0, cells = 0, failures = 0;
  for (const std::string& text : texts) {
    const ConformanceRow row = conform(text, 1, options.checks);
    json.lines(json_of(row, options.checks).line() + '\n');
    progress.update(++done, 0, {});
    if (!row.refusal.empty()) {
      if (!options.schemes.empty()) throw InputError(row.refusal);  // the user named it
      ++refused;
      continue;
    }
    ++accepted;
    cells += static_cast<int>(row.cells.size()) - row.count(Mark::not_applicable);
    failures += row.count(Mark::failed);
    std::vector<std::string> line{row.scheme};
    for (const ConformanceCell& cell : row.cells) {
      if (cell.mark == Mark::failed)
        failed += one_line(to_text("FAILED: ", row.scheme, ": ", header[line.size()], ": ", cell.note)) + '\n';
      line.push_back(cell_text(cell));
    }
    table.row(line);
  }
  progress.finish();
  std::cout << table.text() << failed << "conformance: " << accepted << " schemes and compositions, " << cells
            << " checks run, " << failures << " failed, " << refused << " combinations refused by the schemes, "
            << fixed(steady_seconds() - begin, 1) << " s\n";
  return failures == 0 ? 0 : 1;
}

int run(CommandLine& line) {
  Options options;
  declare_options(line, options);
  if (line.shows_page()) return 0;
  const DeviceChoice choice = choose_device(options.device);
  options.checks = chosen_checks(options, choice.device);
  if (options.list) {
    list_checks_and_texts(options);
    return 0;
  }
  if (line.given("device")) std::cout << choice.sentence << '\n';
  return check_all(options);
}

const RegisterCommand registered{
    {"conformance", Purpose::check, "every scheme, option and sum against everything that must hold", run}};

}  // namespace
}  // namespace whence
