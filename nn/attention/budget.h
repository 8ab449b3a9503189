// Budgets of attention by kind of device. They do not depend on free memory, so that one model has one executor, and
// the same bits, on every machine.
#pragma once

#include <limits>

#include "tensor/device.h"
#include "tensor/shape.h"

namespace whence {

struct AttentionBudget {
  // Below this size of scores it is cheaper to keep them than to compute them twice. A training step holds a dozen of
  // them per layer. A GPU has enough memory, but many small kernels of strips would cost it time.
  index_t bytes_worth_strips;
  // The size of a strip. On a CPU its scores should fit the caches but keep all cores busy. On a GPU its dozen of
  // kernels should run longer than their launches take.
  index_t strip_bytes, strip_rows;
  bool reads_at_once;  // false: reading a number waits for the device
};

constexpr AttentionBudget budget_of(Device device) {
  constexpr index_t MiB = index_t(1) << 20;
  return device.is_gpu() ? AttentionBudget{2048 * MiB, 1024 * MiB, std::numeric_limits<index_t>::max(), false}
                         : AttentionBudget{256 * MiB, 16 * MiB, 512, true};
}

}  // namespace whence
