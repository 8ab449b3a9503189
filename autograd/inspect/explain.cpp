#include "autograd/inspect/explain.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <unordered_map>

#include "autograd/backward.h"
#include "autograd/op.h"
#include "tensor/raw.h"

namespace whence {
namespace {

using detail::PlaceNames, detail::names_of;

Edge edge_at(const Tape& tape, const Place& place) {
  const Tape::Entry* entry = place.results.empty() ? nullptr : tape.of(place.results.back());
  if (!entry) fail("explain", "'", place.name, "' is not on the tape; a place that the pass visited required");
  return {entry->node, static_cast<std::uint8_t>(place.results.back() - entry->node->id)};
}

const Tensor& value_of(const Tape& tape, const Edge& edge) { return tape.of(edge.id())->results[edge.result]; }

index_t element_at(const Shape& at, const Shape& shape, const std::string& name) {
  index_t element = 0;
  bool inside = at.rank() == shape.rank();
  for (int axis = 0; inside && axis < shape.rank(); ++axis) {
    inside = at[axis] >= 0 && at[axis] < shape[axis];
    element = element * shape[axis] + at[axis];
  }
  if (!inside) fail("explain", at, " given in ", name, ", which is ", shape, "; a position inside of it required");
  return element;
}

class ValueExplainer {
 public:
  ValueExplainer(const Tape& tape, const std::vector<Place>& places, std::size_t most)
      : tape_(tape), names_(names_of(places)), most_(most) {}

  Contribution explain(const Edge& edge, index_t element) const {
    Contribution result = number(value_of(tape_, edge), element);
    result.op = edge.node->name(), result.line = to_string(edge.node->site);
    std::vector<std::pair<Contribution, Source>> operands;
    for (const Source& source : sources(edge, element)) {
      operands.emplace_back(number(*source.tensor, source.element), source);
      operands.back().first.derivative = source.derivative;
    }
    if (const auto factor = edge.node->factor())
      std::erase_if(operands, [&](const auto& each) { return each.second.input == *factor; });
    std::ranges::stable_sort(operands, std::ranges::greater{},
        [](const auto& each) { return std::abs(each.first.derivative * each.first.value); });
    for (auto& [operand, source] : operands)
      if (result.from.size() < most_)
        result.from.push_back(followed(std::move(operand), source));
      else
        ++result.more, result.rest += operand.derivative * operand.value;
    return result;
  }

 private:
  struct Source {
    std::size_t input;
    const Tensor* tensor;
    index_t element;
    double derivative;
  };

  static Contribution number(const Tensor& x, index_t element) {
    Contribution result;
    result.at = position_of(element, x.shape());
    result.value = raw::slice(raw::reshape(x.detach(), {-1}), 0, element, element + 1).to_vector()[0];
    return result;
  }

  // Returns what an element of an op's output depends on.
  std::vector<Source> sources(const Edge& edge, index_t element) const {
    const Tape::Entry& entry = *tape_.of(edge.id());
    const Tensor& y = entry.results[edge.result];
    std::vector<double> unit(static_cast<std::size_t>(y.numel()));
    unit[static_cast<std::size_t>(element)] = 1;
    std::vector<Tensor> dy(entry.results.size());
    dy[edge.result] = Tensor::of(unit, y.shape(), y.dtype());
    const std::vector<Tensor> weights = detail::terms_for_inputs(*edge.node, dy, nullptr, false);
    std::vector<Source> found;
    for (std::size_t k = 0; k < weights.size(); ++k) {
      if (!weights[k].defined()) continue;
      const std::vector<double> numbers = weights[k].to_vector();
      for (std::size_t e = 0; e < numbers.size(); ++e)
        if (numbers[e] != 0) found.push_back({k, &entry.inputs[k], static_cast<index_t>(e), numbers[e]});
    }
    for (std::size_t k = 0; k < entry.inputs.size(); ++k)
      if (const auto constant = constant_beside(entry, k, y.shape(), element)) found.push_back(*constant);
    return found;
  }

