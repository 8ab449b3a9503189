// The network of the head mix on tensor cores, in both directions: tensor/tiled_call.h has the equations.
//   hidden_d[c] = leaky(u_d[i-c] + sum_{x,t} W1[d x t] X_x[c + t - left])
//   f_h[j] = sum_{d,t} W2[h d t] hidden_d[j + t - left]
// A warp has 16 queries and walks up the keys, eight at a step. The 16 rows of a product are a key's pairs with eight
// of its queries and the pairs of the key eight further on with the other eight: the halves. So both halves have the
// same distances and share the rows of u. Heads are the depth of the first product. Its sums, hidden numbers of a
// column, are the left factor of the second, whose sums are of heads again: a lane gets the heads that it has read, and
// taps along the keys are registers of earlier columns. The four warps of a block are 16 keys apart, and share
// distances, too. A lane's heads: slot s is head 4 s + lane % 4. Column 2 q + e + 8 k of a factor is slot e + 2 k of
// lane % 4 = q.
// Pairs are in planes of shared memory, a head's packs of eight queries (MixSlots). Transposed loads of a key's packs
// of all heads give the left factor whose rows are pairs, plain loads the one whose rows are heads, for sums over pairs.
// X = [S, B] if the base has pieces: the first product then has a second factor.
// The sign of hidden, which is summed in f32 from f16 operands and rounded once, decides the side of leaky_relu's kink.
// It is made once in each direction, by this code.
#pragma once

#include "cuda/kernels/tiles/given.h"
#include "cuda/kernels/tiles/mix_pairs.h"

