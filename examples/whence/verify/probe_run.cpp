#include "examples/whence/verify/probe_run.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "autograd/backward.h"
#include "autograd/inspect/capture.h"
#include "autograd/ops.h"
#include "examples/whence/cli/json.h"
#include "examples/whence/cli/text.h"
#include "examples/whence/verify/comparison.h"
#include "tensor/error.h"
#include "tensor/raw.h"

namespace whence {
namespace {

struct Expected {
  // numbers: in the common dtype; truth: bool; positions: any number type; parameter: as numbers, may be drawn by `init`.
  enum class Kind { numbers, truth, positions, parameter };
  std::string name, axes;     // "q", "b h t d"
  std::vector<Shape> shapes;  // any of these is accepted
  Kind kind = Kind::numbers;
  bool required = true;
  std::string meaning = {};
};
using Kind = Expected::Kind;

// Returns operands, then optional tensors. Parameters belong to the scheme: BareAttention::root().
std::vector<Expected> expected_tensors(const BareAttention& scheme, index_t batch, index_t length) {
  const SchemeSizes& sizes = scheme.sizes();
  const Shape by_head{batch, sizes.heads, length, sizes.head_dim()},
      by_key_head{batch, sizes.key_heads(), length, sizes.head_dim()}, tokens{batch, length, sizes.dim};
  const bool attends = scheme.attends(), per_head = scheme.claims().mask_per_head;
  std::vector<Expected> all;
  if (attends) {
    all.push_back({"q", "b h t d", {by_head}, Kind::numbers, true, "queries"});
    all.push_back({"k", "b g t d", {by_key_head}, Kind::numbers, true, "keys"});
    all.push_back({"v", "b g t d", {by_key_head}, Kind::numbers, true, "values"});
  }
  if (scheme.reads_x()) all.push_back({"x", "b t c", {tokens}, Kind::numbers, true, "the layer's input; c = h d"});
  all.push_back({"cotangent", attends ? "b h t d" : "b t c", {attends ? by_head : tokens}, Kind::numbers, false,
      "of the output"});
  if (scheme.claims().uses_positions)
    all.push_back({"positions", "t, or b t", {{length}, {batch, length}}, Kind::positions, false,
        "of the tokens, instead of 0, 1, ..."});
  for (const std::string& name : scheme.draw_names())
    all.push_back({name, "t", {{length}}, Kind::positions, false,
        "positions or distances in place of randomised's draws: whole numbers, ascending; drawn if left out"});
  if (!attends) return all;
  all.push_back({"cotangent_logits", "b h t t", {{batch, sizes.heads, length, length}}, Kind::numbers, false,
      "of the logits; ignored where masked"});
  all.push_back({"present", "b t", {{batch, length}}, Kind::truth, false, "false for padding"});
  std::vector<Shape> masks;
  for (const index_t b : {index_t(1), batch})
    for (const index_t h : {index_t(1), per_head ? sizes.heads : index_t(1)})
      if (const Shape shape{b, h, length, length}; !std::ranges::count(masks, shape)) masks.push_back(shape);
  all.push_back({"mask", per_head ? "1|b 1|h t t" : "1|b 1 t t", masks, Kind::truth, false,
      to_text("true where a query may see a key, in addition to the causal mask",
          per_head ? "" : "; one for all heads, as a convolution mixes them")});
  return all;
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
  const char* like() const { return has("q") ? "q" : "x"; }  // gives sizes and dtype

  template <class... Parts> [[noreturn]] void refuse(const Parts&... parts) const {
    if (path_.empty()) throw InputError(to_text(parts...));
    throw FileError(path_, ": ", parts...);
  }

  SchemeSizes sizes() const {
    if (!has("q") && !has("x"))
      refuse("tensor q missing; there: ", names(), "; q k v [b,h,t,d], or x [b,t,c], required");
    const Shape shape = get(like()).shape();
    if (shape.rank() != (has("q") ? 4 : 3) || std::ranges::any_of(shape, [](index_t extent) { return extent < 1; }))
      refuse("tensor ", like(), ": ", shape, " given; ", has("q") ? "[b,h,t,d]" : "[b,t,c]",
          " with extents of 1 and more required");
    const DType dtype = get(like()).dtype();
    if (!is_floating(dtype)) refuse("tensor ", like(), ": ", dtype, " given; f16, bf16, f32 or f64 required");
    // Without queries the number of heads is unknown, so x is not split into heads.
    if (!has("q")) return {.dim = shape[2], .heads = 1, .length = shape[1]};
    const index_t keys = has("k") && get("k").rank() == 4 ? get("k").size(1) : 0;
    return {.dim = shape[1] * shape[3],
        .heads = shape[1],
        .length = shape[2],
        .kv_heads = keys > 0 && shape[1] % keys == 0 ? keys : 0};  // 0: refused later by its shape
  }

  // Refuses a tensor that nothing reads, first, as a misspelt name explains a missing one; then all missing tensors in one
  // message; then wrong ones. Nothing is broadcast or converted silently: a table of another shape is another scheme.
  void require(const std::vector<Expected>& expected, const std::string& scheme) const {
    std::vector<std::string> known, missing;
    bool parameters = false;
    for (const Expected& each : expected) {
      known.push_back(each.name);
      if (!each.required || has(each.name)) continue;
      missing.push_back(each.name + " " + joined(each.shapes, {}, " or "));
      parameters |= each.kind == Kind::parameter;
    }
    for (const auto& [name, tensor] : tensors_) {
      if (std::ranges::count(known, name)) continue;
      const auto nearest = nearest_name(name, known);
      refuse("tensor ", in_quotes(name), " given; ", scheme, " reads no tensor of this name; ",
          nearest ? "did you mean '" + *nearest + "'?" : "it reads " + joined(known));
    }
    if (!missing.empty())
      refuse("missing: ", joined(missing), "; there: ", names(), "; every tensor of ", scheme, " required; add them",
          parameters ? to_text(", or draw parameters with ", init(), " SEED") : "");
    for (const Expected& each : expected)
      if (has(each.name)) require(each);
  }

  Tensor draw(const std::string& name) const {
    if (!has(name)) return {};
    double least = 0;
    for (const double position : get(name).to_vector()) {
      if (!(position >= least) || position != std::floor(position))
        refuse("tensor ", name, ": ", position, " given; whole numbers from 0 on, ascending, none twice, required");
      least = position + 1;
    }
    return numbers(name, DType::f64);
  }

  Tensor numbers(const std::string& name, DType dtype) const {
    const Tensor tensor = get(name);
    return !tensor.defined() || tensor.dtype() == dtype ? tensor : raw::cast(tensor, dtype);
  }

 private:
  void require(const Expected& expected) const {
    const auto& [name, axes, shapes, kind, required, meaning] = expected;
    const Tensor tensor = get(name);
    if (!std::ranges::count(shapes, tensor.shape()))
      refuse("tensor ", name, ": ", tensor.shape(), " given; ", joined(shapes, {}, " or "), " required",
          meaning.empty() ? "" : ": " + meaning);
    const DType dtype = tensor.dtype(), numbers = get(like()).dtype();
    if (kind == Kind::truth && dtype != DType::boolean) refuse("tensor ", name, ": ", dtype, " given; bool required");
    if (kind == Kind::positions && dtype == DType::boolean)
      refuse("tensor ", name, ": bool given; f64, or another number, required");
    if ((kind == Kind::numbers || kind == Kind::parameter) && dtype != numbers)
      refuse("tensor ", name, ": ", dtype, " given where ", like(), " is ", numbers,
          "; one floating dtype for all numbers required; convert one of them");
  }

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

// Returns the sum of v'y over all given cotangents v; undefined if there are none.
Tensor contracted(const BareAttention::Result& result, const ProbeInput& input) {
  Tensor total;
  for (const auto& [value, cotangent] :
      {std::pair{result.output, input.cotangent}, {result.logits, input.cotangent_logits}}) {
    if (!cotangent.defined()) continue;
    const Tensor term = sum(value * cotangent);
    total = total.defined() ? total + term : term;
  }
  return total;
}

// Returns an intermediate's gradient. The given cotangent of the logits enters after their probe, so it is added here.
Tensor gradient_at(
    const Capture& capture, const std::string& name, const BareAttention::Result& result, const ProbeInput& input) {
  const Tensor gradient = capture[name].gradient();
  if (name != "logits" || !input.cotangent_logits.defined()) return gradient;
  const Tensor own = input.given.sequence.on(result.logits.device()).masked(input.cotangent_logits);
  return gradient.defined() ? raw::add(gradient, own) : own;
}

Json list_of(const Shape& shape) { return std::vector<index_t>(shape.begin(), shape.end()); }

Json json_of(const Expected& tensor) {
  static constexpr const char* dtypes[] = {"any floating dtype, one for all", "bool", "any number"};
  return {{"name", tensor.name}, {"axes", tensor.axes}, {"shape", list_of(tensor.shapes[0])},
      {"dtype", dtypes[static_cast<int>(tensor.kind)]}, {"required", tensor.required}, {"meaning", tensor.meaning}};
}

Json json_of(const Module::Parameter& parameter) {
  Json entry{{"name", parameter.path}, {"shape", list_of(parameter.tensor.shape())}, {"initial", parameter.init.text()},
      {"decays", parameter.decays}, {"trained", !parameter.frozen}};
  if (std::isfinite(parameter.bounds.low) || std::isfinite(parameter.bounds.high))
    entry.add("bounds", std::vector{parameter.bounds.low, parameter.bounds.high});
  return entry;
}

Json json_of(const Claims& claims, index_t length) {
  const auto [first, last] = claims.changes_rows;
  Json::List changes;
  if (first <= last) changes = {first, last == Claims::any_length ? Json() : Json(last)};
  Json all{{"extrapolates", claims.longest > length}, {"changes_rows", changes}};
  for (const NamedClaim& each : named_claims) all.add(each.name, claims.*each.claim);
  return all;
}

// "name": [one line per entry]
template <class Entries> std::string block(const char* name, const Entries& entries) {
  const auto line = [](const auto& entry) { return json_of(entry).line(); };
  const std::string lines = joined(entries, line, ",\n    ");
  return to_text("  \"", name, "\": [", lines.empty() ? "]" : "\n    " + lines + "\n  ]");
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

ProbeInput probe_input_of(const std::string& path, const NamedTensors& tensors, const std::string& scheme,
    std::optional<DType> dtype, std::optional<std::uint64_t> init) {
  (void)parse_schemes(scheme);
  const Reader file(path, tensors);
  const SchemeSizes sizes = file.sizes();
  {
    const PlannedModules planned;  // a table that the file lacks takes no memory
    const BareAttention sketch(scheme, sizes);
    std::vector<Expected> expected = expected_tensors(sketch, file.get(file.like()).size(0), sizes.length);
    for (const Module::Parameter& parameter : sketch.root().parameters())
      expected.push_back({parameter.path, "", {parameter.tensor.shape()}, Kind::parameter, !init});
    file.require(expected, sketch.text());
  }
  const DType wanted = dtype.value_or(file.get(file.like()).dtype());
  ProbeInput input;
  input.scheme = std::make_unique<BareAttention>(scheme, sizes);
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
  for (const std::string& name : input.scheme->draw_names()) input.draws.emplace_back(name, file.draw(name));
  input.cotangent = file.numbers("cotangent", wanted);
  input.cotangent_logits = file.numbers("cotangent_logits", wanted);
  return input;
}

SafetensorsFile run_probe(const ProbeInput& input, const AttendPlan& plan) {
  const std::vector<Named> leaves = leaves_of(*input.scheme, input.given);
  const bool attends = input.scheme->attends(), shows_all = attends && plan.executor == Executor::reference;
  std::vector<std::string> draws;
  for (const auto& [name, given] : input.draws) draws.push_back(name);
  Capture capture(shows_all ? std::vector<std::string>{"*"} : draws);
  for (const auto& [name, given] : input.draws)
    if (given.defined()) capture.edit(name, [put = given](const Tensor&) { return put; });
  const BareAttention::Result result = input.scheme->run(input.given, plan);
  std::set<std::string> apart{
      "output", "embedded"};  // not taken from probes: read from the file, or written separately
  for (const Named& leaf : leaves) apart.insert(leaf.name);
  std::vector<Named> gradients;
  if (const Tensor total = contracted(result, input); total.defined()) gradients = gradients_of(total, {}, leaves);
  SafetensorsFile file{
      {}, {{"scheme", input.scheme->text()}, {"executor", attends ? name_of(plan.executor) : "none"},
              {"dtype", to_string(input.dtype())}, {"causal", input.given.sequence.causal ? "true" : "false"}}};
  NamedTensors& out = file.tensors;
  if (result.embedded.defined() && attends) out.emplace_back("embedded", result.embedded);
  for (const std::string& name : capture.names()) {
    if (apart.contains(name)) continue;
    out.emplace_back(name, name == "logits"    ? result.logits
                           : name == "pattern" ? result.pattern
                                               : capture[name].value());
    if (const Tensor gradient = gradient_at(capture, name, result, input); gradient.defined())
      out.emplace_back("gradient." + name, gradient);
  }
  out.emplace_back("output", result.output);
  for (const Named& gradient : gradients) out.emplace_back(gradient.name, gradient.tensor);
  record_order(file);
  return file;
}

std::string describe_scheme(const BareAttention& scheme, index_t batch) {
  const SchemeSizes& sizes = scheme.sizes();
  const Json numbers{{"b", batch}, {"h", sizes.heads}, {"g", sizes.key_heads()}, {"t", sizes.length},
      {"d", sizes.head_dim()}, {"c", sizes.dim}};
  std::string text = "{\n  \"scheme\": " + Json(scheme.text()).line() + ",\n  \"sizes\": " + numbers.line() + ",\n";
  text += block("tensors", expected_tensors(scheme, batch, sizes.length)) + ",\n";
  text += block("parameters", scheme.root().parameters()) + ",\n";
  text += "  \"claims\": " + json_of(scheme.claims(), sizes.length).line() + ",\n";
  return text + "  \"probes\": " + Json(scheme.probe_names()).line() + "\n}\n";
}

}  // namespace whence
