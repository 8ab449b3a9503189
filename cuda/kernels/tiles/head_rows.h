// Shared by the kernels of tiled attention: rows of heads in memory, the keys that are present, and asynchronous copies
// of rows and tables into shared memory.
#pragma once

#include <limits>
#include <numbers>

#include "cuda/kernels/tiles/products.h"
#include "cuda/vocabulary/launch_kernel.h"
#include "cuda/vocabulary/rows.h"

namespace whence::gpu {

// Fragments of 16 rows of a warp, as many as its registers hold.
template <class T, int width> inline constexpr int fragments_of = width <= 64 && per_register<T> == 2 ? 2 : 1;

template <class C> inline constexpr C log2e = std::numbers::log2e_v<C>;
template <class C> inline constexpr C ln2 = std::numbers::ln2_v<C>;
inline constexpr int head_threads = 128, head_warps = head_threads / 32;    // of a block
inline constexpr float not_seen = -std::numeric_limits<float>::infinity();  // the logit of an unseen pair

// Rows of an operand or of a result, [b h|g t d]: each is contiguous, and an operand's begins at 16 bytes.
template <class T> struct HeadRows {
  Global<T> at = nullptr;
  index_t batch = 0, head = 0, row = 0;  // strides
  int group = 1;                         // query heads that share a head of these
  bool packs = false;                    // rows begin at 16 bytes
  WHENCE_HD Global<T> of(int b, int h) const { return at + (b * batch + h / group * head); }
};

// C: the compute type, f32; f64 when the emulator tests a kernel's code.
template <class C> struct HeadFacts {
  int heads, queries, keys, d;
  int first_row, before, after;         // as in Band (tensor/pairs.h)
  int distances, lowest;                // of the table (TermsInPacks): number 0 is `lowest` steps
  C scale, scale_of_powers;             // of q.k, and times log2(e): logits are in base 2
  Global<const index_t> row = nullptr;  // holds first_row, if given
  WHENCE_HD int first() const { return row ? static_cast<int>(index_t(row[0])) : first_row; }
  WHENCE_HD int keys_in_packs() const { return (keys + 3) / 4 * 4; }
};

WHENCE_HD inline int larger(int a, int b) { return a > b ? a : b; }
WHENCE_HD inline int smaller(int a, int b) { return a < b ? a : b; }

// The first key that is present, and the one after the last.
struct PresentRange {
  static constexpr const char* name = "present range";
  static constexpr int threads = 32;
  Global<const bool> present;  // [b keys]
  Global<std::int32_t> range;  // [b 2]
  int keys;
  WHENCE_HD void operator()(Thread& t) const {
    int first = keys, end = 0;
    for (int j = t.lane(); j < keys; j += 32)
      if (present[t.block() * keys + j]) first = smaller(first, j), end = j + 1;
    for (int mask = 16; mask > 0; mask /= 2) {
      first = smaller(first, t.shuffle_xor(first, mask));
      end = larger(end, t.shuffle_xor(end, mask));
    }
    if (t.lane() > 0) return;
    range[t.block() * 2] = first, range[t.block() * 2 + 1] = end;
  }
};

// Copies rows [first, first + count) of a head, of which those before `end` exist, as a tile [count, width]; 0
// elsewhere. phase(row) permutes the packs of a row (fragments.h).
template <int count, int width, class T, class Phase>
WHENCE_HD void fetch_rows(Thread& t, Shared<T> to, const HeadRows<const T>& from, Global<const T> head, int first,
    int end, int d, const Phase& phase) {
  constexpr int pack = matrix_row<T>, packs = width / pack, at_once = head_threads / packs;
  const int row = t.index() / packs, column = t.index() % packs * pack, left = column < d ? end - first - row : 0;
  const int at = tile_at<T>(row, column, width, phase(row));
  const Global<const T> source = head + ((first + row) * from.row + column);
  each<count / at_once>([&](auto n) {
    constexpr int further = n * at_once;
    cp_async(t, to, moved(at, further, phase(further) * pack, width), source, further * from.row, further < left);
  });
}

// Numbers of tables and of columns, in rows that copies of 16 bytes may read: padded, with `before` zeros first.
template <class T> struct TermsInPacks {
  using C = compute_t<T>;
  static constexpr const char* name = "terms in packs";
  static constexpr int threads = 128;
  Global<const T> from;  // [rows, length]
  Global<C> to;          // [rows, padded]
  int length, padded, before;
  index_t count;
  WHENCE_HD void operator()(Thread& t) const {
    const index_t n = t.block() * threads + t.index(), row = n / padded, at = n - row * padded - before;
    if (n >= count) return;
    store(to, n, at >= 0 && at < length ? load<C>(from, row * length + at) : Number<C>(0.0f));
  }
};

// Copies `count` neighbours of a row of terms from `first` on, a multiple of four; 0 beyond the row's `length`.
template <int count, class C>
WHENCE_HD void fetch_terms(
    Thread& t, Shared<C> to, std::type_identity_t<Global<const C>> row, int first, int length, int index) {
  const int from = first + index * 4;
  if (index >= 0 && index < count / 4) cp_async<C, 4>(t, to, index * 4, row, from, from >= 0 && from < length);
}

// Returns the number of row a and own column j of a warp's pairs: row 8 a + lane / 4, column lane % 4 * own + j of the
// tile.
template <class Pairs, int a, int j> WHENCE_HD auto& number(Pairs& x, Nth<a>, Nth<j>) {
  return x[Nth<a / 2>{}][Nth<j / 2>{}][Nth<a % 2 * 2 + j % 2>{}];
}

// Multiplies line a of a warp's sums (row_of_line) by a factor.
template <int a, class Sums, class Real> WHENCE_HD void scale_line(Sums& sums, Nth<a>, Real factor) {
  each<Sums::Value::count>(
      [&](auto c) { each<2>([&](auto e) { sums[Nth<a / 2>{}][c][Nth<a % 2 * 2 + e>{}] *= factor; }); });
}

// Columns of a lane that a row sees, [from, end) of its neighbouring ones, as bits. The compiler turns them into
// predicates, seven at a time.
struct SeenColumns {
  std::uint32_t bits = 0;
  SeenColumns() = default;
  WHENCE_HD SeenColumns(int from, int end)
      : bits(~0u << smaller(larger(from, 0), 31) & ~(~0u << smaller(larger(end, 0), 31))) {}
  WHENCE_HD bool has(int j) const { return bits >> j & 1; }
};

// The row of a warp that is line a of lane / 4 = g: 8 a + g, as in fragments; or 2 g + a, neighbours, in a fragment
// whose rows were loaded so. Then the phase of rows that are loaded together.
template <bool neighbours> WHENCE_HD constexpr int row_of_line(int g, int a) {
  return neighbours ? 2 * g + a : 8 * a + g;
}
template <bool neighbours> WHENCE_HD constexpr int line_phase(int row) { return row_phase(neighbours ? row / 2 : row); }

// Stores a warp's rows from `first` on, those before `end`, through the warp's own rows of a tile [.., width], so that
// a lane stores 16 bytes at a time.
template <class T, int width, bool neighbours = false, int fragments>
WHENCE_HD void store_rows(Thread& t, Shared<T> tile, const SummedRows<T, width, fragments>& sums, const HeadRows<T>& to,
    Global<T> head, int first, int end, int d) {
  constexpr int pack = matrix_row<T>, packs = width / pack, at_once = 32 / packs, rows = 16 * fragments;
  const Shared<T> own = tile + t.warp() * rows * width;
  constexpr auto phase = line_phase<neighbours>;
  const int line = row_of_line<neighbours>(t.lane() / 4, 0),
            put = tile_at<T>(line, t.lane() % 4 * 2, width, phase(line));
  t.sync_warp();
  each<2 * fragments>([&](auto a) {
    each<width / 8>([&](auto c) {
      const FragmentC<T>& of = sums[Nth<a / 2>{}][c];
      store_pack<2>(own, moved(put, row_of_line<neighbours>(0, a), 8 * c, width),
          two_of<T>(of[Nth<a % 2 * 2>{}], of[Nth<a % 2 * 2 + 1>{}]));
    });
  });
  t.sync_warp();
  const int row = t.lane() / packs, column = t.lane() % packs * pack, get = tile_at<T>(row, column, width, phase(row));
  each<rows / at_once>([&](auto n) {
    constexpr int further = n * at_once;
    if (first + row + further >= end) return;
    const auto numbers = load_pack<pack>(own, moved(get, further, phase(further) * pack, width));
    const index_t at = (first + row + further) * to.row + column;
    if (to.packs && column + pack <= d) return store_pack<pack>(head, at, numbers);
    for (int k = 0; k < pack; ++k)
      if (column + k < d) head[at + k] = numbers.of[k];
  });
}

// Numbers of 32 rows of queries, adjacent, with zeros for missing rows: what backward reads of each row.
template <class C> struct RowBlocks {
  static constexpr int rows = 32;
  Global<C> at;  // [b h, blocks, 2, rows]: x_ij less the first is the logarithm of P_ij; the second is delta_i
  int blocks;
  WHENCE_HD Global<C> of(int head, int row) const {
    return at + ((index_t(head) * blocks + row / rows) * 2 * rows + row % rows);
  }
};

// Columns are sums over many tokens, which f32 holds coarsely. Heads of f32 have a second row after that of a head's
// column: what f32 lost of it. Heads of 16 bits have less precise scores anyway, and have one.
template <class T> inline constexpr int column_words = sizeof(T) == 2 ? 1 : 2;
template <class C> struct ColumnNumber {
  Number<C> held = 0.0f, rest = 0.0f;
};
template <class T, class C>
WHENCE_HD ColumnNumber<C> number_of_key(Global<const C> column, const HeadFacts<C>& facts, int key) {
  ColumnNumber<C> of{load<C>(column, key)};
  if constexpr (column_words<T> == 2) of.rest = load<C>(column, facts.keys_in_packs() + key);
  return of;
}
template <class T, class C> WHENCE_HD Number<C> apart(const ColumnNumber<C>& x, const ColumnNumber<C>& y) {
  if constexpr (column_words<T> == 2) return (x.held - y.held) + (x.rest - y.rest);
  return x.held - y.held;
}
// Returns what a block of `rows` subtracts from the column of every key that it sees: the number of its first query, or
// of `present`, the first key, if that is later. column: of a head.
template <class T, int rows, class C>
WHENCE_HD ColumnNumber<C> taken_off(
    Global<const C> column, const HeadFacts<C>& facts, int first_row, int query, int present) {
  const int token = smaller(larger(first_row + query / rows * rows, present), facts.keys - 1);
  return number_of_key<T>(column, facts, larger(token, 0));
}
// Copies the columns of `count` keys from `first` on, asynchronously; those of f32 heads have `off` subtracted.
template <class T, int count, class C>
WHENCE_HD void fetch_columns(Thread& t, Shared<C> to, std::type_identity_t<Global<const C>> column,
    const HeadFacts<C>& facts, int first, const ColumnNumber<C>& off) {
  if constexpr (column_words<T> == 1) return fetch_terms<count>(t, to, column, first, facts.keys_in_packs(), t.index());
  static_assert(count <= head_threads);
  const int key = first + t.index();
  if (t.index() < count)
    store(to, t.index(), key < facts.keys ? apart<T>(number_of_key<T>(column, facts, key), off) : Number<C>(0.0f));
}

}  // namespace whence::gpu
