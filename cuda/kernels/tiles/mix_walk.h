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
inline constexpr int mix_window = mix_walk_keys + 16, mix_u_pitch = mix_hidden + 8;

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

// A warp's place: sixteen queries, and the keys of a walk.
template <class M> struct MixPlace {
  const MixFacts<M>& mix;
  int batch;                     // the sequence, in all
  int query, token;              // the warp's first; half 1's is 8 further on
  int key;                       // of half 0's first column, at step 0
  int first_block;               // of pairs, of half 0 at step 0
  int begin_step, end_step;      // steps that have keys
  int begin_stored, end_stored;  // steps whose columns are stored for half 0; half 1's are one less
  int begin_inside, end_inside;  // steps of which nothing is masked: all queries see their half, and the key after it
  int begin, end;                // keys [begin, end) are present

  // taps: a walk of several continues the one before. Its first step makes what that had in registers.
  WHENCE_HD MixPlace(Thread& t, const MixFacts<M>& told, int taps) : mix(told) {
    const int walks = mix.walks(), strips = mix.group.rows / 64;
    int n = static_cast<int>(t.block());
    key = n % walks * mix_walk_keys - mix_tile + t.warp() * 16;
    const int row = (n /= walks) % strips * 64 + t.warp() * 16, sequence = n / strips;
    query = mix.group.first_query + row, token = mix.facts.first() + query;
    first_block = (sequence * (mix.scores.rows / 8) + row / 8) * mix.scores.key_blocks + key / 8;
    batch = mix.group.first_sequence + sequence;
    begin = mix.present ? int(mix.present[batch * 2]) : 0;
    end = mix.present ? int(mix.present[batch * 2 + 1]) : mix.facts.keys;
    const KeysOfStrip keys = keys_of_strip(mix.facts, mix.present, batch, query);
    begin_stored = (keys.begin - key) / 8, end_stored = (keys.end - key) / 8;
    begin_step = larger(taps > 1 ? -1 : 0, begin_stored - 2);
    end_step = empty() ? begin_step : smaller(mix_steps, end_stored + 1);
    begin_inside = larger(begin_step + 1, (larger(begin, token + 7 - mix.facts.before) - key + 7) >> 3);
    end_inside = query + 16 > mix.facts.queries ? 0 : (smaller(end, token + mix.facts.after + 9) - key - 9) >> 3;
  }
  WHENCE_HD bool empty() const { return begin_stored >= end_stored; }
  WHENCE_HD bool has_keys(int step, int half) const { return step + half >= begin_stored && step + half < end_stored; }
  WHENCE_HD bool inside(int step) const { return step >= begin_inside && step < end_inside; }
  // Returns the number of a half's block of pairs at a step.
  WHENCE_HD int block(int step, int half) const { return first_block + step + half * (mix.scores.key_blocks + 1); }
  // True if the lane's query of a half sees a key, or if it reads its hidden column.
  WHENCE_HD bool sees(Thread& t, int half, int at) const {
    const int own = 8 * half + t.lane() / 4;
    return query + own < mix.facts.queries && at >= larger(begin, token + own - mix.facts.before) &&
           at < smaller(end, token + own + mix.facts.after + 1);
  }
  WHENCE_HD bool has_hidden(Thread& t, int half, int at) const {
    if (mix.remask) return sees(t, half, at);
    return at >= begin && at < (end == mix.facts.keys ? end + mix.behind : end);
  }
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

// The planes of a warp, for two steps: [half, channel, 16 keys], of packs of eight queries. A channel's packs are
// permuted, so that those of eight channels at a key are in different banks. A key is column n of a step: 8 step ^ n.
template <class E, int slots, int parts> class MixSlots {
 public:
  static constexpr int planes = 4 * slots, of_half = parts * planes * 128, of_warp = 2 * of_half;
  static constexpr int of_block = head_warps * of_warp + 128;  // the last: what rows without a head store
  WHENCE_HD MixSlots(Thread& t, int heads)
      : all_heads_(heads), of_warp_(t.warp() * of_warp), block_(t.shared<E>(of_block)) {
    const int column = t.lane() / 16 * 8 + t.lane() % 8;
    of_pairs_ = plane(t.lane() / 8 % 2, column);
    of_heads_ = plane(t.lane() / 16, t.lane() / 8 % 2 * 8 + t.lane() % 8);
    there_ = head_of_column(column) < heads;
    of_stores_ = there_ ? of_pairs_ : head_warps * of_warp;
  }
  // Loads a factor whose rows are pairs, or heads.
  WHENCE_HD FragmentA<E> pairs(Thread& t, int key, int part = 0) const {
    return ldmatrix_trans(t, block_, at(of_pairs_, key, part));
  }
  WHENCE_HD FragmentA<E> heads(Thread& t, int key, int part = 0) const {
    return ldmatrix(t, block_, at(of_heads_, key, part));
  }
  // Stores a factor whose rows are pairs; its registers may hold another type of the same size.
  WHENCE_HD void put(Thread& t, int key, const FragmentA<E>& of, int part = 0) const {
    stmatrix_trans<E>(t, block_, at(of_stores_, key, there_ ? part : 0), of, there_);
  }
  template <class Place>
  WHENCE_HD void fetch(Thread& t, const Place& place, const PairBlocks<const E>& from, int step) const {
    each_pack<parts>(
        t, place, from, step, [&](int to, index_t at, bool there) { cp_async(t, block_, to, from.at, at, there); });
  }
  template <int stored = parts, class Place, class To>
  WHENCE_HD void store(Thread& t, const Place& place, const PairBlocks<To>& to, int step) const {
    each_pack<stored>(t, place, to, step, [&](int from, index_t at, bool there) {
      if (there) store_pack<8>(to.at, at, std::bit_cast<Pack<To, 8>>(load_pack<8>(block_, from)));
    });
  }

 private:
  int all_heads_, of_warp_;
  Shared<E> block_;
  int of_pairs_, of_heads_, of_stores_;  // a lane's row in loads and stores, of key 0; key n is at ^ 8 n
  bool there_;                           // false: in those of pairs, it is of no head

  // Returns the place of a half's channel. Rows of no head are another's, whose numbers meet weights of 0.
  WHENCE_HD int plane(int half, int column) const {
    const int h = head_of_column(column), plane = h < planes ? h : h - 8;
    return of_warp_ + half * of_half + plane * 128 + plane % 8 * 8;
  }
  static WHENCE_HD int at(int row, int key, int part) { return (row ^ (key & 15) * 8) + part * planes * 128; }
  // Calls f(place here, index in blocks, if it is there) for the packs that a lane copies, of `copied` parts.
  template <int copied, class Place, class P, class F>
  WHENCE_HD void each_pack(Thread& t, const Place& place, const PairBlocks<P>& blocks, int step, const F& f) const {
    const int key = 8 * step + t.lane() % 8, line = t.lane() / 8;
    each<2>([&](auto half) {
      const bool stored = place.has_keys(step, half);
      const index_t block = index_t(place.block(step, half)) * blocks.step() + t.lane() * 8;
      each<slots * copied>([&](auto n) {
        constexpr int part = n / slots, head = n % slots * 4;
        f(at(of_warp_ + half * of_half + (head + line) * 128 + (head + line) % 8 * 8, key, part),
            block + (part * all_heads_ + head) * 64, stored && head + line < all_heads_);
      });
    });
  }
};

// The terms of a warp's walk. parts: of X, S and, if there are 2, B.
template <class M, int beside, int slots, int parts> struct MixWalk : MixPlace<M> {
  using C = compute_t<M>;
  using Place = MixPlace<M>;
  using Place::key, Place::mix, Place::token;
  using Slots = MixSlots<M, slots, parts>;
  static constexpr int taps = 2 * beside + 1, ahead = 2 * beside;
  using Column = Registers<FragmentA<M>, parts>;
  using Hidden = Registers<FragmentA<M>, 2>;
  static constexpr float nothing = -1e30f;
  static constexpr C in_powers = mix_unit * log2e<C>;  // a unit, in base 2
  // The column of the first step at which a walk begins, to have the last columns in registers that the walk before had.
  static constexpr int first_column = taps == 1 ? 0 : 8 - 2 * ahead;

  // Once prepared: column n of a step reads these columns of X, n to n + ahead, and of hidden numbers, n - beside on.
  Registers<Column, taps> x;
  Registers<Hidden, taps> hidden;
  Shared<M> u{};                                          // [mix_window, mix_u_pitch]; later from what a lane loads
  Shared<C> table{};                                      // [mix_window, mix_heads]; the same
  Registers<Registers<Register<M>, 8>, taps * parts> w1;  // by four blocks of hidden numbers
  Registers<Registers<Register<M>, 8>, taps> w2;          // by two blocks of hidden numbers, and two of heads
  Register<M> slope, unit;

  static constexpr std::size_t shared_bytes =
      shared_bytes_for<M>(mix_window * mix_u_pitch) + shared_bytes_for<C>(mix_window * mix_heads);
  WHENCE_HD MixWalk(Thread& t, const MixFacts<M>& told) : Place(t, told, taps) {
    slope = pack_two<M>(told.slope, told.slope);
    const int at = t.lane() / 4 - t.lane() % 4 * 2;
    unit = pack_two<M>(at == 0 ? 1.0f : 0.0f, at == 1 ? 1.0f : 0.0f);
  }

  // Called by all threads of the block.
  WHENCE_HD void prepare(Thread& t) {
    u = t.shared<M>(mix_window * mix_u_pitch), table = t.shared<C>(mix_window * mix_heads);
    fetch_window<mix_hidden>(t, u, mix_u_pitch, mix.u + index_t(beside) * mix.distances * mix_hidden);
    fetch_window<mix_heads>(t, table, mix_heads, mix.table);
    cp_async_commit(t);
    each<taps * parts>([&](auto n) { w1[n] = to_hidden<M>(t, [&](int d, int k) { return input(d, k, n); }); });
    each<taps>([&](auto n) { w2[n] = to_heads<M>(t, [&](int d, int k) { return output(d, k, n); }); });
    cp_async_wait<0>(t);
    t.sync();
    u = u + (t.lane() % 8 * mix_u_pitch + t.lane() / 8 * 8),
    table = table + (t.lane() / 4 * mix_heads + t.lane() % 4 * 4);
  }
  // Returns right factors whose depth is heads, by four blocks of hidden numbers, and the reverse. weight(d, column)
  template <class E, class F> static WHENCE_HD Registers<Register<E>, 8> to_hidden(Thread& t, const F& weight) {
    Registers<Register<E>, 8> w;
    each<8>([&](auto r) {
      const int d = r / 2 * 8 + t.lane() / 4, k = r % 2 * 8 + t.lane() % 4 * 2;
      w[r] = pack_two<E>(weight(d, k), weight(d, k + 1));
    });
    return w;
  }
  template <class E, class F> static WHENCE_HD Registers<Register<E>, 8> to_heads(Thread& t, const F& weight) {
    Registers<Register<E>, 8> w;
    each<8>([&](auto r) {
      const int d = r / 4 * 16 + r % 2 * 8 + t.lane() % 4 * 2, k = r / 2 % 2 * 8 + t.lane() / 4;
      w[r] = pack_two<E>(weight(d, k), weight(d + 1, k));
    });
    return w;
  }
  // Returns W1 of a hidden number and of the head in column k of a factor; n: the tap, and in it the part of X.
  WHENCE_HD Number<C> input(int d, int k, int n) const {
    const int h = head_of_column(k), heads = mix.facts.heads, channel = (d * parts + n % parts) * heads + h;
    return d < mix.width && h < heads ? load<C>(mix.input, channel * taps + n / parts) : Number<C>(0.0f);
  }
  WHENCE_HD Number<C> output(int d, int k, int tap) const {
    const int h = head_of_column(k);
    return d < mix.width && h < mix.facts.heads ? load<C>(mix.output, (h * mix.width + d) * taps + tap)
                                                : Number<C>(0.0f);
  }

  // Reads a column of X, which may be in the next step.
  WHENCE_HD void read(Thread& t, const Slots& from, int at) {
    Column last;
    each<parts>([&](auto part) { last[part] = from.pairs(t, at, part); });
    push(x, last);
  }
  // Makes the hidden column n + beside; returns the logits of column n, of heads in the order of columns. signs: of that
  // hidden column, bits 15 and 31 shifted by 2 b + half. inside: of the step.
  template <class Inside>
  WHENCE_HD Registers<FragmentC<M>, 2> logits(Thread& t, int step, int n, std::uint32_t& signs, Inside inside) {
    make_hidden(t, step, n, signs, inside);
    Registers<FragmentC<M>, 2> y;
    const auto term = load_pack<4>(table, (row_of(step) - n) * mix_heads);
    each<2>([&](auto k) { each<4>([&](auto e) { y[k][e] = term.of[2 * k + e % 2]; }); });
    // S itself, and B: times the unit matrix, which is exact.
    each<parts>([&](auto part) {
      if (part > 0 && !mix.adds_pieces) return;
      mma<M>(t, y[Nth<0>{}], x[Nth<0>{}][part], unit, Register<M>{});
      mma<M>(t, y[Nth<1>{}], x[Nth<0>{}][part], Register<M>{}, unit);
    });
    each<taps>([&](auto tap) { add_heads<M>(t, y, hidden[tap], w2[tap]); });
    return y;
  }
  // y += hidden numbers of a column, times weights to heads
  template <class E>
  static WHENCE_HD void add_heads(Thread& t, Registers<FragmentC<E>, 2>& y, const Registers<FragmentA<E>, 2>& of,
      const Registers<Register<E>, 8>& w) {
    each<2>([&](auto s) {
      each<2>([&](auto k) { mma<E>(t, y[k], of[s], w[Nth<4 * s + 2 * k>{}], w[Nth<4 * s + 2 * k + 1>{}]); });
    });
  }
  template <class Inside> WHENCE_HD void make_hidden(Thread& t, int step, int n, std::uint32_t& signs, Inside) {
    const auto of_table = ldmatrix_trans(t, u, (row_of(step) - n - beside) * mix_u_pitch);
    Registers<FragmentC<M>, 4> sums;
    each<4>([&](auto b) { mma8<M>(t, sums[b], unit, unit, of_table[b]); });
    const int column = key + 8 * step + n + beside;
    if constexpr (beside > 0 && !Inside::value) each<2>([&](auto half) { first_column_of_u(t, column, half, sums); });
    Hidden last;
    signs = 0;
    each<4>([&](auto b) {
      each<taps * parts>([&](auto k) {
        mma<M>(t, sums[b], x[Nth<k / parts>{}][Nth<k % parts>{}], w1[k][Nth<2 * b>{}], w1[k][Nth<2 * b + 1>{}]);
      });
      each<2>([&](auto half) {
        const Register<M> before = pack_two<M>(sums[b][Nth<2 * half>{}], sums[b][Nth<2 * half + 1>{}]);
        Register<M> value = max_two<M>(before, times_two<M>(before, slope));
        if constexpr (taps > 1) {
          signs |= signs_of<M>(before) >> (2 * b + half);
          if (!Inside::value && !this->has_hidden(t, half, column + 8 * half)) value = {};
        }
        last[Nth<b / 2>{}][Nth<half + b % 2 * 2>{}] = value;
      });
    });
    push(hidden, last);
  }
  // Returns the window's row for half 0's first query and first key at a step, the same for half 1: to a lane's first.
  WHENCE_HD int row_of(int step) const { return 8 * (mix_steps - step); }

 private:
  // The first key's column has separate rows of u.
  template <int half>
  WHENCE_HD void first_column_of_u(Thread& t, int column, Nth<half>, Registers<FragmentC<M>, 4>& sums) const {
    if (column + 8 * half != this->begin) return;
    const int row = token + t.lane() / 4 - column - mix.lowest;
    each<4>([&](auto b) {
      Pack<M, 2> two{};
      if (row >= 0 && row < mix.distances)
        two = load_pack<2>(mix.u, index_t(row) * mix_hidden + 8 * b + t.lane() % 4 * 2);
      const auto of = unpack_two<M>(std::bit_cast<Register<M>>(two));
      sums[b][Nth<2 * half>{}] = of.low, sums[b][Nth<2 * half + 1>{}] = of.high;
    });
  }
  template <int width, class E>
  WHENCE_HD void fetch_window(Thread& t, Shared<E> to, int pitch, Global<const E> from) const {
    constexpr int pack = sizeof(E) == 2 ? 8 : 4, packs = width / pack;
    const int first = token - key - mix_walk_keys - mix.lowest;
    for (int n = t.index(); n < mix_window * packs; n += head_threads) {
      const int row = n / packs, at = first + row;
      cp_async<E, pack>(t, to, row * pitch + n % packs * pack, from, index_t(at) * width + n % packs * pack,
          at >= 0 && at < mix.distances);
    }
  }
};

}  // namespace whence::gpu
