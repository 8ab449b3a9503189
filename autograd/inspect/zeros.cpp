#include "autograd/inspect/zeros.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <set>

#include "autograd/op.h"
#include "tensor/random.h"
#include "tensor/raw.h"

namespace whence {
namespace {

using Codes = std::vector<unsigned char>;
using Numbers = std::vector<double>;

// A sum counts as cancelled when it is below this share of the sum of its terms' sizes.
double rounding(DType dtype) { return dtype == DType::f64 ? 1e-12 : dtype == DType::f32 ? 2e-5 : 1e-2; }

class CausesPass {
 public:
  CausesPass(const std::vector<Place>& places, const Tensor& y)
      : y_(edge_of(y)), names_(detail::names_of(places)), wanted_(node_of(y), detail::ids_of(places)) {
    zeros_.causes.emplace_back();
  }

  Zeros run(const Tensor& start) {
    if (!wanted_(y_)) return std::move(zeros_);
    const Numbers numbers = start.to_vector();
    Codes codes(numbers.size());
    for (std::size_t e = 0; e < numbers.size(); ++e)
      codes[e] = numbers[e] == 0 ? code_of(Stop::no_target, *y_.node) : 0;
    arrive(y_, start, codes);
    walk_.run_by_result([&](const Edge& edge, Slot& slot) {
      if (!slot.gradient.gradient().defined()) return;
      settle(*edge.node, slot);
      if (const auto name = names_.find(edge.id()); name != names_.end()) {
        const auto [entry, is_new] = zeros_.of.try_emplace(name->second, slot.codes);
        if (!is_new) merge(entry->second, slot.codes);
      }
      step(edge, slot);
    });
    return std::move(zeros_);
  }

 private:
  struct Slot {
    detail::Arrived gradient;
    Codes codes;
  };

  // Returns the number of the cause for which an op stops gradients. Looked up once for each cause of a node.
  unsigned char code_of(Stop stop, const Node& node) {
    if (node_of_codes_ != &node) node_of_codes_ = &node, codes_of_node_.fill(std::nullopt);
    std::optional<unsigned char>& code = codes_of_node_[static_cast<std::size_t>(stop)];
    if (code) return *code;
    code = number_of({stop, node.name(), to_string(node.site)}, zeros_.causes);
    return *code;
  }
  Stop stop_of(unsigned char code) const { return zeros_.causes[code].stop; }

  // An entry lives if any of its terms lives.
  void merge(Codes& codes, const Codes& others) const {
    for (std::size_t e = 0; e < std::min(codes.size(), others.size()); ++e)
      if (stop_of(others[e]) < stop_of(codes[e])) codes[e] = others[e];
  }

  void arrive(const Edge& edge, const Tensor& gradient, const Codes& codes) {
    Slot& slot = walk_.arrive(edge);
    slot.gradient.add(gradient, edge);
    if (slot.codes.empty())
      slot.codes = codes;
    else
      merge(slot.codes, codes);
  }

  // The terms of an entry that lives may still add up to 0.
  void settle(const Node& node, Slot& slot) {
    const Numbers numbers = slot.gradient.gradient().to_vector();
    for (std::size_t e = 0; e < numbers.size(); ++e)
      if (numbers[e] == 0 && slot.codes[e] == 0) slot.codes[e] = code_of(Stop::cancelled, node);
  }

  void step(const Edge& edge, Slot& slot) {
    const Tensor dy = slot.gradient.take();
    const Codes& codes = slot.codes;
    const Numbers numbers = dy.to_vector();
    const Stream random(0, "why_zero");
    Numbers weights(numbers.size()), weighted(numbers.size());
    for (std::size_t e = 0; e < weights.size(); ++e)
      weights[e] = 0.5 + random.uniform53(e), weighted[e] = weights[e] * numbers[e];

    const auto sent = [&](const Numbers& given) {
      return detail::terms_for_inputs(edge, Tensor::of(given, dy.shape(), dy.dtype()), wanted_);
    };
    const std::vector<Tensor> dx = detail::terms_for_inputs(edge, dy, wanted_), size = sent(weighted);
    std::map<unsigned char, std::vector<Tensor>> by_code;  // backward of the weights of one code's entries
    for (const unsigned char code : std::set(codes.begin(), codes.end())) {
      Numbers of_code(weights.size());
      for (std::size_t e = 0; e < codes.size(); ++e) of_code[e] = codes[e] == code ? weights[e] : 0;
      by_code.emplace(code, sent(of_code));
    }
    for (std::size_t k = 0; k < dx.size(); ++k) {
      if (!dx[k].defined()) continue;
      std::map<unsigned char, Numbers> depends;
      for (const auto& [code, all] : by_code) depends.emplace(code, all[k].to_vector());
      arrive(edge.node->inputs()[k], dx[k], codes_of(edge, k, dx[k], codes, size[k].to_vector(), depends));
    }
  }

