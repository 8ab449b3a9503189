// The gradient of the head mix at its scores (mix_walk.h), from dA, which mix_logits.h has stored:
//   dpre_d[c] = leaky'(hidden) sum_{h,t} W2[h d t] dA_h[c - t + left]
//   dX_x[j]   = dA_x[j] (of B where it is added to A) + sum_{d,t} W1[d x t] dpre_d[j - t + left]
//   dW1[d x t] = sum dpre_d[c] X_x[c + t - left],  du = dpre by distance, of columns near the first key by column, too
#pragma once

#include "cuda/kernels/tiles/mix_logits.h"

namespace whence::gpu {

template <class T, int left, int right, int slots, int parts> struct MixScores {
  using C = compute_t<T>;
  using M = Mixed<T>;
  using Walk = MixWalk<M, left, right, left, slots, parts>;
  static constexpr const char* name = "gradient of the mix";
  static constexpr int threads = head_threads, taps = Walk::taps, ring = Walk::ring;
  // Columns ahead that are read of X, and of dA.
  static constexpr int ahead = Walk::ahead, ahead_of_d = 2 * left;
  static_assert(ahead_of_d <= 8);
  static constexpr std::size_t shared_bytes = Walk::shared_bytes(false) +
                                              shared_bytes_for<M>(Walk::stages * parts * Walk::fetched) +
                                              shared_bytes_for<T>(Walk::stages * Walk::fetched);

  MixFacts<M> mix;
  PairBlocks<const T> d_logits;
  PairBlocks<T> d_scores;
  Global<C> of_weights, of_u;  // slices of each warp, or null
  Global<C> of_first;          // [b left queries mix_hidden]: columns near the first key, or null

  struct Gradients {
    Registers<FragmentA<T>, ring> d;                     // the last columns of dA
    Registers<Registers<FragmentA<T>, 2>, ring> before;  // and of dpre
    Registers<Registers<Register<T>, 8>, taps> output;   // W2 and W1 as right factors, transposed
    Registers<Registers<Register<T>, 8>, taps * parts> input;
    Registers<Registers<FragmentC<T>, 4>, taps * parts> weights;  // dW1, transposed
    Registers<FragmentC<T>, 4> by_distance;
    Register<T> one, slope;
  };

  WHENCE_HD void operator()(Thread& t) const {
    Walk walk(t, mix, false);
    const Shared<M> fetched = t.shared<M>(Walk::stages * parts * Walk::fetched);
    const Shared<T> fetched_d = t.shared<T>(Walk::stages * Walk::fetched);
    const MixPlace& place = walk.place;
    if (place.keys.begin >= place.keys.end) return;
    walk.begin(t);
    Gradients of;
    of.one = pack_two<T>(1.0f, 1.0f), of.slope = pack_two<T>(mix.slope, mix.slope);
    each<taps>([&](auto tap) {
      each<8>([&](auto r) {
        const int d = r / 2 * 8 + t.lane() / 4, k = r % 2 * 8 + t.lane() % 4 * 2;
        of.output[tap][r] = pack_two<T>(walk.output(d, k, tap), walk.output(d, k + 1, tap));
        const int e = r / 4 * 16 + r % 2 * 8 + t.lane() % 4 * 2, l = r / 2 % 2 * 8 + t.lane() / 4;
        each<parts>([&](auto part) {
          constexpr int n = tap * parts + part;
          of.input[Nth<n>{}][r] = pack_two<T>(walk.input(e, l, n), walk.input(e + 1, l, n));
        });
      });
    });
    typename Walk::template Packs<M, parts> x;
    typename Walk::template Packs<T> d;
    const auto stage = [&](int step) { return fetched + Walk::stage_of(step) * parts * Walk::fetched; };
    const auto stage_d = [&](int step) { return fetched_d + Walk::stage_of(step) * Walk::fetched; };
    constexpr int further = left > 0 ? 1 : 0;
    const auto fetch = [&](int step) {
      walk.template fetch<parts>(t, stage(step), mix.scores, step), walk.fetch(t, stage_d(step), d_logits, step);
      cp_async_commit(t);
    };
    if constexpr (further > 0) {
      fetch(place.begin_step);
      cp_async_wait<0>(t);
      walk.take(t, stage(place.begin_step), x), walk.take(t, stage_d(place.begin_step), d);
      each<ahead>([&](auto n) { walk.put_column(n, x, n); });
      each<ahead_of_d>([&](auto n) { of.d[typename Walk::template In<n>{}] = Walk::template factor<T>(d, n); });
    }
    each<Walk::stages - 1>([&](auto n) { fetch(place.begin_step + further + n); });
    for (int step = place.begin_step; step < place.end_step; ++step) {
      cp_async_wait<Walk::stages - 2>(t);
      if constexpr (further == 0) walk.take(t, stage(step), x), walk.take(t, stage_d(step), d);
      fetch(step + Walk::stages - 1 + further);
      walk.begin_step(t, step);
      work(t, walk, step, stage(step + 1), stage_d(step + 1), x, d, of);
    }
    cp_async_wait<0>(t);
    const index_t warp = t.block() * head_warps + t.warp();
    if (of_u && place.begin_step < place.end_step)
      put_diagonals(t, of_u + warp * mix_slice_rows * mix_hidden, 8 * (mix_steps - place.end_step) + t.lane() / 4,
          of.by_distance);
    if (of_weights)
      put_weights<C>(t, of_weights + warp * weights_of_slice<taps, parts> + taps * mix_heads * mix_hidden, of.weights);
  }

 private:
  template <class Packs, class PacksOfD>
  WHENCE_HD void work(
      Thread& t, Walk& walk, int step, Shared<M> next, Shared<T> next_d, Packs& x, PacksOfD& d, Gradients& of) const {
    typename Walk::template Packs<T, parts> result;
    Registers<SeenColumns, 2> seen;
    each<2>([&](auto half) { seen[half] = walk.seen(walk.place.key + 8 * (step + half), half, t); });
    each<8>([&](auto n) {
      if constexpr (left > 0 && n + ahead == 8) walk.take(t, next, x);
      if constexpr (left > 0 && n + ahead_of_d == 8) walk.take(t, next_d, d);
      walk.put_column(Nth<n + ahead>{}, x, Nth<(n + ahead) % 8>{});
      of.d[typename Walk::template In<n + ahead_of_d>{}] = Walk::template factor<T>(d, Nth<(n + ahead_of_d) % 8>{});
      walk.make_hidden(t, step, n);
      before_leaky(t, walk, step, n, of);
      // dX of the step's own column
      each<parts>([&](auto part) {
        Registers<FragmentC<T>, 2> y;
        each<4>([&](auto r) {
          if (part > 0 && !mix.adds_pieces) return;
          const auto two = unpack_two<T>(of.d[typename Walk::template In<n>{}][r]);
          y[Nth<r / 2>{}][Nth<r % 2 * 2>{}] = two.low, y[Nth<r / 2>{}][Nth<r % 2 * 2 + 1>{}] = two.high;
        });
        each<taps>([&](auto tap) {
          each<2>([&](auto s) {
            each<2>([&](auto k) {
              constexpr Nth<tap * parts + part> of_tap{};
              mma<T>(t, y[k], of.before[typename Walk::template In<n - tap + left>{}][s],
                  of.input[of_tap][Nth<4 * s + 2 * k>{}], of.input[of_tap][Nth<4 * s + 2 * k + 1>{}]);
            });
          });
        });
        each<2>([&](auto half) {
          each<slots>([&](auto s) {
            result[half][Nth<part * slots + s>{}].of[n] =
                to_stored<T>(seen[half].has(n) ? y[Nth<s / 2>{}][Nth<2 * half + s % 2>{}] : Number<C>(0.0f));
          });
        });
      });
    });
    if (step < 0) return;
    if (of_u)
      put_diagonals(t, of_u + (t.block() * head_warps + t.warp()) * mix_slice_rows * mix_hidden,
          8 * (mix_steps - step) + t.lane() / 4, of.by_distance);
    each<2>([&](auto half) {
      if (!walk.has_keys(step, half)) return;
      const index_t at = walk.at_of(t, d_scores, step, half);
      each<slots * parts>([&](auto s) {
        if (4 * (s % slots) + t.lane() % 4 < walk.heads())
          store_pack<8>(d_scores.at, at + walk.channel(s) * 64, result[half][s]);
      });
    });
  }

  // dpre of column n + left, and its part of the gradients of W1 and u.
  template <int n> WHENCE_HD void before_leaky(Thread& t, Walk& walk, int step, Nth<n>, Gradients& of) const {
    constexpr int column = n + left;
    using Own = typename Walk::template In<column>;
    Registers<int, 2> nth;  // columns after the first key
    each<2>([&](auto half) { nth[half] = walk.first_hidden(step, half) + n - walk.place.begin; });
    Registers<Registers<Register<T>, 2>, 4> transposed;
    each<4>([&](auto b) {
      FragmentC<T> sum;
      each<taps>([&](auto tap) {
        mma<T>(t, sum, of.d[typename Walk::template In<column - tap + left>{}], of.output[tap][Nth<2 * b>{}],
            of.output[tap][Nth<2 * b + 1>{}]);
      });
      each<2>([&](auto half) {
        const Register<M> hidden = walk.hidden[Own{}][Nth<b / 2>{}][Nth<half + b % 2 * 2>{}];
        Register<T> value = times_two<T>(pack_two<T>(sum[Nth<2 * half>{}], sum[Nth<2 * half + 1>{}]),
            where_negative<T, M>(hidden, of.slope, of.one));
        if (taps > 1 && !walk.there[half].has(n)) value = {};
        of.before[Own{}][Nth<b / 2>{}][Nth<half + b % 2 * 2>{}] = value;
        transposed[b][half] = movmatrix<T>(t, value);
        if (left > 0 && walk.at_border && of_first && step >= 0) put_first(t, walk, nth[half], half, 8 * b, value);
      });
    });
    if (step < 0) return;
    if (of_u) {
      FragmentA<T> ones = diagonals_of<T>(t, n);
      if (left > 0 && walk.at_border)  // those have separate sums
        each<4>([&](auto r) {
          if (nth[Nth<r / 2>{}] < left) ones[r] = {};
        });
      each<4>([&](auto b) { mma<T>(t, of.by_distance[b], ones, transposed[b][Nth<0>{}], transposed[b][Nth<1>{}]); });
    }
    if (of_weights)
      each<taps * parts>([&](auto k) {
        const FragmentA<T> heads = transposed_factor<T, M>(
            t, walk.x[typename Walk::template In<column - left + k / parts>{}][Nth<k % parts>{}]);
        each<4>([&](auto b) { mma<T>(t, of.weights[k][b], heads, transposed[b][Nth<0>{}], transposed[b][Nth<1>{}]); });
      });
  }
  // Stores two hidden numbers of column nth after the first key, if it has separate rows of u.
  WHENCE_HD void put_first(Thread& t, const Walk& walk, int nth, int half, int d, Register<T> value) const {
    const int query = walk.place.query + 8 * half + t.lane() / 4;
    if (nth < 0 || nth >= left || query >= mix.facts.queries) return;
    const index_t at =
        ((index_t(walk.place.b) * left + nth) * mix.facts.queries + query) * mix_hidden + d + t.lane() % 4 * 2;
    const auto two = unpack_two<T>(value);
    store(of_first, at, two.low), store(of_first, at + 1, two.high);
  }
};

// Sums of warps' slices, in order, as gradients: dW1 and dW2, which are summed already, in the operands' order.
template <class T> struct PutMixWeights {
  using C = compute_t<T>;
  static constexpr const char* name = "weights of the mix";
  static constexpr int threads = 128;
  Global<const C> sums;               // as a warp's slice
  SmallOperand<T> d_output, d_input;  // or null
  int heads, width, taps, parts;
  WHENCE_HD void operator()(Thread& t) const {
    const int n = static_cast<int>(t.block()) * threads + t.index(), d = n % mix_hidden,
              h = head_of_column(n / mix_hidden % mix_heads), k = n / (mix_hidden * mix_heads);
    if (d >= width || h >= heads) return;
    const Number<C> sum = load<C>(sums, n);
    if (k < taps) {
      if (d_output) d_output.set(index_t(h * width + d) * taps + k, sum);
    } else if (d_input) {
      const int of_tap = (k - taps) / parts, part = (k - taps) % parts;
      d_input.set(index_t((d * parts + part) * heads + h) * taps + of_tap, sum);
    }
  }
};

// Sums by distance of a table [rows, count], of heads or of hidden numbers. Slices are of the same rows of sequences.
template <class C, bool heads> struct MixDistances {
  static constexpr int columns = heads ? mix_heads : mix_hidden;
  Global<const C> slices = nullptr;  // [block of MixFacts::blocks, warp, mix_slice_rows, columns]
  Global<C> to = nullptr;
  int rows = 0, lowest = 0, count = 0;
  int first_distance = 0;  // steps from key 0 to the group's first query; less for columns that are ahead
  index_t numbers() const { return index_t(count) * columns; }
  WHENCE_HD void sum(index_t n, int walks, int strips, int sequences, bool first) const {
    const int column = static_cast<int>(n % columns), m = static_cast<int>(n / columns),
              line = heads ? head_of_column(column) : column;
    if (m >= count || line >= rows) return;
    const index_t at = index_t(line) * count + m;
    Number<C> total = first ? Number<C>(0.0f) : load<C>(to, at);
    for (int strip = 0; strip < strips; ++strip)
      for (int walk = 0; walk < walks; ++walk) {
        const int row = m + lowest - first_distance - 64 * strip + mix_walk_keys * (walk + 1) - mix_tile;
        if (row < 0 || row >= mix_slice_rows) continue;
        for (int sequence = 0; sequence < sequences; ++sequence)
          for (int warp = 0; warp < head_warps; ++warp) {
            const index_t slice = ((index_t(sequence) * strips + strip) * walks + walk) * head_warps + warp;
            total += load<C>(slices, (slice * mix_slice_rows + row) * columns + column);
          }
      }
    store(to, at, total);
  }
};
// A thread has a number of either.
template <class C> struct SumMixSlices {
  static constexpr const char* name = "sums of the mix by distance";
  static constexpr int threads = 128;
  MixDistances<C, true> table;
  MixDistances<C, false> u;
  int walks, strips, sequences;
  bool first;  // no rows came before
  index_t of_table;
  WHENCE_HD void operator()(Thread& t) const {
    const index_t n = t.block() * threads + t.index();
    n < of_table ? table.sum(n, walks, strips, sequences, first) : u.sum(n - of_table, walks, strips, sequences, first);
  }
};

// The gradient of u's tables of columns near the first key, [left width count]: for each distance one row of a
// sequence.
template <class C> struct SumFirstColumns {
  static constexpr const char* name = "sums of first columns";
  static constexpr int threads = 128;
  Global<const C> of_first;  // [b left queries mix_hidden]
  Global<const std::int32_t> present;
  Global<C> to;
  int batch, left, width, queries, first_row, lowest, count;
  WHENCE_HD void operator()(Thread& t) const {
    const index_t n = t.block() * threads + t.index();
    if (n >= index_t(left) * width * count) return;
    const int distance = static_cast<int>(n % count) + lowest, d = static_cast<int>(n / count % width),
              e = static_cast<int>(n / count / width);
    Number<C> sum = 0.0f;
    for (int b = 0; b < batch; ++b) {
      const int query = distance + (present ? int(present[b * 2]) : 0) + e - first_row;
      if (query >= 0 && query < queries)
        sum += load<C>(of_first, ((index_t(b) * left + e) * queries + query) * mix_hidden + d);
    }
    store(to, n, sum);
  }
};

}  // namespace whence::gpu
