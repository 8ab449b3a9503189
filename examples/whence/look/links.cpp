#include "examples/whence/look/links.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <ranges>
#include <set>
#include <tuple>

#include "tensor/random.h"

namespace whence::look {
namespace {

constexpr index_t max_moves = 600;  // of one quantity
constexpr index_t reach = 8;        // neighbouring keys with distinct colours
constexpr double max_work = 2e7;    // layers * heads * tokens^3: about three seconds

// A colouring of a quantity's elements: elements of one colour move together. Places along the axes `apart` have distinct
// colours. If `near`, keys that are `reach` apart share a colour.
struct Colouring {
  std::string apart;
  bool near = false;

  bool operator<(const Colouring& other) const { return std::tie(apart, near) < std::tie(other.apart, other.near); }
};

class Mover {
 public:
  Mover(const Axes& from, const Colouring& colouring) : from_(from), colouring_(colouring) {}

  index_t colours() const {
    index_t count = 1;
    for (const char letter : colouring_.apart) count *= colours_of(letter);
    return count;
  }
  index_t colour(std::size_t e) const {
    index_t colour = 0;
    for (const char letter : colouring_.apart)
      colour = colour * colours_of(letter) + from_.place(e, letter) % colours_of(letter);
    return colour;
  }
  // Returns the element of that colour which affects the element of `to` at `at`, if the colouring is valid: at the same
  // place along all other axes, and among near keys the nearest. Empty if there is no such element.
  std::optional<std::size_t> felt(const Axes& to, const Shape& at, index_t colour) const {
    Shape place = Shape::filled(from_.shape.rank(), 0);
    for (const char letter : from_.letters)
      if (to.has(letter))
        place[from_.find(letter)] = at[to.find(letter)] * heads_or_one(letter, from_) / heads_or_one(letter, to);
    for (const char letter : colouring_.apart | std::views::reverse) {
      const index_t count = colours_of(letter), wanted = colour % count;
      index_t& found = place[from_.find(letter)];
      const index_t lowest = found - reach / 2;
      found = is_near(letter) ? lowest + ((wanted - lowest) % count + count) % count : wanted;
      colour /= count;
    }
    for (int axis = 0; axis < place.rank(); ++axis)
      if (place[axis] < 0 || place[axis] >= from_.shape[axis]) return std::nullopt;
    return from_.element(place);
  }

 private:
  bool is_near(char letter) const { return colouring_.near && letter == 'j'; }
  index_t colours_of(char letter) const {
    return is_near(letter) ? std::min(reach, from_.extent(letter)) : from_.extent(letter);
  }

  // Returns the number of heads, or 1 for other axes. It scales a query head to the key head that it shares.
  static index_t heads_or_one(char letter, const Axes& of) { return letter == 'h' ? of.extent(letter) : 1; }

  const Axes& from_;
  Colouring colouring_;
};

// Returns colourings, from the fewest colours to the most.
std::vector<Colouring> colourings(const Axes& from, const Axes& to) {
  std::string own;
  for (const char letter : from.letters)
    if (letter != 'b' && !to.has(letter)) own += letter;
  const auto with = [&](const std::string& more) {
    std::string apart = own;
    for (const char letter : more)
      if (from.has(letter) && apart.find(letter) == std::string::npos) apart += letter;
    return apart;
  };
  const bool channels = from.has('c') && to.has('c');
  const std::string mixed = channels ? "c" : "h";
  std::vector<Colouring> all{{own}};
  if (from.has('j') && !channels) all.insert(all.end(), {{with("j"), true}, {with("j")}});
  if (from.has('d') && to.has('d')) all.push_back({with("d")});
  if (!from.has(mixed[0])) return all;
  all.push_back({with(mixed)});
  if (from.has('j')) all.insert(all.end(), {{with(mixed + "j"), true}, {with(mixed + "j")}});
  return all;
}

class LinkFinder {
 public:
  LinkFinder(const Inspection& inspection, index_t layer) : inspection_(inspection), layer_(layer) {
    for (const Quantity& quantity : inspection.quantities())
      if (quantity.probe && quantity.layer == layer && quantity.name != "residual")  // residual leads out of the layer
        quantities_.emplace(quantity.path, &quantity);
  }

