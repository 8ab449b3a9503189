// Prints the conformance matrix, as a table and JSON: every positional scheme and composition against every check.
#include <algorithm>
#include <iostream>

#include "examples/whence/cli/command.h"
#include "examples/whence/cli/json.h"
#include "examples/whence/cli/numbers.h"
#include "examples/whence/cli/progress.h"
#include "examples/whence/cli/text.h"
#include "examples/whence/cli/words.h"
#include "examples/whence/machine/placement.h"
#include "examples/whence/report/table.h"
#include "examples/whence/run/run_files.h"
#include "examples/whence/verify/conformance.h"
#include "examples/whence/verify/device_check.h"
#include "examples/whence/verify/scheme_texts.h"
#include "nn/io/files.h"
#include "nn/scheme.h"
#include "tensor/error.h"

namespace whence {
namespace {

using Mark = ConformanceCell::Mark;

struct Options {
  std::vector<std::string> schemes;
  std::string check, json, device = "cpu";
  std::uint64_t seed = 1;
  bool no_sums = false, list = false, quiet = false;
  std::vector<ConformanceCheck> checks;  // the checks that run
};

void declare_options(CommandLine& line, Options& options) {
  line.names("[SCHEME...]", &options.schemes,
          "scheme texts such as 'cope(p_max=8) + rope'; none: every scheme, option and sum")
      .heading("Checks")
      .text("check", &options.check, {.help = "run this check only; --list names them"})
      .flag("no-sums", &options.no_sums, {.help = "leave out the sums of two schemes"})
      .flag("list", &options.list, {.help = "list checks and scheme texts, run nothing"})
      .integer("seed", &options.seed, {.low = 0}, {.help = "seed of parameters, directions and cotangents"})
      .heading("Device");
  declare_device(line, &options.device);
  line.heading("Output")
      .elsewhere("html", "--json FILE has every figure and note")
      .text("json", &options.json, {.help = "write every figure and note to this file"})
      .flag("quiet", &options.quiet, {.help = "no progress on standard error"})
      .example("whence conformance", "the whole matrix")
      .example("whence conformance 'cdape(kerple, kernel=5)' --json cells.json", "one row, with all its figures");
}

std::vector<std::string> texts_of(const Options& options) {
  if (!options.schemes.empty()) return options.schemes;
  std::vector<std::string> texts = scheme_texts(16);
  if (options.no_sums) return texts;
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

void write_json(const Options& options, const std::vector<ConformanceRow>& rows) {
  Json::List all;
  for (const ConformanceRow& row : rows) {
    Json entry{{"scheme", row.scheme}}, checks;
    if (!row.refusal.empty()) entry.add("refused", row.refusal);
    for (std::size_t k = 0; k < row.cells.size(); ++k) {
      const auto& [mark, figure, note] = row.cells[k];
      checks.add(options.checks[k].name, {{"mark", mark == Mark::failed           ? "failed"
                                                   : mark == Mark::not_applicable ? "not applicable"
                                                                                  : "passed"},
                                             {"figure", figure}, {"note", note}});
    }
    if (!checks.is_null()) entry.add("checks", checks);
    all.push_back(std::move(entry));
  }
  write_file(options.json, Json(all).page(1) + "\n");
}

void list_everything(const Options& options) {
  std::string list;
  for (const ConformanceCheck& check : options.checks) list += check.name + ": " + check.meaning + '\n';
  list += '\n';
  const bool named = !options.schemes.empty();
  for (const std::string& text : texts_of(options)) list += (named ? canonical_text(parse_schemes(text)) : text) + '\n';
  std::cout << list;
}

// On a GPU only the comparison with the CPU runs.
std::vector<ConformanceCheck> chosen_checks(const CommandLine& line, const Options& options, Device device) {
  const std::vector<ConformanceCheck>& all = device.is_cpu() ? conformance_checks() : device_checks();
  if (options.check.empty()) return all;
  std::vector<std::string> names;
  for (const ConformanceCheck& check : all) {
    if (check.name == options.check) return {check};
    names.push_back(check.name);
  }
  const auto nearest = nearest_name(options.check, names);
  line.refuse("check",
      to_text("the name of a check required", nearest ? to_text("; did you mean '", *nearest, "'?") : ""),
      "--list names them");
}

std::vector<ConformanceRow> run_rows(const Options& options, const std::vector<std::string>& texts) {
  std::vector<ConformanceRow> rows;
  Progress progress("conformance", static_cast<std::int64_t>(texts.size()), options.quiet);
  for (const std::string& text : texts) {
    rows.push_back(conform(text, options.seed, options.checks));
    progress.update(static_cast<std::int64_t>(rows.size()), 0, {});
  }
  progress.finish();
  return rows;
}

// Returns the exit code: 1 if a check failed.
int check_all(const Options& options) {
  ensure_output_file(options.json);
  const double begin = steady_seconds();
  const std::vector<ConformanceRow> rows = run_rows(options, texts_of(options));
  std::vector<std::string> header{"scheme"};
  for (const ConformanceCheck& check : options.checks) header.push_back(check.name);
  Table table(header);
  std::string failed;
  int accepted = 0, refused = 0, cells = 0, failures = 0;
  for (const ConformanceRow& row : rows) {
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
  std::cout << table.text() << failed;
  const std::string summary =
      to_text("conformance: ", accepted, " schemes and compositions, ", cells, " checks run, ", failures, " failed, ",
          refused, " combinations refused by the schemes, ", fixed(steady_seconds() - begin, 1), " s");
  std::cout << summary << '\n';
  if (!options.json.empty()) write_json(options, rows);
  return failures == 0 ? 0 : 1;
}

int run(CommandLine& line) {
  Options options;
  declare_options(line, options);
  if (line.shows_page()) return 0;
  line.refuse_unless("no-sums", options.schemes.empty(), "beside names of schemes, whose sums are not tried");
  const DeviceChoice choice = choose_device(options.device);
  options.checks = chosen_checks(line, options, choice.device);
  if (options.list) {
    list_everything(options);
    return 0;
  }
  if (line.given("device")) std::cout << choice.sentence << '\n';
  return check_all(options);
}

const RegisterCommand registered{
    {"conformance", Purpose::check, "every scheme, option and sum against everything that must hold", run}};

}  // namespace
}  // namespace whence
