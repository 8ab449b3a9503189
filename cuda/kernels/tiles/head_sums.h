// Small sums around the gradients of heads (heads_backward.h): over rows before them, over blocks of rows after them.
#pragma once

#include "cuda/kernels/tiles/head_rows.h"
#include "tensor/math.h"

namespace whence::gpu {

// Sums over a row: those that backward reads, and the one for a sink's gradient. A lane has a pack of a row.
template <class T, int width> struct RowSums {
  using C = compute_t<T>;
  static constexpr const char* name = "sums of rows";
  static constexpr int threads = head_threads, pack = matrix_row<T>, lanes = width / pack, rows = threads / lanes;
  HeadRows<const T> o, d_o;
  Global<const C> norms;  // [b h queries 2]
  Global<const C> sink;   // [h], or null
  RowBlocks<C> to;
  Global<C> of_sink;  // [b h queries]
  int heads, queries, d;
  HeadRows<const T> bin_sums = {}, d_bins = {};  // as o and d_o, [b h queries bins]
  int bins = 0;
  WHENCE_HD void operator()(Thread& t) const {
    const int blocks = to.blocks * (RowBlocks<C>::rows / rows), head = static_cast<int>(t.block()) / blocks,
              row = static_cast<int>(t.block()) % blocks * rows + t.index() / lanes, column = t.index() % lanes * pack,
              b = head / heads, h = head % heads;
    Number<C> sum = 0.0f;
    if (row < queries && column < d) {
      const auto x = load_pack<pack>(o.of(b, h), row * o.row + column),
                 y = load_pack<pack>(d_o.of(b, h), row * d_o.row + column);
      for (int k = 0; k < pack; ++k) sum += from_stored<C>(x.of[k]) * from_stored<C>(y.of[k]);
    }
    for (int n = t.index() % lanes; row < queries && n < bins; n += lanes)
      sum += load<C>(bin_sums.of(b, h), row * bin_sums.row + n) * load<C>(d_bins.of(b, h), row * d_bins.row + n);
    for (int mask = lanes / 2; mask > 0; mask /= 2) sum += t.shuffle_xor(sum, mask);
    if (column > 0) return;
    const index_t n = index_t(head) * queries + row;
    const Number<C> top = row < queries ? load<C>(norms, 2 * n) : Number<C>(0.0f),
                    share = row < queries ? load<C>(norms, 2 * n + 1) : Number<C>(0.0f);
    // The pattern of a row that sees nothing is 0.
    const Number<C> norm = share > 0.0f ? top - math::log(share) * log2e<C> : Number<C>(-not_seen);
    store(to.of(head, row), 0, norm), store(to.of(head, row), RowBlocks<C>::rows, sum);
    if (sink && row < queries) store(of_sink, n, -(ex2_approx(load<C>(sink, h) * log2e<C> - norm) * sum));
  }
};

// Sums over the pairs of a block by distance, while its warps walk over tiles of 32 keys to the right. A lane sums one
// diagonal of the warp's tile, of `of_warp` rows, or rather two, 32 steps apart: the further one is complete, and the
// nearer one continues in the next tile. Warps whose rows are 32 apart meet the same 32 diagonals one tile later each:
// a chain, which passes the sums on through shared memory. Its last warp has the complete sums. So each sum is stored
// once.
template <class C, int of_warp> struct Diagonals {
  static constexpr int chains = 32 / of_warp, of_chain = head_warps / chains;
  static constexpr int behind = of_chain;  // tiles of zeros after the last, which complete all sums
  static constexpr int pitch = of_warp + 4, tile_numbers = 32 * pitch, shared_floats = head_warps * (tile_numbers + 32);

  Shared<C> memory;  // each warp's tile, transposed, then the sums that are passed on
  Number<C> going_on = 0.0f;

  // A lane has one number of each of of_warp consecutive diagonals, and writes them to adjacent places.
  template <class Pairs> WHENCE_HD void lay_out(Thread& t, Pairs& x) const {
    const Shared<C> own = memory + t.warp() * tile_numbers;
    t.sync_warp();
    each<of_warp / 4>([&](auto four) {
      Pack<C, 4> pack;
      each<4>([&](auto e) { pack.of[e] = plain(number(x, Nth<four / 2>{}, Nth<7 - four % 2 * 4 - e>{})); });
      store_pack<4>(own, t.lane() * pitch + 4 * four, pack);
    });
  }
  // Adds what lay_out has written. nth: of the tiles that the block walks over. Number `at` of the slice is of the
  // warp's first row and the tile's first key.
  WHENCE_HD void add(Thread& t, int nth, Global<C> slice, int at, int length) {
    const Shared<C> own = memory + t.warp() * tile_numbers;
    t.sync_warp();
    Number<C> done = going_on, low = 0.0f;
    each<32>([&](auto lane) {
      const int n = t.lane() + 7 - lane / 4 + lane % 4 * 8;  // of diagonal t.lane(); 32 further on for the nearer one
      if (n % 32 >= of_warp) return;
      const Number<C> of = load<C>(own, lane * pitch + n % 32);
      (n < 32 ? done : low) += of;
    });
    going_on = low;
    const int chain = t.warp() % chains, place = t.warp() / chains;
    const Shared<C> handed = memory + head_warps * tile_numbers;
    const int slot = (chain * of_chain + ((place - nth) & (of_chain - 1))) * 32 + t.lane();
    if (place > 0 && nth > 0) done += load<C>(handed, slot);
    if (place < of_chain - 1) return store(handed, slot, done);
    if (at + t.lane() >= 0 && at + t.lane() < length) store(slice, at + t.lane(), done);
  }
};

// The gradient of a table, [h distances]: four warps sum the slices of blocks of queries in order, then the warps' sums
// are added in order. A slice has the sum of pairs `row of the block - key` = n - keys + 1 in its number n.
template <class C> struct SumSlices {
  static constexpr const char* name = "sums of slices";
  static constexpr int threads = head_threads, of_block = 32;
  static constexpr std::size_t shared_bytes = shared_bytes_for<C>(threads);
  Global<const C> slices;  // [count, blocks, chains, keys + rows], of heads first_head, first_head + 1, ... of b h
  Global<C> d_table;       // added to, from the second launch on
  int heads, keys, first_row, distances, lowest;
  int first_head, count, blocks, rows, chains;
  WHENCE_HD void operator()(Thread& t) const {
    const int blocks_of_head = (distances + of_block - 1) / of_block, h = static_cast<int>(t.block()) / blocks_of_head,
              n = static_cast<int>(t.block()) % blocks_of_head * of_block + t.lane(), length = keys + rows;
    const Shared<C> sums = t.shared<C>(threads);
    Number<C> sum = 0.0f;
    for (int head = (h - first_head % heads + heads) % heads; head < count; head += heads)
      for (int slice = t.warp(); slice < blocks * chains; slice += head_warps) {
        const int at = n + lowest - first_row - slice / chains * rows + keys - 1;
        if (n < distances && at >= 0 && at < length)
          sum += load<C>(slices, (index_t(head) * blocks * chains + slice) * length + at);
      }
    store(sums, t.index(), sum);
    t.sync();
    if (t.warp() > 0 || n >= distances) return;
    Number<C> total = first_head > 0 ? load<C>(d_table, index_t(h) * distances + n) : Number<C>(0.0f);
    for (int warp = 0; warp < head_warps; ++warp) total += load<C>(sums, warp * 32 + t.lane());
    store(d_table, index_t(h) * distances + n, total);
  }
};

}  // namespace whence::gpu
