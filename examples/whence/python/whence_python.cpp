// The module behind `import whence`: takes arrays of numpy or PyTorch by DLPack, without a copy, and returns what
// `whence probe` and `whence gradcheck` compute. People call the functions in examples/whence/python/__init__.py.
#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>

#include "autograd/backward.h"
#include "autograd/recording.h"
#include "examples/whence/cli/json.h"
#include "examples/whence/python/arrays.h"
#include "examples/whence/verify/comparison.h"
#include "examples/whence/verify/gradient_check.h"
#include "examples/whence/verify/probe_run.h"
#include "nn/attention/plan.h"
#include "tensor/error.h"

namespace nb = nanobind;

namespace whence {
namespace {

// ---- The functions

void require_positive(const std::vector<std::pair<const char*, index_t>>& sizes) {
  for (const auto& [name, value] : sizes)
    if (value < 1) throw InputError(name, ": ", value, " given; 1 or more required");
}

std::string describe(
    const std::string& scheme, index_t heads, index_t head_dim, index_t length, index_t batch, index_t kv_heads) {
  require_positive({{"heads", heads}, {"head_dim", head_dim}, {"length", length}, {"batch", batch}});
  return describe_scheme(BareAttention(scheme, {heads * head_dim, heads, length, 0, kv_heads}), batch);
}

nb::dict run(const std::string& scheme, const nb::dict& arrays, const std::string& executor_name, bool causal,
    std::optional<double> scale, std::optional<std::uint64_t> init, bool of_torch) {
  const NamedTensors given = borrowed(arrays);
  SafetensorsFile found;
  {
    const nb::gil_scoped_release unlocked;
    ProbeInput input = probe_input_of("", given, scheme, {}, init);
    if (!causal) input.scheme->require_bidirectional("causal: False");
    input.given.sequence.causal = causal;
    input.given.scale = scale;
    found = run_probe(input, input.plan(executor_name));
  }
  Results results(of_torch);
  nb::dict all;
  for (const auto& [name, tensor] : found.tensors) all[name.c_str()] = results(tensor);
  return all;
}

std::string compare(const nb::dict& ours, const nb::dict& theirs, const std::map<std::string, std::string>& names,
    std::optional<double> tolerance, const std::string& scheme, bool causal) {
  const SafetensorsFile first{borrowed(ours), {{"scheme", scheme}, {"causal", causal ? "true" : "false"}}};
  const SafetensorsFile second{borrowed(theirs)};
  const nb::gil_scoped_release unlocked;
  if (!scheme.empty()) (void)parse_schemes(scheme);  // throws if it is wrong
  return compared("ours", first, "theirs", second, {tolerance, names}).json();
}

Json json_of(const GradientCase& each) {
  Json::List inputs;
  for (const auto& [name, shape, duals, differences, kinks] : each.report.inputs)
    inputs.push_back({{"name", name}, {"shape", std::vector<index_t>(shape.begin(), shape.end())},
        {"duals", duals.relative}, {"differences", differences.relative}, {"kinks", kinks}});
  return {{"label", each.label}, {"inputs", inputs}, {"problems", each.report.problems}};
}

std::string gradcheck_by_name(const std::string& name, index_t length, bool differences, std::uint64_t seed) {
  const nb::gil_scoped_release unlocked;
  const GradientChecks checks =
      check_gradients(find_checkable(name), {.length = length, .differences = differences, .seed = seed});
  Json::List cases;
  for (const GradientCase& each : checks.cases) cases.push_back(json_of(each));
  const GradientFigures figures = checks.figures();
  return Json{{"name", checks.name}, {"ok", checks.ok()}, {"duals", figures.duals},
      {"differences", figures.differences}, {"note", checks.note}, {"cases", cases}}
      .line();
}

// ---- One op

const CheckedOp& op_named(const std::string& name) {
  if (!std::ranges::count(op_names(), name))
    throw InputError("op: '", name, "' given; an op required; whence.ops() lists them");
  return *find_checkable(name).op;
}

void require_fit(const CheckedOp& op, const CheckedSample& sample, const std::vector<Tensor>& inputs) {
  if (inputs.size() != sample.inputs.size()) {
    throw InputError(op.name, ": ", inputs.size(), " inputs given; ", sample.inputs.size(), " required, as in sample '",
        sample.name, "'");
  }
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    const Tensor &given = inputs[k], &like = sample.inputs[k];
    const std::string place = to_text(op.name, ": input ", k);
    if (given.defined() != like.defined())
      throw InputError(place, ": ", like.defined() ? "None given; an array" : "an array given; None", " required");
    if (!given.defined()) continue;
    const bool floating = is_floating(like.dtype());
    if (floating ? !is_floating(given.dtype()) : given.dtype() != like.dtype())
      throw InputError(
          place, ": ", given.dtype(), " given; ", floating ? "f32 or f64" : to_string(like.dtype()), " required");
    if (op.accepts != Accepts::a_sample) continue;
    if (!(given.shape() == like.shape()))
      throw InputError(
          place, ": ", given.shape(), " given; ", like.shape(), " required, as in sample '", sample.name, "'");
    if (!is_index(like.dtype())) continue;
    const std::vector<double> values = like.to_vector();
    const double most = values.empty() ? -1 : std::ranges::max(values);
    for (const double value : given.to_vector())
      if (!(value >= 0 && value <= most))
        throw InputError(place, ": ", value, " given; whole numbers from 0 to ", most, " required, as in the sample");
  }
}

std::string samples_of(const std::string& name) {
  Json::List all;
  for (const CheckedSample& sample : op_named(name).samples()) {
    Json::List inputs;
    for (const Tensor& input : sample.inputs)
      inputs.push_back(input.defined() ? Json(to_text(input.dtype(), ' ', input.shape())) : Json());
    all.push_back({{"sample", sample.name}, {"inputs", inputs}});
  }
  return Json{{"op", name}, {"samples", all}}.line();
}

nb::dict run_op(const std::string& name, const nb::list& arrays, std::optional<std::string> wanted,
    nb::object cotangent, bool of_torch) {
  const CheckedOp& op = op_named(name);
  std::vector<Tensor> inputs;
  for (std::size_t k = 0; k < arrays.size(); ++k)
    inputs.push_back(arrays[k].is_none() ? Tensor() : borrowed(to_text(name, ": input ", k), arrays[k]));
  const Tensor seed = cotangent.is_none() ? Tensor() : borrowed("cotangent", cotangent);
  Tensor output;
  std::vector<std::size_t> places;
  std::vector<Tensor> gradients;
  {
    const nb::gil_scoped_release unlocked;
    const Samples samples = op.samples();
    const std::string known = joined(samples, [](const CheckedSample& each) { return "'" + each.name + "'"; });
    if (!wanted && op.accepts != Accepts::any_call)
      throw InputError(name, ": no sample given; one of ", known, " required, for its attributes");
    const auto chosen =
        std::ranges::find_if(samples, [&](const CheckedSample& each) { return !wanted || each.name == *wanted; });
    if (chosen == samples.end()) throw InputError(name, ": sample '", *wanted, "' given; one of ", known, " required");
    require_fit(op, *chosen, inputs);
    std::vector<Tensor> leaves;
    for (std::size_t k = 0; k < inputs.size(); ++k) {
      if (!inputs[k].defined() || !is_floating(inputs[k].dtype())) continue;
      places.push_back(k);
      leaves.push_back(requires_grad(inputs[k]));
    }
    output = chosen->run(inputs);
    if (seed.defined()) gradients = grad(output, seed, leaves, {.allow_unused = true});
  }
  Results results(of_torch);
  nb::dict all;
  all["output"] = results(output);
  for (std::size_t k = 0; k < gradients.size(); ++k) {
    const Tensor& leaf = inputs[places[k]];
    all[to_text("gradient.", places[k]).c_str()] =
        results(gradients[k].defined() ? gradients[k] : Tensor::zeros(leaf.shape(), leaf.dtype()));
  }
  return all;
}

// ---- Attention with its own backward pass, for another autograd

// A forward pass that waits for its backward: the graph, and the arrays of its leaves.
struct Pass {
  Tensor output;
  std::vector<Tensor> leaves;

