#include "autograd/inspect/capture.h"

#include <algorithm>
#include <utility>

#include "autograd/op.h"
#include "tensor/raw.h"
#include "tensor/suggest.h"

namespace whence {
namespace {

Tensor edited(const char* op, const std::string& name, const std::function<Tensor(const Tensor&)>& f, const Tensor& x) {
  Tensor y = f(x);
  if (y.shape() == x.shape() && y.dtype() == x.dtype()) return y;
  fail(op, name, " was ", x.dtype(), " ", x.shape(), ", the edit gave ", y.dtype(), " ", y.shape(),
      "; equal ones required");
}

}  // namespace

// y = x. Backward: the capture keeps dy, and dx = dy, or the result of the gradient edits.
struct ProbeOp {
  static constexpr const char* name = "probe";
  struct Saved {};
  std::shared_ptr<Probed> seen;  // null: nothing is kept
  std::string passed;            // its full name
  std::vector<std::function<Tensor(const Tensor&)>> edits;

  Tensor forward(Saved&, const Tensor& x) const { return x.detach(); }
  Grads<1> backward(const Saved&, const Tensor& dy, Needs<1>) const {
    if (seen && detail::probes_keep_gradients) {
      seen->gradient_ = seen->gradient_.defined() ? raw::add(seen->gradient_, dy)
                                                  : dy.detach();  // with history it would own this node
    }
    if (!detail::probes_keep_gradients && !edits.empty()) {
      fail("edit_gradient", "the gradient at ", passed, " is changed on its way, so that its parts need not add up; ",
          "a graph without such an edit required to take a gradient apart");
    }
    Tensor dx = dy;
    for (const auto& edit : edits) dx = edited("edit_gradient", "the gradient at " + passed, edit, dx);
    return {dx};
  }
};

detail::Ids detail::ids_of(const std::vector<Place>& places) {
  Ids ids;
  for (const Place& place : places) ids.insert(place.results.begin(), place.results.end());
  return ids;
}

detail::PlaceNames detail::names_of(const std::vector<Place>& places) {
  PlaceNames names;
  for (const Place& place : places)
    for (const std::uint64_t id : place.results) names.emplace(id, place.name);
  return names;
}

void Capture::edit(std::string pattern, std::function<Tensor(const Tensor&)> f) {
  edits_.push_back({std::move(pattern), std::move(f), false});
}

void Capture::edit_gradient(std::string pattern, std::function<Tensor(const Tensor&)> f) {
  edits_.push_back({std::move(pattern), std::move(f), true});
}

std::vector<std::string> Capture::names() const {
  std::vector<std::string> result;
  for (const auto& [name, probed] : seen_) result.push_back(name);
  return result;
}

bool Capture::contains(const std::string& name) const {
  return std::ranges::any_of(seen_, [&](const auto& entry) { return entry.first == name; });
}

const Probed& Capture::operator[](const std::string& name) const {
  for (const auto& [seen, probed] : seen_)
    if (seen == name) return *probed;
  fail("capture", "'", name,
      "' given; no probe of that name was passed under this capture; seen: ", seen_.empty() ? "none" : joined(names()));
}

Tensor Capture::passed(const std::string& name, const Tensor& x, const Site& site) {
  ++passes_;
  Tensor value = x;
  std::vector<std::function<Tensor(const Tensor&)>> of_gradient;
  for (const Edit& edit : edits_) {
    if (!matches(edit.pattern, name)) continue;
    if (edit.of_gradient)
      of_gradient.push_back(edit.function);
    else
      value = edited("edit", name, edit.function, value);
  }
  if (std::ranges::none_of(patterns_, [&](const std::string& pattern) { return matches(pattern, name); }))
    return of_gradient.empty() ? value : apply(ProbeOp{nullptr, name, std::move(of_gradient)}, site, value);
  auto entry = std::find_if(seen_.begin(), seen_.end(), [&](const auto& seen) { return seen.first == name; });
  if (entry == seen_.end()) entry = seen_.insert(seen_.end(), {name, std::make_shared<Probed>()});
  Probed& probed = *entry->second;
  probed.value_ = value.detach(), probed.site_ = site;
  const Tensor passed = apply(ProbeOp{entry->second, name, std::move(of_gradient)}, site, value);
  if (passed.link()) probed.results_.push_back(edge_of(passed).id());
  return passed;
}

// True if a name below `path` may match: the pattern up to its first star and the path agree as far as both reach.
static bool could_match_under(const std::string& pattern, const std::string& path) {
  const std::string fixed = pattern.substr(0, pattern.find('*')), prefix = path.empty() ? path : path + ".";
  if (fixed.size() <= prefix.size() && fixed.size() < pattern.size()) return prefix.starts_with(fixed);
  return fixed.size() > prefix.size() && fixed.starts_with(prefix);
}

bool Capture::wants_under(const std::string& path, const std::vector<std::string>& but) const {
  const auto spelled_out = [&](const std::string& pattern) {
    return std::ranges::any_of(but, [&](const std::string& name) { return pattern == path + "." + name; });
  };
  const auto possible = [&](const std::string& pattern) {
    return could_match_under(pattern, path) && !spelled_out(pattern);
  };
  return std::ranges::any_of(patterns_, possible) || std::ranges::any_of(edits_, possible, &Edit::pattern);
}

}  // namespace whence
