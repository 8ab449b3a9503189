// Logits of the head mix, of all heads of a pair at once (mix_walk.h):
//   A_h[j] = S_h[j] + B_h[j] + table_h[i-j] + sum_{d,t} W2[h d t] hidden_d[j + t - left]
// Forward stores powers of them and their bases (mix_values.h). Backward knows each row's norm and delta. It stores
//   P_ij = 2^(log2(e) A_ij - norm_i), dropped;  dA_ij = P_ij (m_ij dP_ij - delta_i),  m_ij = drop(1)
// and sums dW2[h d t] = sum dA_h[j] hidden_d[j + t - left] and dA by distance. A sum over pairs is a product, too: its
// depth is the 16 pairs, so its factors are transposed. Sums by distance have a factor of 0 and 1, which picks the
// pairs of 15 diagonals.
#pragma once

#include "cuda/kernels/tiles/dropout.h"
#include "cuda/kernels/tiles/mix_walk.h"

namespace whence::gpu {

// Converts stored numbers to another type.
template <class To, class From> WHENCE_HD Register<To> recast_two(Register<From> of) {
  if constexpr (std::is_same_v<To, From>) {
    return of;
  } else {
    const auto two = unpack_two<From>(of);
    return pack_two<To>(two.low, two.high);
  }
}
// Transposes a left factor: its columns become rows, and its rows, pairs, the depth.
template <class To, class From> WHENCE_HD FragmentA<To> transposed_factor(Thread& t, const FragmentA<From>& of) {
  FragmentA<To> transposed;
  each<4>([&](auto r) { transposed[r] = movmatrix<To>(t, recast_two<To, From>(of[Nth<r % 2 * 2 + r / 2>{}])); });
  return transposed;
}
// The left factor that sums pairs by diagonal: row m is that of `row - n = m - 8`, for pairs of column n and of row 0
// to 7 in their half.
template <class T> WHENCE_HD FragmentA<T> diagonals_of(Thread& t, int n) {
  FragmentA<T> ones;
  each<4>([&](auto r) {
    const int at = t.lane() / 4 + r % 2 * 8 + n - 8 - t.lane() % 4 * 2;
    ones[r] = pack_two<T>(at == 0 ? 1.0f : 0.0f, at == 1 ? 1.0f : 0.0f);
  });
  return ones;
}
// Sums by diagonal continue from step to step: the upper half is complete, and the lower half becomes the upper one.
// Slices hold a warp's sums over launches.
template <class C, class Fragment, int blocks>
WHENCE_HD void put_diagonals(Thread& t, Global<C> slice, int row, Registers<Fragment, blocks>& sums) {
  each<blocks>([&](auto b) {
    each<2>([&](auto e) {
      add_in_place(slice, index_t(row) * 8 * blocks + 8 * b + t.lane() % 4 * 2 + e, sums[b][Nth<2 + e>{}]);
      sums[b][Nth<2 + e>{}] = sums[b][e], sums[b][e] = 0.0f;
    });
  });
}
// Adds sums of weights to a warp's slice: [tap, and part of X; column of a factor of heads; hidden number]. A slice has dW2, then dW1.
template <int taps, int parts> inline constexpr index_t weights_of_slice = (1 + parts) * taps * mix_heads * mix_hidden;
template <class C, int taps>
WHENCE_HD void put_weights(Thread& t, Global<C> slice, const Registers<Registers<FragmentC<C>, 4>, taps>& sums) {
  each<taps>([&](auto tap) {
    each<4>([&](auto b) {
      each<4>([&](auto e) {
        const int k = t.lane() / 4 + e / 2 * 8, d = 8 * b + t.lane() % 4 * 2 + e % 2;
        add_in_place(slice, (tap * mix_heads + k) * mix_hidden + d, sums[tap][b][e] * mix_unit);
      });
    });
  });
}

// T: of gradients; forward has none, and uses M.
template <class T, int left, int right, int slots, int parts, bool backward> struct MixLogits {
  using C = compute_t<T>;
  using M = Mixed<T>;
  using Walk = MixWalk<M, left, right, right, slots, parts>;
  static constexpr const char* name = backward ? "pattern of the mix" : "logits of the mix";
  static constexpr int threads = head_threads, taps = Walk::taps, ahead = Walk::ahead;
  static constexpr std::size_t shared_bytes = Walk::shared_bytes(true) +
                                              shared_bytes_for<M>(Walk::stages * parts * Walk::fetched) +
                                              (backward ? shared_bytes_for<T>(Walk::stages * Walk::fetched) : 0);
  static constexpr float nothing = -1e30f;
  static constexpr C in_powers = mix_unit * log2e<C>;  // a unit, in base 2

  MixFacts<M> mix;
  PairBlocks<M> powers = {};
  PairBlocks<C, 2> bases = {};
  // Backward has these instead:
  PairDropout<C> dropout = {};
  RowBlocks<C> norms = {};
  PairBlocks<const T> d_pattern = {};
  PairBlocks<T> pattern = {}, d_logits = {};
  Global<C> of_weights = nullptr, of_table = nullptr;  // slices of each warp, or null

  struct Gradients {  // of a lane
    Registers<Registers<Number<C>, slots>, 2> norm, delta;
    Registers<FragmentA<T>, Walk::ring> transposed;       // the last columns of dA
    Registers<Registers<FragmentC<T>, 4>, taps> weights;  // dW2, transposed
    Registers<FragmentC<T>, 2> by_distance;
  };

  WHENCE_HD void operator()(Thread& t) const {
    Walk walk(t, mix, true);
    const Shared<M> fetched = t.shared<M>(Walk::stages * parts * Walk::fetched);
    Shared<T> fetched_d{};
    if constexpr (backward) fetched_d = t.shared<T>(Walk::stages * Walk::fetched);
    const MixPlace& place = walk.place;
    if (place.keys.begin >= place.keys.end) return;
    walk.begin(t);
    Registers<Registers<Register<M>, 8>, taps> w2;  // by two blocks of hidden numbers, and two of heads
    each<taps>([&](auto tap) {
      each<8>([&](auto r) {
        const int d = r / 4 * 16 + r % 2 * 8 + t.lane() % 4 * 2, k = r / 2 % 2 * 8 + t.lane() / 4;
        w2[tap][r] = pack_two<M>(walk.output(d, k, tap), walk.output(d + 1, k, tap));
      });
    });
    Gradients of;
    if constexpr (backward) read_rows(t, walk, of);
    typename Walk::template Packs<M, parts> x;
    const auto stage = [&](int step) { return fetched + Walk::stage_of(step) * parts * Walk::fetched; };
    const auto stage_d = [&](int step) { return fetched_d + Walk::stage_of(step) * Walk::fetched; };
    // X is fetched a step ahead of the rest if columns ahead of a step's are read.
    constexpr int further = ahead > 0 ? 1 : 0;
    const auto fetch = [&](int step) {
      walk.template fetch<parts>(t, stage(step + further), mix.scores, step + further);
      if constexpr (backward) walk.fetch(t, stage_d(step), d_pattern, step);
      cp_async_commit(t);
    };
    if constexpr (ahead > 0) {
      walk.template fetch<parts>(t, stage(place.begin_step), mix.scores, place.begin_step);
      cp_async_commit(t);
      cp_async_wait<0>(t);
      walk.take(t, stage(place.begin_step), x);
      each<ahead>([&](auto n) { walk.put_column(n, x, n); });
    }
    each<Walk::stages - 1>([&](auto n) { fetch(place.begin_step + n); });
    for (int step = place.begin_step; step < place.end_step; ++step) {
      cp_async_wait<Walk::stages - 2>(t);
      typename Walk::template Packs<T> d;
      if constexpr (backward) walk.take(t, stage_d(step), d);
      if constexpr (ahead == 0) walk.take(t, stage(step), x);
      fetch(step + Walk::stages - 1);
      walk.begin_step(t, step);
      if constexpr (backward)
        step_back(t, walk, step, stage(step + 1), w2, x, d, of);
      else
        step_forward(t, walk, step, stage(step + 1), w2, x);
    }
    cp_async_wait<0>(t);
    if constexpr (backward) {
      const index_t warp = t.block() * head_warps + t.warp();
      if (of_table && place.begin_step < place.end_step)
        put_diagonals(t, of_table + warp * mix_slice_rows * mix_heads, 8 * (mix_steps - place.end_step) + t.lane() / 4,
            of.by_distance);
      if (of_weights) put_weights<C>(t, of_weights + warp * weights_of_slice<taps, parts>, of.weights);
    }
  }

 private:
  // Logits of column n, of heads in the order of columns of a factor. x: packs; the next ones are taken from `next`.
  template <class Weights, class Packs, int n>
  WHENCE_HD Registers<FragmentC<M>, 2> column(
      Thread& t, Walk& walk, int step, Shared<M> next, const Weights& w2, Packs& x, Nth<n>) const {
    if constexpr (ahead > 0 && n + ahead == 8) walk.take(t, next, x);
    walk.put_column(Nth<n + ahead>{}, x, Nth<(n + ahead) % 8>{});
    walk.make_hidden(t, step, Nth<n>{});
    Registers<FragmentC<M>, 2> y;
    const auto term = load_pack<4>(walk.table, (walk.row_of(step) - n + t.lane() / 4) * mix_heads + t.lane() % 4 * 4);
    each<2>([&](auto k) { each<4>([&](auto e) { y[k][e] = term.of[2 * k + e % 2]; }); });
    // S itself, and B: times the unit matrix, which is exact.
    const int at = t.lane() / 4 - t.lane() % 4 * 2;
    const Register<M> unit = pack_two<M>(at == 0 ? 1.0f : 0.0f, at == 1 ? 1.0f : 0.0f), none = {};
    each<parts>([&](auto part) {
      if (part > 0 && !mix.adds_pieces) return;
      mma<M>(t, y[Nth<0>{}], walk.x[typename Walk::template In<n>{}][part], unit, none);
      mma<M>(t, y[Nth<1>{}], walk.x[typename Walk::template In<n>{}][part], none, unit);
    });
    each<taps>([&](auto tap) {
      each<2>([&](auto s) {
        each<2>([&](auto k) {
          mma<M>(t, y[k], walk.hidden[typename Walk::template In<n - left + tap>{}][s], w2[tap][Nth<4 * s + 2 * k>{}],
              w2[tap][Nth<4 * s + 2 * k + 1>{}]);
        });
      });
    });
    return y;
  }

  template <class Weights, class Packs>
  WHENCE_HD void step_forward(Thread& t, Walk& walk, int step, Shared<M> next, const Weights& w2, Packs& x) const {
    typename Walk::template Packs<M> power;
    Registers<Registers<Pack<C, 2>, slots>, 2> base;
    each<2>([&](auto four) {
      Registers<Registers<Registers<Number<C>, 4>, slots>, 2> logit;
      each<4>([&](auto j) {
        const auto y = column(t, walk, step, next, w2, x, Nth<4 * four + j>{});
        each<2>([&](auto half) {
          each<slots>([&](auto s) { logit[half][s][j] = y[Nth<s / 2>{}][Nth<2 * half + s % 2>{}]; });
        });
      });
      each<2>([&](auto half) {
        const SeenColumns seen = walk.seen(walk.place.key + 8 * (step + half) + 4 * four, half, t);
        each<slots>([&](auto s) {
          Number<C> most = nothing / 1e10f;
          each<4>([&](auto j) {
            Number<C>& own = logit[half][s][j];
            own = seen.has(j) ? own : Number<C>(nothing);
            most = max_nan(most, own);
          });
          const Number<C> of_base = whole_below(most * in_powers).value + 1.0f;
          base[half][s].of[four] = plain(of_base);
          each<4>([&](auto j) {
            power[half][s].of[4 * four + j] = to_stored<M>(ex2_approx(logit[half][s][j] * in_powers - of_base));
          });
        });
      });
    });
    if (step < 0) return;
    each<2>([&](auto half) {
      if (!walk.has_keys(step, half)) return;
      const index_t at = walk.at_of(t, powers, step, half), of_base = walk.at_of(t, bases, step, half);
      each<slots>([&](auto s) {
        if (4 * s + t.lane() % 4 >= walk.heads()) return;
        store_pack<8>(powers.at, at + s * 4 * 64, power[half][s]);
        store_pack<2>(bases.at, of_base + s * 4 * 16, base[half][s]);
      });
    });
  }

  WHENCE_HD void read_rows(Thread& t, const Walk& walk, Gradients& of) const {
    each<2>([&](auto half) {
      const int query = walk.place.query + 8 * half + t.lane() / 4;
      each<slots>([&](auto s) {
        const int h = 4 * s + t.lane() % 4;
        const bool there = h < walk.heads() && query < mix.facts.queries;
        const Global<C> row = norms.of(walk.place.b * walk.heads() + (there ? h : 0), there ? query : 0);
        of.norm[half][s] = there ? load<C>(row, 0) : Number<C>(-not_seen);
        of.delta[half][s] = there ? load<C>(row, RowBlocks<C>::rows) : Number<C>(0.0f);
      });
    });
  }

  template <class Weights, class Packs, class PacksOfD>
  WHENCE_HD void step_back(
      Thread& t, Walk& walk, int step, Shared<M> next, const Weights& w2, Packs& x, PacksOfD& d, Gradients& of) const {
    PacksOfD d_a;  // and d, dP - delta, becomes P
    Registers<Registers<std::uint32_t, slots>, 2> staying;
    if (dropout)
      each<2>([&](auto half) {
        each<slots>([&](auto s) {
          staying[half][s] = dropout.template staying<8>(mix.facts,
              walk.place.b * walk.heads() + smaller(4 * s + t.lane() % 4, walk.heads() - 1),
              walk.place.query + 8 * half + t.lane() / 4, walk.place.key + 8 * (step + half));
        });
      });
    Registers<SeenColumns, 2> seen;
    each<2>([&](auto half) { seen[half] = walk.seen(walk.place.key + 8 * (step + half), half, t); });
    each<8>([&](auto n) {
      const auto y = column(t, walk, step, next, w2, x, n);
      each<2>([&](auto half) {
        each<slots>([&](auto s) {
          const Number<C> logit = seen[half].has(n) ? y[Nth<s / 2>{}][Nth<2 * half + s % 2>{}] : Number<C>(nothing),
                          p = ex2_approx(logit * in_powers - of.norm[half][s]);
          Number<C> share = 1.0f;
          if (dropout) share = staying[half][s] >> n & 1 ? dropout.factor : C(0);
          const Number<C> without_delta = from_stored<C>(d[half][s].of[n]) * share;
          d[half][s].of[n] = to_stored<T>(p * share);
          d_a[half][s].of[n] = to_stored<T>(p * (without_delta + (share - 1.0f) * of.delta[half][s]));
        });
      });
      of.transposed[typename Walk::template In<n>{}] = transposed_factor<T, T>(t, Walk::template factor<T>(d_a, n));
      if (step < 0) return;
      const FragmentA<T>& own = of.transposed[typename Walk::template In<n>{}];
      if (of_table) {
        const FragmentA<T> ones = diagonals_of<T>(t, n);
        each<2>([&](auto k) { mma<T>(t, of.by_distance[k], ones, own[k], own[Nth<k + 2>{}]); });
      }
      if (of_weights) {  // of hidden column n - left, which dA of the last columns has read
        const Registers<FragmentA<M>, 2>& column_of = walk.hidden[typename Walk::template In<n - left>{}];
        each<4>([&](auto b) {
          const Register<T> upper = movmatrix<T>(t, recast_two<T, M>(column_of[Nth<b / 2>{}][Nth<b % 2 * 2>{}])),
                            lower = movmatrix<T>(t, recast_two<T, M>(column_of[Nth<b / 2>{}][Nth<b % 2 * 2 + 1>{}]));
          each<taps>([&](auto tap) {
            mma<T>(t, of.weights[tap][b], of.transposed[typename Walk::template In<n - tap>{}], upper, lower);
          });
        });
      }
    });
    if (step < 0) return;
    if (of_table)
      put_diagonals(t, of_table + (t.block() * head_warps + t.warp()) * mix_slice_rows * mix_heads,
          8 * (mix_steps - step) + t.lane() / 4, of.by_distance);
    each<2>([&](auto half) {
      if (!walk.has_keys(step, half)) return;
      const index_t at = walk.at_of(t, pattern, step, half);
      each<slots>([&](auto s) {
        if (4 * s + t.lane() % 4 >= walk.heads()) return;
        store_pack<8>(pattern.at, at + s * 4 * 64, d[half][s]);
        store_pack<8>(d_logits.at, at + s * 4 * 64, d_a[half][s]);
      });
    });
  }
};

}  // namespace whence::gpu
