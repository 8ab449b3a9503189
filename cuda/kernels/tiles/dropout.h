// Dropout in tiles of heads. The kept pairs are drawn again for every tile, the same ones in both directions and on the
// CPU (tensor/tiled_call.h). A call of Philox draws four numbers, of neighbouring keys. In forward and in
// the gradient of queries a lane draws its own; in the gradient of keys lanes exchange what they drew.
// Per pair: 1/4 of a call, some 20 operations on integers; 5/16 to 1/2 if keys are no multiple of four.
#pragma once

#include "cuda/kernels/tiles/head_rows.h"
#include "tensor/random.h"

namespace whence::gpu {

template <class C> struct PairDropout {
  Stream stream = {};
  std::uint32_t threshold = 0;  // of 2^24; 0: all pairs are kept
  C factor = 1;                 // of the kept pairs
  index_t rows = 0;             // of a head's whole pattern

  WHENCE_HD explicit operator bool() const { return threshold > 0; }

  // Bit k is 1 if the pair of a query and of key + k is kept, k < count. `head`: of b h query heads.
  template <int count> WHENCE_HD std::uint32_t staying(const HeadFacts<C>& facts, int head, int query, int key) const {
    const auto first = static_cast<std::uint64_t>((head * rows + facts.first_row + query) * facts.keys + key);
    const int behind = static_cast<int>(first % 4);  // draws of the call for keys before these
    std::uint32_t bits = 0;
    for (int n = 0; n < behind + count; n += 4) {
      const auto words = philox(stream.key, first / 4 + static_cast<unsigned>(n) / 4, stream.step);
      each<4>([&](auto k) { bits |= std::uint32_t{dropout_keeps(std::get<k>(words), threshold)} << (n + k); });
    }
    return bits >> behind & ((1u << count) - 1);
  }
};

// The kept pairs of a lane. Its lines and columns are as in HeadsBackward, which has `to_keys` and `neighbours`.
template <int lines, int own, bool to_keys, bool neighbours = false> struct StayingPairs {
  std::conditional_t<lines * own <= 32, std::uint32_t, std::uint64_t> bits = 0;

  // row: the warp's first one; column: the tile's.
  template <class C>
  WHENCE_HD void draw(Thread& t, const PairDropout<C>& of, const HeadFacts<C>& facts, int head, int row, int column) {
    // A shuffle is not moved by the compiler. Otherwise it would compute what depends on a head before all tiles, and
    // keep it in registers.
    head = t.shuffle(head, t.lane());
    const int g = t.lane() / 4, own_column = column + t.lane() % 4 * own;
    if constexpr (to_keys) {
      // Eight lanes have the same queries. Each draws for four keys, or for a share of the queries if a warp has only
      // 16 keys.
      constexpr int fours = 2 * lines, shares = 8 / fours, share = own / shares;
      std::uint32_t drawn = 0;
      for (int j = 0; j < share; ++j)
        drawn |= of.template staying<4>(facts, head, own_column + g / fours * share + j, row + g % fours * 4)
                 << (4 * j);
      each<lines>([&](auto a) {
        const int line = row_of_line<neighbours>(g, a);
        each<shares>([&](auto s) {
          const std::uint32_t got = t.shuffle(drawn, (s * fours + line / 4) * 4 + t.lane() % 4);
          bits |= (got >> line % 4 & 0x11111111u) << (4 * share * s + a);
        });
      });
    } else {
      for (int a = 0; a < lines; ++a)
        bits |= decltype(bits){of.template staying<own>(facts, head, row + row_of_line<neighbours>(g, a), own_column)}
                << (own * a);
    }
  }

  // Sets numbers of dropped pairs to 0 and scales the others.
  template <class C, class Pairs> WHENCE_HD void drop(C factor, Pairs& x) const {
    each<lines>([&](auto a) {
      each<own>([&](auto j) { number(x, a, j) *= bits >> (to_keys ? 4 * j + a : own * a + j) & 1 ? factor : C(0); });
    });
  }
};

}  // namespace whence::gpu
