#include "examples/whence/python/arrays.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "autograd/inspect/curvature.h"
#include "autograd/ops.h"
#include "autograd/recording.h"
#include "examples/whence/cli/json.h"
#include "examples/whence/language/saved_model.h"
#include "examples/whence/look/page.h"
#include "examples/whence/look/patch.h"
#include "examples/whence/look/place.h"
#include "examples/whence/look/tables.h"
#include "examples/whence/run/run_record.h"
#include "tensor/error.h"
#include "tensor/raw.h"

namespace nb = nanobind;

namespace whence {
namespace {

using look::Inspection, look::Subject, look::SubjectOptions;

// A sequence that the model read, with everything that the pass computed, or the pass patched by `patch`.
struct LookedAt {
  LookedAt(SubjectOptions asked, const std::string& patch, const look::PatchSource& from) : options(std::move(asked)) {
    const nb::gil_scoped_release unlocked;
    subject = look::subject_of(options);
    (void)look::require_memory(subject);
    look::Prepare prepare;
    if (!patch.empty()) {
      const Subject other = from.of(options);
      const Inspection plain(subject, false);
      prepare = look::with(plain.prepare(), look::changes_of(plain, look::Forward(other), patch));
    }
    inspection = std::make_unique<Inspection>(subject, true, prepare);
  }