  // Returns a gradient for each operand and parameter, or None.
  nb::list backward(nb::object cotangent) const {
    const Tensor seed = borrowed("cotangent", cotangent);
    std::vector<Tensor> found;
    {
      const nb::gil_scoped_release unlocked;
      std::vector<Tensor> given;
      for (const Tensor& leaf : leaves)
        if (leaf.defined()) given.push_back(leaf);
      found = grad(output, seed, given, {.allow_unused = true});
    }
    Results results(true);
    nb::list all;
    std::size_t next = 0;
    for (const Tensor& leaf : leaves) {
      const Tensor gradient = leaf.defined() ? found[next++] : Tensor();
      all.append(gradient.defined() ? results(gradient) : nb::none());
    }
    return all;
  }
};

class Attention {
 public:
  Attention(const std::string& scheme, index_t heads, index_t head_dim, index_t length, bool causal,
      std::optional<double> scale, const std::string& executor, bool single, std::uint64_t seed, index_t kv_heads)
      : scheme_(scheme),
        executor_(executor),
        sizes_{heads * head_dim, heads, length, 0, kv_heads},
        dtype_(single ? DType::f32 : DType::f64),
        causal_(causal),
        scale_(scale) {
    require_positive({{"heads", heads}, {"head_dim", head_dim}, {"length", length}});
    first_ = made();
    if (!causal) first_->require_bidirectional("causal: False");
    (void)wanted_plan(executor, first_->stages());  // throws if it cannot run
    first_->root().initialise(seed);
    reads_x_ = first_->reads_x();
  }

