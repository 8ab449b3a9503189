// Samples of ops in tiles: sizes that are no multiple of a tile.
#pragma once

#include "autograd/ops.h"
#include "autograd/samples/samples.h"
#include "autograd/tiled/tiled_ops.h"

namespace whence::tiled {

using At = TiledCall;
using Inputs = std::vector<Tensor>;

struct Case {
  std::string name;
  At at;
  std::vector<std::size_t> operands;  // the operand that each input is
  Inputs inputs;
};

inline Case of(std::string name, index_t b, index_t h, index_t i, index_t j, index_t d, index_t group = 1) {
  Case c{std::move(name), {}, {At::query, At::key, At::value},
      {draw::normal({b, h, i, d}), draw::normal({b, h / group, j, d}), draw::normal({b, h / group, j, d})}};
  c.at.scale = 0.6;
  c.at.first_row = j - i;
  c.at.total_rows = j;
  return c;
}
inline Case with(Case c, std::size_t operand, Tensor x) {
  c.operands.push_back(operand);
  c.inputs.push_back(std::move(x));
  return c;
}

// Adds a piecewise term of four pieces.
inline Case with_pieces(Case c, index_t distances) {
  const Shape queries = c.inputs[0].shape();
  c = with(std::move(c), At::piece_distance, draw::uniform({distances}, 0.2, 2));
  c = with(std::move(c), At::piece_row, draw::uniform({queries[0], queries[1], queries[2]}, 0.3, 1));
  c = with(std::move(c), At::piece_begins, Tensor::of({-9, 0.4, 0.9, 1.3}, {4}, DType::f64));
  c = with(std::move(c), At::piece_slopes, draw::normal({queries[1], 4}));
  return with(std::move(c), At::piece_offsets, draw::normal({queries[1], 4}));
}

// Makes samples that call run_case(at, operands) -> y.
template <class Run> Samples samples_of(const std::vector<Case>& cases, const Run& run_case) {
  Samples result;
  for (const Case& c : cases) {
    result.push_back({c.name, c.inputs, [at = c.at, which = c.operands, run_case](const Inputs& inputs) {
                        At::Operands x;
                        for (std::size_t k = 0; k < which.size(); ++k) x[which[k]] = inputs[k];
                        return run_case(at, x);
                      }});
  }
  return result;
}

}  // namespace whence::tiled
