// Attention of heads on tensor cores, backward: tensor/tiles/attention_kernel.h has the equations. Two kernels of one text,
// which sum to what their rows are: to queries, with keys as columns, and to keys and values, with queries as columns. So
// every sum stands in the registers of one warp, in a fixed order, and pattern and gradient are the next product's left
// factor where they are made.
//   P_ij  = 2^(x_ij - top_i) share_i,  dP_ij = do_i.v_j,  dA_ij = P_ij (dP_ij - delta_i),  delta_i = o_i.do_i
//   dq_i  = scale sum_j dA_ij k_j;     dk_j  = scale sum_i dA_ij q_i,  dv_j = sum_i P_ij do_i
//   dcolumn_j = sum_i dA_ij;           dtable[m] = the sum of dA over the pairs that lie m steps apart
// Per pair: 6 d and 8 d operations on tensor cores, a power each, some 20 others.
#pragma once

#include "cuda/kernels/tiles/gate_backward.h"

namespace whence::gpu {

// to_keys: rows are keys, and columns queries. scans: CoPE's sums of gates add to the logits (gate_backward.h).
template <class T, int width, bool to_keys, bool scans = false> struct HeadsBackward {
  static constexpr const char* name = scans
                                          ? (to_keys ? "gradient of keys with gates" : "gradient of queries with gates")
                                          : (to_keys ? "gradient of keys" : "gradient of queries");
  static constexpr int threads = head_threads;
  static constexpr int columns = 32, own = columns / 4, fragments = width <= 64 && !scans ? 2 : 1;
  static constexpr int of_warp = 16 * fragments, rows = head_warps * of_warp;
  // Lines of the warp that a lane has numbers of: `line_step` rows lie between them. Gates want neighbouring keys in a lane.
  static constexpr int lines = 2 * fragments, line_step = scans && to_keys ? 1 : 8;
  static constexpr unsigned blocks_at_once = 2;
  static std::size_t shared_bytes(bool sums_table, const GateScan& scan = {}) {
    return shared_bytes_for<T>((2 * rows + 4 * columns) * width) + shared_bytes_for<float>(2 * term_count) +
           shared_bytes_for<float>(sums_table ? rows * pitch : 0) + Scan::shared_bytes(scan);
  }

  HeadFacts facts;
  HeadRows<const T> q, k, v, d_o;
  Global<const float> norms, delta;         // [b h queries 2], [b h queries]
  Global<const float> table;                // [h distances], or null
  Global<const float> column;               // [b h keys], or null
  Global<const std::int32_t> present;       // [b 2], or null
  HeadRows<T> d_first, d_second;            // of queries, or of keys and values; null where nobody asks
  HeadRows<float> wide_first, wide_second;  // in their place where several heads are added up
  Global<float> d_column;                   // [b h keys], or null
  Global<float> slices;  // [heads of this launch, blocks, keys + rows]: sums of dA by distance, or null
  index_t first_head;    // of b h, of this launch
  GateScan scan;
  OfPositions<T> of_positions;

 private:
  static constexpr int pitch = columns + 1;  // of dA in shared memory: diagonals in different banks
  static constexpr int term_count = rows + columns + 3 * columns;  // of a stage

  struct Stage {
    Shared<T> first, second;          // keys and values, or queries and gradients of the output
    Shared<float> by_distance;        // [rows + columns]
    Shared<float> top, share, delta;  // [columns] each, of queries
    Shared<float> by_key;             // [columns], in the place of top
  };
  struct Part {
    index_t b, h, block;
    int first_row;            // a query, or a key
    int begin, end;           // keys [begin, end) are present
    Number<float> taken_off;  // of a block of queries
  };
  using Pairs = Registers<Registers<FragmentC<T>, columns / 8>, fragments>;
  using Sums = Registers<Registers<FragmentC<T>, width / 8>, fragments>;
  struct Line {
    Number<float> top, share, delta;  // of a query
    Number<float> sum;                // of a key: the gradient of its column
  };
  using Lines = Registers<Line, lines>;
  using Scan = std::conditional_t<!scans, NoScan, std::conditional_t<to_keys, ScanOfKeys, ScanOfQueries>>;

 public:
  WHENCE_HD void operator()(Thread& t) const {
    const Shared<T> first = t.shared<T>((2 * rows + 4 * columns) * width), second = first + rows * width,
                    tiles = second + rows * width;
    const Shared<float> terms = t.shared<float>(2 * term_count), pairs = t.shared<float>(slices ? rows * pitch : 0);
    const auto stage = [&](int n) {
      const Shared<T> tile = tiles + n * 2 * columns * width;
      const Shared<float> term = terms + n * term_count, behind = term + rows + columns;
      return Stage{tile, tile + columns * width, term, behind, behind + columns, behind + 2 * columns, behind};
    };
    const Part part = part_of(t);
    Scan gates(t, scan, facts, part.b * facts.heads + part.h, part.first_row + t.warp() * of_warp);
    const auto in_order = [](int row) { return line_phase(row); };
    fetch_rows<rows, width>(t, first, to_keys ? k : q, part.b, part.h, part.first_row, row_count(), facts.d, in_order);
    fetch_rows<rows, width>(
        t, second, to_keys ? v : d_o, part.b, part.h, part.first_row, row_count(), facts.d, in_order);
    Lines held;
    hold(t, part, held);
    // All warps walk over the same tiles: those that some row of the block sees.
    const int from = first_seen(part, part.first_row), end = end_seen(part, part.first_row + rows - 1);
    const int first_tile = from / columns, end_tile = end > from ? (end - 1) / columns + 1 : first_tile;
    const auto fetch_stage = [&](int n, int tile) {
      fetch(t, part, stage(n), tile * columns);
      gates.fetch(t, n, tile * columns);
    };
    if (first_tile < end_tile) fetch_stage(0, first_tile);
    cp_async_commit(t);
    Sums sums, of_values;
    for (int tile = first_tile, n = 0; tile < end_tile; ++tile, n = 1 - n) {
      cp_async_wait<0>(t);
      t.sync();
      if (tile + 1 < end_tile) fetch_stage(1 - n, tile + 1);
      cp_async_commit(t);
      work(t, part, first, second, stage(n), tile * columns, n, held, gates, sums, of_values, pairs);
    }
    cp_async_wait<0>(t);
    each<fragments>([&](auto m) {
      each<width / 8>([&](auto c) { each<4>([&](auto r) { sums[m][c][r] = sums[m][c][r] * facts.scale; }); });
    });
    gates.finish(t, of_positions, tiles, sums);
    finish(t, part, held, sums, of_values);
  }

 private:
  WHENCE_HD int row_count() const { return to_keys ? facts.keys : facts.queries; }
  WHENCE_HD int column_count() const { return to_keys ? facts.queries : facts.keys; }

  WHENCE_HD Part part_of(Thread& t) const {
    const index_t blocks = (row_count() + rows - 1) / rows, head = first_head + t.block() / blocks;
    const index_t nth = t.block() % blocks;
    // The rows that may see the most come first.
    Part part{head / facts.heads, head % facts.heads, to_keys ? nth : blocks - 1 - nth, 0, 0, facts.keys, 0.0f};
    part.first_row = static_cast<int>(part.block) * rows;
    if (present) part.begin = present[part.b * 2], part.end = present[part.b * 2 + 1];
    if (!to_keys && column)
      part.taken_off = taken_off<rows>(column, facts, part.b * facts.heads + part.h, part.first_row);
    return part;
  }

  // The columns that a row sees, [first_seen, end_seen). Of keys that are not present they are those of others.
  WHENCE_HD int first_seen(const Part& part, int row) const {
    return to_keys ? larger(0, row - facts.first_row - facts.after)
                   : larger(part.begin, facts.first_row + row - facts.before);
  }
  WHENCE_HD int end_seen(const Part& part, int row) const {
    return to_keys ? smaller(facts.queries, row - facts.first_row + facts.before + 1)
                   : smaller(part.end, facts.first_row + row + facts.after + 1);
  }

  WHENCE_HD int row_of(Thread& t, const Part& part) const {  // of line 0; the next are 8 rows further on each
    return part.first_row + line_of(t);
  }
  // Of line 0, in the block.
  static WHENCE_HD int line_of(Thread& t) { return t.warp() * of_warp + t.lane() / 4 * (line_step == 1 ? lines : 1); }
  static WHENCE_HD int line_phase(int row) { return row_phase(line_step == 1 ? row / 2 : row); }
  WHENCE_HD void hold(Thread& t, const Part& part, Lines& held) const {
    each<lines>([&](auto a) {
      held[a].sum = 0.0f;
      if constexpr (to_keys) return;
      const int row = row_of(t, part) + line_step * a;
      const index_t at = (part.b * facts.heads + part.h) * facts.queries + row;
      const bool there = row < facts.queries;  // else its share is 0, and so is its pattern
      held[a].top = there ? load<float>(norms, 2 * at) : Number<float>(0.0f);
      held[a].share = there ? load<float>(norms, 2 * at + 1) : Number<float>(0.0f);
      held[a].delta = there ? load<float>(delta, at) : Number<float>(0.0f);
    });
  }

  // Number n of by_distance is of pairs that lie lowest_of(...) + n steps apart.
  WHENCE_HD int lowest_of(const Part& part, int first_column) const {
    return to_keys ? facts.first_row + first_column - part.first_row - rows + 1
                   : facts.first_row + part.first_row - first_column - columns + 1;
  }

  WHENCE_HD void fetch(Thread& t, const Part& part, const Stage& to, int first_column) const {
    const auto phase = [](int at) { return key_phase<columns>(at); };
    fetch_rows<columns, width>(
        t, to.first, to_keys ? q : k, part.b, part.h, first_column, column_count(), facts.d, phase);
    fetch_rows<columns, width>(
        t, to.second, to_keys ? d_o : v, part.b, part.h, first_column, column_count(), facts.d, phase);
    if (table) fetch_distances<rows + columns>(t, to.by_distance, table, facts, part.h, lowest_of(part, first_column));
    if (t.index() >= columns) return;
    const int at = first_column + t.index();
    if (!to_keys) {
      const index_t key = (part.b * facts.heads + part.h) * facts.keys + smaller(at, facts.keys - 1);
      if (column) store(to.by_key, t.index(), (load<float>(column, key) - part.taken_off) * log2e);
      return;
    }
    const index_t row = (part.b * facts.heads + part.h) * facts.queries + at;
    const bool there = at < facts.queries;
    store(to.top, t.index(), there ? load<float>(norms, 2 * row) : Number<float>(0.0f));
    store(to.share, t.index(), there ? load<float>(norms, 2 * row + 1) : Number<float>(0.0f));
    store(to.delta, t.index(), there ? load<float>(delta, row) : Number<float>(0.0f));
  }

  WHENCE_HD void work(Thread& t, const Part& part, Shared<T> first, Shared<T> second, const Stage& stage,
      int first_column, int n, Lines& held, Scan& gates, Sums& sums, Sums& of_values, Shared<float> pairs) const {
    const int row = part.first_row + t.warp() * of_warp, last_row = row + of_warp - 1,
              last_column = first_column + columns - 1;
    // The fewest and the most steps by which a query of the warp stands behind a key.
    const int lowest = facts.first_row + (to_keys ? first_column - last_row : row - last_column),
              highest = facts.first_row + (to_keys ? last_column - row : last_row - first_column);
    Pairs x, dx;
    const bool visible = row < row_count() && highest >= -facts.after && lowest <= facts.before;
    const bool whole =
        lowest >= -facts.after && highest <= facts.before && last_column < column_count() &&
        (to_keys ? row >= part.begin && last_row < part.end : first_column >= part.begin && last_column < part.end);
    if (visible) {
      products(t, first, stage.first, x);
      products(t, second, stage.second, dx);
      whole ? make_gradients<false>(t, part, stage, first_column, n, held, gates, x, dx)
            : make_gradients<true>(t, part, stage, first_column, n, held, gates, x, dx);
    }
    if (slices) put_pairs(t, dx, pairs);
    if (visible) {
      whole ? gates.template gather<false>(t, first_column, dx) : gates.template gather<true>(t, first_column, dx);
      if constexpr (to_keys) add_rows<T, columns, width>(t, stage.second, x, of_values);
      add_rows<T, columns, width>(t, stage.first, dx, sums);
    }
    if (slices) add_diagonals(t, part, first_column, pairs);
  }

  // x += rows of `left` times rows of the tile.
  WHENCE_HD void products(Thread& t, Shared<T> left, Shared<T> tile, Pairs& x) const {
    const int matrix = t.lane() / 8, line = t.lane() % 8;
    each<width / 32>([&](auto h) {
      Registers<Registers<FragmentA<T>, 2>, fragments> a;
      each<fragments>([&](auto m) {
        each<2>([&](auto n) {
          const int row = t.warp() * of_warp + 16 * m + matrix % 2 * line_step + line * (line_step == 1 ? lines : 1);
          a[m][n] = ldmatrix(t, left, tile_at<T>(row, 32 * h + 16 * n + matrix / 2 * 8, width, line_phase(row)));
        });
      });
      each<columns / 8>([&](auto c) {
        const int at = key_of_column<columns>(8 * c + line);
        const auto b = ldmatrix(t, tile, tile_at<T>(at, 32 * h + 8 * matrix, width, key_phase<columns>(at)));
        each<fragments>([&](auto m) {
          mma<T>(t, x[m][c], a[m][Nth<0>{}], b[Nth<0>{}], b[Nth<1>{}]);
          mma<T>(t, x[m][c], a[m][Nth<1>{}], b[Nth<2>{}], b[Nth<3>{}]);
        });
      });
    });
  }

  // True if the pair of line a and column j is seen. first_row and first_column: of a = j = 0.
  WHENCE_HD bool seen(const Part& part, int first_row, int first_column, int a, int j) const {
    const int row = first_row + line_step * a, at = first_column + j, query = to_keys ? at : row,
              key = to_keys ? row : at;
    const int steps = facts.first_row + query - key;
    return key >= part.begin && key < part.end && (!to_keys || query < facts.queries) && steps >= -facts.after &&
           steps <= facts.before;
  }

  // x becomes the logit in base 2, then P, and dx dA. Without terms the power takes the scale along.
  WHENCE_HD float unit() const { return scans || table || column ? 1.0f : facts.scale_of_powers; }
  template <bool edge>
  WHENCE_HD void make_gradients(Thread& t, const Part& part, const Stage& stage, int first_column, int n, Lines& held,
      Scan& gates, Pairs& x, Pairs& dx) const {
    const int row = row_of(t, part), column_of_lane = first_column + t.lane() % 4 * own;
    if (scans || table || column)
      each<lines>(
          [&](auto a) { each<own>([&](auto j) { of_line(x, a, j) = of_line(x, a, j) * facts.scale_of_powers; }); });
    gates.template add<edge>(
        t, n, first_column, [&](auto a, auto j) { return seen(part, row, column_of_lane, a, j); }, x);
    add_terms(t, part, stage, first_column, x);
    gradients<edge>(t, part, stage, first_column, held, x, dx);
  }

  WHENCE_HD void add_terms(Thread& t, const Part& part, const Stage& stage, int first_column, Pairs& x) const {
    const int quad = t.lane() % 4, line = line_of(t);
    if (table) {
      constexpr int apart = line_step * (lines - 1), run = apart + own;
      const int lowest = to_keys ? rows - 1 - line - apart + quad * own : line - quad * own + columns - own;
      each<run>([&](auto n) {
        const Number<float> term = load<float>(stage.by_distance, lowest + n);
        each<lines>([&](auto a) {
          constexpr int j = to_keys ? n - apart + line_step * a : line_step * a + own - 1 - n;
          if constexpr (j >= 0 && j < own) of_line(x, a, Nth<j>{}) += term;
        });
      });
    }
    if (!column) return;
    if constexpr (to_keys) {
      const index_t head = part.b * facts.heads + part.h;
      const Number<float> less = taken_off<rows>(column, facts, head, first_column);
      each<lines>([&](auto a) {
        const int key = smaller(row_of(t, part) + line_step * a, facts.keys - 1);
        const Number<float> term = (load<float>(column, head * facts.keys + key) - less) * log2e;
        each<own>([&](auto j) { of_line(x, a, j) += term; });
      });
    } else {
      each<own>([&](auto j) {
        const Number<float> term = load<float>(stage.by_key, quad * own + j);
        each<lines>([&](auto a) { of_line(x, a, j) += term; });
      });
    }
  }

  template <bool edge>
  WHENCE_HD void gradients(
      Thread& t, const Part& part, const Stage& stage, int first_column, Lines& held, Pairs& x, Pairs& dx) const {
    const int quad = t.lane() % 4, row = row_of(t, part), first = first_column + quad * own;
    const float by = unit();
    each<own / 4>([&](auto four) {
      Pack<float, 4> top{}, share{}, delta_of{};
      if constexpr (to_keys) {
        top = load_pack<4>(stage.top, quad * own + 4 * four), share = load_pack<4>(stage.share, quad * own + 4 * four);
        delta_of = load_pack<4>(stage.delta, quad * own + 4 * four);
      }
      each<4>([&](auto e) {
        constexpr int j = 4 * four + e;
        each<lines>([&](auto a) {
          Number<float>&p = of_line(x, a, Nth<j>{}), &gradient = of_line(dx, a, Nth<j>{});
          if constexpr (to_keys) {
            p = ex2_approx(p * by - top.of[e]) * share.of[e];
            gradient = p * (gradient - delta_of.of[e]);
          } else {
            p = ex2_approx(p * by - held[a].top) * held[a].share;
            gradient = p * (gradient - held[a].delta);
          }
          if constexpr (edge)
            if (!seen(part, row, first, a, j)) p = 0.0f, gradient = 0.0f;
          if constexpr (to_keys) held[a].sum += gradient;
        });
      });
    });
  }

  WHENCE_HD void put_pairs(Thread& t, Pairs& dx, Shared<float> pairs) const {
    const int line = line_of(t), quad = t.lane() % 4;
    each<lines>([&](auto a) {
      each<own>([&](auto j) { store(pairs, (line + line_step * a) * pitch + quad * own + j, of_line(dx, a, j)); });
    });
  }
  // A thread per diagonal of the tile adds it up, and adds it to the block's slice.
  WHENCE_HD void add_diagonals(Thread& t, const Part& part, int first_column, Shared<float> pairs) const {
    t.sync();
    const int blocks = (facts.queries + rows - 1) / rows, length = facts.keys + rows;
    const index_t slice = ((part.b * facts.heads + part.h - first_head) * blocks + part.block) * length;
    for (int n = t.index(); n < rows + columns - 1; n += threads) {  // row - column = n - (columns - 1)
      const int apart = n - (columns - 1), from = larger(0, apart), end = smaller(rows, columns + apart);
      Number<float> sum = 0.0f;
      for (int row = from; row < end; ++row) sum += load<float>(pairs, row * pitch + row - apart);
      const int at = apart - first_column + facts.keys - 1;  // row of the block - key + keys - 1
      if (at >= 0) store(slices, slice + at, load<float>(slices, slice + at) + sum);
    }
  }

  WHENCE_HD void finish(Thread& t, const Part& part, const Lines& held, const Sums& sums, const Sums& of_values) const {
    each<lines>([&](auto a) {
      const int row = row_of(t, part) + line_step * a;
      Number<float> of_column = held[a].sum;
      for (int mask = 1; mask <= 2; mask *= 2) of_column += t.shuffle_xor(of_column, mask);
      if (row >= row_count()) return;
      put<a>(t, part, row, sums, d_first, wide_first);
      if constexpr (to_keys) {
        put<a>(t, part, row, of_values, d_second, wide_second);
        if (d_column && t.lane() % 4 == 0)
          store(d_column, (part.b * facts.heads + part.h) * facts.keys + row, of_column);
      }
    });
  }
  template <int a>
  WHENCE_HD void put(Thread& t, const Part& part, int row, const Sums& sums, const HeadRows<T>& to,
      const HeadRows<float>& wide) const {
    const index_t at = to.of(part.b, part.h) + row * to.row, wide_at = wide.of(part.b, part.h) + row * wide.row;
    each<width / 8>([&](auto c) {
      const FragmentC<T>& of = sums[Nth<a / 2>{}][c];
      const Number<float> low = of[Nth<a % 2 * 2>{}], high = of[Nth<a % 2 * 2 + 1>{}];
      const int column_of_lane = 8 * c + t.lane() % 4 * 2;
      if (to.at) store_two(to, at, column_of_lane, facts.d, low, high);
      if (wide.at) store_two(wide, wide_at, column_of_lane, facts.d, low, high);
    });
  }
};

}  // namespace whence::gpu