  Codes codes_of(const Edge& edge, std::size_t input, const Tensor& dx, const Codes& of_dy, const Numbers& size,
      const std::map<unsigned char, Numbers>& depends) {
    const Node& node = *edge.node;
    const Numbers numbers = dx.to_vector();
    const std::vector<Stop> stops = node.stops(input);
    const auto own_of = [&](std::size_t e) { return stops.empty() ? Stop::nothing : stops[stops.size() == 1 ? 0 : e]; };
    const auto stopped_here = [&](std::size_t e) { return own_of(e) == Stop::nothing ? Stop::zero : own_of(e); };
    const bool each_by_itself = node.by_element(input) && dx.shape() == node.result(edge.result).shape;
    // Returns the first cause of the row of dy that this entry of a softmax or table belongs to, if nothing arrives there,
    // else 0. A softmax's only key stays what it is.
    const Shape& of_y = node.result(edge.result).shape;
    const auto row_of = [&](std::size_t e) -> unsigned char {
      const bool read = own_of(e) == Stop::unread;
      if ((!read && own_of(e) != Stop::sole && own_of(e) != Stop::rounded) || dx.rank() != of_y.rank()) return 0;
      const auto width = static_cast<std::size_t>(of_y[of_y.rank() - 1]);
      if (numbers.size() / static_cast<std::size_t>(dx.size(-1)) * width != of_dy.size()) return 0;
      const std::size_t begin = e / static_cast<std::size_t>(dx.size(-1)) * width;
      unsigned char first = 0;
      int keys = 0;
      for (std::size_t k = begin; k < begin + width; ++k) {
        if (read ? stop_of(of_dy[k]) == Stop::masked : own_of(k) == Stop::masked) continue;
        if (of_dy[k] == 0 || vanishes(stop_of(of_dy[k]))) return 0;
        if (keys++ == 0 || stop_of(of_dy[k]) < stop_of(first)) first = of_dy[k];
      }
      return keys > (read ? 0 : 1) ? first : 0;
    };
    Codes codes(numbers.size());
    for (std::size_t e = 0; e < codes.size(); ++e) {
      std::optional<unsigned char> first;  // the first, in the order of Stop, of the codes that this entry depends on
      for (const auto& [code, weights] : depends)
        if (weights[e] != 0 && (!first || stop_of(code) < stop_of(*first))) first = code;
      // An elementwise op stops nothing where nothing arrives, and a softmax or table nothing in such a row.
      if (!first && own_of(e) != Stop::masked && each_by_itself && of_dy[e] != 0 && !vanishes(stop_of(of_dy[e])))
        codes[e] = of_dy[e];
      else if (!first && row_of(e) != 0)
        codes[e] = row_of(e);
      else if (!first)
        codes[e] = code_of(stopped_here(e), node);
      else if (*first != 0)
        codes[e] = stop_of(*first) == Stop::masked && own_of(e) == Stop::unread ? code_of(Stop::unread, node) : *first;
      else if (numbers[e] == 0 && size[e] == 0)  // the terms are not 0, but they round to 0
        codes[e] = code_of(stopped_here(e), node);
      else if (std::abs(numbers[e]) <= rounding(dx.dtype()) * std::abs(size[e]))
        codes[e] = code_of(own_of(e) == Stop::rounded ? Stop::rounded : Stop::cancelled, node);
      else if (vanishes(own_of(e)))
        codes[e] = code_of(own_of(e), node);
    }
    return codes;
  }

