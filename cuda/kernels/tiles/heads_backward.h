// Attention of heads on tensor cores, backward: tensor/tiled_call.h has the equations. One template makes
// two kernels. Each sums to its rows: to queries, with keys as columns, and to keys and values, with queries as
// columns. So every sum is in the registers of one warp, in a fixed order, and pattern and gradient become the next
// product's left factor in place.
//   P_ij  = 2^(x_ij - norm_i),  dP_ij = m_ij do_i.v_j,  dA_ij = P_ij (dP_ij - delta_i),  delta_i = o_i.do_i
//   dq_i  = scale sum_j dA_ij k_j;     dk_j  = scale sum_i dA_ij q_i,  dv_j = sum_i m_ij P_ij do_i
//   dcolumn_j = sum_i dA_ij;           dtable[m] = the sum of dA over the pairs m steps apart
// with m_ij = drop(1): 1 without dropout (dropout.h).
// Both kernels are launched once more if gates are of gate_scale gq_i.gk_j, because registers hold the sums of one
// side: with dG_ij, which gate_scan.h otherwise adds to dS_ij,
//   dgq_i = gate_scale sum_j dG_ij gk_j;  dgk_j = gate_scale sum_i dG_ij gq_i
// Relative keys (relative_keys.h) have a third kernel. For it the host exchanges them with the keys, and p with q: rows
// are distances, columns queries, and products of keys and of values are those of a band.
// Per pair: 6 d and 8 d operations on tensor cores, a power each, some 20 others.
#pragma once

#include "cuda/kernels/tiles/dropout.h"
#include "cuda/kernels/tiles/gate_backward.h"
#include "cuda/kernels/tiles/head_sums.h"
#include "cuda/kernels/tiles/relative_keys.h"

