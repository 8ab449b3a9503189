#include "autograd/inspect/explain.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <memory>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "autograd/backward.h"
#include "autograd/op.h"
#include "autograd/pass.h"
#include "tensor/raw.h"

namespace whence {
namespace {

using detail::PlaceNames, detail::names_of;

const Tape::Entry& entry_of(const Tape& tape, const Place& place) {
  if (place.nodes.empty() || !tape.entries().contains(place.nodes.back()))
    fail("explain", "'", place.name, "' is not on the tape; a place that the pass went by required");
  return tape.entries().at(place.nodes.back());
}

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

Shape position_of(index_t element, const Shape& shape) {
  Shape at = shape;
  for (int axis = shape.rank() - 1; axis >= 0; --axis) at[axis] = element % shape[axis], element /= shape[axis];
  return at;
}

// 1 at `element`, 0 elsewhere.
Tensor unit(const Shape& shape, DType dtype, index_t element) {
  const Tensor one = Tensor::zeros(shape, dtype);
  raw::copy_into(Tensor::ones({1}, dtype), raw::slice(raw::reshape(one, {-1}), 0, element, element + 1));
  return one;
}

class ValueExplainer {
 public:
  ValueExplainer(const Tape& tape, const std::vector<Place>& places, std::size_t most)
      : tape_(tape), names_(names_of(places)), most_(most) {}

