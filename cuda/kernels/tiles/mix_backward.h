// The gradient of the head mix (mix_walk.h), from dP - delta:
//   P_ij = 2^(log2(e) A_ij - norm_i), dropped;  dA_ij = P_ij (m_ij dP_ij - delta_i),  m_ij = drop(1)
//   dpre_d[c] = leaky'(hidden) sum_{h,t} W2[h d t] dA_h[c - t + left]
//   dX_x[j]   = dA_x[j] (of B where it is added to A) + sum_{d,t} W1[d x t] dpre_d[j - t + left]
//   dW2[h d t] = sum dA_h[j] hidden_d[j + t - left],  dW1[d x t] = sum dpre_d[c] X_x[c + t - left]
//   dtable, du: dA and dpre by distance; du of columns near the first key by column, too
// A sum over pairs is a product, too, whose depth is the 16 pairs. Sums by distance have a factor of 0 and 1, which picks
// the pairs of 15 diagonals. With one tap, one kernel makes all of this (MixPattern). With three, dX of a column depends
// on dA of those around it: a first kernel makes P, dA, dW2, and the signs of hidden, a second the rest (MixScores).
#pragma once

#include "cuda/kernels/tiles/mix_walk.h"

namespace whence::gpu {

// Left factors that sum pairs by diagonal: row m is that of `row - n = m - 8`, for pairs of column n and of row 0 to 7 in
// their half.
template <class T> struct DiagonalFactors {
  static constexpr int numbers = 8 * 32 * 8;
  Shared<T> at;  // [column, lane, 8]
  WHENCE_HD explicit DiagonalFactors(Thread& t) : at(t.shared<T>(numbers)) {
    for (int n = t.warp(); n < 8; n += head_warps) {
      Pack<T, 8> all;
      each<8>([&](auto k) {
        const bool one = t.lane() / 4 + k / 2 % 2 * 8 + n - 8 - t.lane() % 4 * 2 == k % 2;
        all.of[k] = to_stored<T>(Number<compute_t<T>>(one ? 1.0f : 0.0f));
      });
      store_pack<8>(at, (n * 32 + t.lane()) * 8, all);
    }
  }
  WHENCE_HD FragmentA<T> of(Thread& t, int n) const {
    const auto all = load_pack<8>(at, (n * 32 + t.lane()) * 8);
    FragmentA<T> ones;
    each<4>([&](auto r) { ones[r] = std::bit_cast<Register<T>>(Pack<T, 2>{{all.of[2 * r], all.of[2 * r + 1]}}); });
    return ones;
  }
};
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
// Adds sums of weights to a warp's slice: [tap, and part of X; column of a factor of heads; hidden number]. A slice has
// dW2, then dW1.
template <int taps, int parts> inline constexpr index_t weights_of_slice = (1 + parts) * taps * mix_heads * mix_hidden;
template <class C, class Fragment, int count>
WHENCE_HD void put_weights(Thread& t, Global<C> slice, const Registers<Registers<Fragment, 4>, count>& sums) {
  each<count>([&](auto n) {
    each<4>([&](auto b) {
      each<4>([&](auto e) {
        const int k = t.lane() / 4 + e / 2 * 8, d = 8 * b + t.lane() % 4 * 2 + e % 2;
        add_in_place(slice, (n * mix_heads + k) * mix_hidden + d, sums[n][b][e] * mix_unit);
      });
    });
  });
}

// From dA to dX of a column: W2 and W1 as transposed right factors, and dpre.
template <class T, int taps, int parts> struct MixAdjoint {
  using C = compute_t<T>;
  using M = Mixed<T>;
  using Before = Registers<FragmentA<T>, 2>;                   // dpre as a left factor
  using Transposed = Registers<Registers<Register<T>, 2>, 4>;  // and as right factors
  Registers<Registers<Register<T>, 8>, taps> output;
  Registers<Registers<Register<T>, 8>, taps * parts> input;
  Register<T> one, slope;

  template <class Walk> WHENCE_HD void load(Thread& t, const Walk& walk) {
    one = pack_two<T>(1.0f, 1.0f), slope = pack_two<T>(walk.mix.slope, walk.mix.slope);
    each<8>([&](auto r) {
      const int d = r / 2 * 8 + t.lane() / 4, k = r % 2 * 8 + t.lane() % 4 * 2;
      each<taps>([&](auto tap) { output[tap][r] = pack_two<T>(walk.output(d, k, tap), walk.output(d, k + 1, tap)); });
      const int e = r / 4 * 16 + r % 2 * 8 + t.lane() % 4 * 2, l = r / 2 % 2 * 8 + t.lane() / 4;
      each<taps * parts>([&](auto n) { input[n][r] = pack_two<T>(walk.input(e, l, n), walk.input(e + 1, l, n)); });
    });
  }
  // Makes dpre. d: columns of dA, the first that reads this one last. value(sum, b, half): leaky'.
  template <class F>
  WHENCE_HD void before_leaky(
      Thread& t, const Registers<FragmentA<T>, taps>& d, Before& before, Transposed& transposed, const F& value) const {
    each<4>([&](auto b) {
      FragmentC<T> sum;
      each<taps>([&](auto tap) {
        mma<T>(t, sum, d[Nth<taps - 1 - tap>{}], output[tap][Nth<2 * b>{}], output[tap][Nth<2 * b + 1>{}]);
      });
      each<2>([&](auto half) {
        const Register<T> of = value(pack_two<T>(sum[Nth<2 * half>{}], sum[Nth<2 * half + 1>{}]), b, half);
        before[Nth<b / 2>{}][Nth<half + b % 2 * 2>{}] = of, transposed[b][half] = movmatrix<T>(t, of);
      });
    });
  }
  // y += W1 dpre
  template <int part>
  WHENCE_HD void add(Thread& t, Registers<FragmentC<T>, 2>& y, const Registers<Before, taps>& before, Nth<part>) const {
    each<taps>([&](auto tap) {
      each<2>([&](auto s) {
        each<2>([&](auto k) {
          constexpr Nth<tap * parts + part> of_tap{};
          mma<T>(t, y[k], before[Nth<taps - 1 - tap>{}][s], input[of_tap][Nth<4 * s + 2 * k>{}],
              input[of_tap][Nth<4 * s + 2 * k + 1>{}]);
        });
      });
    });
  }
};
template <class T, class C> WHENCE_HD FragmentA<T> packed(const Registers<Registers<C, 4>, 2>& y) {
  FragmentA<T> of;
  each<4>(
      [&](auto r) { of[r] = pack_two<T>(y[Nth<r / 2>{}][Nth<r % 2 * 2>{}], y[Nth<r / 2>{}][Nth<r % 2 * 2 + 1>{}]); });
  return of;
}
template <class To, class From> WHENCE_HD FragmentA<To> recast(const FragmentA<From>& of) {
  FragmentA<To> as;
  each<4>([&](auto r) { as[r] = recast_two<To, From>(of[r]); });
  return as;
}

// With one tap everything: P takes the place of dP in memory. With three, the part before MixScores.
template <class T, int beside, int slots, int parts, bool drops> struct MixPattern {
  using C = compute_t<T>;
  using M = Mixed<T>;
  using Walk = MixWalk<M, beside, slots, parts>;
  using Slots = typename Walk::Slots;
  using SlotsOfD = MixSlots<T, slots, 1>;
  static constexpr bool whole = beside == 0;
  static constexpr const char* name = whole ? "gradient of the mix" : "pattern of the mix";
  static constexpr int threads = head_threads, taps = Walk::taps,
                       blocks_at_once = parts == 1 && slots == 3 ? 3 - beside : 0;
  static constexpr std::size_t shared_bytes =
      Walk::shared_bytes + shared_bytes_for<T>(DiagonalFactors<T>::numbers) + shared_bytes_for<M>(Slots::of_block) +
      shared_bytes_for<T>(SlotsOfD::of_block) + (whole ? 0 : shared_bytes_for<std::int32_t>(4 * threads));

  MixFacts<M> mix;
  PairDropout<C> dropout;
  RowBlocks<C> norms;
  PairBlocks<const T> d_pattern;
  PairBlocks<T> pattern, result;         // result: dX, or dA
  Global<std::int32_t> signs;            // [warp, mix_steps + 1, lane, 4], of three taps
  Global<C> of_weights, of_table, of_u;  // slices of each warp, or null

  struct Sums {  // of a lane
    Registers<Registers<FragmentC<T>, 4>, taps> output;
    Registers<Registers<FragmentC<T>, 4>, whole ? parts : 1> input;
    Registers<FragmentC<T>, 2> table;
    Registers<FragmentC<T>, 4> u;
  };

  WHENCE_HD void operator()(Thread& t) const {
    Walk walk(t, mix);
    if (walk.empty()) return;
    const DiagonalFactors<T> diagonals(t);
    walk.begin(t);
    const Slots x(t);
    const SlotsOfD d(t);
    Shared<std::int32_t> words{};
    if constexpr (!whole) {
      words = t.shared<std::int32_t>(4 * threads) + 4 * t.index();
      store_pack<4>(words, 0, Pack<std::int32_t, 4>{});
    }
    const MixPlace& place = walk.place;
    MixAdjoint<T, 1, parts> adjoint;
    if constexpr (whole) adjoint.load(t, walk);
    Registers<Registers<Number<C>, slots>, 2> norm;
    each<2>([&](auto half) { each<slots>([&](auto s) { norm[half][s] = of_row(t, walk, half, s, 0); }); });
    Sums sums;
    Registers<FragmentA<T>, taps> heads;  // the last columns of dA, whose rows are heads
    const auto fetch = [&](int step) {
      // P takes the place of dP, so what lies behind the last step belongs to another block.
      if (!whole || step < mix_steps) x.fetch(t, walk, mix.scores, step), d.fetch(t, walk, d_pattern, step);
      cp_async_commit(t);
    };
    const auto arrive = [&] { cp_async_wait<0>(t), t.sync_warp(); };
    fetch(place.begin_step);
    if (beside > 0 && place.begin_step < place.end_step) {
      arrive();
      each<Walk::ahead>([&](auto n) { walk.read(t, x, place.begin_step, Walk::first_column + n); });
    }
    const index_t warp = t.block() * head_warps + t.warp();
    for (int step = place.begin_step; step < place.end_step; ++step) {
      if (beside == 0) arrive();
      fetch(step + 1), walk.begin_step(t, step);
      const auto seen = walk.seen(step, t);
      std::uint64_t staying = 0;
      WHENCE_ROLLED
      for (int k = 0; drops && k < 2 * slots; ++k) {  // half k / slots
        const int head = smaller(k % slots * 4 + t.lane() % 4, walk.head_count() - 1);
        const std::uint64_t bits = dropout.template staying<8>(mix.facts, place.b * walk.head_count() + head,
            place.query + k / slots * 8 + t.lane() / 4, place.key + 8 * (step + k / slots));
        staying |= bits << (8 * k);
      }
      std::uint32_t word = 0;
      WHENCE_ROLLED
      for (int n = step == place.begin_step ? Walk::first_column : 0; n < 8; ++n) {
        if (beside > 0 && n + Walk::ahead == 8) arrive();
        std::uint32_t bits;
        const auto y = walk.logits(t, x, step, n, bits);
        if constexpr (!whole) {
          word = n % 2 == 0 ? bits : word | bits >> 8;
          if (n % 2 == 1) words[n / 2] = static_cast<std::int32_t>(word);
        }
        FragmentA<T> p = d.pairs(t, walk, step, n), a;
        Registers<FragmentC<T>, 2> d_a;
        each<4>([&](auto r) {
          const auto given = unpack_two<T>(p[r]);
          Registers<Number<C>, 2> own;
          each<2>([&](auto e) {
            constexpr int s = r / 2 * 2 + e, half = r % 2;
            if constexpr (s < slots) {
              const Number<C> logit =
                  seen[Nth<half>{}].has(n) ? y[Nth<s / 2>{}][Nth<2 * half + s % 2>{}] : Number<C>(Walk::nothing);
              const Number<C> of = ex2_approx(logit * Walk::in_powers - norm[Nth<half>{}][Nth<s>{}]);
              Number<C> without_delta = e == 0 ? given.low : given.high;
              own[e] = of;
              if constexpr (drops) {
                const Number<C> share = staying >> (8 * (half * slots + s) + n) & 1 ? dropout.factor : C(0);
                without_delta = without_delta * share + (share - 1.0f) * of_row(t, walk, half, s, RowBlocks<C>::rows);
                own[e] = of * share;
              }
              d_a[Nth<r / 2>{}][Nth<r % 2 * 2 + e>{}] = of * without_delta;
            }
          });
          p[r] = pack_two<T>(own[Nth<0>{}], own[Nth<1>{}]);
        });
        a = packed<T>(d_a);
        t.sync_warp();  // lanes of heads that do not exist have read others' numbers
        d.put(t, walk, step, n, a);
        t.sync_warp();
        push(heads, d.heads(t, walk, step, n));
        FragmentA<T> ones;
        if (whole || step >= 0) {
          const FragmentA<T>& last = heads[Nth<taps - 1>{}];
          ones = diagonals.of(t, n);
          if (of_table) each<2>([&](auto k) { mma<T>(t, sums.table[k], ones, last[k], last[Nth<k + 2>{}]); });
          if (of_weights)  // of hidden column n - beside, which dA of the last columns has read
            each<4>([&](auto b) {
              const FragmentA<M>& of = walk.hidden[Nth<0>{}][Nth<b / 2>{}];
              const Register<T> upper = movmatrix<T>(t, recast_two<T, M>(of[Nth<b % 2 * 2>{}])),
                                lower = movmatrix<T>(t, recast_two<T, M>(of[Nth<b % 2 * 2 + 1>{}]));
              each<taps>([&](auto tap) { mma<T>(t, sums.output[tap][b], heads[Nth<taps - 1 - tap>{}], upper, lower); });
            });
        }
        if constexpr (!whole) {
          x.put(t, walk, step, n, p);  // X of this column is in registers
        } else {
          Registers<typename MixAdjoint<T, 1, parts>::Before, 1> before;
          typename MixAdjoint<T, 1, parts>::Transposed transposed;
          Registers<FragmentA<T>, 1> own;
          own[Nth<0>{}] = a;
          adjoint.before_leaky(t, own, before[Nth<0>{}], transposed, [&](Register<T> sum, auto b, auto half) {
            return times_two<T>(sum, where_negative<T, M>(walk.hidden[Nth<0>{}][Nth<b / 2>{}][Nth<half + b % 2 * 2>{}],
                                         adjoint.slope, adjoint.one));
          });
          if (of_u)
            each<4>([&](auto b) { mma<T>(t, sums.u[b], ones, transposed[b][Nth<0>{}], transposed[b][Nth<1>{}]); });
          Registers<FragmentA<T>, parts> d_x;
          each<parts>([&](auto part) {
            if (of_weights) {
              const FragmentA<T> of = recast<T, M>(x.heads(t, walk, step, n, part));
              each<4>([&](auto b) {
                mma<T>(t, sums.input[part][b], of, transposed[b][Nth<0>{}], transposed[b][Nth<1>{}]);
              });
            }
            Registers<FragmentC<T>, 2> of;
            if (part == 0 || mix.adds_pieces) of = d_a;
            adjoint.add(t, of, before, part);
            d_x[part] = packed<T>(of);
          });
          t.sync_warp();  // all lanes have read X and dA of this column
          each<parts>([&](auto part) { x.put(t, walk, step, n, d_x[part], part); });
          d.put(t, walk, step, n, p);
        }
      }
      t.sync_warp();
      if constexpr (whole)
        x.store(t, walk, result, step), d.store(t, walk, pattern, step);
      else if (step >= 0)
        x.store(t, walk, pattern, step), d.store(t, walk, result, step);
      if constexpr (!whole)
        store_pack<4>(signs, ((warp * (mix_steps + 1) + step + 1) * 32 + t.lane()) * 4, load_pack<4>(words, 0));
      if (step < 0) continue;
      put_sums(t, warp, 8 * (mix_steps - step) + t.lane() / 4, sums);
    }
    cp_async_wait<0>(t);
    if (place.begin_step < place.end_step) put_sums(t, warp, 8 * (mix_steps - place.end_step) + t.lane() / 4, sums);
    if (!of_weights) return;
    const Global<C> slice = of_weights + warp * weights_of_slice<taps, parts>;
    put_weights(t, slice, sums.output);
    if constexpr (whole) put_weights(t, slice + taps * mix_heads * mix_hidden, sums.input);
  }

 private:
  // Returns the norm of the lane's row of a half and head, or, `further` on, its delta.
  WHENCE_HD Number<C> of_row(Thread& t, const Walk& walk, int half, int s, int further) const {
    const int query = walk.place.query + 8 * half + t.lane() / 4, h = 4 * s + t.lane() % 4;
    if (h >= walk.head_count() || query >= mix.facts.queries) return further > 0 ? 0.0f : -not_seen;
    return load<C>(norms.of(walk.place.b * walk.head_count() + h, query), further);
  }
  WHENCE_HD void put_sums(Thread& t, index_t warp, int row, Sums& sums) const {
    if (of_table) put_diagonals(t, of_table + warp * mix_slice_rows * mix_heads, row, sums.table);
    if (whole && of_u) put_diagonals(t, of_u + warp * mix_slice_rows * mix_hidden, row, sums.u);
  }
};

// The backward of scores with three taps, after MixPattern.
template <class T, int slots> struct MixScores {
  using C = compute_t<T>;
  using M = Mixed<T>;
  using Walk = MixWalk<M, 1, slots, 1>;
  using Slots = typename Walk::Slots;
  using SlotsOfD = MixSlots<T, slots, 1>;
  using Adjoint = MixAdjoint<T, 3, 1>;
  static constexpr const char* name = "gradient of the mix";
  static constexpr int threads = head_threads, blocks_at_once = slots == 3 ? 2 : 0;
  static constexpr std::size_t shared_bytes =
      shared_bytes_for<T>(DiagonalFactors<T>::numbers) + shared_bytes_for<M>(Slots::of_block) +
      shared_bytes_for<T>(SlotsOfD::of_block) + shared_bytes_for<std::int32_t>(8 * threads);

  MixFacts<M> mix;
  PairBlocks<const T> d_logits;
  PairBlocks<T> d_scores;
  Global<const std::int32_t> signs;
  Global<C> of_weights, of_u;  // slices of each warp, or null
  Global<C> of_first;          // [b queries mix_hidden]: the column of the first key, or null

  WHENCE_HD void operator()(Thread& t) const {
    Walk walk(t, mix);
    if (walk.empty()) return;
    const DiagonalFactors<T> diagonals(t);
    const Slots x(t);
    const SlotsOfD d(t);
    const Shared<std::int32_t> words = t.shared<std::int32_t>(8 * threads) + 8 * t.index();
    t.sync();
    const MixPlace& place = walk.place;
    const index_t warp = t.block() * head_warps + t.warp();
    Adjoint adjoint;
    adjoint.load(t, walk);
    Registers<FragmentA<T>, 3> d_a, heads;  // columns n to n + 2: of dA, and of X, whose rows are heads
    Registers<typename Adjoint::Before, 3> before;
    Registers<Registers<FragmentC<T>, 4>, 3> of_input;
    Registers<FragmentC<T>, 4> of_distance;
    const auto fetch = [&](int step) {
      x.fetch(t, walk, mix.scores, step), d.fetch(t, walk, d_logits, step);
      cp_async<std::int32_t, 4>(
          t, words, (step & 1) * 4, signs, ((warp * (mix_steps + 1) + step + 1) * 32 + t.lane()) * 4, step < mix_steps);
      cp_async_commit(t);
    };
    const auto arrive = [&] { cp_async_wait<0>(t), t.sync_warp(); };
    const auto read = [&](int step, int column) {
      push(d_a, d.pairs(t, walk, step + column / 8, column % 8));
      push(heads, recast<T, M>(x.heads(t, walk, step + column / 8, column % 8)));
    };
    fetch(place.begin_step);
    if (place.begin_step < place.end_step) arrive(), read(place.begin_step, 4), read(place.begin_step, 5);
    for (int step = place.begin_step; step < place.end_step; ++step) {
      fetch(step + 1), walk.begin_step(t, step);
      const auto seen = walk.seen(step, t);
      WHENCE_ROLLED
      for (int n = step == place.begin_step ? Walk::first_column : 0; n < 8; ++n) {
        if (n == 6) arrive();
        read(step, n + 2);
        const std::uint32_t bits = static_cast<std::uint32_t>(std::int32_t(words[(step & 1) * 4 + n / 2]))
                                   << (n % 2 * 8);
        Registers<int, 2> nth;  // columns after the first key
        each<2>([&](auto half) { nth[half] = walk.first_hidden(step, half) + n - place.begin; });
        typename Adjoint::Before last;
        typename Adjoint::Transposed transposed;
        adjoint.before_leaky(t, d_a, last, transposed, [&](Register<T> sum, auto b, auto half) {
          Register<T> value =
              times_two<T>(sum, where_negative<T, Float16>(bits << (2 * b + half), adjoint.slope, adjoint.one));
          if (!walk.there[half].has(n)) value = {};
          if (walk.at_border && of_first && step >= 0) put_first(t, walk, nth[half], half, 8 * b, value);
          return value;
        });
        push(before, last);
        if (step >= 0) {
          if (of_u) {
            FragmentA<T> ones = diagonals.of(t, n);
            if (walk.at_border)  // the first key's column has separate sums
              each<4>([&](auto r) {
                if (nth[Nth<r / 2>{}] < 1) ones[r] = {};
              });
            each<4>([&](auto b) { mma<T>(t, of_distance[b], ones, transposed[b][Nth<0>{}], transposed[b][Nth<1>{}]); });
          }
          if (of_weights)
            each<3>([&](auto tap) {
              each<4>([&](auto b) {
                mma<T>(t, of_input[tap][b], heads[tap], transposed[b][Nth<0>{}], transposed[b][Nth<1>{}]);
              });
            });
        }
        Registers<FragmentC<T>, 2> y;
        each<4>([&](auto r) {
          const auto two = unpack_two<T>(d_a[Nth<0>{}][r]);
          y[Nth<r / 2>{}][Nth<r % 2 * 2>{}] = two.low, y[Nth<r / 2>{}][Nth<r % 2 * 2 + 1>{}] = two.high;
        });
        adjoint.add(t, y, before, Nth<0>{});
        FragmentA<T> result = packed<T>(y);
        each<4>([&](auto r) {
          if (!seen[Nth<r % 2>{}].has(n)) result[r] = {};
        });
        t.sync_warp();
        d.put(t, walk, step, n, result);
      }
      t.sync_warp();
      if (step < 0) continue;
      d.store(t, walk, d_scores, step);
      if (of_u)
        put_diagonals(t, of_u + warp * mix_slice_rows * mix_hidden, 8 * (mix_steps - step) + t.lane() / 4, of_distance);
    }
    cp_async_wait<0>(t);
    if (of_u && place.begin_step < place.end_step)
      put_diagonals(
          t, of_u + warp * mix_slice_rows * mix_hidden, 8 * (mix_steps - place.end_step) + t.lane() / 4, of_distance);
    if (of_weights) put_weights(t, of_weights + warp * weights_of_slice<3, 1> + 3 * mix_heads * mix_hidden, of_input);
  }

 private:
  // Stores two hidden numbers of the first key's column, which has separate rows of u.
  WHENCE_HD void put_first(Thread& t, const Walk& walk, int nth, int half, int d, Register<T> value) const {
    const int query = walk.place.query + 8 * half + t.lane() / 4;
    if (nth != 0 || query >= mix.facts.queries) return;
    const index_t at = (index_t(walk.place.b) * mix.facts.queries + query) * mix_hidden + d + t.lane() % 4 * 2;
    const auto two = unpack_two<T>(value);
    store(of_first, at, two.low), store(of_first, at + 1, two.high);
  }
};

}  // namespace whence::gpu
