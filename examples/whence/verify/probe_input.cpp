#include "examples/whence/verify/probe_input.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "examples/whence/cli/text.h"
#include "nn/io/safetensors.h"
#include "tensor/error.h"
#include "tensor/raw.h"

namespace whence {
namespace {

using Kind = ExpectedTensor::Kind;

bool is_one_of(const std::vector<Shape>& shapes, const Shape& shape) {
  return std::any_of(shapes.begin(), shapes.end(), [&](const Shape& each) { return each == shape; });
}

// The tensors of one file, and errors that name the file; tensors in memory if `path` is empty.
class Reader {
 public:
  Reader(const std::string& path, const NamedTensors& tensors)
      : path_(path), tensors_(tensors.begin(), tensors.end()) {}

  // Returns the name of the caller's option for drawing parameters.
  const char* init() const { return path_.empty() ? "init" : "--init"; }

  bool has(const std::string& name) const { return tensors_.contains(name); }
  Tensor get(const std::string& name) const { return has(name) ? tensors_.at(name) : Tensor(); }

  template <class... Parts> [[noreturn]] void refuse(const Parts&... parts) const {
    if (path_.empty()) throw InputError(to_text(parts...));
    throw FileError(path_, ": ", parts...);
  }

  // Batch, heads, length and model dim of the file.
  struct Sizes {
    index_t batch, length;
    SchemeSizes scheme;
  };
  Sizes sizes() const {
    if (!has("q") && !has("x"))
      refuse("tensor q missing; there: ", names(), "; q k v [b,h,t,d], or x [b,t,c], required");
    const std::string name = has("q") ? "q" : "x";
    const Shape shape = get(name).shape();
    const int rank = has("q") ? 4 : 3;
    if (shape.rank() != rank || std::any_of(shape.begin(), shape.end(), [](index_t extent) { return extent < 1; })) {
      refuse("tensor ", name, ": ", shape, " given; ", has("q") ? "[b,h,t,d]" : "[b,t,c]",
          " with extents of 1 and more required");
    }
    const DType dtype = get(name).dtype();
    if (!is_floating(dtype)) refuse("tensor ", name, ": ", dtype, " given; f16, bf16, f32 or f64 required");
    // Without queries the number of heads is unknown, so x is not split into heads.
    if (!has("q")) return {shape[0], shape[1], {.dim = shape[2], .heads = 1, .length = shape[1]}};
    const index_t keys = has("k") && get("k").rank() == 4 ? get("k").size(1) : 0;
    const index_t kv_heads = keys > 0 && shape[1] % keys == 0 ? keys : 0;  // 0: refused later by its shape
    return {
        shape[0], shape[2], {.dim = shape[1] * shape[3], .heads = shape[1], .length = shape[2], .kv_heads = kv_heads}};
  }

  // Refuses a tensor that nothing reads.
  void refuse_unknown(const std::vector<ExpectedTensor>& expected, const std::string& scheme) const {
    std::vector<std::string> known;
    for (const ExpectedTensor& each : expected) known.push_back(each.name);
    for (const auto& [name, tensor] : tensors_) {
      if (std::find(known.begin(), known.end(), name) != known.end()) continue;
      const auto nearest = nearest_name(name, known);
      refuse("tensor ", in_quotes(name), " given; ", scheme, " reads no tensor of this name; ",
          nearest ? "did you mean '" + *nearest + "'?" : "it reads " + joined(known));
    }
  }

  // Names all missing tensors in one message, so that a user need not run once per name.
  void refuse_missing(const std::vector<ExpectedTensor>& expected, const std::string& scheme) const {
    std::vector<std::string> missing;
    bool parameters = false;
    for (const ExpectedTensor& each : expected) {
      if (!each.required || has(each.name)) continue;
      missing.push_back(each.name + " " + joined(each.shapes, {}, " or "));
      parameters |= each.kind == Kind::parameter;
    }
    if (!missing.empty())
      refuse("missing: ", joined(missing), "; there: ", names(), "; every tensor of ", scheme, " required; add them",
          parameters ? to_text(", or draw parameters with ", init(), " SEED") : "");
  }

