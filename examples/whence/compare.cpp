// compare: compares two files of tensors, or a run and a file, in the order of the pass, and names what differs first.
#include <iostream>

#include "examples/whence/cli/command.h"
#include "examples/whence/cli/json_lines.h"
#include "examples/whence/look/tables.h"
#include "examples/whence/verify/comparison.h"
#include "nn/io/files.h"
#include "tensor/error.h"
#include "tensor/raw.h"

namespace whence {
namespace {

struct Options {
  std::vector<std::string> files;
  std::string names;
  double tolerance = 0;
  bool json = false;
};

void declare_options(CommandLine& line, Options& options) {
  line.names("A B", &options.files,
      "two safetensors files, one that probe or look --numbers wrote and yours, in either order; or a run and your "
      "file");
  line.heading("Comparison")
      .text("names", &options.names, {"file of JSON for other names: {\"their name\": \"our name\"}"})
      .number("tolerance", &options.tolerance, Range<double>{0, 1},
          {.help = "largest difference allowed, as a share of the tensor's largest number; 0: equal numbers; whole "
                   "numbers must be equal",
              .initial = "4e-11 in f64, 2e-5 in f32, as of rounding, or epsilon of the largest number of all tensors"});
  declare_json(line, &options.json);
  line.example("whence compare ours.safetensors mine.safetensors --names mine.json",
      "mine.json: {\"my name\": \"our name\"}; gradient.NAME follows NAME");
  line.example("whence compare runs/flip_flop mine.safetensors",
      "the run's model on its first test sequence, or on the tensors tokens and targets of the file, in its dtype");
}

// Returns the tensor as i64 [1 t].
Tensor row_of(const std::string& file, const std::string& name, const Tensor& given, index_t least, index_t most) {
  const Shape& shape = given.shape();
  if (is_floating(given.dtype()) || shape.rank() < 1 || numel(shape) == 0 || numel(shape) != shape[-1])
    throw FileError(
        file, ": tensor ", name, ": ", given.dtype(), ' ', shape, " given; whole numbers [t] or [1,t] required");
  for (const double number : given.to_vector())
    if (number < static_cast<double>(least) || number > static_cast<double>(most))
      throw FileError(file, ": tensor ", name, ": ", number, " given; ", least, " to ", most, " required");
  return raw::reshape(raw::contiguous(raw::cast(given, DType::i64)), {1, shape[-1]});
}

// Runs a run's model on the file's tensors, in the file's dtype.
SafetensorsFile pass_of_run(const std::string& run, const std::string& file, const SafetensorsFile& theirs) {
  look::SubjectOptions options{.run = run};
  Tensor tokens, targets;
  for (const auto& [name, tensor] : theirs.tensors) {
    if (tensor.dtype() == DType::f64) options.dtype = DType::f64;
    if (name == "tokens") tokens = tensor;
    if (name == "targets") targets = tensor;
  }
  look::Subject subject;
  if (tokens.defined())
    subject.model = look::model_of(options);
  else
    subject = look::subject_of(options);
  const TransformerOptions& model = subject.model->options();
  if (tokens.defined()) {
    subject.tokens = row_of(file, "tokens", tokens, 0, model.vocabulary - 1);
    subject.targets = Tensor::full(subject.tokens.shape(), -1, DType::i64);
  }
  if (targets.defined())
    subject.targets = row_of(file, "targets", targets, -1, (model.outputs > 0 ? model.outputs : model.vocabulary) - 1);
  if (!(subject.targets.shape() == subject.tokens.shape()))
    throw FileError(file, ": ", subject.targets.numel(), " targets given with ", subject.tokens.numel(),
        " tokens; one for each required, -1 where no loss is taken");
  (void)look::require_memory(subject);
  return look::pass_of(subject);
}

ComparisonOptions wanted(const CommandLine& line, const Options& options) {
  ComparisonOptions found;
  if (line.given("tolerance")) found.tolerance = options.tolerance;
  if (!line.given("names")) return found;
  const Json file = Json::read(InputFile(options.names).text(std::size_t{1} << 20), options.names);
  for (const auto& [name, value] : file.fields())
    found.names.emplace(name, value.as<std::string>() ? *value.as<std::string>() : file.text(name));
  return found;
}

int run(CommandLine& line) {
  Options options;
  declare_options(line, options);
  if (line.shows_page()) return 0;
  if (options.files.size() != 2)
    throw InputError(options.files.size(), " names given; two files, or a run and a file, required");
  const JsonOutput json(options.json);
  auto [ours_name, theirs_name] = std::pair{options.files[0], options.files[1]};
  if (look::is_folder(theirs_name)) std::swap(ours_name, theirs_name);
  if (look::is_folder(theirs_name))
    throw InputError("two runs given; a run and a file required; whence look RUN --numbers writes a run's file");
  SafetensorsFile theirs = read_safetensors(theirs_name);
  SafetensorsFile ours =
      look::is_folder(ours_name) ? pass_of_run(ours_name, theirs_name, theirs) : read_safetensors(ours_name);
  if (!records_order(ours) && records_order(theirs)) std::swap(ours, theirs), std::swap(ours_name, theirs_name);
  const Comparison comparison = compared(ours_name, ours, theirs_name, theirs, wanted(line, options));
  json.lines(comparison.json());
  std::cout << comparison.text();
  return comparison.first() ? 1 : 0;
}

const RegisterCommand registered{{"compare", Purpose::check,
    "two files of tensors, or a run and a file: which tensor differs first, and where", run}};

}  // namespace
}  // namespace whence