  std::string text() const { return first_->text(); }
  bool attends() const { return first_->attends(); }

  nb::list parameters() const {
    Results results(true);
    nb::list all;
    for (const Module::Parameter& parameter : first_->root().parameters())
      all.append(nb::make_tuple(
          parameter.path, results(parameter.tensor), !parameter.frozen, parameter.bounds.low, parameter.bounds.high));
    return all;
  }

  // Operands are q, k, v, x, None if the scheme does not read one; then the parameters in order.
  nb::tuple forward(const nb::list& operands, const nb::list& parameters, bool recorded) const {
    const char* names[] = {"q", "k", "v", "x"};
    std::vector<Tensor> leaves;
    for (std::size_t k = 0; k < 4; ++k)
      leaves.push_back(operands[k].is_none() ? Tensor() : borrowed(names[k], operands[k]));
    require(leaves);
    // Each pass has its own modules, so that another pass puts no numbers into this pass's graph.
    const std::unique_ptr<BareAttention> scheme = made();
    const std::vector<Module::Parameter> own = scheme->root().parameters();
    if (parameters.size() != own.size())
      throw InputError("parameters: ", parameters.size(), " given; ", own.size(), " required");
    for (std::size_t k = 0; k < own.size(); ++k) {
      const Tensor given = borrowed(own[k].path, parameters[k]);
      require_like(own[k].path, given, own[k].tensor.shape());
      own[k].tensor.replace(given);
      leaves.push_back(own[k].frozen ? Tensor() : own[k].tensor);
    }
    Tensor output;
    {
      const nb::gil_scoped_release unlocked;
      const RecordingScope scope(recorded);
      for (std::size_t k = 0; recorded && k < 4; ++k)
        if (leaves[k].defined()) leaves[k] = requires_grad(leaves[k]);
      const index_t tokens = attends() ? leaves[0].size(2) : leaves[3].size(1);
      const AttendInputs given{.x = leaves[3],
          .query = leaves[0],
          .key = leaves[1],
          .value = leaves[2],
          .sequence = Sequence::run(tokens, causal_),
          .scale = scale_};
      output = scheme->run(given, wanted_plan(executor_, scheme->stages())).output;
    }
    Results results(true);
    const nb::object handed = results(output);
    return nb::make_tuple(handed, recorded ? nb::cast(Pass{output, std::move(leaves)}) : nb::none());
  }

 private:
  std::unique_ptr<BareAttention> made() const {
    auto scheme = std::make_unique<BareAttention>(scheme_, sizes_);
    scheme->root().to(dtype_);
    return scheme;
  }

