// Another engine, PyTorch, as a process beside this one: the script pytorch.py, which is built into the program. It
// gets our numbers, repeats what it is asked to, and hands its results back, so that they can be compared.
//   request, answer:  one line of JSON, whose "tensors" [[name, dtype, shape], ...] follow as bytes in that order
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "examples/whence/bench/bench.h"
#include "examples/whence/cli/json.h"
#include "nn/layers/module.h"
#include "tensor/error.h"
#include "tensor/tensor.h"

namespace whence::bench {

extern const char* const pytorch_script;  // pytorch.py; CMake makes a string of it

using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

[[nodiscard]] Tensor named(const NamedTensors& tensors, const std::string& name);  // undefined where there is none

class Peer {
 public:
  // `tuned`: with the settings of the memory allocator under which it is fastest. InputError when settings.python is
  // none or has no torch.
  Peer(const Settings& settings, bool tuned);
  ~Peer();
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  const std::string& version() const { return version_; }  // "2.15.0"

  struct Answer {
    std::map<std::string, double> figures;  // nothing in it that is null
    NamedTensors tensors;
  };
  // Throws Interrupted when the user asks to stop meanwhile, and Error with the peer's words when it fails.
  Answer ask(const Json& request, const NamedTensors& tensors = {});

 private:
  Peer() = default;
  void write(const void* bytes, std::size_t count);
  void read(void* bytes, std::size_t count);
  std::string read_line();
  [[noreturn]] void refuse();

  std::string python_, version_;
  int child_ = -1, socket_ = -1;
};

// Euclidean, of |ours - theirs| and of |theirs|. REQUIRES: equal shapes.
struct Norms {
  double apart = 0, size = 0;
};
[[nodiscard]] Norms norms_of(const Tensor& ours, const Tensor& theirs);

// The first over the second of the tensor where that is largest. Some gradients are 0 but for rounding,
// such as that of a bias which softmax ignores: divided is by at least a tenth of the largest gradient's norm.
struct Difference {
  std::string where;
  double relative = 0;
};
// Error when `theirs` lacks one of ours or has another shape.
[[nodiscard]] Difference largest_difference(const NamedTensors& ours, const NamedTensors& theirs);

// Results further apart than rounding explains.
class Unequal : public Error {
  using Error::Error;
};
// Throws it when the difference is more than `allowed`.
void require_equal(const std::string& what, const Difference& difference, double allowed = 1e-4);

// One way to run the peer: "eager", "compile", "sdpa", "flex"; as it is installed, or tuned.
struct PeerWay {
  std::string way;
  bool tuned = false;
  [[nodiscard]] std::string text() const { return "PyTorch " + way + (tuned ? ", tuned" : ""); }
};
// Those of `known` that --ways lists ("all": each), as installed and tuned; on a GPU, whose allocator is another, only
// as installed. None without a peer.
[[nodiscard]] std::vector<PeerWay> chosen_ways(
    const Settings& settings, const std::vector<std::string>& known, bool on_cpu);

// What is done beside a peer.
struct Comparison {
  std::string name;             // of what is measured
  Json request;                 // what Peer::ask() is to prepare
  NamedTensors given, results;  // what both begin with, and what came out here; no results: they are not compared
  double allowed = 1e-4;        // see require_equal()
  std::function<Repetition()> ours;
};
struct Compared {
  Times theirs;
  double ratio = 0;       // theirs / ours, of the medians
  double difference = 0;  // of the results; nan: not compared
  double peak_mib = 0;    // of an attention
};
// Hands it over; what the peer says of it.
[[nodiscard]] std::map<std::string, double> prepare(
    Peer& peer, const PeerWay& way, const Comparison& what, Device device);
// Ours, theirs, ours, theirs: what else the machine does hits both. Where ours has no backward, theirs is left out.
[[nodiscard]] Compared compare(Bench& bench, const PeerWay& way, const Comparison& what);
[[nodiscard]] Row row_of(const Compared& found);  // ratio and difference

// Numbers of parameters that begin at zero are drawn instead, so that every gradient tells something.
void draw_zeros(const Module& model, double deviation);

}  // namespace whence::bench
