#include "examples/whence/python/loaded_run.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "autograd/recording.h"
#include "examples/whence/look/explained.h"
#include "examples/whence/look/page.h"
#include "examples/whence/look/tables.h"
#include "examples/whence/python/arrays.h"
#include "tensor/error.h"

namespace nb = nanobind;

namespace whence {
namespace {

using look::Inspection, look::Subject, look::SubjectOptions;

// One sequence that the model read, with everything that the pass computed.
class LookedAt {
 public:
  explicit LookedAt(const SubjectOptions& options) {
    const nb::gil_scoped_release unlocked;
    subject_ = look::subject_of(options);
    inspection_ = std::make_unique<Inspection>(subject_);
  }

  double loss() const { return inspection_->loss(); }
  const std::vector<std::string>& tokens() const { return subject_.texts; }

  // Of each token, (wanted, its probability, loss, [(answer, probability), ...]), or None.
  nb::list predictions() const {
    nb::list all;
    for (const auto& each : subject_.predictions()) {
      if (!each) {
        all.append(nb::none());
        continue;
      }
      nb::list likeliest;
      for (const auto& answer : each->likeliest) likeliest.append(nb::make_tuple(answer.text, answer.probability));
      all.append(nb::make_tuple(each->wanted.text, each->wanted.probability, each->loss, likeliest));
    }
    return all;
  }

  // name -> (value, gradient or None), quantities in the order in which they came and then the parameters.
  nb::dict trace(bool of_torch) const {
    Results results(of_torch);
    nb::dict all;
    for (const auto* group : {&inspection_->quantities(), &inspection_->parameters()})
      for (const look::Quantity& quantity : *group)
        all[quantity.path.c_str()] = nb::make_tuple(
            results(quantity.value), quantity.gradient.defined() ? results(quantity.gradient) : nb::none());
    return all;
  }

  std::string explain(const std::string& number) const { return look::explained(*inspection_, number); }
  std::string causes() const { return look::causes_of(*inspection_).json(); }
  std::string paths() const { return look::paths_table(*inspection_).json(); }
  nb::tuple edit(const std::string& change) const {
    const look::EditOutcome found = look::outcome_of(*inspection_, change);
    return nb::make_tuple(found.predicted ? nb::object(nb::float_(*found.predicted)) : nb::none(), found.real);
  }
  std::string page() const { return look::page_of(*inspection_); }

 private:
  Subject subject_;
  std::unique_ptr<Inspection> inspection_;
};

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
    const Subject subject = look::subject_of(options);
    for (const double token : given.to_vector())
      if (token < 0 || token >= static_cast<double>(subject.model->options().vocabulary))
        throw InputError("tokens: ", token, " given; 0 to ", subject.model->options().vocabulary - 1, " required");
    const NoGrad values_only;
    logits = (*subject.model)(given);
  }
  Results results(of_torch);
  return results(logits);
}

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
      .def("check",
          [](const SubjectOptions& options) { (void)look::subject_of(options); })  // refuses what cannot be read
      .def("forward", &forward, "tokens"_a, "torch"_a);
  module.def("steps_of", [](const std::string& run) {
    std::vector<std::int64_t> steps;
    for (const auto& [step, folder] : look::checkpoints_of(run)) steps.push_back(step);
    return steps;
  });
  nb::class_<LookedAt>(module, "LookedAt")
      .def(nb::init<const SubjectOptions&>())
      .def_prop_ro("loss", &LookedAt::loss)
      .def_prop_ro("tokens", &LookedAt::tokens)
      .def("predictions", &LookedAt::predictions)
      .def("trace", &LookedAt::trace, "torch"_a)
      .def("explain", &LookedAt::explain)
      .def("causes", &LookedAt::causes)
      .def("paths", &LookedAt::paths)
      .def("edit", &LookedAt::edit)
      .def("page", &LookedAt::page);
}

}  // namespace whence
