// Attention of heads on tensor cores, forward: tensor/tiled_call.h has the equations. A block of threads
// has `queries` queries of one head and walks over tiles of 64 keys from right to left. Scores, pattern and output stay
// in registers: a lane of a quad has 16 neighbouring keys of its rows (cuda/vocabulary/fragments.h). The next tile is
// copied into shared memory during the work on this one.
//   x_ij = log2(e) A_ij,  P_ij = 2^(x_ij - top_i) share_i
//   top_i > max_j x_ij - 8,  share_i = 1 / sum_j 2^(x_ij - top_i)
// A top need not be the maximum: earlier sums are rescaled only when a logit is 8 above it, which is rare. Logits, sums
// and tables are f32. The pattern is rounded to T before it is multiplied with the values.
// Per pair: 4 d operations on tensor cores, one power, some 10 others: tensor cores and shared memory bind.
// For few queries the keys are split into parts of `keys_of_part` keys, a block for each: a part leaves its top, its
// sum and its undivided part of the output, and JoinParts adds the parts in order. GateSums provides the sums of gates
// of the keys after a part.
#pragma once

#include "cuda/kernels/tiles/dropout.h"
#include "cuda/kernels/tiles/relative_keys.h"

namespace whence::gpu {

// Results of parts of the keys. o = sum_n 2^(top_n - top) o_n / sum_n 2^(top_n - top) sum_n,  top = max_n top_n
template <class C> struct HeadParts {
  int count = 0;         // 0: blocks have all keys
  Global<C> rows, sums;  // [b h queries count 2]: top and sum; [b h queries count width]
  bool carries = false;  // GateSums has made the sums of gates of the keys after a part
  WHENCE_HD index_t at(int head, int queries, int row, int part) const {
    return (index_t(head) * queries + row) * count + part;
  }
};

// CoPE's sums of gates add to the logits too (gate_scan.h), or relative keys (relative_keys.h). These and other gates
// are computed first, and the scores' product is added in the same registers.
template <class T, int width, GatesOf gates_of = GatesOf::none> struct HeadsForward {
  using C = compute_t<T>;
  static constexpr bool others = gates_of == GatesOf::others, scans = gates_of == GatesOf::scores || others,
                        relative = gates_of == GatesOf::relative;
  static constexpr const char* name = scans      ? "attention of heads with gates"
                                      : relative ? "attention of heads with relative keys"
                                                 : "attention of heads";
  static constexpr int threads = head_threads;
  // Wide rows leave room for only 32 keys and a band of relative ones.
  static constexpr int keys = relative && width * sizeof(T) > 128 ? 32 : 64, own = keys / 4,
                       fragments = scans || relative ? 1 : fragments_of<T, width>;
  static constexpr int rows = 16 * fragments;  // of a warp
  static constexpr int queries = head_warps * rows;
  static constexpr int of_stage = (others ? 3 : 2) * keys,
                       row_count = (others || relative ? 2 : 1) * queries + 2 * of_stage;
  static constexpr unsigned blocks_at_once = scans && !others && width <= 64 && per_register<T> == 2 ? 3 : 2;
  // Numbers of a table in shared memory. Lanes 2 and 3 of a quad read a copy 8 banks further on: 16 keys apart are 16
  // banks, and two times 16 would be the same bank.
  static constexpr int distances = queries + keys, copy = distances + 8, term_count = 2 * copy + keys;
  using Ring = BandOfRows<T, width, queries, keys>;  // of relative keys
  static constexpr int area = 16 * (keys + 16);
  using Told = std::conditional_t<relative, RelativeKeys<T>, GateScan<T>>;
  static std::size_t shared_bytes(const Told& scan) {
    std::size_t bytes = shared_bytes_for<T>(row_count * width) + shared_bytes_for<C>(2 * term_count) +
                        shared_bytes_for<Position<T>>(static_cast<std::size_t>(queries * scan.pitch * 2));
    if constexpr (relative)
      bytes += shared_bytes_for<T>(Ring::numbers) +
               shared_bytes_for<C>(static_cast<std::size_t>(head_warps * area + queries * scan.bins));
    return bytes;
  }
  static constexpr float lowest_top = -std::numeric_limits<float>::max();  // a row's first top
  static constexpr float most_above = 8;                                   // by how much a logit may exceed it

  HeadFacts<C> facts;
  PairDropout<C> dropout;
  HeadRows<const T> q, k, v;
  HeadRows<T> o;
  Global<C> norms;                     // [b h queries 2]: top and share
  Global<const C> table, column;       // [h distances] and [b h column_words keys_in_packs], or null
  Global<const C> sink;                // [h], or null
  Global<const std::int32_t> present;  // [b 2], or null
  Told scan;
  HeadRows<const T> position_keys;   // [1 1 positions d] if pairs are made here, else null
  HeadRows<const T> gate_q, gate_k;  // of other gates; or p and r of relative keys
  HeadParts<C> parts;

  // The tiles and terms of one stage.
  struct Stage {
    Shared<T> keys, values, gate_keys;
    Shared<C> by_distance, by_key;  // two copies, [keys]
  };
  // A block's part of the work.
  struct BlockWork {
    int b, h, head;                // head: of b h
    Global<const T> k, v, gate_k;  // of the head
    Global<const C> table, column;
    int first_query, first_token, begin, end;  // keys [begin, end) are present
    ColumnNumber<C> taken_off;                 // subtracted from columns
    int nth = 0, behind = 0;                   // of parts; the key after the last one that a query of the block sees
    // Numbers of a table that are copied before the first that is read, because copies begin at multiples of four.
    int further = 0;
  };
  using Scores = SummedRows<T, keys, fragments>;
  using Queries = LeftRows<T, width, fragments>;
  using Sums = SummedRows<T, width, fragments>;
  struct Row {
    Number<C> top = lowest_top, sum = 0.0f;  // of all tiles so far; the sum is the lane's own
  };

  struct Gates {
    Shared<Position<T>> pairs;  // of the block's rows
    // The sum so far of each row, and the scan's value once the row is full.
    Registers<Number<C>, 2 * fragments> sums, last;
    bool full = false;                                                          // all rows of the warp
    LeftRows<T, width, fragments, relative && per_register<T> == 2> of_others;  // of gq, or p
    // Memory for relative keys; the ring is the block's, the rest the warp's own.
    Ring ring;
    Shared<C> area, bins;
  };

  WHENCE_HD void operator()(Thread& t) const {
    const Shared<T> of_q = t.shared<T>(row_count * width), tiles = of_q + (row_count - 2 * of_stage) * width;
    const Shared<C> terms = t.shared<C>(2 * term_count);
    const auto stage = [&](int n) {
      const Shared<T> tile = tiles + n * of_stage * width;
      const Shared<C> term = terms + n * term_count;
      return Stage{tile, tile + keys * width, tile + 2 * keys * width, term, term + 2 * copy};
    };
    const BlockWork part = work_of(t);
    Gates gates;
    if constexpr (scans) begin_gates(t, part, tiles + of_stage * width, gates);
    fetch_rows<queries, width>(t, of_q, q, q.of(part.b, part.h), part.first_query, facts.queries, facts.d, row_phase);
    if constexpr (relative) begin_relative(t, gates);
    if constexpr (others || relative)
      fetch_rows<queries, width>(t, of_q + queries * width, gate_q, gate_q.of(part.b, part.h), part.first_query,
          facts.queries, facts.d, row_phase);
    const int last_token = part.first_token + queries - 1;
    const int from = larger(part.begin, part.first_token - facts.before),
              end = smaller(part.end, last_token + facts.after + 1);
    const int lowest_tile = from / keys, highest_tile = end > from ? (end - 1) / keys : lowest_tile - 1;
    if (highest_tile >= lowest_tile) fetch(t, part, stage(0), highest_tile * keys);
    if (relative && highest_tile >= lowest_tile) fetch_band(t, part, gates, highest_tile * keys, 0);
    cp_async_commit(t);
    Queries held;
    Sums sums;
    Registers<Row, 2 * fragments> running;
    begin_rows(t, part, running);
    for (int tile = highest_tile, n = 0; tile >= lowest_tile; --tile, n = 1 - n) {
      cp_async_wait<0>(t);
      t.sync();  // the tile has arrived, and the stage that is filled next is no longer read
      if (tile == highest_tile) {
        held.hold(t, of_q, t.warp() * rows);
        if constexpr (others || relative) gates.of_others.hold(t, of_q + queries * width, t.warp() * rows);
        if constexpr (scans) begin_scan(t, tiles + of_stage * width, held, gates);
      }
      if (tile > lowest_tile) fetch(t, part, stage(1 - n), (tile - 1) * keys);
      if (relative && tile > lowest_tile) fetch_band(t, part, gates, (tile - 1) * keys, Ring::of_block - Ring::of_tile);
      cp_async_commit(t);
      work(t, part, stage(n), tile * keys, held, gates, running, sums);
    }
    cp_async_wait<0>(t);
    if (highest_tile < lowest_tile) t.sync();  // rows that other warps copied are overwritten
    finish(t, part, of_q, gates, running, sums);
  }

 private:
  // Blocks of a head follow each other, so that its keys stay in the cache; the last rows, which may see the most, come
  // first.
  WHENCE_HD BlockWork work_of(Thread& t) const {
    const int blocks = parts.count ? parts.count : (facts.queries + queries - 1) / queries,
              nth = static_cast<int>(t.block()) % blocks, head = static_cast<int>(t.block()) / blocks,
              b = head / facts.heads, h = head % facts.heads;
    BlockWork part{b, h, head, k.of(b, h), v.of(b, h), gate_k.of(b, h), {}, {},
        parts.count ? 0 : (blocks - 1 - nth) * queries, 0, 0, facts.keys, {}};
    part.first_token = facts.first() + part.first_query;
    if (present) part.begin = present[b * 2], part.end = present[b * 2 + 1];
    if (column) {
      part.column = column + index_t(head) * column_words<T> * facts.keys_in_packs();
      part.taken_off = taken_off<T, queries>(part.column, facts, facts.first(), part.first_query, part.begin);
    }
    if (parts.count) {
      part.nth = nth, part.behind = smaller(part.end, part.first_token + facts.queries + facts.after);
      part.begin = larger(part.begin, nth * keys_of_part), part.end = smaller(part.end, (nth + 1) * keys_of_part);
    }
    if (table) {
      part.table = table + index_t(h) * facts.distances;
      part.further = (part.first_token - facts.lowest) % 4;
      if (part.further < 0) part.further += 4;
    }
    return part;
  }

  WHENCE_HD void fetch(Thread& t, const BlockWork& part, const Stage& to, int first_key) const {
    const auto phase = [](int key) { return key_phase<keys>(key); };
    fetch_rows<keys, width>(t, to.keys, k, part.k, first_key, facts.keys, facts.d, phase);
    fetch_rows<keys, width>(t, to.values, v, part.v, first_key, facts.keys, facts.d, phase);
    if constexpr (others)
      fetch_rows<keys, width>(t, to.gate_keys, gate_k, part.gate_k, first_key, facts.keys, facts.d, phase);
    if (table) {
      const int first = part.first_token - first_key - keys - facts.lowest - part.further,
                packs = distances / 4 + (part.further > 0);
      const auto fetch_copy = [&](Shared<C> table_copy, int index) {
        if (index < packs) fetch_terms<distances + 4>(t, table_copy, part.table, first, facts.distances, index);
      };
      fetch_copy(to.by_distance, t.index());
      fetch_copy(to.by_distance + copy, t.index() - packs);
    }
    if (column) fetch_columns<T, keys>(t, to.by_key, part.column, facts, first_key, part.taken_off);
  }

  WHENCE_HD void begin_rows(Thread& t, const BlockWork& part, Registers<Row, 2 * fragments>& running) const {
    if (!sink || part.nth > 0) return;
    const Number<C> logit = load<C>(sink, part.h) * log2e<C>;
    each<2 * fragments>([&](auto a) {
      running[a].top = logit;
      running[a].sum = t.lane() % 4 == 0 ? 1.0f : 0.0f;  // the lanes of a quad are summed
    });
  }

  // Positions use the second stage, which is filled with keys after the first.
  static_assert(!scans || 2 * keys >= 128);
  WHENCE_HD void begin_gates(Thread& t, const BlockWork& part, Shared<T> second_stage, Gates& gates) const {
    gates.pairs = t.shared<Position<T>>(queries * scan.pitch * 2);
    if (position_keys.at)
      fetch_positions<width>(t, second_stage, position_keys, scan.positions, facts.d);
    else if (scan.positions)
      fetch_pairs<queries, 0>(t, gates.pairs, scan, part.head, part.first_query);
    each<2 * fragments>([&](auto a) {  // missing rows count as full
      const int row = part.first_query + t.warp() * rows + 8 * a + t.lane() / 4;
      if (row >= facts.queries)
        gates.sums[a] = scan.full();
      else if (parts.carries && (part.nth + 1) * keys_of_part < part.behind)
        gates.sums[a] = carry(part, row);
    });
  }
  // Returns the sum of gates after a part, as GateSums stores it: sums of full rows are not stored.
  WHENCE_HD Number<C> carry(const BlockWork& part, int row) const {
    constexpr int tiles_of_part = keys_of_part / gate_keys;
    const int tile = (part.nth + 1) * tiles_of_part - 1;
    if (Number<C>(C(tile)) < load<C>(scan.first_tile, scan.row_at(part.head, row) / 8)) return scan.full();
    return load<C>(scan.sums, scan.at(part.head, 2 * tile + 1, row));
  }
  WHENCE_HD void begin_scan(Thread& t, Shared<T> of_e, const Queries& held, Gates& gates) const {
    if (scan.slopes) return;
    const Shared<Position<T>> pairs = gates.pairs + (t.warp() * rows + t.lane() / 4) * scan.pitch * 2;
    if (position_keys.at) {
      make_pairs<T, width, fragments>(
          t, held, of_e, scan.positions, scan.position_scale * log2e<C>, [&](auto a, int m, const auto& pack) {
            if (m < scan.pitch) store_pack<pack_size<Position<T>>>(pairs, (8 * a * scan.pitch + m) * 2, pack);
          });
      t.sync();
    }
    each<2 * fragments>([&](auto a) {
      gates.last[a] = PlaceInPairs<C>(pairs + 8 * a * scan.pitch * 2, scan.full(), scan.full()).value;
    });
  }

  WHENCE_HD void begin_relative(Thread& t, Gates& gates) const {
    gates.ring.at = t.shared<T>(Ring::numbers);
    const Shared<C> areas = t.shared<C>(head_warps * area + queries * scan.bins);
    gates.area = areas + t.warp() * area, gates.bins = areas + head_warps * area + t.warp() * rows * scan.bins;
    bins_of(gates).clear(t);
  }
  WHENCE_HD BinSums<T, keys> bins_of(const Gates& gates) const { return {scan, gates.bins}; }
  // Returns the band's first sixteen for a tile and the block's first warp.
  static WHENCE_HD int first_sixteen(const BlockWork& part, int first_key) {
    return (part.first_query - first_key - keys) / 16;
  }
  // Copies sixteens of a tile's band from the n-th on.
  WHENCE_HD void fetch_band(Thread& t, const BlockWork& part, const Gates& gates, int first_key, int n) const {
    if constexpr (relative)
      gates.ring.fetch(t, gate_k, part.gate_k, first_sixteen(part, first_key) + n, Ring::of_block - n,
          1 + part.first_token - part.first_query - scan.lowest, scan.count, facts.d);
  }

  // One tile of keys for a warp's rows.
  WHENCE_HD void work(Thread& t, const BlockWork& part, const Stage& stage, int first_key, const Queries& held,
      Gates& gates, Registers<Row, 2 * fragments>& running, Sums& sums) const {
    const int first_token = part.first_token + t.warp() * rows, last_token = first_token + rows - 1;
    const int last_key = first_key + keys - 1;
    if (first_key > last_token + facts.after || last_key < first_token - facts.before) return;  // no row sees a key
    if (scans && part.first_query + t.warp() * rows >= facts.queries) return;                   // no row has gates
    const bool whole = last_key <= first_token + facts.after && first_key >= last_token - facts.before &&
                       first_key >= part.begin && last_key < part.end;
    // Branches inside separate powers from products, so whole tiles have code without them. With much other work, one
    // version for all tiles is faster: two do not fit into the instruction cache.
    if (whole && !scans && !relative && !dropout && per_register<T> == 2)
      tile<false>(t, part, stage, first_key, whole, held, gates, running, sums);
    else
      tile<true>(t, part, stage, first_key, whole, held, gates, running, sums);
  }

  // edge: some pairs are not seen, or dropped.
  template <bool edge>
  WHENCE_HD void tile(Thread& t, const BlockWork& part, const Stage& stage, int first_key, bool whole,
      const Queries& held, Gates& gates, Registers<Row, 2 * fragments>& running, Sums& sums) const {
    Scores x;
    C unit = facts.scale_of_powers;
    if constexpr (others) {
      if (!gates.full) add_products<T, keys, width>(t, stage.gate_keys, gates.of_others, x);
      if (!whole) hide(t, part, first_key, x);
      add_scan(t, scan.gate_scale * log2e<C>, part, gates, x);
      each<2 * fragments>([&](auto a) { each<own>([&](auto j) { number(x, a, j) *= scan.per_unit; }); });
    }
    if constexpr (relative)
      band_of_rows<keys, width, T>(
          t, gates.ring, first_sixteen(part, first_key) + t.warp(), gates.of_others, gates.area, scan.factor, x);
    add_products<T, keys, width>(t, stage.keys, held, x);
    if constexpr (scans && !others) {
      if (!whole) hide(t, part, first_key, x);
      add_scan(t, unit, part, gates, x), unit = 1;
    }
    unit = add_terms(t, part, stage, unit, x);
    if (edge && !whole && (!scans || others || table || column)) hide(t, part, first_key, x);
    pattern(t, unit, gates, running, x, sums);
    if (edge && dropout) {
      StayingPairs<2 * fragments, own, false> staying;
      staying.draw(t, dropout, facts, part.head, part.first_query + t.warp() * rows, first_key);
      // Sums are over all pairs, kept or not. The shuffle makes the compiler finish them here; otherwise it would keep
      // the old x as well.
      each<2 * fragments>([&](auto a) { running[a].sum = t.shuffle(running[a].sum, t.lane()); });
      staying.drop(dropout.factor, x);
    }
    if constexpr (relative)
      if (scan.bins) bins_of(gates).add(t, part.first_token + t.warp() * rows - first_key - keys + 1, gates.area, x);
    add_rows<T, keys, width>(t, stage.values, x, sums);
  }

  WHENCE_HD SeenColumns seen_by(Thread& t, const BlockWork& part, int first_key, int a) const {
    const int token = part.first_token + t.warp() * rows + 8 * a + t.lane() / 4,
              own_key = first_key + t.lane() % 4 * own;
    return {larger(part.begin, token - facts.before) - own_key, smaller(part.end, token + facts.after + 1) - own_key};
  }

  // x, products of the gates, becomes a logit in base 2; for other gates, the scan alone.
  WHENCE_HD void add_scan(Thread& t, C unit, const BlockWork& part, Gates& gates, Scores& x) const {
    const C full = scan.full();
    if (gates.full)
      return each<2 * fragments>(
          [&](auto a) { each<own>([&](auto j) { number(x, a, j) = number(x, a, j) * unit + gates.last[a]; }); });
    Number<C> least = full;
    Registers<GateRow<C, own, 1, 2>, 2 * fragments> of_rows;
    each<2 * fragments>([&](auto a) {
      of_rows[a].add_up(
          t, [&](auto j) { return take_score<gates_of>(number(x, a, j), unit); }, gates.sums[a]);
      gates.sums[a] = of_rows[a].first(t);
      if (gates.sums[a] < least) least = gates.sums[a];
    });
    gates.full = !(least_of_rows(t, least) < full);
    if (scan.slopes) {
      const Number<C> slope = load<C>(scan.slopes, part.h) * log2e<C>;
      return each<2 * fragments>(
          [&](auto a) { each<own>([&](auto j) { number(x, a, j) += slope * of_rows[a].sum[j]; }); });
    }
    each<2 * fragments>([&](auto a) {
      const Shared<Position<T>> pairs = gates.pairs + (t.warp() * rows + 8 * a + t.lane() / 4) * scan.pitch * 2;
      each<own>([&](auto j) { number(x, a, j) += PlaceInPairs<C>(pairs, of_rows[a].sum[j], full).value; });
    });
  }

  // x times its unit is the logit in base 2; returns the new unit. Terms are in base e; the power includes the factor.
  WHENCE_HD C add_terms(Thread& t, const BlockWork& part, const Stage& stage, C unit, Scores& x) const {
    if (!table && !column) return unit;
    unit *= ln2<C>;
    const int quad = t.lane() % 4;
    if (table) {  // a distance that several rows of this lane share is loaded once
      const int first = t.warp() * rows + t.lane() / 4 - quad * own + keys - own + 1 + quad / 2 * copy + part.further;
      each<8 * (2 * fragments - 1) + own>([&](auto n) {
        const Number<C> term = load<C>(stage.by_distance, first + n);
        each<2 * fragments>([&](auto a) {
          constexpr int j = 8 * a + own - 1 - n;
          if constexpr (j >= 0 && j < own) number(x, a, Nth<j>{}) = number(x, a, Nth<j>{}) * unit + term;
        });
      });
      unit = 1;
    }
    if (column) {
      each<own / 4>([&](auto four) {
        const auto terms = load_pack<4>(stage.by_key, quad * own + 4 * four);
        each<4>([&](auto e) {
          Number<C> term = terms.of[e];
          if constexpr (column_words<T> == 1) term -= part.taken_off.held;
          each<2 * fragments>([&](auto a) {
            auto& of = number(x, a, Nth<4 * four + e>{});
            of = of * unit + term;
          });
        });
      });
    }
    return log2e<C>;
  }

  WHENCE_HD void hide(Thread& t, const BlockWork& part, int first_key, Scores& x) const {
    each<2 * fragments>([&](auto a) {
      const SeenColumns seen = seen_by(t, part, first_key, a);
      each<own>([&](auto j) {
        if (!seen.has(j)) number(x, a, j) = not_seen;
      });
    });
  }

  // x becomes 2^(x - top).
  WHENCE_HD void pattern(
      Thread& t, C unit, const Gates& gates, Registers<Row, 2 * fragments>& running, Scores& x, Sums& sums) const {
    Registers<Number<C>, 2 * fragments> largest;
    bool rises = false;
    each<2 * fragments>([&](auto a) {
      Number<C> most = number(x, a, Nth<0>{});
      each<own - 1>([&](auto j) { most = max_nan(most, number(x, a, Nth<j + 1>{})); });
      for (int mask = 1; mask <= 2; mask *= 2) most = max_nan(most, t.shuffle_xor(most, mask));
      largest[a] = most * unit;
      rises = rises || largest[a] > running[a].top + most_above;
    });
    if (rises)
      each<2 * fragments>([&](auto a) {
        const Number<C> top = max_nan(running[a].top, largest[a]), fade = ex2_approx(running[a].top - top);
        running[a].top = top, running[a].sum *= fade;
        if constexpr (relative)
          bins_of(gates).each_of_row(t, a, [&](int, int at, Number<C> sum) { store(gates.bins, at, sum * fade); });
        scale_line(sums, a, fade);
      });
    each<2 * fragments>([&](auto a) {
      each<own>([&](auto j) {
        Number<C>& own_x = number(x, a, j);
        own_x = ex2_approx(own_x * unit - running[a].top);
        running[a].sum += own_x;
      });
    });
  }

  WHENCE_HD void finish(Thread& t, const BlockWork& part, Shared<T> of_q, const Gates& gates,
      const Registers<Row, 2 * fragments>& running, Sums& sums) const {
    const int first = part.first_query + t.warp() * rows;
    each<2 * fragments>([&](auto a) {
      Number<C> all = running[a].sum;
      for (int mask = 1; mask <= 2; mask *= 2) all += t.shuffle_xor(all, mask);
      const int row = first + 8 * a + t.lane() / 4;
      if (parts.count) {
        if (row >= facts.queries) return;
        const index_t of_part = parts.at(part.head, facts.queries, row, part.nth);
        if (t.lane() % 4 == 0) store(parts.rows, 2 * of_part, running[a].top), store(parts.rows, 2 * of_part + 1, all);
        each<width / 8>([&](auto c) {
          each<2>([&](auto e) {
            store(parts.sums, of_part * width + 8 * c + t.lane() % 4 * 2 + e,
                sums[Nth<a / 2>{}][c][Nth<a % 2 * 2 + e>{}]);
          });
        });
        return;
      }
      const Number<C> share = all > 0.0f ? rcp_approx(all) : Number<C>(0.0f);  // 0 for a row that sees nothing
      scale_line(sums, a, share);
      const index_t norm = (index_t(part.head) * facts.queries + row) * 2;
      if (t.lane() % 4 == 0 && row < facts.queries) store(norms, norm, running[a].top), store(norms, norm + 1, share);
      if constexpr (relative)
        bins_of(gates).each_of_row(t, a, [&](int bin, int, Number<C> sum) {
          const Global<T> to = scan.bin_sums.of(part.b, part.h);
          if (row < facts.queries) store(to, row * scan.bin_sums.row + bin, sum * share);
        });
    });
    if (!parts.count) store_rows<T, width>(t, of_q, sums, o, o.of(part.b, part.h), first, facts.queries, facts.d);
  }
};

// A block has a query of a head, a thread a number of its output. Tops and sums are few, and all threads read them.
template <class T> struct JoinParts {
  using C = compute_t<T>;
  static constexpr const char* name = "parts of keys";
  static constexpr int threads = 128;
  HeadParts<C> parts;
  HeadRows<T> o;
  Global<C> norms;  // as in HeadsForward
  int heads, queries, d, width;
  WHENCE_HD void operator()(Thread& t) const {
    const int head = static_cast<int>(t.block()) / queries, row = static_cast<int>(t.block()) % queries, c = t.index();
    const index_t first = parts.at(head, queries, row, 0);
    Number<C> top = load<C>(parts.rows, 2 * first), all = 0.0f, sum = 0.0f;
    for (int n = 1; n < parts.count; ++n) top = max_nan(top, load<C>(parts.rows, 2 * (first + n)));
    for (int n = 0; n < parts.count; ++n) {
      const Number<C> weight = ex2_approx(load<C>(parts.rows, 2 * (first + n)) - top);
      all += weight * load<C>(parts.rows, 2 * (first + n) + 1);
      if (c < d) sum += weight * load<C>(parts.sums, (first + n) * width + c);
    }
    const Number<C> share = all > 0.0f ? rcp_approx(all) : Number<C>(0.0f);
    if (c == 0) store(norms, t.block() * 2, top), store(norms, t.block() * 2 + 1, share);
    if (c < d) store(o.of(head / heads, head % heads), row * o.row + c, sum * share);
  }
};

}  // namespace whence::gpu
