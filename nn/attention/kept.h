// What is made of a sequence once, and shared by all who ask: masks and the distances of pairs.
#pragma once

#include <cstddef>
#include <mutex>
#include <utility>
#include <vector>

#include "nn/attention/position.h"

namespace whence {

// The last few things that were made, by what they were made of. `From` has ==. Safe from several threads; two that ask
// at once may both make.
template <class From, class Made, std::size_t most = 2> class Kept {
 public:
  template <class Make> Made get(const From& from, const Make& make) {
    {
      const std::lock_guard lock(mutex_);
      for (const auto& [known, made] : all_)
        if (known == from) return made;
    }
    Made made = make();
    const std::lock_guard lock(mutex_);
    if (all_.size() == most) all_.erase(all_.begin());
    all_.emplace_back(from, made);
    return made;
  }

 private:
  std::mutex mutex_;
  std::vector<std::pair<From, Made>> all_;
};

// A sequence is open to changes: what was made of other facts is not found again. Handles keep tensors, and so their
// identities, alive.
struct MaskFacts {
  index_t rows, keys, first_row;
  bool causal;
  Tensor present, given_mask;
  Device device;

  friend bool operator==(const MaskFacts& a, const MaskFacts& b) {
    return a.rows == b.rows && a.keys == b.keys && a.first_row == b.first_row && a.causal == b.causal &&
           a.present.identity() == b.present.identity() && a.given_mask.identity() == b.given_mask.identity() &&
           a.device == b.device;
  }
};

// How many steps query i and key j lie apart: query[i] - key[j], and never less than `lowest`.
struct StepsOfPairs {
  Tensor query, key;  // i64 [1|b i], [1|b j]
  index_t lowest;
  Device device;  // where pairs read them

  friend bool operator==(const StepsOfPairs& a, const StepsOfPairs& b);
};

// A constant on its way to a device: the same numbers are sent once, whichever layer asks.
struct ConstantThere {
  Tensor constant;  // on the CPU, contiguous
  Device device;

  friend bool operator==(const ConstantThere& a, const ConstantThere& b);
};

struct KeptOfSequence {
  Kept<MaskFacts, Tensor> masks;
  Kept<StepsOfPairs, PairSteps> steps;
  Kept<ConstantThere, Tensor, 8> constants;
};

}  // namespace whence