  std::vector<Link> links() const {
    std::vector<Link> all;
    for (const auto& [path, quantity] : quantities_)
      if (quantity->name != "x" && quantity->gradient.defined()) add(*quantity, all);
    return all;
  }

 private:
  using Moved = std::map<std::string, std::vector<double>>;

  void add(const Quantity& from, std::vector<Link>& all) const {
    const Axes axes(from);
    const Stream random(0, "links");
    std::vector<double> direction(from.causes.size());
    for (std::size_t e = 0; e < direction.size(); ++e) direction[e] = 0.5 + random.uniform53(e);
    std::map<Colouring, std::vector<Moved>> known;
    for (const auto& [path, expected] : inspection_.moved(from.path, direction)) {
      const auto to = quantities_.find(path);
      if (to == quantities_.end() || !to->second->gradient.defined()) continue;
      for (const Colouring& colouring : colourings(axes, Axes(*to->second))) {
        const Mover mover(axes, colouring);
        if (mover.colours() > max_moves) continue;
        if (!known.contains(colouring)) known.emplace(colouring, moves(from, mover));
        Link link{layer_, from.name, to->second->name, {}};
        if (!predicts(mover, known.at(colouring), direction, *to->second, expected, link)) continue;
        all.push_back(std::move(link));
        break;
      }
    }
  }

  std::vector<Moved> moves(const Quantity& from, const Mover& mover) const {
    std::vector<index_t> colours(from.causes.size());
    for (std::size_t e = 0; e < colours.size(); ++e) colours[e] = mover.colour(e);
    std::vector<Moved> all;
    for (index_t colour = 0; colour < mover.colours(); ++colour) {
      std::vector<double> tangent(colours.size());
      std::ranges::transform(colours, tangent.begin(), [&](index_t own) { return own == colour ? 1 : 0; });
      all.push_back(inspection_.moved(from.path, tangent));
    }
    return all;
  }

  // Reads the derivatives by this colouring into `link`. True if they predict how `to` moves along `direction`.
  bool predicts(const Mover& mover, const std::vector<Moved>& moved, const std::vector<double>& direction,
      const Quantity& to, const std::vector<double>& expected, Link& link) const {
    const Axes axes(to);
    for (std::size_t b = 0; b < expected.size(); ++b) {
      if (inspection_.stop_of(to, b) == Stop::masked) continue;
      double predicted = 0, size = 0;
      for (std::size_t colour = 0; colour < moved.size(); ++colour) {
        const auto numbers = moved[colour].find(to.path);
        const double derivative = numbers == moved[colour].end() ? 0 : numbers->second[b];
        if (derivative == 0) continue;
        const auto a = mover.felt(axes, axes.position(b), static_cast<index_t>(colour));
        if (!a) return false;
        predicted += derivative * direction[*a], size += std::abs(derivative * direction[*a]);
        link.entries.push_back({static_cast<std::uint32_t>(*a), static_cast<std::uint32_t>(b), derivative,
            axes.has('i') ? axes.place(b, 'i') : -1});
      }
      if (!(std::abs(predicted - expected[b]) <= 1e-9 * size + 1e-300)) return false;
    }
    return true;
  }

