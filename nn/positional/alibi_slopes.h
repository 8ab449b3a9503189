// ALiBi's slopes for any number of heads.   Press et al. 2022, arXiv:2108.12409
//   H = 2^a heads: m_h = 2^(-8(h+1)/H)
//   other H:       the slopes of the next lower power of two C, then elements 0, 2, 4, ... of those of 2C
#pragma once

#include <cmath>
#include <vector>

#include "tensor/shape.h"

namespace whence {

inline std::vector<double> alibi_slopes(index_t heads) {
  index_t power = 1;
  while (2 * power <= heads) power *= 2;
  const auto slope = [](index_t h, index_t count) {
    return std::exp2(-8.0 * static_cast<double>(h + 1) / static_cast<double>(count));
  };
  std::vector<double> slopes;
  for (index_t h = 0; h < power; ++h) slopes.push_back(slope(h, power));
  for (index_t h = 0; power + h < heads; ++h) slopes.push_back(slope(2 * h, 2 * power));
  return slopes;
}

}  // namespace whence