namespace whence::gpu {

inline constexpr int mix_hidden = most_mix_hidden, mix_heads = most_mix_heads;  // numbers of a column
inline constexpr int mix_steps = mix_walk_keys / 8;
static_assert(mix_walk_warps == head_warps);
// Distances of a walk, and the stride of rows of u in shared memory: eight rows begin in different banks.
inline constexpr int mix_window = mix_walk_keys + 24, mix_u_pitch = mix_hidden + 8;

WHENCE_HD constexpr int head_of_column(int k) { return k % 8 / 2 + 4 * (k % 2 + k / 8 * 2); }

// Terms as walks read them. u and the table by distance are in units, 0 beyond the given ones: u [left + 1, count,
// mix_hidden], and the table [count, mix_heads], heads in the order of columns: the four of a lane are adjacent.
template <class T> struct LayOutTerms {
  using C = compute_t<T>;
  using M = Mixed<T>;
  static constexpr const char* name = "terms of the mix";
  static constexpr int threads = 128;
  SmallOperand<T> from_u, from_table;  // [tables width u_count], [heads table_count] or null
  SmallOperand<T> from_input, from_output;
  Global<M> u;
  Global<C> table;  // then W1 and W2
  int tables, width, heads, u_count, table_count;
  int lowest, u_lowest, table_lowest, count;  // the distances at which rows begin
  index_t inputs, outputs;                    // numbers of W1 and W2
  WHENCE_HD index_t of_u() const { return index_t(tables) * count * mix_hidden; }
  WHENCE_HD index_t of_table() const { return index_t(count) * mix_heads; }
  index_t numbers() const { return of_u() + of_table() + inputs + outputs; }
  WHENCE_HD void operator()(Thread& t) const {
    index_t n = t.block() * threads + t.index();
    const index_t in_table = of_table(), in_weights = in_table + inputs;
    Number<C> x = 0.0f;
    if (n < of_u()) {
      const int d = static_cast<int>(n % mix_hidden), m = static_cast<int>(n / mix_hidden % count) + lowest - u_lowest;
      const index_t e = n / mix_hidden / count;
      if (d < width && m >= 0 && m < u_count) x = from_u.get((e * width + d) * u_count + m) / mix_unit;
      return store(u, n, x);
    }
    n -= of_u();
    if (n < in_table) {
      const int h = static_cast<int>(n % mix_heads) / 4 + static_cast<int>(n % 4) * 4,
                m = static_cast<int>(n / mix_heads) + lowest - table_lowest;
      if (from_table && h < heads && m >= 0 && m < table_count) x = from_table.get(h * table_count + m) / mix_unit;
    } else if (n < in_weights) {
      x = from_input.get(n - in_table);
    } else if (n < in_weights + outputs) {
      x = from_output.get(n - in_weights);
    } else {
      return;
    }
    store(table, n, x);
  }
};

// The facts of both directions.
template <class M> struct MixFacts {
  using C = compute_t<M>;
  HeadFacts<C> facts;
  MixRows group;
  int width, behind;  // hidden numbers; columns after the last key, if the run continues
  bool remask, adds_pieces;
  C slope;
  Global<const C> input, output;  // W1 [width channels taps], W2 [heads width taps], as LayOutTerms makes them
  Global<const M> u;
  Global<const C> table;
  int lowest, distances;       // of these
  PairBlocks<const M> scores;  // X, 0 where a pair is not seen
  Global<const std::int32_t> present;

  WHENCE_HD int walks() const { return static_cast<int>(mix_walks(facts.keys)); }
  index_t blocks() const { return index_t(group.sequences) * (group.rows / 64) * walks(); }
};

// A lane's place in a walk.
struct MixPlace {
  int sequence, b;           // in the group and in all
  int row, query;            // the warp's first, in the group and in all; half 1's is 8 further on
  int token;                 // of that query
  int key;                   // of half 0's first column, at step 0
  int begin_step, end_step;  // steps that have keys
  KeysOfStrip keys;
  int begin, end;  // keys [begin, end) are present
};

// Converts stored numbers to another type.
template <class To, class From> WHENCE_HD Register<To> recast_two(Register<From> of) {
  if constexpr (std::is_same_v<To, From>) {
    return of;
  } else {
    const auto two = unpack_two<From>(of);
    return pack_two<To>(two.low, two.high);
  }
}
// Appends to the registers of the last columns.
template <class V, int N> WHENCE_HD void push(Registers<V, N>& ring, const V& last) {
  each<N - 1>([&](auto k) { ring[k] = ring[Nth<k + 1>{}]; });
  ring[Nth<N - 1>{}] = last;
}

// A lane's row in a load or store of four matrices: the plane of a half's channel, of `planes` in a half.
struct PlaneRow {
  int half, at;  // at: of key 0; key n is at ^ 8 n
  bool there;    // false: another head's, whose numbers meet weights of 0
  WHENCE_HD PlaneRow(int half_of, int column, int planes, int heads) : half(half_of) {
    const int h = head_of_column(column), plane = h < planes ? h : h - 8;
    at = (half * planes + plane) * 64 + plane % 8 * 8, there = h < heads;
  }
};

// The planes of a warp, for two steps: [step % 2, half, channel, 8 keys], of packs of eight queries. A channel's packs
// are permuted, so that those of eight channels at a key are in different banks.
template <class E, int slots, int parts> struct MixSlots {
  static constexpr int planes = 4 * slots, of_half = parts * planes * 64, of_step = 2 * of_half;
  static constexpr int of_block = head_warps * 2 * of_step + 64;  // the last: what rows without a head store
  Shared<E> own;
  int nowhere;
  WHENCE_HD explicit MixSlots(Thread& t)
      : own(t.shared<E>(of_block) + t.warp() * 2 * of_step), nowhere((head_warps - t.warp()) * 2 * of_step) {}

  WHENCE_HD static int at(const PlaneRow& row, int step, int key, int part) {
    return (step & 1) * of_step + (row.at ^ 8 * key) + (row.half * (parts - 1) + part) * planes * 64;
  }
  // Rows are pairs, or heads.
  template <class Lane>
  WHENCE_HD FragmentA<E> pairs(Thread& t, const Lane& lane, int step, int key, int part = 0) const {
    return ldmatrix_trans(t, own, at(lane.pairs, step, key, part));
  }
  template <class Lane>
  WHENCE_HD FragmentA<E> heads(Thread& t, const Lane& lane, int step, int key, int part = 0) const {
    return ldmatrix(t, own, at(lane.heads, step, key, part));
  }
  // Stores a factor whose rows are pairs; its registers may hold another type of the same size.
  template <class Lane>
  WHENCE_HD void put(Thread& t, const Lane& lane, int step, int key, const FragmentA<E>& of, int part = 0) const {
    stmatrix_trans<E>(t, own, lane.pairs.there ? at(lane.pairs, step, key, part) : nowhere, of, lane.pairs.there);
  }
  // Calls f(half, channel's place here, index in blocks, if it is there) for the packs that a lane copies. channels: of blocks.
  template <int copied, class Walk, class P, class F>
  WHENCE_HD void each_pack(Thread& t, const Walk& walk, const PairBlocks<P>& blocks, int step, const F& f) const {
    const int key = t.lane() % 8, line = t.lane() / 8;
    each<2>([&](auto half) {
      const bool stored = walk.has_keys(step, half);
      const index_t block = blocks.of(walk.place.sequence, walk.place.row + 8 * half, 0) +
                            index_t(walk.place.key / 8 + step + half) * blocks.step() + t.lane() * 8;
      each<slots * copied>([&](auto n) {
        constexpr int part = n / slots, head = n % slots * 4;
        f((step & 1) * of_step + half * of_half + (part * planes + head + line) * 64 + (key ^ (head + line) % 8) * 8,
            block + (part * walk.head_count() + head) * 64, stored && head + line < walk.head_count());
      });
    });
  }
  template <class Walk>
  WHENCE_HD void fetch(Thread& t, const Walk& walk, const PairBlocks<const E>& from, int step) const {
    each_pack<parts>(
        t, walk, from, step, [&](int to, index_t at, bool there) { cp_async(t, own, to, from.at, at, there); });
  }
  template <int stored = parts, class Walk, class To>
  WHENCE_HD void store(Thread& t, const Walk& walk, const PairBlocks<To>& to, int step) const {
    each_pack<stored>(t, walk, to, step, [&](int from, index_t at, bool there) {
      if (there) store_pack<8>(to.at, at, std::bit_cast<Pack<To, 8>>(load_pack<8>(own, from)));
    });
  }
};

// The place and the terms of a warp's walk. parts: of X, S and, if there are 2, B.
template <class M, int beside, int slots, int parts> struct MixWalk {
  using C = compute_t<M>;
  using Slots = MixSlots<M, slots, parts>;
  static constexpr int taps = 2 * beside + 1, ahead = 2 * beside;
  using Column = Registers<FragmentA<M>, parts>;
  using Hidden = Registers<FragmentA<M>, 2>;
  static constexpr float nothing = -1e30f;
  static constexpr C in_powers = mix_unit * log2e<C>;  // a unit, in base 2

  const MixFacts<M>& mix;
  MixPlace place;
  PlaneRow pairs, heads;
  // Once begun: column n of a step reads these columns of X, n to n + ahead, and of hidden numbers, n - beside on.
  Registers<Column, taps> x;
  Registers<Hidden, taps> hidden;
  Shared<M> u;                                            // [mix_window, mix_u_pitch]
  Shared<C> table{};                                      // [mix_window, mix_heads]
  Registers<Registers<Register<M>, 8>, taps * parts> w1;  // by four blocks of hidden numbers
  Registers<Registers<Register<M>, 8>, taps> w2;          // by two blocks of hidden numbers, and two of heads
  Register<M> slope, unit;
  // The hidden columns of a step that exist, by half. at_border: true if one of them has separate rows of u.
  Registers<SeenColumns, 2> there;
  bool at_border = false;

  static constexpr std::size_t shared_bytes =
      shared_bytes_for<M>(mix_window * mix_u_pitch) + shared_bytes_for<C>(mix_window * mix_heads);
  WHENCE_HD MixWalk(Thread& t, const MixFacts<M>& told)
      : mix(told),
        pairs(t.lane() / 8 % 2, t.lane() / 16 * 8 + t.lane() % 8, 4 * slots, told.facts.heads),
        heads(t.lane() / 16, t.lane() / 8 % 2 * 8 + t.lane() % 8, 4 * slots, told.facts.heads) {
    place = place_of(t);
    slope = pack_two<M>(told.slope, told.slope);
    const int at = t.lane() / 4 - t.lane() % 4 * 2;
    unit = pack_two<M>(at == 0 ? 1.0f : 0.0f, at == 1 ? 1.0f : 0.0f);
  }
  WHENCE_HD int head_count() const { return mix.facts.heads; }
  WHENCE_HD bool empty() const { return place.keys.begin >= place.keys.end; }
  // The column of the first step at which a walk begins, to have the last columns in registers that the walk before had.
  static constexpr int first_column = taps == 1 ? 0 : 8 - 2 * ahead;

  // Returns the steps from half 0's first key to its first query, at step 0; then those of the window's first row.
  WHENCE_HD int first_distance() const { return place.token - place.key; }
  WHENCE_HD int lowest_distance() const { return first_distance() - mix_walk_keys - 8; }

  // Called by all threads of the block.
  WHENCE_HD void begin(Thread& t) {
    u = t.shared<M>(mix_window * mix_u_pitch), table = t.shared<C>(mix_window * mix_heads);
    fetch_window<mix_hidden>(t, u, mix_u_pitch, mix.u + index_t(beside) * mix.distances * mix_hidden);
    fetch_window<mix_heads>(t, table, mix_heads, mix.table);
    cp_async_commit(t);
    each<8>([&](auto r) {
      const int d = r / 2 * 8 + t.lane() / 4, k = r % 2 * 8 + t.lane() % 4 * 2;
      each<taps * parts>([&](auto n) { w1[n][r] = pack_two<M>(input(d, k, n), input(d, k + 1, n)); });
      const int e = r / 4 * 16 + r % 2 * 8 + t.lane() % 4 * 2, l = r / 2 % 2 * 8 + t.lane() / 4;
      each<taps>([&](auto tap) { w2[tap][r] = pack_two<M>(output(e, l, tap), output(e + 1, l, tap)); });
    });
    cp_async_wait<0>(t);
    t.sync();
  }
  // Returns W1 of a hidden number and of the head in column k of a factor; n: the tap, and in it the part of X.
  WHENCE_HD Number<C> input(int d, int k, int n) const {
    const int h = head_of_column(k), channel = (d * parts + n % parts) * head_count() + h;
    return d < mix.width && h < head_count() ? load<C>(mix.input, channel * taps + n / parts) : Number<C>(0.0f);
  }
  WHENCE_HD Number<C> output(int d, int k, int tap) const {
    const int h = head_of_column(k);
    return d < mix.width && h < head_count() ? load<C>(mix.output, (h * mix.width + d) * taps + tap) : Number<C>(0.0f);
  }

  // True if a step's eight columns are stored for this half.
  WHENCE_HD bool has_keys(int step, int half) const {
    const int key = place.key + 8 * (step + half);
    return key >= place.keys.begin && key < place.keys.end;
  }
  // Returns the key of a half's first hidden column in a step: hidden columns are made `beside` ahead.
  WHENCE_HD int first_hidden(int step, int half) const { return place.key + 8 * (step + half) + beside; }
  WHENCE_HD void begin_step(Thread& t, int step) {
    if (taps == 1) return;  // no row reads unseen columns then
    each<2>([&](auto half) {
      const int key = first_hidden(step, half);
      there[half] = {place.begin - key, hidden_end() - key};
      if (mix.remask) there[half].bits &= seen(key, half, t).bits;
    });
    at_border = first_hidden(step, 0) < place.begin + beside && first_hidden(step, 1) + 8 > place.begin;
  }
  // Reads a column of X, which may be in the next step.
  WHENCE_HD void read(Thread& t, const Slots& from, int step, int column) {
    Column last;
    each<parts>([&](auto part) { last[part] = from.pairs(t, *this, step + column / 8, column % 8, part); });
    push(x, last);
  }
  // Reads column n + ahead of X and makes the hidden column n + beside; returns the logits of column n, of heads in the
  // order of columns. signs: of that hidden column, bits 15 and 31 shifted by 2 b + half.
  WHENCE_HD Registers<FragmentC<M>, 2> logits(Thread& t, const Slots& from, int step, int n, std::uint32_t& signs) {
    read(t, from, step, n + ahead);
    make_hidden(t, step, n, signs);
    Registers<FragmentC<M>, 2> y;
    const auto term = load_pack<4>(table, (row_of(step) - n + t.lane() / 4) * mix_heads + t.lane() % 4 * 4);
    each<2>([&](auto k) { each<4>([&](auto e) { y[k][e] = term.of[2 * k + e % 2]; }); });
    // S itself, and B: times the unit matrix, which is exact.
    each<parts>([&](auto part) {
      if (part > 0 && !mix.adds_pieces) return;
      mma<M>(t, y[Nth<0>{}], x[Nth<0>{}][part], unit, Register<M>{});
      mma<M>(t, y[Nth<1>{}], x[Nth<0>{}][part], Register<M>{}, unit);
    });
    each<taps>([&](auto tap) {
      each<2>([&](auto s) {
        each<2>([&](auto k) {
          mma<M>(t, y[k], hidden[tap][s], w2[tap][Nth<4 * s + 2 * k>{}], w2[tap][Nth<4 * s + 2 * k + 1>{}]);
        });
      });
    });
    return y;
  }
  WHENCE_HD void make_hidden(Thread& t, int step, int n, std::uint32_t& signs) {
    const int column = n + beside;
    const auto of_table = ldmatrix_trans(t, u, (row_of(step) - column + t.lane() % 8) * mix_u_pitch + t.lane() / 8 * 8);
    Registers<FragmentC<M>, 4> sums;
    each<4>([&](auto b) { mma8<M>(t, sums[b], unit, unit, of_table[b]); });
    if (beside > 0 && at_border)
      each<2>([&](auto half) {
        const int nth = first_hidden(step, half) + n - place.begin;
        if (nth < 0 || nth >= beside) return;
        const int row = first_distance() - 8 * step - column + t.lane() / 4 - mix.lowest;
        each<4>([&](auto b) {
          Pack<M, 2> two{};
          if (row >= 0 && row < mix.distances)
            two = load_pack<2>(mix.u, (index_t(nth) * mix.distances + row) * mix_hidden + 8 * b + t.lane() % 4 * 2);
          const auto of = unpack_two<M>(std::bit_cast<Register<M>>(two));
          sums[b][Nth<2 * half>{}] = of.low, sums[b][Nth<2 * half + 1>{}] = of.high;
        });
      });
    Hidden last;
    signs = 0;
    each<4>([&](auto b) {
      each<taps * parts>([&](auto k) {
        mma<M>(t, sums[b], x[Nth<k / parts>{}][Nth<k % parts>{}], w1[k][Nth<2 * b>{}], w1[k][Nth<2 * b + 1>{}]);
      });
      each<2>([&](auto half) {
        const Register<M> before = pack_two<M>(sums[b][Nth<2 * half>{}], sums[b][Nth<2 * half + 1>{}]);
        Register<M> value = max_two<M>(before, times_two<M>(before, slope));
        if (taps > 1) {
          signs |= signs_of<M>(before) >> (2 * b + half);
          if (!there[half].has(n)) value = {};
        }
        last[Nth<b / 2>{}][Nth<half + b % 2 * 2>{}] = value;
      });
    });
    push(hidden, last);
  }
  // Returns the window's row for half 0's first query and first key at a step; half 1's is the same.
  WHENCE_HD int row_of(int step) const { return 8 * (mix_steps - step) + 8; }
  WHENCE_HD int hidden_end() const { return place.end == mix.facts.keys ? mix.facts.keys + mix.behind : place.end; }
  // Returns the keys from `key` on that the lane's query of a half sees.
  WHENCE_HD SeenColumns seen(int key, int half, Thread& t) const {
    const int row = 8 * half + t.lane() / 4, token = place.token + row;
    const int first = larger(place.begin, token - mix.facts.before) - key;
    return {
        first, place.query + row < mix.facts.queries ? smaller(place.end, token + mix.facts.after + 1) - key : first};
  }
  WHENCE_HD Registers<SeenColumns, 2> seen(int step, Thread& t) const {
    Registers<SeenColumns, 2> of;
    each<2>([&](auto half) { of[half] = seen(place.key + 8 * (step + half), half, t); });
    return of;
  }

 private:
  WHENCE_HD MixPlace place_of(Thread& t) const {
    const int walks = mix.walks(), strips = mix.group.rows / 64;
    int n = static_cast<int>(t.block());
    MixPlace p{};
    p.key = n % walks * mix_walk_keys - mix_tile + t.warp() * 16;
    p.row = (n /= walks) % strips * 64 + t.warp() * 16;
    p.query = mix.group.first_query + p.row, p.token = mix.facts.first() + p.query;
    p.sequence = n / strips, p.b = mix.group.first_sequence + p.sequence;
    p.keys = keys_of_strip(mix.facts, mix.present, p.b, p.query);
    p.begin = mix.present ? int(mix.present[p.b * 2]) : 0;
    p.end = mix.present ? int(mix.present[p.b * 2 + 1]) : mix.facts.keys;
    // A walk continues the one before: its first step makes what that had in registers.
    p.begin_step = larger(taps > 1 ? -1 : 0, (p.keys.begin - 16 - p.key) / 8);
    p.end_step = smaller(mix_steps, (p.keys.end + 8 - p.key) / 8);
    if (p.keys.begin >= p.keys.end) p.end_step = p.begin_step;
    return p;
  }
  template <int width, class E>
  WHENCE_HD void fetch_window(Thread& t, Shared<E> to, int pitch, Global<const E> from) const {
    constexpr int pack = sizeof(E) == 2 ? 8 : 4, packs = width / pack;
    for (int n = t.index(); n < mix_window * packs; n += head_threads) {
      const int row = n / packs, at = lowest_distance() + row - mix.lowest;
      cp_async<E, pack>(t, to, row * pitch + n % packs * pack, from, index_t(at) * width + n % packs * pack,
          at >= 0 && at < mix.distances);
    }
  }
};

}  // namespace whence::gpu