  const Inspection& inspection_;
  index_t layer_;
  std::map<std::string, const Quantity*> quantities_;
};

// True if a gradient is the sum over its links, up to rounding. It is not if an op's backward is not its derivative, such as
// the straight-through gradient of hard attention. Three roundings are allowed for, as on the page (viewer/worked.js): of
// the products; of large numbers in the same tensor as small ones; and of the values from which backward computes a
// derivative. For a gate near 1 the derivative is g (1 - g): g is accurate to one part in 2^24, so that 1 - g = 1e-5 keeps
// only the digits that this leaves.
bool adds_up(const Inspection& inspection, const std::vector<Link>& links, const Quantity& from) {
  const std::vector<double> gradient = from.gradient.to_vector();
  std::vector<double> sum(gradient.size()), size(gradient.size()), rounded(gradient.size());
  for (const Link& link : links) {
    if (link.from != from.name) continue;
    const Quantity& to = *find(inspection.quantities(), link.layer, link.to);
    const std::vector<double> value = to.value.to_vector(), next = to.gradient.to_vector();
    for (const auto& [a, b, derivative, query] : link.entries) {
      const double term = next[b] * derivative;
      sum[a] += term, size[a] += std::abs(term), rounded[a] += std::abs(next[b] * value[b]);
    }
  }
  const bool is_f64 = from.gradient.dtype() == DType::f64;
  const double of_sums = is_f64 ? 1e-10 : 1e-5, of_numbers = is_f64 ? 4e-16 : 2.4e-7;
  double scale = 0;
  for (const double number : gradient) scale = std::max(scale, 0.1 * std::abs(number));
  for (std::size_t e = 0; e < sum.size(); ++e)
    if (!(std::abs(sum[e] - gradient[e]) <= of_sums * (size[e] + scale) + of_numbers * rounded[e])) return false;
  return true;
}

// Returns the queries of a layer, those with the largest gradients of their logits first.
std::vector<index_t> by_strength(const Inspection& inspection, index_t layer) {
  const Quantity* logits = find(inspection.quantities(), layer, "logits");
  std::vector<double> strength(static_cast<std::size_t>(inspection.subject().tokens.numel()));
  if (logits && logits->gradient.defined()) {
    const Axes axes(*logits);
    const std::vector<double> numbers = logits->gradient.to_vector();
    for (std::size_t e = 0; e < numbers.size(); ++e)
      strength[static_cast<std::size_t>(axes.place(e, 'i'))] += numbers[e] * numbers[e];
  }
  std::vector<index_t> order(strength.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(
      order, std::ranges::greater{}, [&](index_t i) { return strength[static_cast<std::size_t>(i)]; });
  return order;
}

// Returns the links of a layer whose sum is the gradient, and adds the names of the others to `left_out`.
std::vector<Link> checked_links(
    const Inspection& inspection, index_t layer, std::vector<std::pair<index_t, std::string>>& left_out) {
  std::vector<Link> all = LinkFinder(inspection, layer).links();
  std::map<std::string, bool> valid;
  for (const Link& link : all)
    if (!valid.contains(link.from))
      valid[link.from] = adds_up(inspection, all, *find(inspection.quantities(), layer, link.from));
  std::erase_if(all, [&](const Link& link) { return !valid.at(link.from); });
  for (const auto& [from, is_valid] : valid)
    if (!is_valid) left_out.emplace_back(layer, from);
  return all;
}

// Keeps the links of the strongest queries that fit into `bytes`, and links of no single query. Returns these queries.
std::vector<index_t> keep_fitting(
    std::vector<Link>& links, const std::vector<index_t>& by_strength, double bytes_of_entry, double bytes) {
  std::map<index_t, double> bytes_of_query;
  for (const Link& link : links)
    for (const Link::Entry& entry : link.entries) bytes_of_query[entry.query] += bytes_of_entry;
  std::set<index_t> kept;
  bytes -= bytes_of_query[-1];
  for (const index_t query : by_strength) {
    if ((bytes -= bytes_of_query[query]) < 0) break;
    kept.insert(query);
  }
  for (Link& link : links)
    std::erase_if(
        link.entries, [&](const Link::Entry& entry) { return entry.query >= 0 && !kept.contains(entry.query); });
  std::erase_if(links, [](const Link& link) { return link.entries.empty(); });
  return {kept.begin(), kept.end()};
}

}  // namespace

Links links_of(const Inspection& inspection, double bytes) {
  const Subject& subject = inspection.subject();
  const TransformerOptions& model = subject.model->options();
  const double tokens = static_cast<double>(subject.tokens.numel()),
               bytes_of_entry = static_cast<double>(size_of(subject.dtype())) + 8;
  Links links;
  if (static_cast<double>(model.layers * model.heads) * tokens * tokens * tokens > max_work) return links;
  for (index_t layer = 0; layer < model.layers; ++layer) {
    std::vector<Link> all = checked_links(inspection, layer, links.left_out);
    links.rows.push_back(
        keep_fitting(all, by_strength(inspection, layer), bytes_of_entry, bytes / static_cast<double>(model.layers)));
    std::ranges::move(all, std::back_inserter(links.all));
  }
  return links;
}

}  // namespace whence::look
