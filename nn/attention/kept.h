// What is made of a sequence once, and shared by all who ask: masks, and constants that schemes work out.
#pragma once

#include <cstddef>
#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

#include "nn/attention/sequence.h"

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

// A constant on its way to a device: the same numbers are sent once, whichever layer asks.
struct ConstantThere {
  Tensor constant;  // on the CPU, contiguous
  Device device;

  friend bool operator==(const ConstantThere& a, const ConstantThere& b) {
    const Tensor &x = a.constant, &y = b.constant;
    return a.device == b.device && x.dtype() == y.dtype() && x.shape() == y.shape() &&
           std::memcmp(x.bytes(), y.bytes(), static_cast<std::size_t>(x.numel()) * size_of(x.dtype())) == 0;
  }
};

struct KeptOfSequence {
  // A sequence is open to changes: what was made of other facts is not found again. Handles keep tensors, and so their
  // identities, alive.
  Kept<Visibility, Tensor> masks;
  Kept<ConstantThere, Tensor, 8> constants;
};

}  // namespace whence