  // Checks shape and dtype of a tensor, if given. Nothing is broadcast or converted silently: a table of another shape is
  // another scheme.
  void check(const ExpectedTensor& expected, DType numbers) const {
    const auto& [name, axes, shapes, kind, required, meaning] = expected;
    const Tensor tensor = get(name);
    if (!tensor.defined()) return;
    if (!is_one_of(shapes, tensor.shape())) {
      refuse("tensor ", name, ": ", tensor.shape(), " given; ", joined(shapes, {}, " or "), " required",
          meaning.empty() ? "" : ": " + meaning);
    }
    const DType dtype = tensor.dtype();
    if (kind == Kind::truth && dtype != DType::boolean) refuse("tensor ", name, ": ", dtype, " given; bool required");
    if (kind == Kind::positions && dtype == DType::boolean)
      refuse("tensor ", name, ": bool given; f64, or another number, required");
    if ((kind == Kind::numbers || kind == Kind::parameter) && dtype != numbers) {
      refuse("tensor ", name, ": ", dtype, " given where ", has("q") ? "q" : "x", " is ", numbers,
          "; one floating dtype for all numbers required; convert one of them");
    }
  }

  Tensor draw(const std::string& name) const {
    double least = 0;
    for (const double position : get(name).to_vector()) {
      if (!(position >= least) || position != std::floor(position))
        refuse("tensor ", name, ": ", position, " given; whole numbers from 0 on, ascending, none twice, required");
      least = position + 1;
    }
    return numbers(name, DType::f64);
  }

  Tensor numbers(const std::string& name, DType dtype) const {
    if (!has(name)) return {};
    const Tensor tensor = get(name);
    return tensor.dtype() == dtype ? tensor : raw::cast(tensor, dtype);
  }

 private:
  std::string names() const {
    return tensors_.empty() ? "no tensor" : joined(tensors_, [](const auto& entry) { return in_quotes(entry.first); });
  }