  // Backward gives no derivative with respect to constants. If a constant is an operand of an elementwise function, a
  // dual in its place gives the derivative.
  static std::optional<Source> constant_beside(
      const Tape::Entry& entry, std::size_t k, const Shape& shape, index_t element) {
    const Tensor& input = entry.inputs[k];
    if (!entry.node->broadcasts() || !input.defined() || input.link()) return std::nullopt;
    const Shape at = position_of(element, shape);
    std::vector<Tensor> alone;  // the one element of each operand that this number is made of
    index_t inside = 0;
    for (const Tensor& each : entry.inputs) {
      index_t place = 0;
      for (int axis = 0; axis < each.rank(); ++axis)
        place = place * each.size(axis) + (each.size(axis) == 1 ? 0 : at[at.rank() - each.rank() + axis]);
      alone.push_back(
          raw::cast(raw::copy(raw::slice(raw::reshape(each.detach(), {-1}), 0, place, place + 1)), DType::dual));
      if (&each == &input) inside = place, alone.back().data<Dual>()[0].tangent = 1;
    }
    const double derivative = entry.node->rerun(alone)[0].data<Dual>()[0].tangent;
    return derivative == 0 ? std::nullopt : std::optional(Source{k, &input, inside, derivative});
  }

  Contribution followed(Contribution operand, const Source& source) const {
    const Edge edge = edge_of(*source.tensor);
    if (!edge) return operand;
    if (const auto name = names_.find(edge.id()); name != names_.end()) {
      operand.name = name->second;
      return operand;
    }
    if (!tape_.of(edge.id())) {
      operand.name = edge.node->path;  // a leaf
      return operand;
    }
    Contribution made = explain(edge, source.element);
    // Steps that only move a number are left out.
    if (made.more == 0 && made.from.size() == 1 && made.from[0].derivative == 1 && made.from[0].value == made.value) {
      Contribution moved = std::move(made.from[0]);
      moved.derivative = operand.derivative;
      return moved;
    }
    made.derivative = operand.derivative;
    return made;
  }

  const Tape& tape_;
  PlaceNames names_;
  std::size_t most_;
};

// Runs dual numbers forward from a number to the next places that depend on it.
class TangentPass {
 public:
  // Paths through `from` continue. `last`: the id of the last result to visit; 0: no limit.
  TangentPass(const Tape& tape, const std::vector<Place>& places, const Place& from, std::uint64_t last)
      : tape_(tape), names_(names_of(places)), last_(last) {
    std::erase_if(names_, [&](const auto& entry) { return entry.second == from.name; });
  }

  // Calls visit(name, edge, duals) for each place that is reached.
  template <class Visit> void run(std::uint64_t start, const Tensor& dual, const Visit& visit) {
    duals_.emplace(start, dual);
    for (auto next = tape_.entries().upper_bound(start); next != tape_.entries().end(); ++next) {
      const Tape::Entry& entry = next->second;
      const std::vector<Tensor> moved = rerun(entry);
      for (std::size_t k = 0; k < moved.size(); ++k) {
        const Edge edge{entry.node, static_cast<std::uint8_t>(k)};
        const auto name = names_.find(edge.id());
        if (name == names_.end() && edge.id() != last_)
          duals_.emplace(edge.id(), moved[k]);
        else
          visit(name == names_.end() ? std::string() : name->second, edge, raw::contiguous(moved[k]));
      }
    }
  }

 private:
  // Returns the results on duals; empty if no input has one.
  std::vector<Tensor> rerun(const Tape::Entry& entry) const {
    bool any = false;
    std::vector<Tensor> inputs;
    for (const Tensor& input : entry.inputs) {
      const auto dual = input.defined() && input.link() ? duals_.find(edge_of(input).id()) : duals_.end();
      any = any || dual != duals_.end();
      inputs.push_back(dual != duals_.end() ? dual->second : input.defined() ? input.detach() : input);
    }
    return any ? entry.node->rerun(inputs) : std::vector<Tensor>();
  }

