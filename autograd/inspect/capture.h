// Capture: keeps named intermediates. While one with a matching pattern is alive, probe("gates", x) saves the value, and
// the gradient when backward passes through (autograd/observer.h).
//
//   Capture capture("*.gates", "*.positions");
//   backward(loss(model(tokens)));
//   capture["blocks.0.attention.position.gates"].gradient()
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "autograd/observer.h"

namespace whence {

// Something of the graph that has a name: what passed a probe (Capture::place), or a leaf. What paths.h and zeros.h ask
// for.
struct Place {
  std::string name;
  std::vector<std::uint64_t> results;  // their ids (Edge::id); several where a probe was passed several times
};

namespace detail {
// False during walks that take a gradient apart (paths, zeros, explain), so that they overwrite no captured gradient.
inline thread_local bool probes_keep_gradients = true;
}  // namespace detail

namespace detail {
using Ids = std::unordered_set<std::uint64_t>;  // of results
Ids ids_of(const std::vector<Place>& places);
// The names of results by their ids.
using PlaceNames = std::unordered_map<std::uint64_t, std::string>;
PlaceNames names_of(const std::vector<Place>& places);
}  // namespace detail

// What one probe saw: the last value that passed, and the gradient of what backward started from, summed over its uses.
class Probed {
 public:
  const Tensor& value() const { return value_; }
  // The gradient, masked elements included, before this capture's own edits. Undefined until backward has run.
  const Tensor& gradient() const { return gradient_; }
  const Site& site() const { return site_; }  // the line that passed it

 private:
  friend class Capture;
  friend struct ProbeOp;
  Tensor value_, gradient_;
  Site site_ = Site::current();
  std::vector<std::uint64_t> results_;  // of the graph, one for each pass
};

class Capture : public Observer {
 public:
  // Patterns over full names: '*' is any run of characters. Captures nest: each saves what its own patterns match.
  template <class... Patterns>
  explicit Capture(const Patterns&... patterns) : Capture(std::vector<std::string>{patterns...}) {}
  explicit Capture(std::vector<std::string> patterns) : patterns_(std::move(patterns)) {}

  // Replaces values in the forward pass: every probe whose name matches gets f(value), of the value's shape and dtype,
  // else Error when it is passed. f's ops are differentiated as well.
  void edit(std::string pattern, std::function<Tensor(const Tensor&)> f);
  // Replaces gradients in the backward pass: what has arrived at such a probe, once from all its uses, goes on as
  // f(gradient), of its shape and dtype, else Error: scaled, clipped or stopped. With create_graph f's ops are
  // recorded. The probe asks when it is passed forward; the edit then holds for that graph, and for second derivatives
  // that come by. Backward meets outer captures before inner ones, and an inner one sees what the outer one left. What
  // comes out is no derivative any more: gradcheck finds it wrong, and paths.h, zeros.h and explain.h refuse to take it
  // apart.
  void edit_gradient(std::string pattern, std::function<Tensor(const Tensor&)> f);

  std::int64_t passes() const { return passes_; }  // probes so far, those that it does not save included
  std::vector<std::string> names() const;          // in the order first seen
  bool contains(const std::string& name) const;
  // Error that lists what was seen when nothing of that name was.
  const Probed& operator[](const std::string& name) const;
  // Where in the graph it stands; nowhere if it had no history.
  [[nodiscard]] Place place(const std::string& name) const { return {name, (*this)[name].results_}; }

  Tensor passed(const std::string& name, const Tensor& x, const Site& site) override;
  bool wants_under(const std::string& path, const std::vector<std::string>& but) const override;

 private:
  struct Edit {
    std::string pattern;
    std::function<Tensor(const Tensor&)> function;
    bool of_gradient;
  };
  std::vector<std::string> patterns_;
  std::vector<Edit> edits_;
  std::vector<std::pair<std::string, std::shared_ptr<Probed>>> seen_;
  std::int64_t passes_ = 0;
};

}  // namespace whence