  Zeros zeros_;
  const Node* node_of_codes_ = nullptr;
  std::array<std::optional<unsigned char>, stop_count> codes_of_node_;
  Edge y_;
  detail::PlaceNames names_;
  detail::Wanted wanted_;
  detail::Walk<Slot> walk_;
};

}  // namespace

unsigned char number_of(const Cause& cause, std::vector<Cause>& causes) {
  auto found = std::ranges::find(causes, cause);
  if (found == causes.end() && causes.size() > 255) {
    found = std::ranges::find(causes, cause.stop, &Cause::stop);
    if (found == causes.end()) --found;
  }
  if (found == causes.end()) found = causes.insert(found, cause);
  return static_cast<unsigned char>(found - causes.begin());
}

Zeros why_zero(const Tensor& y, const Tensor& seed, const std::vector<Place>& places, Site site) {
  const CallSite place(site);
  const Tensor start = detail::checked_seed("why_zero", y, seed);
  const RecordingScope values_only(false);
  const Exchange quiet(detail::probes_keep_gradients, false);
  return CausesPass(places, y).run(start);
}

std::string why_zero(const Tensor& y, const Place& x, Site site) {
  const Zeros zeros = why_zero(y, {}, {x}, site);
  const auto found = zeros.of.find(x.name);
  std::map<unsigned char, index_t> counts;
  for (const unsigned char code : found == zeros.of.end() ? Codes() : found->second) ++counts[code];
  std::string lines;
  for (const auto& [code, count] : counts) {
    const auto& [stop, op, line] = zeros.causes[code];
    lines += to_text(lines.empty() ? "" : "\n", count, count == 1 ? " entry: " : " entries: ", to_string(stop));
    if (!op.empty()) lines += to_text(" in ", op, " (", line, ")");
    lines += to_text(": ", meaning_of(stop));
  }
  return found == zeros.of.end() ? meaning_of(Stop::no_path) : lines;
}

// ---- A Stop in words

namespace {

struct Words {
  const char *name, *meaning, *way_out;
};

// The order is that of Stop.
constexpr std::array<Words, stop_count> stop_words{{{"lives", "the gradient passes", ""},
    {"saturated", "the function is flat there: a gate that is all but open or shut",
        "smaller queries and keys, or a penalty on what is saturated"},
    {"leaking", "below 0 a leaky unit passes a hundredth", "a first distribution that leaves the unit above 0"},
    {"table flat", "both rows that are interpolated between are equal, so moving between them changes nothing",
        "the first steps: the table gets its own gradient, and the rows part"},
    {"whole position", "at a whole position floor and ceiling are one row; what is returned there is 0",
        "any move of a gate; it is a set of measure 0 unless gates are exactly 0 or 1"},
    {"clamped", "beyond the bound (p_max, the end of a table) a move changes nothing",
        "a larger p_max, or gates that open less"},
    {"dead unit", "below 0 the unit passes nothing", "a leaky unit, or another first distribution"},
    {"rounded weight", "the softmax's weight rounds to 0, or to 1", "smaller logits"},
    {"no target", "no token that reads this number has a loss", "more targets"},
    {"row not read", "no position or token reads this row",
        "longer texts, or positions that reach it; else the row is of no use"},
    {"zero derivative", "the derivative of the op is 0 there, or what it is multiplied with", ""},
    {"cancels", "its terms add up to 0: it moves a whole row, and softmax ignores what is constant along a row",
        "nothing, and nothing is lost: the loss does not change with it either"},
    {"only key", "it is its row's only key, and has all the weight", "nothing: the row has no other key"},
    {"masked", "the mask hides it: a later key, padding, or what the scheme blanks",
        "nothing: it is no part of the model"},
    {"frozen", "this parameter is not trained", "training it"},
    {"constant", "it is made of constants, so that no gradient is taken; the loss may depend on it all the same",
        "a parameter in it"},
    {"no path", "the loss does not depend on it", "nothing short of another model"}}};

const Words& words_of(Stop stop) { return stop_words[static_cast<std::size_t>(stop)]; }

}  // namespace

const char* to_string(Stop stop) { return words_of(stop).name; }
const char* meaning_of(Stop stop) { return words_of(stop).meaning; }
const char* way_out_of(Stop stop) { return words_of(stop).way_out; }

}  // namespace whence
