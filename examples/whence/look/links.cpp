#include "examples/whence/look/links.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <set>

#include "examples/whence/look/axes.h"
#include "tensor/random.h"

namespace whence::look {
namespace {

constexpr std::size_t most_moves = 600;  // of one quantity
constexpr index_t reach = 8;             // keys beside each other that are told apart where they are neighbours
constexpr double most_work = 2e7;        // layers times heads times tokens cubed: about three seconds

// One way to move many elements of a quantity at once: those of one colour move together. `apart` are the axes whose
// places have colours of their own; keys may share one with those that are `reach` further on.
struct Colouring {
  std::string apart;
  bool near = false;
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
    const std::vector<index_t> at = from_.position(e);
    index_t colour = 0;
    for (const char letter : colouring_.apart)
      colour = colour * colours_of(letter) + at[from_.find(letter)] % colours_of(letter);
    return colour;
  }
  // Which element of that colour an element of `to` feels, if the colouring is right: at the same place along all other
  // axes, and of near keys the one that is nearest. Nothing where that is none.
  std::optional<std::size_t> felt(const Axes& to, const std::vector<index_t>& at, index_t colour) const {
    std::vector<index_t> place(from_.letters.size());
    for (std::size_t axis = 0; axis < place.size(); ++axis)
      if (const std::size_t same = to.find(from_.letters[axis]); same != Axes::nowhere) place[axis] = at[same];
    for (std::size_t k = colouring_.apart.size(); k-- > 0;) {
      const char letter = colouring_.apart[k];
      const std::size_t axis = from_.find(letter);
      const index_t count = colours_of(letter), wanted = colour % count;
      colour /= count;
      index_t found = wanted;
      if (colouring_.near && letter == 'j') {
        const index_t lowest = place[axis] - reach / 2, ahead = (wanted - lowest) % count;
        found = lowest + (ahead + count) % count;
      }
      place[axis] = found;
    }
    for (std::size_t axis = 0; axis < place.size(); ++axis)
      if (place[axis] < 0 || place[axis] >= from_.extents[axis]) return std::nullopt;
    return from_.element(place);
  }

 private:
  index_t colours_of(char letter) const {
    return colouring_.near && letter == 'j' ? std::min(reach, from_.extent(letter)) : from_.extent(letter);
  }

  const Axes& from_;
  Colouring colouring_;
};

// From the fewest colours to the most.
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
  if (from.has(mixed[0])) all.push_back({with(mixed)});
  if (from.has(mixed[0]) && from.has('j')) all.insert(all.end(), {{with(mixed + "j"), true}, {with(mixed + "j")}});
  return all;
}

class LinkFinder {
 public:
  LinkFinder(const Inspection& inspection, index_t layer) : inspection_(inspection), layer_(layer) {
    for (const Quantity& quantity : inspection.quantities())
      if (quantity.probe && quantity.layer == layer) quantities_.emplace(quantity.path, &quantity);
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
    std::vector<double> direction(axes.count());
    for (std::size_t e = 0; e < direction.size(); ++e) direction[e] = 0.5 + random.uniform53(e);
    std::map<std::string, std::vector<Moved>> known;  // by the axes kept apart
    const Moved expected = inspection_.moved(from.path, direction);
    for (const auto& [path, numbers] : expected) {
      const auto to = quantities_.find(path);
      if (to == quantities_.end() || !to->second->gradient.defined()) continue;
      for (const Colouring& colouring : colourings(axes, Axes(*to->second))) {
        const Mover mover(axes, colouring);
        if (static_cast<std::size_t>(mover.colours()) > most_moves) continue;
        const std::string key = colouring.apart + (colouring.near ? " near" : "");
        if (!known.contains(key)) known.emplace(key, moves(from, axes, mover));
        if (auto link = link_by(mover, from, *to->second, known.at(key), direction, numbers)) {
          all.push_back(std::move(*link));
          break;
        }
      }
    }
  }

