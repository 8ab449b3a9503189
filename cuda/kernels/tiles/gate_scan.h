// CoPE's scan in tiles of heads: gates are summed from a row's last key down, and the query's table is read at the sum.
//   g_ij = 1 / (1 + e^{-S_ij}), 0 where i does not see j;  P_ij = sum_{l>=j} g_il                   (CoPE, Eq. 3, 4)
//   x_ij += z_i[f] + w (z_i[f+1] - z_i[f]),  f = floor p,  w = p - f,  p = min(P, n-1)               (CoPE, Listing 1)
//   or x_ij += slope P_ij                                                                         (CoPE_ALiBi, Eq. 10)
// Backward, with dx the gradient at the logits:
//   dp_ij = (z_i[f+1] - z_i[f]) dx_ij where w > 0, else 0;  dS_ij += g_ij (1 - g_ij) sum_{l<=j} dp_il
// The first sum comes from the right, the second from the left. A kernel that starts inside a row reads them from
// memory, at every group of 16 keys: GateSums (gate_sums.h) stores the first, the gradient of queries the second. Rows
// whose sums have all reached n-1 are full: from there on to the left the scan is z_i[n-1], and gates have no gradient.
#pragma once

#include "cuda/kernels/tiles/head_rows.h"

namespace whence::gpu {

inline constexpr int gate_keys = 32, gate_group = gate_keys / 2;  // keys of a tile, and of a stored group

// Positions are f16 in models of 16 bits, else f32.
template <class T> using Position = std::conditional_t<sizeof(T) == 2, Float16, T>;

// The products that gates are computed from: none, those of the scores, or of other queries and keys (gate_scale
// gq.gk). `relative`: no gates, but relative keys (relative_keys.h); `relative_rows`: the kernel of those keys'
// gradient.
enum class GatesOf { none, scores, others, relative, relative_rows };

template <class T> struct GateScan {
  using Z = Position<T>;
  using C = compute_t<T>;
  int positions = 0, pitch = 0;  // n, and pairs of a row (pitch_of_positions); or 0:
  Global<const C> slopes;        // [h]
  C position_scale = 1;          // scale of q.e
  int groups = 0, rows = 0;      // groups of keys, and queries rounded up to 32
  // Only other gates have these:
  C gate_scale = 1, per_unit = 1;  // 1 / scale_of_powers
  bool of_gates = false;           // true: gradients are those of gq or gk, through the gates alone; false: all others

  // In memory, for heads first_head, first_head + 1, ... of b h. Forward stores pairs only if logits are given.
  int first_head = 0;
  Global<Z> pairs;  // [b h rows pitch 2]: z[m] and z[m+1] - z[m], in base 2
  Global<C> last;   // [b h rows]: z[n-1], of pairs
  Global<C> sums,
      gradients;         // P after a group's last key; the sum of dp before its first, in base 2
  Global<C> first_tile;  // [b h rows/8]: in earlier tiles the rows are full
  Global<C> of_slopes;   // [b h queries], of all heads: the sum of dx P

  // The sum of full rows is this, or larger.
  WHENCE_HD C full() const { return slopes ? 1e30f : static_cast<C>(positions - 1); }
  WHENCE_HD index_t at(int head, int group, int row) const {
    return (index_t(head - first_head) * groups + group) * rows + row;
  }
  WHENCE_HD index_t row_at(int head, int row) const { return index_t(head - first_head) * rows + row; }
};

// A number from sums or gradients. If pairs of a tile are not seen it may never have been stored. Then no pair that
// reads it is seen, and any number will do.
template <class Real> WHENCE_HD Real known(Real stored, float lowest) {
  return stored >= lowest && stored < 1e30f ? stored : Real(0.0f);
}

// Returns the sum over the lanes after this one (or before it) in a row: those whose numbers differ in the bits low to
// high, in order. `own` becomes the sum of all.
template <int low, int high, bool behind, class Real> WHENCE_HD Real of_other_lanes(Thread& t, Real& own) {
  Real sum = 0.0f;
  for (int mask = low; mask <= high; mask *= 2) {
    const Real other = t.shuffle_xor(own, mask);
    if (((t.lane() & mask) == 0) == behind) sum += other;
    own += other;
  }
  return sum;
}

// Takes the score of a gate in base 2 from its product. A logit starts with the score, or at 0 if gates have their own
// products.
template <GatesOf of, class Real, class C> WHENCE_HD Real take_score(Real& product, C unit) {
  const Real score = product * unit;
  product = of == GatesOf::others ? Real(0.0f) : score;
  return score;
}

// A lane's part of a row of gates: `count` neighbouring keys; the lanes as above have the others. The gate of an unseen
// key, whose score is -inf, is 0.
template <class C, int count, int low, int high> struct GateRow {
  Registers<Number<C>, count> gate, sum;  // g and P

  // score(n): of key n, in base 2. behind: P of the key after the row's last.
  template <class Score> WHENCE_HD void add_up(Thread& t, const Score& score, Number<C> behind) {
    Number<C> own = 0.0f;
    each<count>([&](auto n) {
      constexpr Nth<count - 1 - n> k{};
      sum[k] = own += gate[k] = rcp_approx(1.0f + ex2_approx(-score(k)));
    });
    const Number<C> base = behind + of_other_lanes<low, high, true>(t, own);
    each<count>([&](auto k) { sum[k] = base + sum[k]; });
  }
  // Returns P of the row's first key.
  WHENCE_HD Number<C> first(Thread& t) const { return t.shuffle(sum[Nth<0>{}], t.lane() & ~(2 * high - low)); }
};

// z read at P.
template <class C> struct PlaceInPairs {
  int floor;
  Number<C> share, value, rise;
  template <class Z> WHENCE_HD PlaceInPairs(Shared<Z> pairs, Number<C> sum, C last) {
    const Number<C> place = min_number(sum, Number<C>(last));  // NaN too is clamped to the table
    const auto whole = whole_below(place);
    const auto pair = numbers_of(load_pack<2>(pairs, 2 * whole.index));
    floor = whole.index, share = place - whole.value;
    value = pair.low + share * pair.high, rise = pair.high;
  }
  // d value / d P. It is 0 at whole places, as in lerp_at.
  WHENCE_HD Number<C> slope() const { return share > 0.0f ? rise : Number<C>(0.0f); }
};

// Returns the minimum over a warp's rows. REQUIRES: lanes of a quad have the same
template <class Real> WHENCE_HD Real least_of_rows(Thread& t, Real least) {
  for (int mask = 4; mask <= 16; mask *= 2) {
    const Real other = t.shuffle_xor(least, mask);
    if (other < least) least = other;
  }
  return least;
}

// Copies rows [first, first + count) of a head's pairs as they are stored, with a gap of `apart` pairs after each
// warp's rows.
template <int count, int apart, class T>
WHENCE_HD void fetch_pairs(Thread& t, Shared<Position<T>> to, const GateScan<T>& scan, int head, int first) {
  constexpr int of_warp = count / head_warps, pack = pack_size<Position<T>>;
  const int of_row = scan.pitch * 2, own = first + t.warp() * of_warp, packs = of_warp * of_row / pack,
            left = (scan.rows - own) * of_row / pack;
  const Shared<Position<T>> own_to = to + t.warp() * (of_warp * of_row + 2 * apart);
  const Global<const Position<T>> from = scan.pairs + scan.row_at(head, own) * of_row;
  for (int n = t.lane(); n < packs; n += 32) cp_async<Position<T>, pack>(t, own_to, pack * n, from, pack * n, n < left);
}

// Copies e [positions width], the keys of positions, to shared memory.
inline constexpr int position_tile = 32;
template <int width, class T>
WHENCE_HD void fetch_positions(Thread& t, Shared<T> to, const HeadRows<const T>& e, int positions, int d) {
  for (int first = 0; first < positions; first += position_tile)
    fetch_rows<position_tile, width>(
        t, to + first * width, e, e.at, first, positions, d, [](int row) { return key_phase<position_tile>(row); });
}

// Pairs of z_i[m] = unit q_i.e[m] for a warp's queries: put(a, m, 16 bytes of pairs from m on) for line a. The last
// positions come first: a lane's last rise needs the next lane's first value.
template <class T, int width, int fragments, class Queries, class Put>
WHENCE_HD void make_pairs(
    Thread& t, const Queries& of_q, Shared<T> of_e, int positions, compute_t<T> unit, const Put& put) {
  using C = compute_t<T>;
  constexpr int own = position_tile / 4, numbers = pack_size<Position<T>>, at_once = numbers / 2;
  const int quad = t.lane() % 4;
  Registers<Number<C>, 2 * fragments> behind;
  for (int first = (positions - 1) / position_tile * position_tile; first >= 0; first -= position_tile) {
    SummedRows<T, position_tile, fragments> z;
    add_products<T, position_tile, width>(t, of_e + first * width, of_q, z);
    each<2 * fragments>([&](auto a) {
      const Number<C> own_first = number(z, a, Nth<0>{});
      const Number<C> next = t.shuffle(quad == 0 ? behind[a] : own_first, (t.lane() & ~3) | (quad + 1) % 4);
      behind[a] = own_first;
      each<own / at_once>([&](auto n) {
        const int m = first + quad * own + at_once * n;
        Pack<Position<T>, numbers> pack;
        each<at_once>([&](auto k) {
          constexpr int j = at_once * n + k;
          const Number<C> value = number(z, a, Nth<j>{}) * unit;
          Number<C> above = next;
          if constexpr (j + 1 < own) above = number(z, a, Nth<j + 1>{});
          const Number<C> rise = m + k + 1 < positions ? above * unit - value : Number<C>(0.0f);
          const auto pair = two_of<Position<T>>(value, rise);
          pack.of[2 * k] = pair.of[0], pack.of[2 * k + 1] = pair.of[1];
        });
        put(a, m, pack);
      });
    });
  }
}

}  // namespace whence::gpu