namespace whence::gpu {

// to_keys: rows are keys, and columns queries. CoPE's sums of gates add to the logits too (gate_backward.h), or relative keys.
template <class T, int width, bool to_keys, GatesOf gates_of = GatesOf::none> struct HeadsBackward {
  using C = compute_t<T>;
  static constexpr bool others = gates_of == GatesOf::others, scans = gates_of == GatesOf::scores || others,
                        to_distances = gates_of == GatesOf::relative_rows,
                        relative = gates_of == GatesOf::relative || to_distances;
  static constexpr const char* name =
      scans          ? (to_keys ? "gradient of keys with gates" : "gradient of queries with gates")
      : to_distances ? "gradient of relative keys"
      : relative     ? (to_keys ? "gradient of keys with relative keys" : "gradient of queries with relative keys")
                     : (to_keys ? "gradient of keys" : "gradient of queries");
  static constexpr int threads = head_threads;
  static constexpr int columns = 32, own = columns / 4, fragments = scans || relative ? 1 : fragments_of<T, width>,
                       of_warp = 16 * fragments;
  static constexpr int rows = head_warps * of_warp,
                       lines = 2 * fragments;           // lines of the warp that a lane has numbers of
  static constexpr bool neighbours = scans && to_keys;  // a lane's lines are neighbours, as gates are summed over them
  // Operands per row and per column. A tile of distances has no rows of values, and operands that are read by bands
  // have no columns.
  static constexpr int row_operands = others || (relative && !to_keys) ? 3 : to_distances ? 1 : 2;
  static constexpr int column_operands = others || (relative && to_keys) ? 3 : 2;
  static constexpr unsigned blocks_at_once = 2;
  using Band = BandOfRows<T, width, rows, columns, to_keys>;
  using Told = std::conditional_t<relative, RelativeKeys<T>, GateScan<T>>;
  using Scan = std::conditional_t<relative, RelativeBand<T, Band, columns, to_keys, to_distances ? 2 : 1>,
      std::conditional_t<!scans, NoScan,
          std::conditional_t<to_keys, ScanOfKeys<T, gates_of>, ScanOfQueries<T, gates_of>>>>;
  static std::size_t shared_bytes(bool sums_table, const Told& scan) {
    return shared_bytes_for<T>((row_operands * rows + 2 * column_operands * columns) * width) +
           shared_bytes_for<C>(2 * term_count + rows) +
           shared_bytes_for<C>(sums_table ? Diagonals<C, of_warp>::shared_floats : 0) + Scan::shared_bytes(scan);
  }

  HeadFacts<C> facts;
  PairDropout<C> dropout;
  HeadRows<const T> q, k, v, d_o;
  RowBlocks<C> norms;                   // of queries: norm and delta
  Global<const C> table, column;        // [h distances] and [b h column_words keys_in_packs], or null
  Global<const std::int32_t> present;   // [b 2], or null
  HeadRows<T> d_first, d_second;        // of queries (and p), or of keys and values; null if not wanted
  HeadRows<C> wide_first, wide_second;  // used instead if several heads are summed
  Global<C> d_column;                   // [b h keys], or null; for queries, only a sign that it is wanted
  Global<C> slices;                     // as SumSlices reads them, of the heads of this launch, or null
  int first_head;                       // of b h, of this launch
  Told scan;
  OfPositions<T> of_positions;
  HeadRows<const T> gate_q, gate_k;  // of other gates; or p and r of relative keys

 private:
  static constexpr int distances = rows + columns, term_count = distances + 2 * columns;  // of a stage
  static_assert(columns == RowBlocks<C>::rows && columns == scan_columns && (!scans || rows == scan_rows));

  struct Stage {
    // keys and values, or queries and gradients of the output; those of other gates, or p
    Shared<T> first, second, of_gates;
    Shared<C> by_distance;  // [distances]
    Shared<C> of_columns;   // [2 columns]: norm and delta of queries; or terms of keys, [columns]
    Shared<C> of_rows;      // [rows]: terms of keys that are rows, in 16 bits
  };
  struct BlockWork {
    int b, h, head, block;                    // head: of b h
    Global<const T> first, second, of_gates;  // the head's columns
    Global<const C> by_distance, by_key;      // the head's terms
    int first_row;                            // a query, or a key
    int begin, end;                           // keys [begin, end) are present
    ColumnNumber<C> taken_off;                // of a block of queries
  };
  using Pairs = SummedRows<T, columns, fragments>;
  using Sums = SummedRows<T, width, fragments>;
  struct Line {
    Number<C> norm, delta;  // of a query
    Number<C> sum;          // of its dA: of a key the gradient of its column, of a query 0 but for delta's rounding
  };
  using Lines = Registers<Line, lines>;

 public:
  WHENCE_HD void operator()(Thread& t) const {
    const Shared<T> first = t.shared<T>((row_operands * rows + 2 * column_operands * columns) * width),
                    second = first + rows * width, tiles = first + row_operands * rows * width;
    const Shared<C> terms = t.shared<C>(2 * term_count + rows), row_terms = terms + 2 * term_count;
    Diagonals<C, of_warp> diagonals{t.shared<C>(slices ? Diagonals<C, of_warp>::shared_floats : 0)};
    const auto stage = [&](int n) {
      const Shared<T> tile = tiles + n * column_operands * columns * width;
      const Shared<C> term = terms + n * term_count;
      return Stage{tile, tile + columns * width, tile + 2 * columns * width, term, term + distances, row_terms};
    };
    const BlockWork part = work_of(t);
    Scan gates(t, scan, facts, part.head, part.first_row + t.warp() * of_warp);
    constexpr auto phase = line_phase<neighbours>;
    const HeadRows<const T>&of_first = to_keys ? k : q, &of_second = to_keys ? v : d_o,
                         &of_gates = to_keys ? gate_k : gate_q;
    fetch_rows<rows, width>(
        t, first, of_first, of_first.of(part.b, part.h), part.first_row, row_count(), facts.d, phase);
    if constexpr (!to_distances)
      fetch_rows<rows, width>(
          t, second, of_second, of_second.of(part.b, part.h), part.first_row, row_count(), facts.d, phase);
    if constexpr (row_operands == 3)
      fetch_rows<rows, width>(
          t, second + rows * width, of_gates, of_gates.of(part.b, part.h), part.first_row, row_count(), facts.d, phase);
    if (to_keys && !to_distances && column_words<T> == 1 && column)
      fetch_terms<rows>(t, row_terms, part.by_key, part.first_row, facts.keys_in_packs(), t.index());
    Lines held;
    hold(t, part, held);
    // All warps walk over the same tiles: those that some row of the block sees.
    const int from = first_seen(part, part.first_row), end = end_seen(part, last_seen(part.first_row + rows - 1));
    const int first_tile = from / columns, end_tile = end > from ? (end - 1) / columns + 1 : first_tile;
    const auto fetch_stage = [&](int n, int tile) {
      fetch(t, part, stage(n), tile * columns);
      fetch_gates(t, part, gates, n, tile * columns, tile == first_tile);
    };
    if (first_tile < end_tile) fetch_stage(0, first_tile);
    cp_async_commit(t);
    Sums sums, of_values;
    const int behind = !to_keys && slices ? Diagonals<C, of_warp>::behind : 0;
    for (int tile = first_tile, n = 0; tile < end_tile + behind; ++tile, n = 1 - n) {
      cp_async_wait<0>(t);
      t.sync();
      if (tile + 1 < end_tile) fetch_stage(1 - n, tile + 1);
      cp_async_commit(t);
      if constexpr (relative && to_keys) {
        const int band = first_sixteen(part, tile * columns);
        put_band<columns, width>(t, gates.rings[0], band, stage(n).of_gates, gates.area);
        if constexpr (to_distances)
          put_band<columns, width>(t, gates.rings[1], band, stage(n).second, gates.area + gates.one_area);
        t.sync();
      }
      Pairs dx;
      bool laid_out = false;
      const int nth = tile - first_tile;
      if (tile < end_tile)
        laid_out =
            work(t, part, first, second, stage(n), nth, tile * columns, held, gates, diagonals, sums, of_values, dx);
      if constexpr (!to_keys)
        if (slices) {
          if (!laid_out) diagonals.lay_out(t, dx);
          add_diagonals(t, part, nth, tile * columns, diagonals);
        }
    }
    cp_async_wait<0>(t);
    if (end_tile <= first_tile) t.sync();  // rows that other warps copied are overwritten
    finish(t, part, first, second, tiles, held, gates, sums, of_values);
  }

 private:
  WHENCE_HD int row_count() const {
    if constexpr (to_distances) return scan.count;
    return to_keys ? facts.keys : facts.queries;
  }
  WHENCE_HD int column_count() const { return to_keys ? facts.queries : facts.keys; }

  WHENCE_HD BlockWork work_of(Thread& t) const {
    const int blocks = (row_count() + rows - 1) / rows, nth = static_cast<int>(t.block()) % blocks,
              head = first_head + static_cast<int>(t.block()) / blocks, b = head / facts.heads, h = head % facts.heads;
    // The rows that may see the most come first.
    BlockWork part{b, h, head, to_keys ? nth : blocks - 1 - nth, (to_keys ? q : k).of(b, h),
        (to_keys ? d_o : v).of(b, h), (to_keys ? gate_q : gate_k).of(b, h), {}, {}, 0, 0, facts.keys, {}};
    part.first_row = part.block * rows;
    if (present) part.begin = present[b * 2], part.end = present[b * 2 + 1];
    if (table) part.by_distance = table + index_t(h) * facts.distances;
    if (column) part.by_key = column + index_t(head) * column_words<T> * facts.keys_in_packs();
    if (!to_keys && column)
      part.taken_off = taken_off<T, rows>(part.by_key, facts, facts.first_row, part.first_row, part.begin);
    return part;
  }

  // The columns that a row sees, [first_seen, end_seen). Keys that are not present are given those of others.
  WHENCE_HD int first_seen(const BlockWork& part, int row) const {
    if constexpr (to_distances) return larger(0, part.begin + scan.lowest + row - facts.first_row);
    return to_keys ? larger(0, row - facts.first_row - facts.after)
                   : larger(part.begin, facts.first_row + row - facts.before);
  }
  WHENCE_HD int end_seen(const BlockWork& part, int row) const {
    if constexpr (to_distances)
      return last_seen(row) == row && row + scan.lowest >= -facts.after
                 ? smaller(facts.queries, part.end + scan.lowest + row - facts.first_row)
                 : 0;
    return to_keys ? smaller(facts.queries, row - facts.first_row + facts.before + 1)
                   : smaller(part.end, facts.first_row + row + facts.after + 1);
  }

  // Returns this row, or the last one before it whose pairs may be seen.
  WHENCE_HD int last_seen(int row) const {
    if constexpr (to_distances) return smaller(row, facts.before - scan.lowest);
    return row;
  }

  // Returns the first sixteen of the block's band for a tile.
  static WHENCE_HD int first_sixteen(const BlockWork& part, int first_column) {
    return to_keys ? (first_column - part.first_row - rows) / 16 : (part.first_row - first_column - columns) / 16;
  }
  // Returns the steps by which the query of a row and a column is behind the key.
  WHENCE_HD int steps_of(int row, int of_column) const {
    if constexpr (to_distances) return scan.lowest + row;
    return facts.first_row + (to_keys ? of_column - row : row - of_column);
  }
  // Returns the fewest steps between a warp's rows from `row` on and a tile's columns; then how many more there are at
  // most.
  WHENCE_HD int fewest_steps(int row, int first_column) const {
    if constexpr (to_distances) return steps_of(row, 0);
    return to_keys ? steps_of(row + of_warp - 1, first_column) : steps_of(row, first_column + columns - 1);
  }
  static constexpr int steps_apart = of_warp - 1 + (to_distances ? 0 : columns - 1);

  static WHENCE_HD int line_of(Thread& t, int a) {
    return t.warp() * of_warp + row_of_line<neighbours>(t.lane() / 4, a);
  }
  WHENCE_HD int row_of(Thread& t, const BlockWork& part, int a) const { return part.first_row + line_of(t, a); }
  WHENCE_HD void hold(Thread& t, const BlockWork& part, Lines& held) const {
    each<lines>([&](auto a) {
      const int row = row_of(t, part, a);
      held[a] = {0.0f, 0.0f, 0.0f};
      if (to_keys || row >= norms.blocks * RowBlocks<C>::rows) return;
      held[a].norm = load<C>(norms.of(part.head, row), 0);
      held[a].delta = load<C>(norms.of(part.head, row), RowBlocks<C>::rows);
    });
  }

  // Number n of by_distance is of pairs at lowest_of(...) + n steps.
  WHENCE_HD int lowest_of(const BlockWork& part, int first_column) const {
    return facts.first_row + (to_keys ? first_column - part.first_row - rows : part.first_row - first_column - columns);
  }

  WHENCE_HD void fetch(Thread& t, const BlockWork& part, const Stage& to, int first_column) const {
    const auto phase = [](int at) { return key_phase<columns>(at); };
    fetch_rows<columns, width>(t, to.first, to_keys ? q : k, part.first, first_column, column_count(), facts.d, phase);
    fetch_rows<columns, width>(
        t, to.second, to_keys ? d_o : v, part.second, first_column, column_count(), facts.d, phase);
    if constexpr (column_operands == 3)
      fetch_rows<columns, width>(
          t, to.of_gates, to_keys ? gate_q : gate_k, part.of_gates, first_column, column_count(), facts.d, phase);
    if (table && !to_distances)
      fetch_terms<distances>(t, to.by_distance, part.by_distance, lowest_of(part, first_column) - facts.lowest,
          facts.distances, t.index());
    if constexpr (to_keys)
      fetch_terms<2 * columns>(t, to.of_columns, norms.of(part.head, first_column), 0, 2 * columns, t.index());
    else if (column)
      fetch_columns<T, columns>(t, to.of_columns, part.by_key, facts, first_column, part.taken_off);
  }

  // Fetches the numbers of a tile's columns that sums of gates read, or the rows of its band.
  WHENCE_HD void fetch_gates(Thread& t, const BlockWork& part, Scan& gates, int n, int first_column, bool first) const {
    if constexpr (relative) {
      for (int ring = 0; ring < (to_distances ? 2 : 1); ++ring) {
        const HeadRows<const T>& of_band = ring ? v : gate_k;
        gates.fetch(t, ring, of_band, of_band.of(part.b, part.h), first_sixteen(part, first_column), first,
            1 + facts.first_row - scan.lowest, to_distances ? facts.keys : scan.count, facts.d);
      }
    } else {
      gates.fetch(t, n, first_column);
    }
  }

  // dx: the gradient at the logits. Returns true if gates have changed dx: then it was laid out for sums by distance
  // before that.
  WHENCE_HD bool work(Thread& t, const BlockWork& part, Shared<T> first, Shared<T> second, const Stage& stage, int nth,
      int first_column, Lines& held, Scan& gates, const Diagonals<C, of_warp>& diagonals, Sums& sums, Sums& of_values,
      Pairs& dx) const {
    const int row = part.first_row + t.warp() * of_warp, last_row = row + of_warp - 1,
              last_column = first_column + columns - 1;
    const int lowest = fewest_steps(row, first_column), highest = lowest + steps_apart;
    if (row >= row_count() || highest < -facts.after || lowest > facts.before) return false;
    const bool whole =
        !to_distances && lowest >= -facts.after && highest <= facts.before && last_column < column_count() &&
        (to_keys ? row >= part.begin && last_row < part.end : first_column >= part.begin && last_column < part.end);
    if (whole && !scans && !relative && !dropout && per_register<T> == 2)  // as in forward
      tile<false>(t, part, first, second, stage, nth, first_column, whole, held, gates, diagonals, sums, of_values, dx);
    else
      tile<true>(t, part, first, second, stage, nth, first_column, whole, held, gates, diagonals, sums, of_values, dx);
    return scans && !to_keys;
  }

  // edge: some pairs are not seen, or dropped.
  template <bool edge>
  WHENCE_HD void tile(Thread& t, const BlockWork& part, Shared<T> first, Shared<T> second, const Stage& stage, int nth,
      int first_column, bool whole, Lines& held, Scan& gates, const Diagonals<C, of_warp>& diagonals, Sums& sums,
      Sums& of_values, Pairs& dx) const {
    Pairs x;
    gates.ask(first_column);
    const bool of_gates = others && scan.of_gates;
    if constexpr (others)
      if (of_gates && !gates.moving(nth % 2)) return;  // gates have no gradient here
    StayingPairs<lines, own, to_keys, neighbours> staying;
    if constexpr (to_distances)
      take_band<columns, Band>(t, gates.area + gates.one_area, line_of(t, 0), C(1), dx);
    else
      products(t, second, stage.second, dx);
    if constexpr (relative)
      if (scan.d_bins.at) add_gradient_of_bins(t, part, first_column, dx);
    if (edge && dropout) {
      if constexpr (to_distances)
        each<lines>([&](auto a) {
          for (int j = 0, query = own_column(t, first_column); j < own; ++j, ++query)
            staying.bits |= dropout.template staying<1>(facts, part.head, query, key_of(row_of(t, part, a), query))
                            << (4 * j + a);
        });
      else
        staying.draw(t, dropout, facts, part.head, part.first_row + t.warp() * of_warp, first_column);
      staying.drop(dropout.factor, dx);
    }
    C unit = facts.scale_of_powers;
    if constexpr (others) {  // as in forward
      if (gates.moving(nth % 2)) products(t, second + rows * width, stage.of_gates, x);
      if (!whole) hide(t, part, first_column, x);
      gates.add(t, nth % 2, whole, scan.gate_scale * log2e<C>, x);
      each<lines>([&](auto a) { each<own>([&](auto j) { number(x, a, j) *= scan.per_unit; }); });
    }
    const int band = first_sixteen(part, first_column) + t.warp();  // of rows that are queries
    if constexpr (relative && to_keys) {
      take_band<columns, Band>(t, gates.area, line_of(t, 0), scan.factor, x);
    } else if constexpr (relative) {
      LeftRows<T, width, 1, per_register<T> == 2 && width <= 64> p;
      p.hold(t, second + rows * width, t.warp() * of_warp);
      band_of_rows<columns, width, T>(t, gates.rings[0], band, p, gates.area, scan.factor, x);
    }
    products(t, first, stage.first, x);
    if constexpr (scans && !others) {
      if (!whole) hide(t, part, first_column, x);
      gates.add(t, nth % 2, whole, unit, x), unit = 1;
    }
    unit = add_terms(t, part, stage, first_column, unit, x);
    if (edge && !whole && (!scans || others || table || column)) hide(t, part, first_column, x);
    gradients(t, stage, unit, held, x, dx);
    if (edge && to_keys && dropout) staying.drop(dropout.factor, x);
    if constexpr (to_keys && !to_distances)
      if (!of_gates) add_rows<T, columns, width>(t, stage.second, x, of_values);
    if (d_column) each<lines>([&](auto a) { each<own>([&](auto j) { held[a].sum += number(dx, a, j); }); });
    // Sums by distance are of the gradient at the logits. The one at the scores also includes the gates.
    if constexpr (scans && !to_keys)
      if (slices) diagonals.lay_out(t, dx);
    if constexpr (relative && !to_keys) add_band<columns, width, T>(t, gates.rings[0], band, gates.area, dx, of_values);
    gates.gather(t, nth % 2, whole, dx);
    add_rows<T, columns, width>(t, of_gates ? stage.of_gates : stage.first, dx, sums);
  }

  static WHENCE_HD int own_column(Thread& t, int first_column) { return first_column + t.lane() % 4 * own; }
  // The key of a distance and a query.
  WHENCE_HD int key_of(int row, int query) const { return facts.first_row + query - steps_of(row, query); }
  WHENCE_HD void add_gradient_of_bins(Thread& t, const BlockWork& part, int first_column, Pairs& dx) const {
    const Global<const T> d_bins = scan.d_bins.of(part.b, part.h);
    const int bin =
        scan.bin_of_all(t, fewest_steps(part.first_row + t.warp() * of_warp, first_column), steps_apart + 1);
    each<lines>([&](auto a) {
      each<own>([&](auto j) {
        const int row = row_of(t, part, a), at = own_column(t, first_column) + j,
                  query = smaller(to_keys ? at : row, facts.queries - 1),
                  of_pair = bin == scan.mixed ? scan.bin_at(steps_of(row, at)) : bin;
        if (of_pair >= 0) number(dx, a, j) += load<C>(d_bins, query * scan.d_bins.row + of_pair);
      });
    });
  }

  // x += rows of `left` times rows of the tile.
  WHENCE_HD void products(Thread& t, Shared<T> left, Shared<T> of_tile, Pairs& x) const {
    const int matrix = t.lane() / 8, row = t.warp() * of_warp + row_of_line<neighbours>(t.lane() % 8, matrix % 2),
              at = tile_at<T>(row, matrix / 2 * matrix_row<T>, width, line_phase<neighbours>(row));
    add_products<T, columns, width>(
        t, of_tile, [&](Thread&, auto m, auto h) { return ldmatrix(t, left, moved(at, 16 * m, depth<T> * h, width)); },
        x);
  }

  // As in forward.
  WHENCE_HD C add_terms(
      Thread& t, const BlockWork& part, const Stage& stage, int first_column, C unit, Pairs& x) const {
    if (!table && !column) return unit;
    unit *= ln2<C>;
    if constexpr (to_distances) {
      ColumnNumber<C> less;
      if (column) less = taken_off<T, rows>(part.by_key, facts, facts.first_row, first_column, part.begin);
      each<lines>([&](auto a) {
        const int row = row_of(t, part, a), at = steps_of(row, 0) - facts.lowest;
        const Number<C> of_row = at >= 0 && at < facts.distances ? load<C>(part.by_distance, at) : Number<C>(0.0f);
        each<own>([&](auto j) {
          const int key = smaller(larger(key_of(row, own_column(t, first_column) + j), 0), facts.keys - 1);
          number(x, a, j) = number(x, a, j) * unit + of_row;
          if (column) number(x, a, j) += apart<T>(number_of_key<T>(part.by_key, facts, key), less);
        });
      });
      return log2e<C>;
    }
    const int quad = t.lane() % 4, line = line_of(t, 0);
    if (table) {
      constexpr int step = row_of_line<neighbours>(0, 1), apart = step * (lines - 1), run = apart + own;
      const int lowest = to_keys ? rows - line - apart + quad * own : line - quad * own + columns - own + 1;
      each<run>([&](auto n) {
        const Number<C> term = load<C>(stage.by_distance, lowest + n);
        each<lines>([&](auto a) {
          constexpr int j = to_keys ? n - apart + step * a : step * a + own - 1 - n;
          if constexpr (j >= 0 && j < own) number(x, a, Nth<j>{}) = number(x, a, Nth<j>{}) * unit + term;
        });
      });
      unit = 1;
    }
    if (column) {
      constexpr bool taken = column_words<T> == 2;  // fetched columns have a block's number subtracted already
      ColumnNumber<C> less = part.taken_off;
      if constexpr (to_keys) less = taken_off<T, rows>(part.by_key, facts, facts.first_row, first_column, part.begin);
      Registers<Number<C>, lines> of_rows;
      if constexpr (to_keys && taken)
        each<lines>([&](auto a) {
          of_rows[a] =
              apart<T>(number_of_key<T>(part.by_key, facts, smaller(row_of(t, part, a), facts.keys - 1)), less);
        });
      each<own>([&](auto j) {
        each<lines>([&](auto a) {
          Number<C> term;
          if constexpr (to_keys && taken)
            term = of_rows[a];
          else
            term = to_keys ? load<C>(stage.of_rows, line_of(t, a)) : load<C>(stage.of_columns, quad * own + j);
          if constexpr (!taken) term -= less.held;
          number(x, a, j) = number(x, a, j) * unit + term;
        });
      });
    }
    return log2e<C>;
  }

  WHENCE_HD SeenColumns seen_by(Thread& t, const BlockWork& part, int first_column, int a) const {
    const int first = first_column + t.lane() % 4 * own, row = row_of(t, part, a), from = first_seen(part, row) - first;
    const bool present_row = to_distances || !to_keys || (row >= part.begin && row < part.end);
    return {from, present_row ? end_seen(part, row) - first : from};
  }
  WHENCE_HD void hide(Thread& t, const BlockWork& part, int first_column, Pairs& x) const {
    each<lines>([&](auto a) {
      const SeenColumns seen = seen_by(t, part, first_column, a);
      each<own>([&](auto j) {
        if (!seen.has(j)) number(x, a, j) = not_seen;
      });
    });
  }

  // x becomes P, and dx dA.
  WHENCE_HD void gradients(Thread& t, const Stage& stage, C unit, const Lines& held, Pairs& x, Pairs& dx) const {
    each<own / 4>([&](auto four) {
      Pack<C, 4> norm{}, delta{};
      if constexpr (to_keys) {
        const int at = t.lane() % 4 * own + 4 * four;
        norm = load_pack<4>(stage.of_columns, at), delta = load_pack<4>(stage.of_columns, columns + at);
      }
      each<4>([&](auto e) {
        each<lines>([&](auto a) {
          Number<C>&p = number(x, a, Nth<4 * four + e>{}), &gradient = number(dx, a, Nth<4 * four + e>{});
          if constexpr (to_keys)
            p = ex2_approx(p * unit - norm.of[e]), gradient = p * (gradient - delta.of[e]);
          else
            p = ex2_approx(p * unit - held[a].norm), gradient = p * (gradient - held[a].delta);
        });
      });
    });
  }

  WHENCE_HD void add_diagonals(
      Thread& t, const BlockWork& part, int nth, int first_column, Diagonals<C, of_warp>& diagonals) const {
    constexpr int chains = Diagonals<C, of_warp>::chains;
    const int blocks = (facts.queries + rows - 1) / rows, length = facts.keys + rows;
    const index_t slice = (index_t(part.head - first_head) * blocks + part.block) * chains + t.warp() % chains;
    diagonals.add(t, nth, slices + slice * length, t.warp() * of_warp - first_column + facts.keys - 1, length);
  }

  WHENCE_HD void finish(Thread& t, const BlockWork& part, Shared<T> first, Shared<T> second, Shared<T> tiles,
      const Lines& held, Scan& gates, Sums& sums, Sums& of_values) const {
    const C scale = others && scan.of_gates ? scan.gate_scale : facts.scale;
    each<fragments>([&](auto m) {
      each<width / 8>([&](auto c) {
        each<4>([&](auto e) {
          sums[m][c][e] *= scale;
          if constexpr (relative && !to_keys) of_values[m][c][e] *= scan.scale;
        });
      });
    });
    gates.finish(t, of_positions, tiles, sums);
    put(t, part, first, sums, d_first, wide_first);
    if constexpr (!to_distances && (to_keys || relative)) put(t, part, second, of_values, d_second, wide_second);
    if (!d_column) return;
    each<lines>([&](auto a) {
      const int row = row_of(t, part, a);
      Number<C> sum = held[a].sum;
      for (int mask = 1; mask <= 2; mask *= 2) sum += t.shuffle_xor(sum, mask);
      if (row >= row_count() || t.lane() % 4 > 0) return;
      // Columns are often running sums, whose gradients would accumulate errors of one sign. So keys get delta without
      // o's rounding.
      if constexpr (to_keys)
        store(d_column, index_t(part.head) * facts.keys + row, sum);
      else
        store(norms.of(part.head, row), RowBlocks<C>::rows, held[a].delta + sum);
    });
  }
  WHENCE_HD void put(Thread& t, const BlockWork& part, Shared<T> tile, const Sums& sums, const HeadRows<T>& to,
      const HeadRows<C>& wide) const {
    if (to.at)
      store_rows<T, width, neighbours>(
          t, tile, sums, to, to.of(part.b, part.h), part.first_row + t.warp() * of_warp, row_count(), facts.d);
    if (!wide.at) return;
    const Global<C> head = wide.of(part.b, part.h);
    each<lines>([&](auto a) {
      const int row = row_of(t, part, a);
      if (row >= row_count()) return;
      each<width / 8>([&](auto c) {
        each<2>([&](auto e) {
          const int at = 8 * c + t.lane() % 4 * 2 + e;
          if (at < facts.d) store(head, row * wide.row + at, sums[Nth<a / 2>{}][c][Nth<a % 2 * 2 + e>{}]);
        });
      });
    });
  }
};

}  // namespace whence::gpu
