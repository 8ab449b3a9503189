// The gradient of the head mix (mix_walk.h), from dP - delta:
//   P_ij = 2^(log2(e) A_ij - norm_i), dropped;  dA_ij = P_ij (m_ij dP_ij - delta_i),  m_ij = drop(1)
//   dpre_d[c] = leaky'(hidden) sum_{h,t} W2[h d t] dA_h[c - t + left]
//   dX_x[j]   = dA_x[j] (of B where it is added to A) + sum_{d,t} W1[d x t] dpre_d[j - t + left]
//   dW2[h d t] = sum dA_h[j] hidden_d[j + t - left],  dW1[d x t] = sum dpre_d[c] X_x[c + t - left]
//   dtable, du: dA and dpre by distance; du of columns near the first key by column, too
// A sum over pairs is a product, too, whose depth is the 16 pairs. Sums by distance have a factor of 0 and 1, which picks
// the pairs of 15 diagonals. With one tap, one kernel makes all of this. With three, dX of a column depends on dA of
// those around it: a first kernel makes the pattern P, dA, dW2, dtable, and the signs of hidden, a second the rest.
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

enum class Makes : unsigned char { all, pattern, scores };  // all: with one tap
template <class T, int beside, int slots, int parts, Makes what, bool drops> struct MixBackward {
  using C = compute_t<T>;
  using M = Mixed<T>;
  using Walk = MixWalk<M, beside, slots, parts>;
  using Slots = typename Walk::Slots;
  using SlotsOfD = MixSlots<T, slots, 1>;
  using Weights = Registers<Register<T>, 8>;
  static constexpr bool makes_pattern = what != Makes::scores, makes_scores = what != Makes::pattern;
  static constexpr const char* name = makes_scores ? "gradient of the mix" : "pattern of the mix";
  static constexpr int threads = head_threads, taps = Walk::taps, ahead = Walk::ahead,
                       blocks_at_once = parts == 1 && slots == 3 ? 3 - beside : 0, words = 4 * Thread::warp_size;
  static constexpr std::size_t shared_bytes =
      shared_bytes_for<T>(DiagonalFactors<T>::numbers) + shared_bytes_for<M>(Slots::of_block) +
      shared_bytes_for<T>(SlotsOfD::of_block) +
      (makes_pattern ? Walk::shared_bytes : shared_bytes_for<std::int32_t>(2 * words * head_warps));

  MixFacts<M> mix;
  PairBlocks<const T> given;             // dP - delta, or dA
  PairBlocks<T> pattern, result;         // result: dX, or dA
  Global<std::int32_t> signs;            // of three taps: [warp, mix_steps + 1, column / 2, lane]
  Global<C> of_weights, of_table, of_u;  // slices of each warp, or null
  Global<C> of_first = nullptr;          // [b queries mix_hidden]: dpre of the first key's column, or null
  PairDropout<C> dropout = {};
  RowBlocks<C> norms = {};

  struct Sums {  // of a lane
    Registers<Registers<FragmentC<T>, 4>, makes_pattern ? taps : 1> output;
    Registers<Registers<FragmentC<T>, 4>, makes_scores ? taps * parts : 1> input;
    Registers<FragmentC<T>, 2> table;
    Registers<FragmentC<T>, 4> u;
  };

  WHENCE_HD void operator()(Thread& t) const {
    Walk walk(t, mix);
    if (walk.empty()) return;
    const DiagonalFactors<T> diagonals(t);
    const Slots x(t, mix.facts.heads);
    const SlotsOfD d(t, mix.facts.heads);
    Shared<std::int32_t> word_slots{};
    Registers<Registers<Number<C>, slots>, 2> norm;
    Registers<Weights, taps> output;  // right factors: of heads, and of hidden numbers
    Registers<Weights, taps * parts> input;
    const Register<T> one = pack_two<T>(1.0f, 1.0f), slope = pack_two<T>(mix.slope, mix.slope);
    if constexpr (makes_pattern) {
      walk.prepare(t);
      each<2>([&](auto half) { each<slots>([&](auto s) { norm[half][s] = of_row(t, walk, half, s, 0); }); });
    } else {
      word_slots = t.shared<std::int32_t>(2 * words * head_warps) + 2 * words * t.warp();
      t.sync();
    }
    if constexpr (makes_scores) {
      each<taps>([&](auto n) {
        output[n] = Walk::template to_hidden<T>(t, [&](int k, int column) { return walk.output(k, column, n); });
      });
      each<taps * parts>([&](auto n) {
        input[n] = Walk::template to_heads<T>(t, [&](int k, int column) { return walk.input(k, column, n); });
      });
    }
    Sums sums;
    // The last columns, of dA and of X: the rows of a factor are pairs, or heads.
    Registers<FragmentA<T>, taps> d_pairs, d_heads;
    Registers<Registers<FragmentA<T>, parts>, taps> x_heads;
    Registers<Registers<FragmentA<T>, 2>, taps> before;  // dpre
    const index_t warp = t.block() * head_warps + t.warp(), first_word = warp * (mix_steps + 1) * words;
    const auto fetch = [&](int step) {
      // P takes the place of dP, so what lies behind the last step belongs to another block.
      if (what != Makes::all || step < mix_steps) x.fetch(t, walk, mix.scores, step), d.fetch(t, walk, given, step);
      if constexpr (!makes_pattern)
        cp_async<std::int32_t, 4>(t, word_slots, (step & 1) * words + t.lane() * 4, signs,
            first_word + (step + 1) * words + t.lane() * 4, step < mix_steps);
      cp_async_commit(t);
    };
    const auto arrive = [&] { cp_async_wait<0>(t), t.sync_warp(); };
    // Reads the columns of X and, if they are given, of dA, which may be in the next step.
    const auto read_heads = [&](int at) {
      Registers<FragmentA<T>, parts> last;
      each<parts>([&](auto part) { last[part] = recast<T, M>(x.heads(t, at, part)); });
      push(x_heads, last);
    };
    const auto read = [&](int at) {
      if constexpr (makes_pattern)
        walk.read(t, x, at);
      else
        push(d_pairs, d.pairs(t, at)), read_heads(at);
    };
    // bits: the signs of the hidden column, made or given
    const auto make = [&](int step, int n, std::uint64_t staying, std::uint32_t& bits, auto inside) {
      if (beside > 0 && n + ahead == 8) arrive();
      read(8 * step ^ (n + ahead));
      const int key = walk.key + 8 * step + n;  // of half 0
      FragmentA<T> p, ones = diagonals.of(t, n);
      Registers<FragmentC<T>, 2> d_a;
      if constexpr (makes_pattern) {
        const auto y = walk.logits(t, step, n, bits, inside);
        p = d.pairs(t, 8 * step ^ n);
        each<4>([&](auto r) {
          constexpr int half = r % 2;
          const auto without_delta = unpack_two<T>(p[r]);
          const bool seen = inside || walk.sees(t, half, key + 8 * half);
          Registers<Number<C>, 2> own;
          each<2>([&](auto e) {
            constexpr int s = r / 2 * 2 + e;
            if constexpr (s < slots) {
              const Number<C> logit = seen ? y[Nth<s / 2>{}][Nth<2 * half + s % 2>{}] : Number<C>(Walk::nothing);
              const Number<C> of = ex2_approx(logit * Walk::in_powers - norm[Nth<half>{}][Nth<s>{}]);
              Number<C> d_of = e == 0 ? without_delta.low : without_delta.high;
              own[e] = of;
              if constexpr (drops) {
                const Number<C> share = staying >> (8 * (half * slots + s) + n) & 1 ? dropout.factor : C(0);
                d_of = d_of * share + (share - 1.0f) * of_row(t, walk, half, s, RowBlocks<C>::rows);
                own[e] = of * share;
              }
              d_a[Nth<r / 2>{}][Nth<r % 2 * 2 + e>{}] = of * d_of;
            }
          });
          p[r] = pack_two<T>(own[Nth<0>{}], own[Nth<1>{}]);
        });
        const FragmentA<T> own = packed<T>(d_a);
        t.sync_warp();  // lanes of heads that do not exist have read others' numbers
        d.put(t, 8 * step ^ n, own);
        t.sync_warp();
        push(d_heads, d.heads(t, 8 * step ^ n));
        const FragmentA<T>& last = d_heads[Nth<taps - 1>{}];
        each<2>([&](auto k) { mma<T>(t, sums.table[k], ones, last[k], last[Nth<k + 2>{}]); });
        each<4>([&](auto b) {  // of hidden column n - beside, which dA of the last columns has read
          const FragmentA<M>& of = walk.hidden[Nth<0>{}][Nth<b / 2>{}];
          const Register<T> upper = movmatrix<T>(t, recast_two<T, M>(of[Nth<b % 2 * 2>{}])),
                            lower = movmatrix<T>(t, recast_two<T, M>(of[Nth<b % 2 * 2 + 1>{}]));
          each<taps>([&](auto tap) { mma<T>(t, sums.output[tap][b], d_heads[Nth<taps - 1 - tap>{}], upper, lower); });
        });
        if constexpr (makes_scores)
          push(d_pairs, own), read_heads(8 * step ^ n);
        else
          x.put(t, 8 * step ^ n, p);  // X of this column is in registers
      } else {
        each<4>([&](auto r) {
          const auto two = unpack_two<T>(d_pairs[Nth<0>{}][r]);
          d_a[Nth<r / 2>{}][Nth<r % 2 * 2>{}] = two.low, d_a[Nth<r / 2>{}][Nth<r % 2 * 2 + 1>{}] = two.high;
        });
      }
      if constexpr (makes_scores) {
        Registers<FragmentA<T>, 2> last;  // dpre of column n + beside
        each<4>([&](auto b) {
          FragmentC<T> sum;
          each<taps>([&](auto tap) {
            mma<T>(t, sum, d_pairs[Nth<taps - 1 - tap>{}], output[tap][Nth<2 * b>{}], output[tap][Nth<2 * b + 1>{}]);
          });
          Registers<Register<T>, 2> transposed;
          each<2>([&](auto half) {
            const auto leaky = [&] {
              if constexpr (makes_pattern)
                return where_negative<T, M>(walk.hidden[Nth<0>{}][Nth<b / 2>{}][Nth<half + b % 2 * 2>{}], slope, one);
              else
                return where_negative<T, Float16>(bits << (2 * b + half), slope, one);
            };
            Register<T> value = times_two<T>(pack_two<T>(sum[Nth<2 * half>{}], sum[Nth<2 * half + 1>{}]), leaky());
            if constexpr (beside > 0 && !inside) {
              const int at = key + beside + 8 * half;
              if (!walk.has_hidden(t, half, at)) value = {};
              if (at == walk.begin && of_first && step >= 0) put_first(t, walk, half, 8 * b, value);
              if (at == walk.begin) ones[Nth<2 * half>{}] = ones[Nth<2 * half + 1>{}] = {};  // it has separate sums
            }
            last[Nth<b / 2>{}][Nth<half + b % 2 * 2>{}] = value, transposed[half] = movmatrix<T>(t, value);
          });
          mma<T>(t, sums.u[b], ones, transposed[Nth<0>{}], transposed[Nth<1>{}]);
          each<taps * parts>([&](auto k) {
            mma<T>(t, sums.input[k][b], x_heads[Nth<k / parts>{}][Nth<k % parts>{}], transposed[Nth<0>{}],
                transposed[Nth<1>{}]);
          });
        });
        push(before, last);
        Registers<FragmentA<T>, parts> d_x;
        each<parts>([&](auto part) {
          Registers<FragmentC<T>, 2> of;
          if (part == 0 || mix.adds_pieces) of = d_a;
          each<taps>([&](auto tap) {
            Walk::template add_heads<T>(t, of, before[Nth<taps - 1 - tap>{}], input[Nth<tap * parts + part>{}]);
          });
          d_x[part] = packed<T>(of);
          if constexpr (beside > 0 && !inside)
            each<4>([&](auto r) {
              if (!walk.sees(t, r % 2, key + r % 2 * 8)) d_x[part][r] = {};
            });
        });
        t.sync_warp();  // all lanes have read this column
        if constexpr (makes_pattern) {
          each<parts>([&](auto part) { x.put(t, 8 * step ^ n, d_x[part], part); });
          d.put(t, 8 * step ^ n, p);
        } else {
          d.put(t, 8 * step ^ n, d_x[Nth<0>{}]);
        }
      }
    };
    fetch(walk.begin_step);
    if (beside > 0 && walk.begin_step < walk.end_step) {
      arrive();
      each<ahead>([&](auto n) { read(8 * walk.begin_step ^ (Walk::first_column + n)); });
    }
    // Dropout has the loop of masks alone: registers do not suffice for both.
    const auto is_inside = [&](int n) { return !drops && walk.inside(n); };
    int step = walk.begin_step;
    const auto walk_on = [&](auto inside) {
      do {
        if (beside == 0) arrive();
        fetch(step + 1);
        std::uint64_t staying = 0;
        WHENCE_ROLLED
        for (int k = 0; drops && k < 2 * slots; ++k) {  // half k / slots
          const int head = smaller(k % slots * 4 + t.lane() % 4, mix.facts.heads - 1);
          const std::uint64_t bits = dropout.template staying<8>(mix.facts, walk.batch * mix.facts.heads + head,
              walk.query + k / slots * 8 + t.lane() / 4, walk.key + 8 * (step + k / slots));
          staying |= bits << (8 * k);
        }
        std::uint32_t bits = 0, word = 0;  // of two columns
        WHENCE_UNROLLED(inside ? 2 : 1)
        for (int n = !inside && step == walk.begin_step ? Walk::first_column : 0; n < 8; ++n) {
          const int at = n / 2 * Thread::warp_size + t.lane();
          if constexpr (!makes_pattern)
            bits = static_cast<std::uint32_t>(std::int32_t(word_slots[(step & 1) * words + at])) << (n % 2 * 8);
          make(step, n, staying, bits, inside);
          if constexpr (!makes_scores) {
            word = n % 2 == 0 ? bits : word | bits >> 8;
            if (n % 2 == 1) signs[first_word + (step + 1) * words + at] = static_cast<std::int32_t>(word);
          }
        }
        t.sync_warp();
        if (!inside && step < 0) {  // these columns are another walk's
          sums = Sums{};
          continue;
        }
        if constexpr (what == Makes::all)
          x.store(t, walk, result, step), d.store(t, walk, pattern, step);
        else
          d.store(t, walk, result, step);
        if constexpr (!makes_scores) x.store(t, walk, pattern, step);
        put_sums(t, warp, 8 * (mix_steps - step) + t.lane() / 4, sums);
      } while (++step < walk.end_step && is_inside(step) == inside);
    };
    while (step < walk.end_step) is_inside(step) ? walk_on(std::true_type{}) : walk_on(std::false_type{});
    cp_async_wait<0>(t);
    if (walk.begin_step < walk.end_step) put_sums(t, warp, 8 * (mix_steps - walk.end_step) + t.lane() / 4, sums);
    if (!of_weights) return;
    const Global<C> slice = of_weights + warp * weights_of_slice<taps, parts>;
    if constexpr (makes_pattern) put_weights(t, slice, sums.output);
    if constexpr (makes_scores) put_weights(t, slice + taps * mix_heads * mix_hidden, sums.input);
  }

 private:
  // Returns the norm of the lane's row of a half and head, or, `further` on, its delta.
  WHENCE_HD Number<C> of_row(Thread& t, const Walk& walk, int half, int s, int further) const {
    const int query = walk.query + 8 * half + t.lane() / 4, h = 4 * s + t.lane() % 4;
    if (h >= mix.facts.heads || query >= mix.facts.queries) return further > 0 ? 0.0f : -not_seen;
    return load<C>(norms.of(walk.batch * mix.facts.heads + h, query), further);
  }
  WHENCE_HD void put_sums(Thread& t, index_t warp, int row, Sums& sums) const {
    if (makes_pattern && of_table) put_diagonals(t, of_table + warp * mix_slice_rows * mix_heads, row, sums.table);
    if (makes_scores && of_u) put_diagonals(t, of_u + warp * mix_slice_rows * mix_hidden, row, sums.u);
  }
  // Stores two hidden numbers of the first key's column.
  WHENCE_HD void put_first(Thread& t, const Walk& walk, int half, int d, Register<T> value) const {
    const int query = walk.query + 8 * half + t.lane() / 4;
    if (query >= mix.facts.queries) return;
    const index_t at = (index_t(walk.batch) * mix.facts.queries + query) * mix_hidden + d + t.lane() % 4 * 2;
    const auto two = unpack_two<T>(value);
    store(of_first, at, two.low), store(of_first, at + 1, two.high);
  }
};

}  // namespace whence::gpu