  void require_like(const std::string& name, const Tensor& given, const Shape& shape) const {
    if (given.dtype() != dtype_) {
      throw InputError(
          name, ": ", given.dtype(), " given; ", dtype_, " required, the dtype that this function was made for");
    }
    if (!(given.shape() == shape)) throw InputError(name, ": ", given.shape(), " given; ", shape, " required");
  }

  void require(const std::vector<Tensor>& operands) const {
    const char* names[] = {"q", "k", "v", "x"};
    for (std::size_t k = 0; k < 4; ++k) {
      const bool read = k < 3 ? attends() : reads_x_;
      if (operands[k].defined() != read)
        throw InputError(
            names[k], read ? ": nothing given; " : ": given; ", text(), read ? " reads it" : " reads none");
    }
    const Tensor& one = operands[attends() ? 0 : 3];
    if (one.rank() != (attends() ? 4 : 3))
      throw InputError(attends() ? "q" : "x", ": ", one.shape(), " given; ",
          attends() ? "[batch, head, query, head_dim]" : "[batch, token, channel]", " required");
    const index_t batch = one.size(0), tokens = one.size(-2), wide = sizes_.head_dim();
    const Shape keys{batch, sizes_.key_heads(), tokens, wide};
    const Shape shapes[] = {{batch, sizes_.heads, tokens, wide}, keys, keys, {batch, tokens, sizes_.dim}};
    for (std::size_t k = 0; k < 4; ++k)
      if (operands[k].defined()) require_like(names[k], operands[k], shapes[k]);
  }

  std::string scheme_, executor_;
  SchemeSizes sizes_;
  DType dtype_;
  bool causal_;
  std::optional<double> scale_;
  std::unique_ptr<BareAttention> first_;  // with initial parameters
  bool reads_x_ = false;
};

void translate(const std::exception_ptr& thrown, void*) {
  try {
    std::rethrow_exception(thrown);
  } catch (const OutOfMemory& error) {
    PyErr_SetString(PyExc_MemoryError, error.what());
  } catch (const SystemError& error) { PyErr_SetString(PyExc_OSError, error.what()); } catch (const InputError& error) {
    PyErr_SetString(PyExc_ValueError, error.what());
  } catch (const NotFinite& error) {
    PyErr_SetString(PyExc_FloatingPointError, error.what());
  } catch (const Error& error) { PyErr_SetString(PyExc_RuntimeError, error.what()); }
}

}  // namespace
}  // namespace whence

NB_MODULE(_whence, module) {
  using namespace whence;
  using namespace nb::literals;
  nb::register_exception_translator(translate);
  module.attr("version") = WHENCE_VERSION;
  module.def("describe", &describe, "scheme"_a, "heads"_a, "head_dim"_a, "length"_a, "batch"_a, "kv_heads"_a);
  module.def(
      "run", &run, "scheme"_a, "arrays"_a, "executor"_a, "causal"_a, "scale"_a.none(), "init"_a.none(), "torch"_a);
  module.def("compare", &compare, "ours"_a, "theirs"_a, "names"_a, "tolerance"_a.none(), "scheme"_a, "causal"_a);
  module.def("gradcheck", &gradcheck_by_name, "name"_a, "length"_a, "differences"_a, "seed"_a);
  module.def("ops", &op_names);
  module.def("samples_of", &samples_of, "name"_a);
  module.def("op", &run_op, "name"_a, "inputs"_a, "sample"_a.none(), "cotangent"_a.none(), "torch"_a);
  declare_loaded_run(module);
  declare_benches(module);
  nb::class_<Pass>(module, "Pass").def("backward", &Pass::backward, "cotangent"_a);
  nb::class_<Attention>(module, "Attention")
      .def(nb::init<const std::string&, index_t, index_t, index_t, bool, std::optional<double>, const std::string&,
               bool, std::uint64_t, index_t>(),
          "scheme"_a, "heads"_a, "head_dim"_a, "length"_a, "causal"_a, "scale"_a.none(), "executor"_a, "single"_a,
          "seed"_a, "kv_heads"_a)
      .def_prop_ro("text", &Attention::text)
      .def("parameters", &Attention::parameters)
      .def("forward", &Attention::forward, "operands"_a, "parameters"_a, "recorded"_a);
}
