#include "nn/layers/init_policies.h"

#include <cmath>

namespace whence {

Inits inits_of(Initialisation initialisation, index_t dim, index_t hidden, index_t layers) {
  const double width = static_cast<double>(dim), depth = static_cast<double>(layers);
  const Init zeros = Init::zeros(), small = Init::normal(0, 0.02);
  switch (initialisation) {
    case Initialisation::gpt2: {
      const Init out = Init::normal(0, 0.02 / std::sqrt(2 * depth));
      return {small, small, out, out, zeros, small};
    }
    case Initialisation::neox: {
      const Init in = Init::normal(0, std::sqrt(2 / (5 * width))),
                 out = Init::normal(0, 2 / (depth * std::sqrt(width)));
      return {in, in, out, out, zeros, in};
    }
    case Initialisation::llama: return {small, small, small, small, zeros, small};
    case Initialisation::ram: {
      const Init linear = Init::fan_in(dim);
      return {Init::normal(0, 1 / std::sqrt(width)), linear, linear, Init::fan_in(hidden), linear, linear};
    }
    default: {
      const Init linear = Init::truncated_normal(0, 1 / std::sqrt(width));
      return {Init::truncated_normal(0, 0.02), linear, linear, linear, zeros, linear};
    }
  }
}

}  // namespace whence