  SubjectOptions options;
  Subject subject;
  std::unique_ptr<Inspection> inspection;
};

Json layer_or_null(std::int64_t layer) { return layer < 0 ? Json() : Json(layer); }

// Each returns a line of JSON for each row.
std::string attribution_of(const LookedAt& at, std::int64_t token, const std::string& answer) {
  const look::Forward forward(at.subject, at.inspection->prepare());
  const auto line = [](const look::AttributedPart& each) {
    return Json{{"layer", layer_or_null(each.part.layer)}, {"part", each.part.name}, {"logit", each.logit},
        {"other", each.other}, {"difference", each.logit - each.other}}
        .line();
  };
  return joined(look::attribution_of(forward, look::asked_of(forward, token, answer)), line, "\n");
}

std::string lens_of(const LookedAt& at, std::int64_t token, const std::string& answer) {
  const look::Forward forward(at.subject, at.inspection->prepare());
  const auto line = [](const look::LensAnswer& each) {
    return Json{{"layer", layer_or_null(each.layer)}, {"logit", each.logit}, {"probability", each.probability},
        {"likeliest", each.likeliest}, {"its probability", each.its_probability}}
        .line();
  };
  return joined(look::lens_answers(forward, look::asked_of(forward, token, answer)), line, "\n");
}

// The pass without the patch, then with it, or with each of its map.
std::string patch_of(const LookedAt& at, const std::string& patch, const look::PatchSource& from, std::int64_t token,
    const std::string& answer) {
  const nb::gil_scoped_release unlocked;
  const Subject other = from.of(at.options);
  const look::Forward source(other);
  const look::Patching patching(*at.inspection, source, token, answer);
  std::vector<look::PatchOutcome> outcomes =
      look::is_map(patch) ? patching.map_of(patch) : std::vector{patching.outcome_of(patch)};
  outcomes.insert(outcomes.begin(), patching.before());
  const auto line = [](const look::PatchOutcome& each) {
    return Json{{"patch", each.place}, {"predicted", each.predicted ? Json(*each.predicted) : Json()},
        {"real", each.real}, {"logit", each.logit}, {"probability", each.probability}, {"likeliest", each.likeliest}}
        .line();
  };
  return joined(outcomes, line, "\n");
}

// For each token the wanted answer, its probability, the loss, and the likeliest answers; or None.
using Found = std::tuple<std::string, double, double, std::vector<std::pair<std::string, double>>>;
std::vector<std::optional<Found>> predictions_of(const LookedAt& at) {
  std::vector<std::optional<Found>> all;
  for (const auto& each : at.inspection->predictions()) {
    std::optional<Found>& found = all.emplace_back();
    if (!each) continue;
    found = {each->wanted.text, each->wanted.probability, each->loss, {}};
    for (const auto& answer : each->likeliest) std::get<3>(*found).emplace_back(answer.text, answer.probability);
  }
  return all;
}

// name -> (value, gradient or None), first the quantities in the order of the pass, then the parameters.
nb::dict trace_of(const LookedAt& at, bool of_torch) {
  Results results(of_torch);
  nb::dict all;
  for (const auto* group : {&at.inspection->quantities(), &at.inspection->parameters()})
    for (const look::Quantity& quantity : *group)
      all[quantity.path.c_str()] = nb::make_tuple(
          results(quantity.value), quantity.gradient.defined() ? results(quantity.gradient) : nb::none());
  return all;
}

DType dtype_named(const std::string& name) {
  if (name == "f32" || name == "f64") return name == "f32" ? DType::f32 : DType::f64;
  throw InputError("dtype: '", name, "' given; 'f32' or 'f64' required");
}

// [batch, token] -> [batch, token, answer].
nb::object forward(const SubjectOptions& options, nb::handle tokens, bool of_torch) {
  const Tensor given = borrowed("tokens", tokens);
  if (given.dtype() != DType::i64 || given.rank() != 2)
    throw InputError("tokens: ", given.dtype(), ' ', given.shape(), " given; i64 [batch, token] required");
  Tensor logits;
  {
    const nb::gil_scoped_release unlocked;
    const std::shared_ptr<Transformer> model = look::model_of(options);
    const index_t vocabulary = model->options().vocabulary;
    for (const double token : given.to_vector())
      if (token < 0 || token >= static_cast<double>(vocabulary))
        throw InputError("tokens: ", token, " given; 0 to ", vocabulary - 1, " required");
    const NoGrad values_only;
    logits = (*model)(given);
  }
  Results results(of_torch);
  return results(logits);
}

// The Hessian of the mean loss over the graded tokens of some sequences, from the chosen one on, with respect to all trained
// parameters, concatenated.
class Curvature {
 public:
  Curvature(SubjectOptions options, index_t sequences) {
    if (sequences < 1) throw InputError("sequences: ", sequences, " given; 1 or more required");
    const nb::gil_scoped_release unlocked;
    options.own_text = true;
    const std::shared_ptr<Transformer> model = look::model_of(options);
    for (const Module::Parameter& each : model->parameters())
      if (!each.frozen) parameters_.push_back(each.tensor);
    for (const Tensor& each : parameters_) size_ += each.numel();
    const bool of_task =
        look::is_folder(options.run) && !language::is_of_text(read_run_record(options.run + "/run.json"));
    const Capture on_all_pairs("*.logits");  // for the reference executor, which alone has second derivatives
    std::vector<Subject> read;
    index_t longest = 0;
    for (index_t k = 0; k < sequences; ++k) {
      read.push_back(look::subject_of(options));
      const index_t length = read.back().tokens.size(1);
      if (k > 0 && length != longest && !model->options().causal)
        throw InputError(
            "sequences: some of ", longest, " and of ", length, " tokens; one length required, as no mask is causal");
      longest = std::max(longest, length);
      options.skip += of_task ? 1 : length;
    }
    std::vector<double> tokens, targets;  // no graded token sees those behind a shorter sequence
    for (const Subject& each : read)
      for (const auto& [from, to, behind] : {std::tuple{&each.tokens, &tokens, 0.0}, {&each.targets, &targets, -1.0}}) {
        const std::vector<double> numbers = from->to_vector();
        to->insert(to->end(), numbers.begin(), numbers.end());
        to->insert(to->end(), static_cast<std::size_t>(longest) - numbers.size(), behind);
      }
    const auto rows = [&](const std::vector<double>& all) { return Tensor::of(all, {sequences, longest}, DType::i64); };
    const Tensor loss = cross_entropy((*model)(rows(tokens)), rows(targets));
    loss_ = loss.item();
    hessian_ = std::make_unique<Hessian>(loss, parameters_);
  }

  [[nodiscard]] double loss() const { return loss_; }
  [[nodiscard]] index_t size() const { return size_; }

