// Attention of heads on tensor cores, forward: tensor/tiles/attention_kernel.h has the equations. A block of threads has
// `queries` queries of one head and walks over tiles of 64 keys from right to left. Scores, pattern and output stay in
// registers: a lane of a quad has 16 neighbouring keys of its rows (cuda/vocabulary/fragments.h). The next tile is on its
// way into shared memory while this one is worked on.
//   x_ij = log2(e) A_ij,  P_ij = 2^(x_ij - top_i) share_i,  top_i = max_j x_ij,  share_i = 1 / sum_j 2^(x_ij - top_i)
// Logits, sums and tables are f32. The pattern is rounded to T before it meets the values.
// Per pair: 4 d operations on tensor cores, one power, some 10 others: tensor cores and shared memory bind.
#pragma once

#include "cuda/kernels/tiles/gate_scan.h"

namespace whence::gpu {

// scans: CoPE's sums of gates are read too (gate_scan.h).
template <class T, int width, bool scans = false> struct HeadsForward {
  static constexpr const char* name = scans ? "attention of heads with gates" : "attention of heads";
  static constexpr int threads = head_threads;
  static constexpr int keys = 64, own = keys / 4, fragments = width <= 64 && !scans ? 2 : 1;
  static constexpr int rows = 16 * fragments;  // of a warp
  static constexpr int queries = head_warps * rows;
  static constexpr unsigned blocks_at_once = scans && width <= 64 ? 3 : 2;
  static constexpr float nothing = -1e30f;  // the logit of a pair that is not seen
  static std::size_t shared_bytes(const GateScan& scan) {
    return shared_bytes_for<T>((queries + 4 * keys) * width) + shared_bytes_for<float>(2 * (queries + 2 * keys)) +
           shared_bytes_for<Float16>(scan.pairs ? queries * scan.pitch * 2 : 0);
  }

  HeadFacts facts;
  HeadRows<const T> q, k, v;
  HeadRows<T> o;
  Global<float> norms;                 // [b h queries 2]: top and share
  Global<const float> table;           // [h distances], or null
  Global<const float> column;          // [b h keys], or null
  Global<const float> sink;            // [h], or null
  Global<const std::int32_t> present;  // [b 2], or null
  GateScan scan;

  // The tiles and terms of one stage.
  struct Stage {
    Shared<T> keys, values;
    Shared<float> by_distance, by_key;  // [queries + keys], [keys]
  };
  // A block's part of the work.
  struct Part {
    index_t b, h;
    int first_query, first_token, begin, end;  // keys [begin, end) are present
    Number<float> taken_off;                   // from columns: sums of many tokens lose nothing to f32
  };
  using Scores = Registers<Registers<FragmentC<T>, keys / 8>, fragments>;
  using Queries = Registers<Registers<FragmentA<T>, width / 16>, fragments>;
  using Sums = Registers<Registers<FragmentC<T>, width / 8>, fragments>;
  struct Row {
    Number<float> top = nothing, sum = 0.0f;  // of all tiles so far; the sum is the lane's own
  };
  struct Gates {
    Shared<Float16> pairs;                         // of the block's rows
    Registers<Number<float>, 2 * fragments> sums;  // of each row so far
    bool full = false;                             // all rows of the warp
  };

  WHENCE_HD void operator()(Thread& t) const {
    const Shared<T> of_q = t.shared<T>((queries + 4 * keys) * width), tiles = of_q + queries * width;
    const Shared<float> terms = t.shared<float>(2 * (queries + 2 * keys));
    Gates gates;
    if constexpr (scans) gates.pairs = t.shared<Float16>(scan.pairs ? queries * scan.pitch * 2 : 0);
    const auto stage = [&](int n) {
      const Shared<T> tile = tiles + n * 2 * keys * width;
      const Shared<float> term = terms + n * (queries + 2 * keys);
      return Stage{tile, tile + keys * width, term, term + queries + keys};
    };
    const Part part = part_of(t);
    fetch_queries(t, part, of_q);
    if constexpr (scans) begin_gates(t, part, gates);
    const int last_token = part.first_token + queries - 1;
    const int from = larger(part.begin, part.first_token - facts.before),
              end = smaller(part.end, last_token + facts.after + 1);
    const int lowest_tile = from / keys, highest_tile = end > from ? (end - 1) / keys : lowest_tile - 1;
    if (highest_tile >= lowest_tile) fetch(t, part, stage(0), highest_tile * keys);
    cp_async_commit(t);
    Queries held;
    Sums sums;
    Registers<Row, 2 * fragments> running;
    begin_rows(t, part, running);
    for (int tile = highest_tile, n = 0; tile >= lowest_tile; --tile, n = 1 - n) {
      cp_async_wait<0>(t);
      t.sync();  // the tile is there, and nobody reads the stage that is filled next
      if (tile == highest_tile) hold_rows<T, width, fragments>(t, of_q, t.warp() * rows, held);
      if (tile > lowest_tile) fetch(t, part, stage(1 - n), (tile - 1) * keys);
      cp_async_commit(t);
      work(t, part, stage(n), tile * keys, held, gates, running, sums);
    }
    cp_async_wait<0>(t);
    finish(t, part, running, sums);
  }

 private:
  // Blocks of a head follow each other, so that its keys stay in the cache; the last rows, which may see the most, first.
  WHENCE_HD Part part_of(Thread& t) const {
    const index_t blocks = (facts.queries + queries - 1) / queries, head = t.block() / blocks;
    Part part{head / facts.heads, head % facts.heads, 0, 0, 0, facts.keys, 0.0f};
    part.first_query = static_cast<int>(blocks - 1 - t.block() % blocks) * queries;
    part.first_token = facts.first_row + part.first_query;
    if (present) part.begin = present[part.b * 2], part.end = present[part.b * 2 + 1];
    if (column) part.taken_off = taken_off<queries>(column, facts, part.b * facts.heads + part.h, part.first_query);
    return part;
  }

  WHENCE_HD void fetch_queries(Thread& t, const Part& part, Shared<T> to) const {
    fetch_rows<queries, width>(t, to, q, part.b, part.h, part.first_query, facts.queries, facts.d, row_phase);
  }
  WHENCE_HD void fetch(Thread& t, const Part& part, const Stage& to, int first_key) const {
    const auto phase = [](int key) { return key_phase<keys>(key); };
    fetch_rows<keys, width>(t, to.keys, k, part.b, part.h, first_key, facts.keys, facts.d, phase);
    fetch_rows<keys, width>(t, to.values, v, part.b, part.h, first_key, facts.keys, facts.d, phase);
    if (table)
      fetch_distances<queries + keys>(t, to.by_distance, table, facts, part.h, part.first_token - first_key - keys + 1);
    if (column && t.index() < keys) {
      const int key = smaller(first_key + t.index(), facts.keys - 1);
      const Number<float> term = load<float>(column, (part.b * facts.heads + part.h) * facts.keys + key);
      store(to.by_key, t.index(), (term - part.taken_off) * log2e);
    }
  }

  WHENCE_HD void begin_rows(Thread& t, const Part& part, Registers<Row, 2 * fragments>& running) const {
    if (!sink) return;
    const Number<float> logit = load<float>(sink, part.h) * log2e;
    each<2 * fragments>([&](auto a) {
      running[a].top = logit;
      running[a].sum = t.lane() % 4 == 0 ? 1.0f : 0.0f;  // the lanes of a quad add up
    });
  }

  WHENCE_HD void begin_gates(Thread& t, const Part& part, Gates& gates) const {
    if (scan.pairs) fetch_pairs<queries, 0>(t, gates.pairs, scan, part.b * facts.heads + part.h, part.first_query);
    each<2 * fragments>([&](auto a) {  // rows that are not there count as full
      if (part.first_query + t.warp() * rows + 8 * a + t.lane() / 4 >= facts.queries) gates.sums[a] = scan.full();
    });
  }

  // One tile of keys for a warp's rows.
  WHENCE_HD void work(Thread& t, const Part& part, const Stage& stage, int first_key, const Queries& held, Gates& gates,
      Registers<Row, 2 * fragments>& running, Sums& sums) const {
    const int first_token = part.first_token + t.warp() * rows, last_token = first_token + rows - 1;
    const int last_key = first_key + keys - 1;
    // Nobody is there, or sees a key.
    if (first_token >= facts.first_row + facts.queries || first_key > last_token + facts.after ||
        last_key < first_token - facts.before)
      return;
    const bool whole = last_key <= first_token + facts.after && first_key >= last_token - facts.before &&
                       first_key >= part.begin && last_key < part.end;
    Scores x;
    add_products<T, keys, width, fragments>(t, stage.keys, held, x);
    each<2 * fragments>(
        [&](auto a) { each<own>([&](auto j) { of_line(x, a, j) = of_line(x, a, j) * facts.scale_of_powers; }); });
    if constexpr (scans)
      whole ? add_scan<false>(t, part, first_key, gates, x) : add_scan<true>(t, part, first_key, gates, x);
    add_terms(t, stage, x);
    if (whole)
      pattern<false>(t, part, first_key, running, x, sums);
    else
      pattern<true>(t, part, first_key, running, x, sums);
    add_rows<T, keys, width>(t, stage.values, x, sums);
  }

  // edge: some pairs are not seen, and have no gates.
  template <bool edge>
  WHENCE_HD void add_scan(Thread& t, const Part& part, int first_key, Gates& gates, Scores& x) const {
    const int own_key = first_key + t.lane() % 4 * own;
    const float full = scan.full();
    const Number<float> slope = scan.slopes ? load<float>(scan.slopes, part.h) * log2e : Number<float>(0.0f);
    Number<float> least = full;
    each<2 * fragments>([&](auto a) {
      const int row = t.warp() * rows + 8 * a + t.lane() / 4;
      const Shared<Float16> pairs = gates.pairs + row * scan.pitch * 2;
      if (gates.full) {
        const Number<float> last = PlaceInPairs(pairs, full, full).value;
        each<own>([&](auto j) { of_line(x, a, j) += last; });
        return;
      }
      const int token = part.first_token + row;
      const int from = larger(part.begin, token - facts.before), end = smaller(part.end, token + facts.after + 1);
      const auto score = [&](auto j) { return of_line(x, a, j); };
      const auto seen = [&](auto j) { return !edge || (own_key + j >= from && own_key + j < end); };
      GateRow<own, 1, 2> of_row;
      gates.sums[a] = of_row.add_up(t, score, seen, gates.sums[a]);
      if (gates.sums[a] < least) least = gates.sums[a];
      if (scan.slopes)
        each<own>([&](auto j) { of_line(x, a, j) += slope * of_row.sum[j]; });
      else
        each<own>([&](auto j) { of_line(x, a, j) += PlaceInPairs(pairs, of_row.sum[j], full).value; });
    });
    gates.full = gates.full || !(least_of_rows(t, least) < full);
  }

  WHENCE_HD void add_terms(Thread& t, const Stage& stage, Scores& x) const {
    const int quad = t.lane() % 4;
    if (table) {  // a distance that several rows have in this lane is loaded once
      const int first = t.warp() * rows + t.lane() / 4 - quad * own + keys - own;
      each<8 * (2 * fragments - 1) + own>([&](auto n) {
        const Number<float> term = load<float>(stage.by_distance, first + n);
        each<2 * fragments>([&](auto a) {
          constexpr int j = 8 * a + own - 1 - n;
          if constexpr (j >= 0 && j < own) of_line(x, a, Nth<j>{}) += term;
        });
      });
    }
    if (column)
      each<own / 4>([&](auto four) {
        const auto terms = load_pack<4>(stage.by_key, quad * own + 4 * four);
        each<4>([&](auto e) {
          each<2 * fragments>([&](auto a) { of_line(x, a, Nth<4 * four + e>{}) += Number<float>(terms.of[e]); });
        });
      });
  }

  // x becomes 2^(x - top). edge: some pairs are not seen.
  template <bool edge>
  WHENCE_HD void pattern(
      Thread& t, const Part& part, int first_key, Registers<Row, 2 * fragments>& running, Scores& x, Sums& sums) const {
    const int own_key = first_key + t.lane() % 4 * own;
    each<2 * fragments>([&](auto a) {
      const int token = part.first_token + t.warp() * rows + 8 * a + t.lane() / 4;
      const int from = larger(part.begin, token - facts.before), end = smaller(part.end, token + facts.after + 1);
      Number<float> top = running[a].top;
      each<own>([&](auto j) {
        Number<float>& own_x = of_line(x, a, j);
        if constexpr (edge)
          if (own_key + j < from || own_key + j >= end) own_x = nothing;
        top = Larger{}(top, own_x);
      });
      for (int mask = 1; mask <= 2; mask *= 2) top = Larger{}(top, t.shuffle_xor(top, mask));
      const Number<float> fade = ex2_approx(running[a].top - top);
      running[a].top = top;
      Number<float> sum = 0.0f;
      each<own>([&](auto j) {
        Number<float>& own_x = of_line(x, a, j);
        const bool seen = !edge || (own_key + j >= from && own_key + j < end);
        own_x = seen ? ex2_approx(own_x - top) : Number<float>(0.0f);
        sum += own_x;
      });
      running[a].sum = running[a].sum * fade + sum;
      if (fade < 1.0f)  // a larger logit has come; after some tiles that is rare
        each<width / 8>([&](auto c) { each<2>([&](auto e) { sums[Nth<a / 2>{}][c][Nth<a % 2 * 2 + e>{}] *= fade; }); });
    });
  }

  WHENCE_HD void finish(
      Thread& t, const Part& part, const Registers<Row, 2 * fragments>& running, const Sums& sums) const {
    each<2 * fragments>([&](auto a) {
      Number<float> all = running[a].sum;
      for (int mask = 1; mask <= 2; mask *= 2) all += t.shuffle_xor(all, mask);
      const Number<float> share = all > 0.0f ? 1.0f / all : Number<float>(0.0f);  // a row that sees nothing has 0
      const int row = part.first_query + t.warp() * rows + 8 * a + t.lane() / 4, column_of_lane = t.lane() % 4 * 2;
      if (row < facts.queries) {
        const index_t head = o.of(part.b, part.h) + row * o.row;
        each<width / 8>([&](auto c) {
          const FragmentC<T>& of = sums[Nth<a / 2>{}][c];
          store_two(
              o, head, 8 * c + column_of_lane, facts.d, of[Nth<a % 2 * 2>{}] * share, of[Nth<a % 2 * 2 + 1>{}] * share);
        });
        const index_t norm = ((part.b * facts.heads + part.h) * facts.queries + row) * 2;
        if (t.lane() % 4 == 0) store(norms, norm, running[a].top), store(norms, norm + 1, share);
      }
    });
  }
};

}  // namespace whence::gpu
