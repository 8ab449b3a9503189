// The papers' initialisations of a transformer's parameters.
#pragma once

#include "nn/layers/init.h"

namespace whence {

enum class Initialisation : unsigned char {
  gpt2,   // N(0, 0.02^2); layers that write to the residual stream: divided by sqrt(2 layers)
  neox,   // N(0, 2/(5 dim)); writers to the residual stream: deviation 2/(layers sqrt(dim)) (Black et al. 2022)
  llama,  // N(0, 0.02^2)
  ram,    // embedding N(0, 1/dim), the rest as in PyTorch's Linear
  // truncated normal, 0.02 for the embedding and 1/sqrt(dim) for the rest, as the authors of randomised positions do
  che
};

// in: layers that read the residual stream. attention_out, mlp_out: layers that write to it.
struct Inits {
  Init embedding, in, attention_out, mlp_out, bias, head;
};
Inits inits_of(Initialisation initialisation, index_t dim, index_t hidden, index_t layers);

}  // namespace whence