  [[nodiscard]] nb::object times(nb::handle vector) const {
    const Tensor given = borrowed("v", vector);
    const DType dtype = parameters_.front().dtype();
    if (given.dtype() != dtype || given.numel() != size_)
      throw InputError("v: ", given.dtype(), ' ', given.shape(), " given; ", dtype, " of ", size_, " numbers required");
    Tensor product = Tensor::empty({size_}, dtype);
    {
      const nb::gil_scoped_release unlocked;
      std::vector<Tensor> parts;
      index_t begin = 0;
      for (const Tensor& each : parameters_) {
        parts.push_back(
            raw::reshape(raw::slice(raw::reshape(given, {size_}), 0, begin, begin + each.numel()), each.shape()));
        begin += each.numel();
      }
      begin = 0;
      for (const Tensor& each : hessian_->times(parts)) {
        raw::copy_into(raw::reshape(each, {each.numel()}), raw::slice(product, 0, begin, begin + each.numel()));
        begin += each.numel();
      }
    }
    return Results(false)(product);
  }

 private:
  std::vector<Tensor> parameters_;
  index_t size_ = 0;
  double loss_ = 0;
  std::unique_ptr<Hessian> hessian_;
};

}  // namespace

void declare_loaded_run(nb::module_& module) {
  using namespace nb::literals;
  nb::class_<SubjectOptions>(module, "SubjectOptions")
      .def(
          "__init__",
          [](SubjectOptions* self, const std::string& run, const std::string& text, const std::string& prompt,
              std::int64_t sample, std::int64_t length, std::int64_t step, bool untrained, const std::string& dtype) {
            new (self) SubjectOptions{.run = run,
                .text = text,
                .prompt = prompt,
                .sample = sample,
                .length = length,
                .step = step,
                .untrained = untrained,
                .dtype = dtype_named(dtype)};
          },
          "run"_a, "text"_a, "prompt"_a, "sample"_a, "length"_a, "step"_a, "untrained"_a, "dtype"_a)
      .def(
          "check", [](const SubjectOptions& options) { (void)look::model_of(options); })  // throws if it cannot be read
      .def("forward", &forward, "tokens"_a, "torch"_a);
  nb::class_<look::PatchSource>(module, "PatchSource")
      .def(
          "__init__",
          [](look::PatchSource* self, const std::string& run, std::int64_t sample, const std::string& prompt) {
            new (self) look::PatchSource{run, sample, prompt};
          },
          "run"_a, "sample"_a, "prompt"_a);
  module.def("steps_of", [](const std::string& run) {
    std::vector<std::int64_t> steps;
    for (const auto& [step, folder] : look::checkpoints_of(run)) steps.push_back(step);
    return steps;
  });
  nb::class_<Curvature>(module, "Curvature")
      .def(nb::init<const SubjectOptions&, index_t>(), "options"_a, "sequences"_a)
      .def_prop_ro("loss", &Curvature::loss)
      .def_prop_ro("size", &Curvature::size)
      .def("times", &Curvature::times, "v"_a);
  nb::class_<LookedAt>(module, "LookedAt")
      .def(nb::init<const SubjectOptions&, const std::string&, const look::PatchSource&>(), "options"_a, "patch"_a,
          "source"_a)
      .def_prop_ro("loss", [](const LookedAt& at) { return at.inspection->loss(); })
      .def_prop_ro("tokens", [](const LookedAt& at) { return at.subject.texts; })
      .def("predictions", &predictions_of)
      .def("trace", &trace_of, "torch"_a)
      .def("explain", [](const LookedAt& at, const std::string& what) { return explained(*at.inspection, what); })
      .def("causes", [](const LookedAt& at) { return look::causes_of(*at.inspection).json(); })
      .def("paths", [](const LookedAt& at) { return look::paths_table(*at.inspection).json(); })
      .def("edit",
          [](const LookedAt& at, const std::string& change) {
            const look::EditOutcome found = look::outcome_of(*at.inspection, change);
            return std::pair(found.predicted, found.real);
          })
      .def("attribution", &attribution_of, "token"_a, "answer"_a)
      .def("lens", &lens_of, "token"_a, "answer"_a)
      .def("patch", &patch_of, "patch"_a, "source"_a, "token"_a, "answer"_a)
      .def("page", [](const LookedAt& at) { return look::page_of(*at.inspection, {.subject = at.options}); });
}

}  // namespace whence
