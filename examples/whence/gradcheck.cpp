// gradcheck: checks the gradients of an op, of a scheme's text, or of everything, by dual numbers and by differences in
// f64.
#include <algorithm>
#include <iomanip>
#include <iostream>

#include "examples/whence/cli/command.h"
#include "examples/whence/cli/numbers.h"
#include "examples/whence/cli/progress.h"
#include "examples/whence/machine/placement.h"
#include "examples/whence/report/table.h"
#include "examples/whence/verify/device_check.h"
#include "examples/whence/verify/gradient_check.h"
#include "examples/whence/verify/scheme_texts.h"
#include "nn/scheme.h"
#include "tensor/error.h"

namespace whence {
namespace {

struct Options {
  GradientCheckOptions check;
  bool list = false, quiet = false, against_cpu = false;
  std::string device = "cpu";
  std::vector<std::string> names;
};

void declare_options(CommandLine& line, Options& options) {
  line.names("NAME...", &options.names, "ops, functions of one number, scheme texts; or all");
  line.heading("Selection").flag("list", &options.list, {"print everything that can be checked, and end"});
  line.heading("Method")
      .integer("length", &options.check.length, Range<std::int64_t>{1, 4096},
          {"length of the sequences that schemes are checked on", "tokens"})
      .flag("twice", &options.check.twice, {"second derivatives: the gradients as functions, by dual numbers"})
      .flag("against-cpu", &options.against_cpu,
          {"for ops: compare values and gradients on --device with the CPU's, in f64, f32, bf16 and f16, as a table"})
      .flag("quiet", &options.quiet, {"with all or --against-cpu: no progress on standard error"});
  declare_device(line, &options.device);
  line.example("whence gradcheck lerp_at softmax", "two ops, each on its samples");
  line.example("whence gradcheck \"cope(p_max=8)\"", "a scheme, by q, k, v and its table");
  line.example(
      "whence gradcheck \"dape(kerple, width=4) + rope\" --length 12", "any text that the scheme grammar knows");
  line.example("whence gradcheck all --device cuda --against-cpu", "every op in every dtype, on the GPU and the CPU");
  line.example("whence gradcheck all", "every op, every scheme and its variants");
  line.example("whence gradcheck cope --twice", "its second derivatives");
}

// Formats an error: "8.2e-09"; an exact 0 is printed as such.
std::string scientific(double value) {
  return value == 0 ? "0" : to_text(std::scientific, std::setprecision(1), value);
}

// Formats an error of differences, if they say something.
std::string by_differences(double error, const GradientChecks& checks, const Options& options) {
  return !options.check.twice && checks.note.empty() ? scientific(error) : "-";
}

void print(const GradientChecks& checks, const Options& options) {
  for (const GradientCase& each : checks.cases) {
    std::cout << checks.name << ", " << each.label << '\n';
    Table table({"by", "shape", "duals", "differences", "kinks"});
    for (const GradcheckInput& input : each.report.inputs)
      table.row({input.name, to_string(input.shape), scientific(input.duals.relative),
          by_differences(input.differences.relative, checks, options), std::to_string(input.kinks.size())});
    std::cout << table.text();
    for (const GradcheckInput& input : each.report.inputs)
      for (const std::string& kink : input.kinks) std::cout << "  " << input.name << ": " << kink << '\n';
    for (const std::string& problem : each.report.problems) std::cout << "  FAILED  " << problem << '\n';
  }
  if (!checks.note.empty()) std::cout << "note: " << checks.name << ' ' << checks.note << '\n';
}

std::vector<Checkable> everything() {
  std::vector<Checkable> all;
  for (const std::string& name : op_names()) all.push_back(find_checkable(name));
  for (const std::string& text : promised_texts()) all.push_back({text});
  return all;
}

// Checks what must run: an error of it is a failure.
int check_all(const std::vector<Checkable>& all, const Options& options) {
  const double started = steady_seconds();
  Progress progress("gradcheck", std::ssize(all), options.quiet);
  Table table({"name", "cases", "inputs", "duals", "differences", "kinks", "result"});
  GradientFigures figures;
  int failed = 0;
  for (std::int64_t done = 0; const Checkable& what : all) {
    GradientChecks checks{what.name, {}};
    try {
      checks = check_gradients(what, options.check);
    } catch (const OutOfMemory&) { throw; } catch (const Error& error) {
      checks.cases = {{"running it", {.inputs = {}, .problems = {error.what()}}}};
    }
    const GradientFigures own = checks.figures();
    figures.add(own);
    failed += !checks.ok();
    table.row({checks.name, std::to_string(checks.cases.size()), std::to_string(own.inputs), scientific(own.duals),
        by_differences(own.differences, checks, options), std::to_string(own.kinks), checks.ok() ? "ok" : "FAILED"});
    for (const std::string& problem : checks.problems()) progress.note(to_text("FAILED  ", checks.name, ", ", problem));
    progress.update(++done, 0, {{"failed", failed}});
  }
  progress.finish();
  const auto ops = std::ranges::count_if(all, [](const Checkable& what) { return what.op != nullptr; });
  std::cout << table.text() << ops << " ops, " << std::ssize(all) - ops << " schemes and variants; " << figures.inputs
            << " inputs and parameters; largest relative error " << scientific(figures.duals) << " by duals, "
            << by_differences(figures.differences, {}, options) << " by differences; " << figures.kinks << " kinks; "
            << failed << " failed; " << fixed(steady_seconds() - started, 1) << " seconds\n";
  return failed ? 1 : 0;
}

int check_against_cpu(std::vector<Checkable> ops, bool quiet) {
  std::erase_if(ops, [](const Checkable& what) { return !what.op || what.op->on_cpu_alone; });
  Progress progress("gradcheck", std::ssize(ops), quiet);
  Table table({"op", "dtype", "difference", "allowed", "result"});
  int failed = 0, compared = 0;
  for (std::int64_t done = 0; const Checkable& what : ops) {
    for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
      const auto [largest, worst] = device_disagreement(*what.op, dtype);
      const double allowed = device_tolerance(dtype);
      const bool ok = largest <= allowed;  // NaN is infinite here
      table.row(
          {what.name, to_string(dtype), scientific(largest), scientific(allowed), ok ? "ok" : "FAILED: " + worst});
      ++compared, failed += !ok;
    }
    progress.update(++done, 0, {{"failed", failed}});
  }
  progress.finish();
  std::cout << table.text() << compared << " pairs of op and dtype, the largest differences over the largest number; "
            << failed << " failed\n";
  return failed ? 1 : 0;
}

void list_everything() {
  std::cout << "ops:\n";
  for (const std::string& name : op_names()) std::cout << "  " << name << '\n';
  std::cout << "schemes, alone, inside another, with options and in sums:\n";
  for (const SchemeInfo& info : registered_schemes())
    std::cout << "  " << info.name << (info.takes_base ? "(SCHEME)" : "") << '\n';
}

void refuse_options_without_effect(const CommandLine& line, const Options& options, bool all) {
  if (options.list && !options.names.empty())
    throw InputError("--list: given with a name; it lists everything; leave one of them out");
  for (const char* name : {"length", "twice", "device", "against-cpu"})
    line.refuse_unless(name, !options.list, "beside --list");
  line.refuse_unless("quiet", all || options.against_cpu, "the name all or --against-cpu");
  for (const char* name : {"length", "twice"})
    line.refuse_unless(name, !options.against_cpu, "beside --against-cpu, which compares samples of ops");
  if (!options.list && options.names.empty())
    throw InputError("no name given; an op, a scheme or all required; --list lists everything, --help shows examples");
  if (options.names.size() > 1 && std::ranges::count(options.names, "all"))
    throw InputError("all: given with other names; it includes them; leave them out");
}

int run(CommandLine& line) {
  Options options;
  declare_options(line, options);
  if (line.shows_page()) return 0;
  const bool all = options.names.size() == 1 && options.names[0] == "all";
  refuse_options_without_effect(line, options, all);
  if (options.list) {
    list_everything();
    return 0;
  }
  const DeviceChoice choice = choose_device(options.device);
  options.check.device = choice.device;
  if (line.given("device")) std::cout << choice.sentence << '\n';
  if (options.against_cpu && choice.device.is_cpu())
    throw InputError("--against-cpu: given with the CPU; --device cuda required");
  std::vector<Checkable> wanted;  // all names are read before anything runs
  if (all) wanted = everything();
  for (const std::string& name : options.names)
    if (!all) wanted.push_back(find_checkable(name));
  const auto schemes = std::ranges::count(wanted, nullptr, &Checkable::op);
  line.refuse_unless("against-cpu", all || schemes == 0, "ops; whence conformance compares schemes");
  if (options.against_cpu) return check_against_cpu(wanted, options.quiet);
  if (all) return check_all(wanted, options);
  line.refuse_unless("length", schemes > 0, "a scheme among the names; ops have samples");
  bool ok = true;
  for (const Checkable& what : wanted) {
    const GradientChecks checks = check_gradients(what, options.check);
    print(checks, options);
    ok = ok && checks.ok();
  }
  std::cout << (ok ? "ok\n" : "FAILED\n");
  return ok ? 0 : 1;
}

const RegisterCommand registered{
    {"gradcheck", Purpose::check, "gradients of any op or scheme, or of all, by dual numbers and by differences", run}};

}  // namespace
}  // namespace whence