  std::string path_;
  std::map<std::string, Tensor> tensors_;
};

void read_parameters(const Reader& file, ProbeInput& input, DType dtype, std::optional<std::uint64_t> init) {
  Module& root = input.scheme->root();
  if (init) root.initialise(*init);
  root.to(dtype);
  for (const Module::Parameter& parameter : root.parameters())
    if (file.has(parameter.path))
      raw::copy_into(file.numbers(parameter.path, dtype), parameter.tensor);
    else
      input.drawn.push_back(parameter.path);
  if (init && input.drawn.empty())
    throw InputError(file.init(), ": given; the file has every parameter, so that it has no effect; leave it out");
}

}  // namespace

AttendPlan ProbeInput::plan(const std::string& executor) const {
  const AttendPlan wanted = wanted_plan(executor, scheme->stages());
  if (wanted.executor == Executor::automatic || wanted.executor == Executor::reference) return Executor::reference;
  if (cotangent_logits.defined())
    throw InputError("cotangent_logits: a tensor given with executor ", executor,
        ", which never holds the logits; reference required, or leave it out");
  return wanted;
}

void ProbeInput::to(Device device) {
  scheme->root().to(device);
  for (Tensor* tensor : {&given.query, &given.key, &given.value, &given.x, &cotangent, &cotangent_logits})
    if (tensor->defined()) *tensor = raw::to_device(*tensor, device);
  for (auto& [name, drawn_there] : draws)
    if (drawn_there.defined()) drawn_there = raw::to_device(drawn_there, device);
}

std::vector<ExpectedTensor> expected_tensors(const BareAttention& scheme, index_t batch, index_t length) {
  const index_t heads = scheme.sizes().heads;
  const Shape by_head{batch, heads, length, scheme.sizes().head_dim()},
      by_key_head{batch, scheme.sizes().key_heads(), length, scheme.sizes().head_dim()},
      tokens{batch, length, scheme.sizes().dim};
  std::vector<ExpectedTensor> all;
  if (scheme.attends()) {
    all.push_back({"q", "b h t d", {by_head}, Kind::numbers, true, "queries"});
    all.push_back({"k", "b g t d", {by_key_head}, Kind::numbers, true, "keys"});
    all.push_back({"v", "b g t d", {by_key_head}, Kind::numbers, true, "values"});
  }
  if (scheme.reads_x()) all.push_back({"x", "b t c", {tokens}, Kind::numbers, true, "the layer's input; c = h d"});
  const bool attends = scheme.attends();
  all.push_back({"cotangent", attends ? "b h t d" : "b t c", {attends ? by_head : tokens}, Kind::numbers, false,
      "of the output"});
  if (scheme.claims().uses_positions) {
    all.push_back({"positions", "t, or b t", {{length}, {batch, length}}, Kind::positions, false,
        "of the tokens, instead of 0, 1, ..."});
  }
  for (const std::string& name : scheme.draw_names()) {
    all.push_back({name, "t", {{length}}, Kind::positions, false,
        "positions or distances in place of randomised's draws: whole numbers, ascending; drawn if left out"});
  }
  if (!attends) return all;
  const Shape pairs{batch, heads, length, length};
  all.push_back({"cotangent_logits", "b h t t", {pairs}, Kind::numbers, false, "of the logits; ignored where masked"});
  all.push_back({"present", "b t", {{batch, length}}, Kind::truth, false, "false for padding"});
  std::vector<Shape> masks;
  const bool per_head = scheme.claims().mask_per_head;
  for (const index_t b : {index_t(1), batch}) {
    for (const index_t h : {index_t(1), per_head ? heads : index_t(1)}) {
      const Shape shape{b, h, length, length};
      if (!is_one_of(masks, shape)) masks.push_back(shape);
    }
  }
  all.push_back({"mask", per_head ? "1|b 1|h t t" : "1|b 1 t t", masks, Kind::truth, false,
      to_text("true where a query may see a key, in addition to the causal mask",
          per_head ? "" : "; one for all heads, as a convolution mixes them")});
  return all;
}

ProbeInput read_probe_input(
    const std::string& path, const std::string& scheme, std::optional<DType> dtype, std::optional<std::uint64_t> init) {
  (void)parse_schemes(scheme);  // refuses a wrong text first, with the shorter error
  return probe_input_of(path, read_safetensors(path).tensors, scheme, dtype, init);
}

ProbeInput probe_input_of(const std::string& path, const NamedTensors& tensors, const std::string& scheme,
    std::optional<DType> dtype, std::optional<std::uint64_t> init) {
  (void)parse_schemes(scheme);
  const Reader file(path, tensors);
  const Reader::Sizes sizes = file.sizes();
  std::vector<ExpectedTensor> expected;
  {
    const PlannedModules planned;  // a table that the file lacks takes no memory
    const BareAttention sketch(scheme, sizes.scheme);
    expected = expected_tensors(sketch, sizes.batch, sizes.length);
    for (const Module::Parameter& parameter : sketch.root().parameters())
      expected.push_back({parameter.path, "", {parameter.tensor.shape()}, Kind::parameter, !init, ""});
    file.refuse_unknown(expected, sketch.text());  // first, as a misspelt name explains a missing one
    file.refuse_missing(expected, sketch.text());
  }
  const DType numbers = file.get(file.has("q") ? "q" : "x").dtype(), wanted = dtype.value_or(numbers);
  for (const ExpectedTensor& each : expected) file.check(each, numbers);
  ProbeInput input;
  input.scheme = std::make_unique<BareAttention>(scheme, sizes.scheme);
  read_parameters(file, input, wanted, init);
  for (const auto& [name, operand] : named_operands(input.given)) *operand = file.numbers(name, wanted);
  const Tensor present = file.get("present"), positions = file.numbers("positions", DType::f64);
  Sequence& sequence = input.given.sequence;
  try {
    sequence = present.defined() ? Sequence::padded(present) : Sequence::run(sizes.length);
  } catch (const Error& gap) { file.refuse(gap.what()); }
  input.has_positions = positions.defined();
  if (input.has_positions) sequence.positions.query = sequence.positions.key = positions;
  sequence.given_mask = file.get("mask");
  sequence.window = input.scheme->stages().window;
  for (const std::string& name : input.scheme->draw_names())
    input.draws.emplace_back(name, file.has(name) ? file.draw(name) : Tensor());
  input.cotangent = file.numbers("cotangent", wanted);
  input.cotangent_logits = file.numbers("cotangent_logits", wanted);
  return input;
}

}  // namespace whence
