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

#include "examples/whence/bench/measure.h"
#include "nn/io/json.h"
#include "tensor/tensor.h"

namespace whence::bench {

using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

// One way to run it: "eager", "compile", "sdpa", "flex"; as it is installed, or with the settings of the memory
// allocator under which it is fastest.
struct PeerWay {
  std::string way;
  bool tuned = false;
  [[nodiscard]] std::string text() const { return "PyTorch " + way + (tuned ? ", tuned" : ""); }
};
// Those of `known` that --ways lists ("all": each), as installed and tuned; on a GPU, whose allocator is another, only
// as installed. None without a peer.
[[nodiscard]] std::vector<PeerWay> chosen_ways(
    const Settings& settings, const std::string& listed, const std::vector<std::string>& known, bool on_cpu);

class Peer {
 public:
  // InputError when settings.python is none or has no torch.
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
  int child_ = -1, to_ = -1, from_ = -1;
};

// Milliseconds of one repetition.
struct Repetition {
  double forward = 0, backward = 0;
};
struct Times {
  std::vector<double> forward = {}, backward = {}, both = {};
  void add(const Repetition& one);
};
// Ours, theirs, ours, theirs: what else the machine does hits both. `forward_only`: their backward is left out.
struct Turns {
  Times ours, theirs;
  [[nodiscard]] double ratio() const;  // theirs / ours, of the medians
};
[[nodiscard]] Turns in_turn(
    Peer& peer, int repetitions, const std::function<Repetition()>& ours, bool forward_only = false);

// For the head of a table: "PyTorch 2.15.0", found out before anything is measured; empty without a peer.
[[nodiscard]] std::string peer_version(const Settings& settings);

// |ours - theirs| / |theirs|, Euclidean, of the tensor where that is largest. Some gradients are 0 but for rounding,
// such as that of a bias which softmax ignores: divided is by at least a tenth of the largest gradient's norm.
struct Difference {
  std::string where;
  double relative = 0;
};
// Error when `theirs` lacks one of ours or has another shape.
[[nodiscard]] Difference largest_difference(const NamedTensors& ours, const NamedTensors& theirs);
// Error when the difference is more than `allowed`, what f32 explains.
void require_equal(const std::string& what, const Difference& difference, double allowed = 1e-4);

}  // namespace whence::bench
