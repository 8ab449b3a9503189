// The piecewise part of the base that a head mix reads (FIRE), as channels after those of the scores:
//   B_ij = slope_h[n] a + offset_h[n],  a = row_i distance[i-j] in piece n: begin[n] < a <= begin[n+1]
// Backward, from dB, which mix_backward.h has stored in the same layout:
//   d_slope_h[n] = sum dB a,  d_offset_h[n] = sum dB,  d_row_i = sum_j dB slope distance
//   d_distance[m] = sum dB slope row
// A lane goes along the keys of a row and keeps its piece until a leaves it. Then the sums for the piece are added to
// the lane's own sums.
#pragma once

#include "cuda/kernels/tiles/mix_pairs.h"

namespace whence::gpu {

template <class C> struct PieceTerms {
  Global<const C> distance, row, begins, slopes, offsets;  // [distances], [b h queries], [pieces], [h pieces]
  int distances = 0, lowest = 0, pieces = 0;
};

// P: of the pairs. Forward makes B; backward reads dB and overwrites it with dB slope row.
template <class P, bool backward> struct MixPieces {
  using C = compute_t<P>;
  static constexpr const char* name = backward ? "gradient of pieces" : "pieces of the mix";
  static constexpr int threads = head_threads, rows = 8 * head_warps, pitch = threads + 1;

  HeadFacts<C> facts;
  MixRows group;
  PieceTerms<C> terms;
  PairBlocks<P> pairs;
  Global<const std::int32_t> present;
  Global<C> d_row = nullptr;      // [b h queries]
  Global<C> of_pieces = nullptr;  // [block, pieces, 2], slopes and offsets: added to

  static index_t blocks(const MixRows& group, int heads) {
    return index_t(group.sequences) * heads * (group.rows / rows);
  }
  static constexpr std::size_t shared_bytes(int pieces) {
    return backward ? shared_bytes_for<C>(static_cast<std::size_t>(2 * pieces * pitch)) : 0;
  }

  struct Piece {
    int n = 0;
    Number<C> begin = 0.0f, end = -1.0f, slope = 0.0f, offset = 0.0f, d_slope = 0.0f, d_offset = 0.0f;
  };

  WHENCE_HD void operator()(Thread& t) const {
    const int strips = group.rows / rows;
    int n = static_cast<int>(t.block());
    const int row = n % strips * rows + t.warp() * 8 + t.lane() % 8, h = (n /= strips) % facts.heads,
              sequence = n / facts.heads, b = group.first_sequence + sequence, query = group.first_query + row,
              token = facts.first() + query;
    const KeysOfStrip keys = keys_of_strip(facts, present, b, query);
    const int begin = larger(present ? int(present[b * 2]) : 0, token - facts.before),
              end = smaller(present ? int(present[b * 2 + 1]) : facts.keys, token + facts.after + 1);
    const bool there = query < facts.queries;
    const index_t of_row = index_t(b * facts.heads + h) * facts.queries + query;
    const Number<C> r = there ? load<C>(terms.row, of_row) : Number<C>(0.0f);
    Shared<C> sums{};
    if constexpr (backward) {
      sums = t.shared<C>(2 * terms.pieces * pitch);
      for (int k = 0; k < 2 * terms.pieces; ++k) store(sums, k * pitch + t.index(), Number<C>(0.0f));
    }
    Piece piece;
    Number<C> d_of_row = 0.0f;
    const index_t at = pairs.of(sequence, row, facts.heads + h);
    for (int key = keys.begin + t.lane() / 8 * 8; key < keys.end; key += 32) {
      Pack<P, 8> d{};
      const index_t of_keys = at + index_t(key / 8) * pairs.step();
      if constexpr (backward) each<8>([&](auto j) { d.of[j] = pairs.at[of_keys + 8 * j]; });
      const SeenColumns seen(begin - key, there ? end - key : begin - key);
      Registers<Number<C>, 8> result;
      each<8>([&](auto j) {
        if (!seen.has(j)) return;
        const int m = token - key - j - terms.lowest;
        const Number<C> u = m >= 0 && m < terms.distances ? load<C>(terms.distance, m) : Number<C>(0.0f), a = r * u;
        if (a > piece.end || a <= piece.begin) {
          if constexpr (backward) to_sums(t, sums, piece);
          find(h, a, piece);
        }
        if constexpr (backward) {
          const Number<C> g = from_stored<C>(d.of[j]);
          piece.d_slope += g * a, piece.d_offset += g, d_of_row += g * piece.slope * u;
          result[j] = g * piece.slope * r;
        } else {
          result[j] = (piece.slope * a + piece.offset) / mix_unit;
        }
      });
      const Pack<P, 8> all = eight_of<P, !backward>([&](auto j) { return result[j]; });
      each<8>([&](auto j) { pairs.at[of_keys + 8 * j] = all.of[j]; });
    }
    if constexpr (backward) {
      to_sums(t, sums, piece);
      for (int mask = 8; mask <= 16; mask *= 2) d_of_row += t.shuffle_xor(d_of_row, mask);
      if (there && t.lane() < 8) store(d_row, of_row, d_of_row);
      t.sync();
      for (int k = t.index(); k < 2 * terms.pieces; k += threads) {
        Number<C> sum = load<C>(of_pieces, t.block() * 2 * terms.pieces + k);
        for (int thread = 0; thread < threads; ++thread) sum += load<C>(sums, k * pitch + thread);
        store(of_pieces, t.block() * 2 * terms.pieces + k, sum);
      }
    }
  }

 private:
  // The first piece begins at -infinity, and the last one has no end.
  WHENCE_HD void find(int h, Number<C> a, Piece& piece) const {
    int n = piece.n;
    while (n > 0 && a <= load<C>(terms.begins, n)) --n;
    while (n + 1 < terms.pieces && a > load<C>(terms.begins, n + 1)) ++n;
    piece.n = n, piece.d_slope = piece.d_offset = 0.0f;
    piece.begin = n > 0 ? load<C>(terms.begins, n) : Number<C>(not_seen);
    piece.end = n + 1 < terms.pieces ? load<C>(terms.begins, n + 1) : Number<C>(-not_seen);
    piece.slope = load<C>(terms.slopes, h * terms.pieces + n),
    piece.offset = load<C>(terms.offsets, h * terms.pieces + n);
  }
  WHENCE_HD void to_sums(Thread& t, Shared<C> sums, const Piece& piece) const {
    const int at = 2 * piece.n * pitch + t.index();
    store(sums, at, load<C>(sums, at) + piece.d_slope);
    store(sums, at + pitch, load<C>(sums, at + pitch) + piece.d_offset);
  }
};

// Sums by head and distance of the numbers that MixPieces stores. The rows of one warp are 16 apart.
template <class P> struct SumPieceDistances {
  using C = compute_t<P>;
  static constexpr const char* name = "sums of pieces by distance";
  static constexpr int warps = 16, threads = 32 * warps;
  static constexpr std::size_t shared_bytes = shared_bytes_for<C>(threads);
  HeadFacts<C> facts;
  MixRows group;
  PairBlocks<const P> pairs;
  Global<const std::int32_t> present;
  int lowest, distances;
  Global<C> to;  // [h distances], added to
  WHENCE_HD void operator()(Thread& t) const {
    const int blocks = (distances + 31) / 32, h = static_cast<int>(t.block()) / blocks,
              n = static_cast<int>(t.block()) % blocks * 32 + t.lane(), steps = n + lowest;
    const bool there = n < distances && steps <= facts.before && steps >= -facts.after;
    const Shared<C> sums = t.shared<C>(threads);
    Number<C> sum = 0.0f;
    for (int sequence = 0; there && sequence < group.sequences; ++sequence) {
      const int b = group.first_sequence + sequence, first = facts.first() + group.first_query - steps,
                begin = (present ? int(present[b * 2]) : 0) - first,
                end = smaller((present ? int(present[b * 2 + 1]) : facts.keys) - first,
                    smaller(group.rows, facts.queries - group.first_query));
      for (int row = t.warp(); row < end; row += warps)
        if (row >= begin)
          sum += load<C>(pairs.at, pairs.of(sequence, row, facts.heads + h) +
                                       index_t((first + row) / 8) * pairs.step() + (first + row) % 8 * 8);
    }
    store(sums, t.index(), sum);
    t.sync();
    if (t.warp() > 0 || n >= distances) return;
    Number<C> total = load<C>(to, index_t(h) * distances + n);
    for (int warp = 0; warp < warps; ++warp) total += load<C>(sums, warp * 32 + t.lane());
    store(to, index_t(h) * distances + n, total);
  }
};

}  // namespace whence::gpu
