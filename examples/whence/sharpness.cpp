// sharpness: how sharply the loss curves at each checkpoint of a run, the largest eigenvalue of its Hessian.
#include <algorithm>
#include <iostream>

#include "autograd/inspect/curvature.h"
#include "autograd/ops.h"
#include "examples/whence/cli/command.h"
#include "examples/whence/cli/interrupt.h"
#include "examples/whence/cli/json_output.h"
#include "examples/whence/cli/numbers.h"
#include "examples/whence/cli/progress.h"
#include "examples/whence/cli/text.h"
#include "examples/whence/look/subject.h"
#include "examples/whence/report/plot.h"
#include "examples/whence/report/table.h"
#include "examples/whence/run/run_files.h"
#include "examples/whence/run/run_record.h"
#include "nn/io/files.h"
#include "tensor/error.h"

namespace whence {
namespace {

struct Options {
  std::vector<std::string> runs;
  look::SubjectOptions subject;
  std::int64_t sequences = 16;
  double tolerance = 0.01;
  std::string dtype = "f32", out;
  bool quiet = false, json = false;
};

// The first sequences of the first test set, or of the text, below each other: [b t].
std::pair<Tensor, Tensor> sequences_of(const Options& options) {
  std::vector<double> tokens, targets;
  look::SubjectOptions each = options.subject;
  const bool of_text = read_run_record(options.subject.run + "/run.json").subject == "lm";
  index_t length = 0;
  for (std::int64_t k = 0; k < options.sequences; ++k) {
    const look::Subject subject = look::subject_of(each);
    if (k > 0 && subject.tokens.size(1) != length) break;  // the text has ended
    length = subject.tokens.size(1);
    for (const auto& [from, to] : {std::pair{&subject.tokens, &tokens}, {&subject.targets, &targets}}) {
      const std::vector<double> numbers = from->to_vector();
      to->insert(to->end(), numbers.begin(), numbers.end());
    }
    each.skip += of_text ? length : 1;
  }
  const auto rows = [&](const std::vector<double>& numbers) {
    return Tensor::of(numbers, {std::ssize(numbers) / length, length}, DType::i64);
  };
  return {rows(tokens), rows(targets)};
}

int run(CommandLine& line) {
  Options options;
  line.names("RUN", &options.runs, "folder that train wrote, with checkpoints: --save-every N --keep-checkpoints 0")
      .integer("sequences", &options.sequences, Range<std::int64_t>{1, 4096}, {"of the first test set, or of the text"})
      .integer("length", &options.subject.length, Range<std::int64_t>{0, 65536}, {"of them at most; 0: the run's"})
      .number("tolerance", &options.tolerance, Range<double>{1e-9, 1}, {"of |H v - value v| / |value|, where it stops"})
      .choice("dtype", &options.dtype, {"f32", "f64"}, {"that all is computed in"})
      .text("out", &options.out, {"write a picture of the loss and the sharpness, SVG"})
      .flag("quiet", &options.quiet, {"no progress"});
  declare_json(line, &options.json);
  line.example("whence sharpness runs/a --out sharpness.svg", "over its training");
  if (line.shows_page()) return 0;
  if (options.runs.size() != 1) throw InputError(options.runs.size(), " runs given; the folder of one required");
  const JsonOutput json(options.json);
  install_interrupt_handler();
  options.subject.run = options.runs[0], options.subject.own_text = true;
  options.subject.dtype = options.dtype == "f64" ? DType::f64 : DType::f32;
  std::vector<std::int64_t> steps;
  if (look::begins_at_random(options.subject.run)) steps.push_back(0);
  for (const auto& [step, folder] : look::checkpoints_of(options.subject.run)) steps.push_back(step);
  if (steps.empty() || steps.back() == 0)
    throw FileError(options.subject.run, ": no checkpoint; a run that has saved required, as train --save-every does");
  ensure_output_file(options.out);
  const auto [tokens, targets] = sequences_of(options);

  Table table({"step", "loss", "sharpness", "residual", "products"});
  report::Curve losses{.name = "loss", .x = {}, .y = {}}, values{.name = "largest eigenvalue", .x = {}, .y = {}};
  bool settled = true;
  Progress progress("sharpness", static_cast<std::int64_t>(steps.size()), options.quiet);
  for (const std::int64_t step : steps) {
    stop_if_interrupted("sharpness");
    options.subject.step = step, options.subject.untrained = step == 0;
    const auto model = look::model_of(options.subject);
    std::vector<Tensor> parameters;
    for (const Module::Parameter& each : model->parameters())
      if (!each.frozen) parameters.push_back(each.tensor);
    const Capture on_all_pairs("*.logits");  // by the reference executor, which alone has second derivatives
    const Tensor loss = cross_entropy((*model)(tokens), targets);
    const Hessian::Eigenvalue found = Hessian(loss, parameters).largest(options.tolerance);
    settled = settled && !(found.residual >= options.tolerance);
    table.row({std::to_string(step), digits(loss.item()), digits(found.value), digits(found.residual, 2),
        std::to_string(found.iterations)});
    const auto x = static_cast<double>(step);
    losses.x.push_back(x), losses.y.push_back(loss.item()), values.x.push_back(x), values.y.push_back(found.value);
    progress.update(static_cast<std::int64_t>(values.x.size()), 0, {});
  }
  progress.finish();
  std::cout << table.text();
  if (!settled)
    std::cout << "Where the residual is large, two eigenvalues are of about one size: power iteration lies between.\n";
  if (!options.out.empty()) {
    const std::string title = to_text("Sharpness of ", look::model_of(options.subject)->scheme(), " over training");
    write_file(
        options.out, report::svg_file(title, "The largest eigenvalue of the Hessian of the loss by all parameters.",
                         {{.title = "Loss", .x_label = "step", .y_label = "nats", .curves = {losses}, .log_y = true},
                             {.title = "Sharpness", .x_label = "step", .y_label = "1", .curves = {values}}},
                         2));
    std::cout << "written: " << one_line(options.out) << '\n';
  }
  json.lines(table.json());
  return 0;
}

const RegisterCommand registered{
    {"sharpness", Purpose::check, "the largest eigenvalue of the loss's Hessian, over a run's training", run}};

}  // namespace
}  // namespace whence