  std::vector<Moved> moves(const Quantity& from, const Axes& axes, const Mover& mover) const {
    std::vector<index_t> colours(axes.count());
    for (std::size_t e = 0; e < colours.size(); ++e) colours[e] = mover.colour(e);
    std::vector<Moved> all;
    for (index_t colour = 0; colour < mover.colours(); ++colour) {
      std::vector<double> tangent(colours.size());
      for (std::size_t e = 0; e < tangent.size(); ++e) tangent[e] = colours[e] == colour ? 1 : 0;
      all.push_back(inspection_.moved(from.path, tangent));
    }
    return all;
  }

  // The derivatives as this colouring reads them; nothing if they do not foretell how `to` moves along `direction`.
  std::optional<Link> link_by(const Mover& mover, const Quantity& from, const Quantity& to,
      const std::vector<Moved>& moved, const std::vector<double>& direction,
      const std::vector<double>& expected) const {
    const Axes axes(to);
    Link link{layer_, from.name, to.name, {}, {}, {}};
    for (std::size_t b = 0; b < expected.size(); ++b) {
      if (inspection_.reasons()[to.reasons[b]].stop == Stop::masked) continue;
      const std::vector<index_t> at = axes.position(b);
      double foretold = 0, size = 0;
      for (std::size_t colour = 0; colour < moved.size(); ++colour) {
        const auto numbers = moved[colour].find(to.path);
        const double derivative = numbers == moved[colour].end() ? 0 : numbers->second[b];
        if (derivative == 0) continue;
        const auto a = mover.felt(axes, at, static_cast<index_t>(colour));
        if (!a) return std::nullopt;
        foretold += derivative * direction[*a], size += std::abs(derivative * direction[*a]);
        link.a.push_back(static_cast<std::uint32_t>(*a)), link.b.push_back(static_cast<std::uint32_t>(b));
        link.derivative.push_back(derivative);
      }
      if (!(std::abs(foretold - expected[b]) <= 1e-9 * size + 1e-300)) return std::nullopt;
    }
    return link;
  }

  const Inspection& inspection_;
  index_t layer_;
  std::map<std::string, const Quantity*> quantities_;
};

const Quantity* quantity_named(const Inspection& inspection, index_t layer, const std::string& name) {
  for (const Quantity& quantity : inspection.quantities())
    if (quantity.layer == layer && quantity.name == name) return &quantity;
  return nullptr;
}

// The query that element `b` belongs to; -1: none, so that the element belongs to all.
std::vector<index_t> queries_of(const Inspection& inspection, const Link& link) {
  const Quantity& to = *quantity_named(inspection, link.layer, link.to);
  const Axes axes(to);
  std::vector<index_t> queries;
  for (const std::uint32_t b : link.b) queries.push_back(axes.has('i') ? axes.position(b)[axes.find('i')] : -1);
  return queries;
}

// Whether a gradient is the sum over its links, but for rounding. It is not where an op's backward is not its derivative,
// as of hard attention, whose gradient passes straight through. Three roundings are allowed for, as on the page
// (viewer/worked.js): of the products; of the large numbers beside which small ones were computed; and of the numbers
// from which backward takes a derivative. Of a gate next to 1 that is g (1 - g): g is known to one part in 2^24, and
// 1 - g, which is 1e-5, to no more digits than that leaves.
bool adds_up(const Inspection& inspection, const std::vector<Link>& links, const Quantity& from) {
  const std::vector<double> gradient = from.gradient.to_vector();
  std::vector<double> sum(gradient.size()), size(gradient.size()), rounded(gradient.size());
  for (const Link& link : links) {
    if (link.from != from.name) continue;
    const Quantity& to = *quantity_named(inspection, link.layer, link.to);
    const std::vector<double> value = to.value.to_vector(), next = to.gradient.to_vector();
    for (std::size_t e = 0; e < link.a.size(); ++e) {
      const double term = next[link.b[e]] * link.derivative[e];
      sum[link.a[e]] += term, size[link.a[e]] += std::abs(term);
      rounded[link.a[e]] += std::abs(next[link.b[e]] * value[link.b[e]]);
    }
  }
  const bool is_f64 = from.gradient.dtype() == DType::f64;
  const double of_sums = is_f64 ? 1e-10 : 1e-5, of_numbers = is_f64 ? 4e-16 : 2.4e-7;
  double beside = 0;
  for (const double number : gradient) beside = std::max(beside, 0.1 * std::abs(number));
  for (std::size_t e = 0; e < sum.size(); ++e)
    if (!(std::abs(sum[e] - gradient[e]) <= of_sums * (size[e] + beside) + of_numbers * rounded[e])) return false;
  return true;
}