  const Tape& tape_;
  PlaceNames names_;
  std::uint64_t last_;
  std::unordered_map<std::uint64_t, Tensor> duals_;
};

// Returns x as a dual whose tangent is `tangent`, one number for each element.
Tensor dual_of(const Tensor& x, const std::vector<double>& tangent) {
  const Tensor dual = raw::copy(raw::cast(raw::contiguous(x), DType::dual));
  for (std::size_t e = 0; e < tangent.size(); ++e) dual.data<Dual>()[e].tangent = tangent[e];
  return dual;
}

}  // namespace

Contribution explain_value(
    const Tape& tape, const Place& place, const Shape& at, const std::vector<Place>& places, std::size_t most) {
  const RecordingScope values_only(false);
  const Exchange quiet(detail::probes_keep_gradients, false);
  const Edge edge = edge_at(tape, place);
  Contribution result =
      ValueExplainer(tape, places, most).explain(edge, element_at(at, value_of(tape, edge).shape(), place.name));
  // A probe only passes a value on, so the op before it is explained instead.
  if (result.from.size() == 1 && !result.from[0].op.empty()) {
    Contribution made = std::move(result.from[0]);  // first: the assignment below destroys its owner
    result = std::move(made);
  }
  result.name = place.name, result.at = at, result.derivative = 1;
  return result;
}

ExplainedGradient explain_gradient(const Tape& tape, const Tensor& y, const Place& place, const Shape& at,
    const std::vector<Place>& places, std::size_t most) {
  const Exchange quiet(detail::probes_keep_gradients, false);
  const Edge start = edge_at(tape, place);
  const Tensor& value = value_of(tape, start);
  const index_t element = element_at(at, value.shape(), place.name);
  const auto gradient_at = [&](const Edge& edge) {
    const Tensor handle = value_of(tape, edge).detach();
    handle.set_link(edge.node, edge.result);
    const Tensor found = grad(y, {}, {handle}, {.allow_unused = true})[0];
    return found.defined() ? found.to_vector() : std::vector<double>(static_cast<std::size_t>(handle.numel()));
  };
  ExplainedGradient result;
  result.gradient = gradient_at(start)[static_cast<std::size_t>(element)];
  std::vector<GradientTerm> terms;
  const RecordingScope values_only(false);
  std::vector<double> unit(static_cast<std::size_t>(value.numel()));
  unit[static_cast<std::size_t>(element)] = 1;
  const std::uint64_t last = edge_of(y).id();
  TangentPass(tape, places, place, last)
      .run(start.id(), dual_of(value, unit), [&](const std::string& name, const Edge& edge, const Tensor& moved) {
        std::optional<std::vector<double>> gradients;
        for (index_t e = 0; e < moved.numel(); ++e) {
          const double derivative = moved.data<Dual>()[e].tangent;
          if (derivative == 0) continue;
          if (!gradients) gradients = edge.id() == last ? std::vector<double>{1} : gradient_at(edge);
          terms.push_back({name, position_of(e, moved.shape()), (*gradients)[static_cast<std::size_t>(e)], derivative});
        }
      });
  std::ranges::stable_sort(terms, std::ranges::greater{},
      [](const GradientTerm& term) { return std::abs(term.gradient * term.derivative); });
  for (GradientTerm& term : terms) {
    result.sum += term.gradient * term.derivative;
    if (result.terms.size() < most)
      result.terms.push_back(std::move(term));
    else
      ++result.more, result.rest += term.gradient * term.derivative;
  }
  return result;
}

std::map<std::string, std::vector<double>> moved_by(
    const Tape& tape, const Place& place, const std::vector<double>& tangent, const std::vector<Place>& places) {
  const Exchange quiet(detail::probes_keep_gradients, false);
  const RecordingScope values_only(false);
  const Edge start = edge_at(tape, place);
  const Tensor& value = value_of(tape, start);
  if (static_cast<index_t>(tangent.size()) != value.numel())
    fail("moved_by", tangent.size(), " numbers given; ", value.numel(), " required, one for each of ", place.name);
  std::map<std::string, std::vector<double>> found;
  TangentPass(tape, places, place, 0)
      .run(start.id(), dual_of(value, tangent), [&](const std::string& name, const Edge&, const Tensor& moved) {
        std::vector<double>& numbers = found[name];
        numbers.resize(static_cast<std::size_t>(moved.numel()));
        for (std::size_t e = 0; e < numbers.size(); ++e) numbers[e] += moved.data<Dual>()[e].tangent;
      });
  return found;
}

}  // namespace whence
