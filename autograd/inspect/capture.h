// Capture: keeps named intermediates. While a Capture with a matching pattern is alive, probe("gates", x) saves the
// value, and backward saves the gradient (autograd/observer.h).
//
//   Capture capture("*.gates", "*.positions");
//   backward(loss(model(tokens)));
//   capture["blocks.0.attention.position.gates"].gradient()
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "autograd/graph.h"
#include "autograd/observer.h"

namespace whence {

// A named result in the graph: the input of a probe (Capture::place), or a leaf. paths.h and zeros.h take places.
struct Place {
  std::string name;
  std::vector<std::uint64_t> results;  // their ids (Edge::id); several if the probe was passed several times
};

namespace detail {
// False during walks that take a gradient apart (paths, zeros, explain), so that they overwrite no captured gradient.
inline thread_local bool probes_keep_gradients = true;
Ids ids_of(const std::vector<Place>& places);
// Maps the ids of results to their names.
using PlaceNames = std::unordered_map<std::uint64_t, std::string>;
PlaceNames names_of(const std::vector<Place>& places);
}  // namespace detail

// The record of one probe: the last value that passed, and its gradient, summed over its uses.
class Probed {
 public:
  const Tensor& value() const { return value_; }
  // The gradient, masked elements included, before this capture's own edits. Undefined until backward has run.
  const Tensor& gradient() const { return gradient_; }
  const Site& site() const { return site_; }  // the line that calls the probe

 private:
  friend class Capture;
  friend struct ProbeOp;
  Tensor value_, gradient_;
  Site site_ = Site::current();
  std::vector<std::uint64_t> results_;  // ids in the graph, one for each time the probe was passed
};

class Capture : public Observer {
 public:
  // Patterns over full names: '*' is any run of characters. Captures nest: each saves what its own patterns match.
  template <class... Patterns>
  explicit Capture(const Patterns&... patterns) : Capture(std::vector<std::string>{patterns...}) {}
  explicit Capture(std::vector<std::string> patterns) : patterns_(std::move(patterns)) {}

  // Replaces values in the forward pass: every probe whose name matches returns f(value), of the value's shape and
  // dtype, else Error at the probe. f's ops are differentiated as well.
  void edit(std::string pattern, std::function<Tensor(const Tensor&)> f);
  // Replaces gradients in the backward pass. The gradient at such a probe, summed over all its uses, becomes
  // f(gradient), of its shape and dtype, else Error. So it can be scaled, clipped or stopped. With create_graph f's ops
  // are recorded. Edits are looked up when the probe is passed forward; they hold for that graph and for its second
  // derivatives. Backward applies outer captures before inner ones; an inner one sees the edited gradient. The result
  // is not a derivative any more: gradcheck finds it wrong, and paths.h, zeros.h and explain.h refuse such a graph.
  void edit_gradient(std::string pattern, std::function<Tensor(const Tensor&)> f);

  std::int64_t passes() const { return passes_; }  // all probes passed so far, saved or not
  std::vector<std::string> names() const;          // in the order first seen
  bool contains(const std::string& name) const;
  // Error with the list of names seen, if none has this name.
  const Probed& operator[](const std::string& name) const;
  // Returns the place of the probe in the graph; it has no results if the value had no history.
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