// Queries of a layer, those with the largest gradients of their logits first.
std::vector<index_t> by_strength(const Inspection& inspection, index_t layer) {
  const Quantity* logits = quantity_named(inspection, layer, "logits");
  const index_t tokens = inspection.subject().tokens.numel();
  std::vector<double> strength(static_cast<std::size_t>(tokens));
  if (logits && logits->gradient.defined()) {
    const std::vector<double> numbers = logits->gradient.to_vector();
    const auto keys = static_cast<std::size_t>(logits->value.size(3));
    for (std::size_t e = 0; e < numbers.size(); ++e)
      strength[e / keys % static_cast<std::size_t>(tokens)] += numbers[e] * numbers[e];
  }
  std::vector<index_t> order(static_cast<std::size_t>(tokens));
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(
      order, std::ranges::greater{}, [&](index_t i) { return strength[static_cast<std::size_t>(i)]; });
  return order;
}

// The links of a layer; without those whose sum is not the gradient, which are named in `left_out`.
std::vector<Link> believed_links(
    const Inspection& inspection, index_t layer, std::vector<std::pair<index_t, std::string>>& left_out) {
  std::vector<Link> all = LinkFinder(inspection, layer).links();
  std::set<std::string> checked, disbelieved;
  for (const Link& link : all)
    if (checked.insert(link.from).second && !adds_up(inspection, all, *quantity_named(inspection, layer, link.from)))
      disbelieved.insert(link.from);
  std::erase_if(all, [&](const Link& link) { return disbelieved.contains(link.from); });
  for (const std::string& from : disbelieved) left_out.emplace_back(layer, from);
  return all;
}

// Those whose links fit into `bytes`, the strongest first, in ascending order.
std::vector<index_t> fitting_rows(
    const std::vector<index_t>& by_strength, std::map<index_t, double>& bytes_of_query, double bytes) {
  std::vector<index_t> rows;
  double left = bytes - bytes_of_query[-1];
  for (const index_t query : by_strength) {
    if ((left -= bytes_of_query[query]) < 0) break;
    rows.push_back(query);
  }
  std::ranges::sort(rows);
  return rows;
}

}  // namespace

Links links_of(const Inspection& inspection, double bytes) {
  const TransformerOptions& model = inspection.subject().model->options();
  const double each = static_cast<double>(size_of(inspection.subject().model->parameters()[0].tensor.dtype())) + 8;
  Links links;
  const auto tokens = static_cast<double>(inspection.subject().tokens.numel());
  if (static_cast<double>(model.layers * model.heads) * tokens * tokens * tokens > most_work) return links;
  for (index_t layer = 0; layer < model.layers; ++layer) {
    const std::vector<Link> all = believed_links(inspection, layer, links.left_out);
    std::vector<std::vector<index_t>> queries;
    std::map<index_t, double> bytes_of_query;
    for (const Link& link : all) {
      queries.push_back(queries_of(inspection, link));
      for (const index_t query : queries.back()) bytes_of_query[query] += each;
    }
    const std::vector<index_t> rows =
        fitting_rows(by_strength(inspection, layer), bytes_of_query, bytes / static_cast<double>(model.layers));
    for (std::size_t k = 0; k < all.size(); ++k) {
      Link kept{layer, all[k].from, all[k].to, {}, {}, {}};
      for (std::size_t e = 0; e < all[k].a.size(); ++e) {
        if (queries[k][e] >= 0 && !std::ranges::binary_search(rows, queries[k][e])) continue;
        kept.a.push_back(all[k].a[e]), kept.b.push_back(all[k].b[e]), kept.derivative.push_back(all[k].derivative[e]);
      }
      if (!kept.a.empty()) links.all.push_back(std::move(kept));
    }
    links.rows.push_back(rows);
  }
  return links;
}

}  // namespace whence::look
