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
// X = [S, B] if the base has pieces: the first product then has a second factor, and a lane has S and B of its heads.
// The sign of hidden, which is summed in f32 from f16 operands and rounded once, decides the side of leaky_relu's kink.
// So both directions make hidden by this code.
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
template <class T> struct MixTerms {
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
  Global<const C> input, output;  // W1 [width channels taps], W2 [heads width taps], as MixTerms makes them
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

// Reads `left` and `right` columns on either side of its own, and makes hidden columns `lead` ahead of the walk's.
// parts: of X, S and, if there are 2, B.
template <class M, int left, int right, int lead, int slots, int parts> struct MixWalk {
  using C = compute_t<M>;
  static constexpr int taps = left + 1 + right, ring = taps == 1 ? 1 : 4, ahead = lead + right;
  static_assert(taps <= ring && ahead <= 8);
  template <int column> using In = Nth<(column + 8 * ring) % ring>;  // 8 is a multiple of the ring
  // [half, slot], of eight keys; slots of B after those of S.
  template <class E, int of = 1> using Packs = Registers<Registers<Pack<E, 8>, slots * of>, 2>;
  using Column = Registers<FragmentA<M>, parts>;
  using Hidden = Registers<FragmentA<M>, 2>;

  const MixFacts<M>& mix;
  MixPlace place;
  Shared<M> u;                // [mix_window, mix_u_pitch]
  Shared<C> table{};          // [mix_window, mix_heads], or null
  Registers<Column, ring> x;  // the last columns of X
  Registers<Hidden, ring> hidden;
  Registers<Registers<Register<M>, 8>, taps * parts> w1;  // by four blocks of hidden numbers
  Register<M> slope;
  // The hidden columns of a step that exist, by half. at_border: true if one of them has separate rows of u.
  Registers<SeenColumns, 2> there;
  bool at_border = false;

  static constexpr std::size_t shared_bytes(bool reads_table) {
    return shared_bytes_for<M>(mix_window * mix_u_pitch) +
           (reads_table ? shared_bytes_for<C>(mix_window * mix_heads) : 0);
  }
  WHENCE_HD MixWalk(Thread& t, const MixFacts<M>& told, bool reads_table) : mix(told) {
    u = t.shared<M>(mix_window * mix_u_pitch);
    if (reads_table) table = t.shared<C>(mix_window * mix_heads);
    place = place_of(t);
    slope = pack_two<M>(told.slope, told.slope);
  }
  WHENCE_HD int heads() const { return mix.facts.heads; }

  // Returns the steps from half 0's first key to its first query, at step 0; then those of the window's first row.
  WHENCE_HD int first_distance() const { return place.token - place.key; }
  WHENCE_HD int lowest_distance() const { return first_distance() - mix_walk_keys - 8; }

  // Called by all threads of the block.
  WHENCE_HD void begin(Thread& t) {
    fetch_window<mix_hidden>(t, u, mix_u_pitch, mix.u + index_t(left) * mix.distances * mix_hidden);
    if (table) fetch_window<mix_heads>(t, table, mix_heads, mix.table);
    cp_async_commit(t);
    each<taps * parts>([&](auto n) {
      each<8>([&](auto r) {
        const int d = r / 2 * 8 + t.lane() / 4, k = r % 2 * 8 + t.lane() % 4 * 2;
        w1[n][r] = pack_two<M>(input(d, k, n), input(d, k + 1, n));
      });
    });
    cp_async_wait<0>(t);
    t.sync();
  }
  // Returns W1 of a hidden number and of the head in column k of a factor; n: the tap, and in it the part of X.
  WHENCE_HD Number<C> input(int d, int k, int n) const {
    const int h = head_of_column(k), channel = (d * parts + n % parts) * heads() + h;
    return d < mix.width && h < heads() ? load<C>(mix.input, channel * taps + n / parts) : Number<C>(0.0f);
  }
  WHENCE_HD Number<C> output(int d, int k, int tap) const {
    const int h = head_of_column(k);
    return d < mix.width && h < heads() ? load<C>(mix.output, (h * mix.width + d) * taps + tap) : Number<C>(0.0f);
  }

  // True if a step's eight columns are stored for this half.
  WHENCE_HD bool has_keys(int step, int half) const {
    const int key = place.key + 8 * (step + half);
    return key >= place.keys.begin && key < place.keys.end;
  }
  // Copies the numbers of a step's eight keys to a lane's own place in shared memory [half, slot, thread]; 0 if there
  // are none.
  template <int of = 1, class E>
  WHENCE_HD void fetch(Thread& t, Shared<E> to, const PairBlocks<const E>& from, int step) const {
    each<2>([&](auto half) {
      const bool stored = has_keys(step, half);
      const index_t at = at_of(t, from, step, half);
      each<slots * of>([&](auto s) {
        cp_async(t, to, ((half * slots * of + s) * head_threads + t.index()) * 8, from.at, at + channel(s) * 64,
            stored && 4 * (s % slots) + t.lane() % 4 < heads());
      });
    });
  }
  // Returns the number of channels from slot 0 of S to slot s of [S, B].
  WHENCE_HD int channel(int s) const { return s % slots * 4 + (s / slots ? heads() : 0); }
  // Stages hold the numbers of a step; all but one are being filled. With more channels there is memory for two.
  static constexpr int fetched = 2 * slots * head_threads * 8, stages = slots * parts <= 3 ? 3 : 2;
  static WHENCE_HD int stage_of(int step) { return (step + stages) % stages; }
  template <class E, class Packs> WHENCE_HD void take(Thread& t, Shared<E> from, Packs& packs) const {
    constexpr int count = Packs::Value::count;
    each<2>([&](auto half) {
      each<count>(
          [&](auto s) { packs[half][s] = load_pack<8>(from, ((half * count + s) * head_threads + t.index()) * 8); });
    });
  }
  // Returns column n of packs as a left factor, of S or of B.
  template <class E, int n, class Packs, int part = 0>
  static WHENCE_HD FragmentA<E> factor(const Packs& packs, Nth<n>, Nth<part> = {}) {
    FragmentA<E> a;
    each<4>([&](auto r) {
      constexpr int slot = r / 2 * 2, at = slot + part * slots;
      Pack<E, 2> two{};
      if constexpr (slot < slots) two.of[0] = packs[Nth<r % 2>{}][Nth<at>{}].of[n];
      if constexpr (slot + 1 < slots) two.of[1] = packs[Nth<r % 2>{}][Nth<at + 1>{}].of[n];
      a[r] = std::bit_cast<Register<E>>(two);
    });
    return a;
  }
  template <int column, int n, class Packs> WHENCE_HD void put_column(Nth<column>, const Packs& packs, Nth<n> of) {
    each<parts>([&](auto part) { x[In<column>{}][part] = factor<M>(packs, of, part); });
  }

  // Returns the key of a half's first hidden column in a step.
  WHENCE_HD int first_hidden(int step, int half) const { return place.key + 8 * (step + half) + lead; }
  WHENCE_HD void begin_step(Thread& t, int step) {
    if (taps == 1) return;  // no row reads unseen columns then
    each<2>([&](auto half) {
      const int key = first_hidden(step, half);
      there[half] = {place.begin - key, hidden_end() - key};
      if (mix.remask) there[half].bits &= seen(key, half, t).bits;
    });
    at_border = first_hidden(step, 0) < place.begin + left && first_hidden(step, 1) + 8 > place.begin;
  }
  // Makes the hidden column n + lead of a step. REQUIRES: x has the columns that it reads
  template <int n> WHENCE_HD void make_hidden(Thread& t, int step, Nth<n>) {
    constexpr int column = n + lead;
    const auto of_table = ldmatrix(t, u, (row_of(step) - column + t.lane() % 8) * mix_u_pitch + t.lane() / 8 * 8);
    Registers<Registers<Register<M>, 4>, 2> of_halves;
    each<2>([&](auto half) { of_halves[half] = of_table; });
    if (left > 0 && at_border)
      each<2>([&](auto half) {
        const int nth = first_hidden(step, half) + n - place.begin;
        if (nth < 0 || nth >= left) return;
        const int row = first_distance() - 8 * step - column + t.lane() / 4 - mix.lowest;
        each<4>([&](auto b) {
          Pack<M, 2> two{};
          if (row >= 0 && row < mix.distances)
            two = load_pack<2>(mix.u, (index_t(nth) * mix.distances + row) * mix_hidden + 8 * b + t.lane() % 4 * 2);
          of_halves[half][b] = std::bit_cast<Register<M>>(two);
        });
      });
    each<4>([&](auto b) {
      FragmentC<M> sum;
      each<2>([&](auto half) {
        const auto two = unpack_two<M>(of_halves[half][b]);
        sum[Nth<2 * half>{}] = two.low, sum[Nth<2 * half + 1>{}] = two.high;
      });
      each<taps * parts>([&](auto k) {
        mma<M>(
            t, sum, x[In<column - left + k / parts>{}][Nth<k % parts>{}], w1[k][Nth<2 * b>{}], w1[k][Nth<2 * b + 1>{}]);
      });
      each<2>([&](auto half) {
        const Register<M> before = pack_two<M>(sum[Nth<2 * half>{}], sum[Nth<2 * half + 1>{}]);
        Register<M> value = max_two<M>(before, times_two<M>(before, slope));
        if (taps > 1 && !there[half].has(n)) value = {};
        hidden[In<column>{}][Nth<b / 2>{}][Nth<half + b % 2 * 2>{}] = value;
      });
    });
  }
  // Returns the window's row for half 0's first query and first key at a step; half 1's is the same.
  WHENCE_HD int row_of(int step) const { return 8 * (mix_steps - step) + 8; }
  // Returns the index of the lane's row and first head at a step's keys in blocks. REQUIRES: has_keys
  template <class E, int of_row>
  WHENCE_HD index_t at_of(Thread& t, const PairBlocks<E, of_row>& blocks, int step, int half) const {
    return blocks.of(place.sequence, place.row + 8 * half + t.lane() / 4, t.lane() % 4) +
           index_t(place.key / 8 + step + half) * blocks.step();
  }
  WHENCE_HD int hidden_end() const { return place.end == mix.facts.keys ? mix.facts.keys + mix.behind : place.end; }
  // Returns the keys from `key` on that the lane's query of a half sees.
  WHENCE_HD SeenColumns seen(int key, int half, Thread& t) const {
    const int row = 8 * half + t.lane() / 4, token = place.token + row;
    const int first = larger(place.begin, token - mix.facts.before) - key;
    return {
        first, place.query + row < mix.facts.queries ? smaller(place.end, token + mix.facts.after + 1) - key : first};
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
