// Budgets of attention by kind of device, not by the memory that is free there: so one model has one executor, and its
// bits, on every machine.
#pragma once

#include <limits>

#include "tensor/device.h"
#include "tensor/shape.h"

namespace whence {

struct AttentionBudget {
  // Scores up to this size are cheaper to keep than to compute twice. A training step holds a dozen of them per layer.
  // A GPU has more memory than it has time for the many small kernels of strips.
  index_t bytes_worth_strips;
  // The size of a strip: its scores should stay in the caches' reach but keep all cores busy. On a GPU what counts is
  // that a strip's dozen of kernels have work for longer than their launches take.
  index_t strip_bytes, strip_rows;
  bool reads_at_once;  // false: to look at a number is to wait for the device
};

constexpr AttentionBudget budget_of(Device device) {
  constexpr index_t MiB = index_t(1) << 20;
  return device.is_gpu() ? AttentionBudget{2048 * MiB, 1024 * MiB, std::numeric_limits<index_t>::max(), false}
                         : AttentionBudget{256 * MiB, 16 * MiB, 512, true};
}

}  // namespace whence