  Contribution explain(const Tape::Entry& entry, index_t element) const {
    Contribution result = number(entry.output, element);
    result.op = entry.node->name(), result.line = to_string(entry.node->site);
    for (Contribution& operand : operands(entry, element))
      if (result.from.size() < most_)
        result.from.push_back(std::move(operand));
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

  // What an element of an op's output depends on.
  std::vector<Source> sources(const Tape::Entry& entry, index_t element) const {
    Node& node = *entry.node;
    const auto needed = std::make_unique<bool[]>(entry.inputs.size());
    std::vector<Tensor> weights(entry.inputs.size());
    for (std::size_t k = 0; k < entry.inputs.size(); ++k)
      needed[k] = entry.inputs[k].defined() && is_floating(entry.inputs[k].dtype()) && node.inputs()[k];
    {
      const detail::Exchange running(detail::backward_node, &node);
      node.backward(unit(node.shape, node.dtype, element), {needed.get(), entry.inputs.size()}, weights);
    }
    std::vector<Source> found;
    for (std::size_t k = 0; k < weights.size(); ++k) {
      if (!needed[k] || !weights[k].defined()) continue;
      const std::vector<double> numbers = weights[k].to_vector();
      for (std::size_t e = 0; e < numbers.size(); ++e)
        if (numbers[e] != 0) found.push_back({k, &entry.inputs[k], static_cast<index_t>(e), numbers[e]});
    }
    for (std::size_t k = 0; k < entry.inputs.size(); ++k)
      if (const auto constant = constant_beside(entry, k, element)) found.push_back(*constant);
    return found;
  }

  // Backward knows nothing of constants. Where one stands beside a number in a function of two, a dual in its place
  // tells the derivative by it.
  static std::optional<Source> constant_beside(const Tape::Entry& entry, std::size_t k, index_t element) {
    const Tensor& input = entry.inputs[k];
    static const std::unordered_set<std::string> functions_of_two{"add", "subtract", "multiply", "divide"};
    if (!functions_of_two.contains(entry.node->name()) || !input.defined() || input.link()) return std::nullopt;
    std::vector<Tensor> inputs;
    for (const Tensor& each : entry.inputs) {
      const bool moves = &each == &input;
      const Tensor dual = raw::copy(raw::cast(raw::contiguous(each.detach()), DType::dual));
      for (index_t e = 0; moves && e < dual.numel(); ++e) dual.data<Dual>()[e].tangent = 1;
      inputs.push_back(dual);
    }
    const double derivative = raw::contiguous(entry.node->again(inputs)).data<Dual>()[element].tangent;
    const Shape& shape = entry.node->shape;
    const Shape at = position_of(element, shape);
    index_t inside = 0;
    for (int axis = 0; axis < input.rank(); ++axis) {
      const index_t extent = input.size(axis), place = at[shape.rank() - input.rank() + axis];
      inside = inside * extent + (extent == 1 ? 0 : place);
    }
    return derivative == 0 ? std::nullopt : std::optional(Source{k, &input, inside, derivative});
  }

  std::vector<Contribution> operands(const Tape::Entry& entry, index_t element) const {
    std::vector<std::pair<Contribution, Source>> all;
    for (const Source& source : sources(entry, element)) {
      all.emplace_back(number(*source.tensor, source.element), source);
      all.back().first.derivative = source.derivative;
    }
    keep_what_adds_up(all, entry.inputs.size(), number(entry.output, element).value);
    std::ranges::stable_sort(all, std::ranges::greater{},
        [](const auto& each) { return std::abs(each.first.derivative * each.first.value); });
    std::vector<Contribution> result;
    for (auto& [operand, source] : all)
      result.push_back(result.size() < most_ ? followed(std::move(operand), source) : std::move(operand));
    return result;
  }

  // Of a product either factor's terms are the whole: the fewest inputs whose terms add up to the number are enough,
  // the first ones where several would do. Where none do, the op is no sum, and all stay.
  static void keep_what_adds_up(std::vector<std::pair<Contribution, Source>>& all, std::size_t inputs, double value) {
    const auto is_in = [](unsigned set, const auto& each) { return (set >> each.second.input & 1u) != 0; };
    unsigned best = 0;
    if (inputs > 8) return;  // parts put one behind another: no sum
    for (unsigned set = 1; set < 1u << inputs; ++set) {
      double sum = 0, size = 0;
      for (const auto& each : all) {
        if (!is_in(set, each)) continue;
        sum += each.first.derivative * each.first.value, size += std::abs(each.first.derivative * each.first.value);
      }
      const bool adds_up = std::abs(sum - value) <= 1e-5 * size;
      if (adds_up && (best == 0 || std::popcount(set) < std::popcount(best))) best = set;
    }
    if (best != 0) std::erase_if(all, [&](const auto& each) { return !is_in(best, each); });
  }

  Contribution followed(Contribution operand, const Source& source) const {
    const Node* node = node_of(*source.tensor);
    if (!node) return operand;
    if (const auto name = names_.find(node->id); name != names_.end()) {
      operand.name = name->second;
      return operand;
    }
    const auto entry = tape_.entries().find(node->id);
    if (entry == tape_.entries().end()) {
      operand.name = node->path;  // a leaf
      return operand;
    }
    Contribution made = explain(entry->second, source.element);
    // What only moves a number is left out.
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

// Dual numbers put through everything between a number and the places that feel it next.
class TangentPass {
 public:
  TangentPass(const Tape& tape, PlaceNames names, const Node* result)
      : tape_(tape), names_(std::move(names)), result_(result) {}

  // visit(name, tangents) for each place that is reached.
  template <class Visit> void run(const Tape::Entry& start, const Tensor& dual, const Visit& visit) {
    duals_.emplace(start.node->id, dual);
    for (auto next = tape_.entries().upper_bound(start.node->id); next != tape_.entries().end(); ++next) {
      const auto& [id, entry] = *next;
      const Tensor moved = again(entry);
      if (!moved.defined()) continue;
      const auto name = names_.find(id);
      if (name == names_.end() && entry.node.get() != result_)
        duals_.emplace(id, moved);
      else
        visit(name == names_.end() ? std::string() : name->second, *entry.node, moved);
    }
  }

 private:
  // Undefined where nothing that it reads moves.
  Tensor again(const Tape::Entry& entry) const {
    bool any = false;
    std::vector<Tensor> inputs;
    for (const Tensor& input : entry.inputs) {
      const auto dual = input.defined() && input.link() ? duals_.find(node_of(input)->id) : duals_.end();
      any = any || dual != duals_.end();
      inputs.push_back(dual != duals_.end() ? dual->second : input.defined() ? input.detach() : input);
    }
    return any ? entry.node->again(inputs) : Tensor();
  }

  const Tape& tape_;
  PlaceNames names_;
  const Node* result_;
  std::unordered_map<std::uint64_t, Tensor> duals_;
};

// x, moving by what `tangent_of` says of each element.
template <class TangentOf> Tensor dual_of(const Tensor& x, const TangentOf& tangent_of) {
  const Tensor dual = raw::copy(raw::cast(raw::contiguous(x), DType::dual));
  for (index_t e = 0; e < dual.numel(); ++e) dual.data<Dual>()[e].tangent = tangent_of(e);
  return dual;
}

std::vector<Place> without(const std::vector<Place>& places, const std::string& name) {
  std::vector<Place> others;
  for (const Place& place : places)
    if (place.name != name) others.push_back(place);
  return others;
}

}  // namespace

Contribution explain_value(
    const Tape& tape, const Place& place, const Shape& at, const std::vector<Place>& places, std::size_t most) {
  const RecordingScope values_only(false);
  const detail::ProbesKeepNothing quiet;
  const Tape::Entry& entry = entry_of(tape, place);
  Contribution result =
      ValueExplainer(tape, places, most).explain(entry, element_at(at, entry.output.shape(), place.name));
  // A probe passes on what another op made: that is what one wants to know.
  if (result.from.size() == 1 && !result.from[0].op.empty()) {
    Contribution made = std::move(result.from[0]);  // first out of what it is about to replace
    result = std::move(made);
  }
  result.name = place.name, result.at = at, result.derivative = 1;
  return result;
}

ExplainedGradient explain_gradient(const Tape& tape, const Tensor& y, const Place& place, const Shape& at,
    const std::vector<Place>& places, std::size_t most) {
  const detail::ProbesKeepNothing quiet;
  const Tape::Entry& entry = entry_of(tape, place);
  const index_t element = element_at(at, entry.output.shape(), place.name);
  const auto gradient_at = [&](const Node& node) {
    const Tensor handle = Tensor::empty(node.shape, node.dtype);
    handle.set_link(Ref<GraphLink>(const_cast<Node*>(&node)));
    const Tensor found = grad(y, {}, {handle}, {.allow_unused = true})[0];
    return found.defined() ? found.to_vector() : std::vector<double>(static_cast<std::size_t>(numel(node.shape)));
  };
  ExplainedGradient result;
  result.gradient = gradient_at(*entry.node)[static_cast<std::size_t>(element)];
  std::vector<GradientTerm> terms;
  const RecordingScope values_only(false);
  const Tensor dual = dual_of(entry.output, [&](index_t e) { return e == element ? 1.0 : 0.0; });
  TangentPass(tape, names_of(without(places, place.name)), node_of(y))
      .run(entry, dual, [&](const std::string& name, const Node& node, const Tensor& moved) {
        const Tensor flat = raw::contiguous(moved);
        std::optional<std::vector<double>> gradients;
        for (index_t e = 0; e < flat.numel(); ++e) {
          const double derivative = flat.data<Dual>()[e].tangent;
          if (derivative == 0) continue;
          if (!gradients) gradients = &node == node_of(y) ? std::vector<double>{1} : gradient_at(node);
          terms.push_back({name, position_of(e, node.shape), (*gradients)[static_cast<std::size_t>(e)], derivative});
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
  const detail::ProbesKeepNothing quiet;
  const RecordingScope values_only(false);
  const Tape::Entry& entry = entry_of(tape, place);
  if (static_cast<index_t>(tangent.size()) != entry.output.numel())
    fail("moved_by", tangent.size(), " numbers given; ", entry.output.numel(), " required, one for each of ",
        place.name);
  std::map<std::string, std::vector<double>> found;
  const Tensor dual = dual_of(entry.output, [&](index_t e) { return tangent[static_cast<std::size_t>(e)]; });
  TangentPass(tape, names_of(without(places, place.name)), nullptr)
      .run(entry, dual, [&](const std::string& name, const Node&, const Tensor& moved) {
        const Tensor flat = raw::contiguous(moved);
        std::vector<double>& numbers = found[name];
        numbers.resize(static_cast<std::size_t>(flat.numel()));
        for (index_t e = 0; e < flat.numel(); ++e) numbers[static_cast<std::size_t>(e)] += flat.data<Dual>()[e].tangent;
      });
  return found;
}

}  // namespace whence
