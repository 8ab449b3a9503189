// CoPE's scan (gate_scan.h) in the gradients of heads (heads_backward.h): what it adds to the logits of a tile, and the
// gradients of gates and of the table. One struct for each kind of rows; all have the same functions.
#pragma once

#include "cuda/kernels/tiles/gate_scan.h"

namespace whence::gpu {

inline constexpr int scan_columns = gate_keys, scan_own = scan_columns / 4, scan_lines = 2, scan_rows = 16 * head_warps;

// The target of z's gradient, and the keys that z was made from.
template <class T> struct OfPositions {
  Global<T> d_logits = nullptr;  // [b h queries width]: 0 after the last position
  int width = 0;
  HeadRows<const T> position_keys = {};  // [1 1 positions d], or null
};

struct NoScan {
  template <class Scan> static std::size_t shared_bytes(const Scan&) { return 0; }
  template <class Scan, class Facts> WHENCE_HD NoScan(Thread&, const Scan&, const Facts&, int, int) {}
  WHENCE_HD void fetch(Thread&, int, int) {}
  WHENCE_HD void ask(int) {}
  template <class Pairs> WHENCE_HD void gather(Thread&, int, bool, Pairs&) {}
  template <class... Rest> WHENCE_HD void finish(Thread&, const Rest&...) {}
};

// Rows are queries, columns keys, from left to right. The gradient of the table needs no atomics: floors never rise
// along a row. So the last key of a run of equal floors stores the running sums of dx and of w dx to its slot, and to
// the skipped slots down to the next key's floor. Differences of slots are the sums of runs.
template <class T, GatesOf gates_of> struct ScanOfQueries {
  using C = compute_t<T>;
  static constexpr bool others = gates_of == GatesOf::others;
  const GateScan<T>& scan;
  const HeadFacts<C>& facts;
  int head;
  int row;                            // of line 0
  Shared<Position<T>> pairs;          // of line 0's row
  Shared<C> slots;                    // [positions 2], of line 0's row
  Number<C> slope, first_tile;        // first_tile: the first tile in which a sum of the warp moves
  int tile = -1;                      // the current tile of keys
  bool moves = false, moved = false;  // the current tile; an earlier one
  Registers<GateRow<C, scan_own, 1, 2>, scan_lines> gates;
  Registers<Registers<Number<C>, scan_own>, scan_lines> share, rise;  // rise: d scan / d P, in base 2
  Registers<Registers<int, scan_own>, scan_lines> floor;
  Registers<Number<C>, scan_lines> behind, upcoming,
      last;  // P after the tile, and the next one; the scan of full rows
  Registers<Number<C>, scan_lines> sum, sum_share, sum_dp, of_slope;  // sums so far of dx, w dx, dp and dx P

  static std::size_t shared_bytes(const GateScan<T>& scan) {
    const auto count = static_cast<std::size_t>(scan_rows * scan.pitch * 2);
    return shared_bytes_for<Position<T>>(count) + shared_bytes_for<C>(count);
  }

  WHENCE_HD ScanOfQueries(Thread& t, const GateScan<T>& told, const HeadFacts<C>& of, int head_of, int first_row)
      : scan(told), facts(of), head(head_of), row(first_row + t.lane() / 4) {
    if (first_row < scan.rows) first_tile = load<C>(scan.first_tile, scan.row_at(head, first_row) / 8);
    each<scan_lines>([&](auto a) {
      if (scan.positions && row + 8 * a < scan.rows) last[a] = load<C>(scan.last, scan.row_at(head, row + 8 * a));
    });
    slope = scan.slopes ? load<C>(scan.slopes, head % facts.heads) * log2e<C> : Number<C>(0.0f);
    const int count = scan_rows * scan.pitch * 2, line = t.warp() * 16 + t.lane() / 4;
    const Shared<Position<T>> all = t.shared<Position<T>>(count);
    pairs = all + line * scan.pitch * 2, slots = t.shared<C>(count) + line * scan.pitch * 2;
    if (scan.slopes) return;
    fetch_pairs<scan_rows, 0>(t, all, scan, head, first_row - t.warp() * 16);
    each<scan_lines>([&](auto a) {
      for (int n = t.lane() % 4; n < scan.pitch / 2; n += 4)
        store_pack<4>(slots, 8 * a * scan.pitch * 2 + 4 * n, Pack<C, 4>{});
    });
  }

  WHENCE_HD void fetch(Thread&, int, int) {}

  // Reads from memory what the next tile needs, which takes as long as a tile.
  WHENCE_HD void ask(int first_key) {
    const int before = tile;
    tile = first_key / gate_keys, moves = !(static_cast<C>(tile) < first_tile);
    if (before < 0) read_sums(tile);
    behind = upcoming;
    read_sums(tile + 1);
  }

  WHENCE_HD bool moving(int) const { return moves; }

  // x, products of the gates, becomes a logit in base 2; for other gates, the scan alone. whole: all pairs are seen.
  template <class Pairs> WHENCE_HD void add(Thread& t, int, bool, C unit, Pairs& x) {
    if (!moves)
      return each<scan_lines>(
          [&](auto a) { each<scan_own>([&](auto j) { number(x, a, j) = number(x, a, j) * unit + last[a]; }); });
    each<scan_lines>([&](auto a) {
      behind[a] = known(behind[a], 0.0f);
      gates[a].add_up(
          t, [&](auto j) { return take_score<gates_of>(number(x, a, j), unit); }, behind[a]);
    });
    const auto each_pair = [&](const auto& f) {
      each<scan_lines>([&](auto a) { each<scan_own>([&](auto j) { f(a, j, number(x, a, j)); }); });
    };
    if (scan.slopes)
      return each_pair([&](auto a, auto j, auto& of) { of += slope * gates[a].sum[j], rise[a][j] = slope; });
    const C full = scan.full();
    each_pair([&](auto a, auto j, auto& of) {
      const PlaceInPairs<C> place(pairs + 8 * a * scan.pitch * 2, gates[a].sum[j], full);
      of += place.value;
      floor[a][j] = place.floor, share[a][j] = place.share, rise[a][j] = place.slope();
    });
  }

  // dx, the gradient at the logits, becomes that at the scores; for other gates it is that already, or becomes theirs
  // (of_gates).
  template <class Pairs> WHENCE_HD void gather(Thread& t, int, bool, Pairs& dx) {
    if (!moves) return each<scan_lines>([&](auto a) { each<scan_own>([&](auto j) { sum[a] += number(dx, a, j); }); });
    const bool of_gates = others && scan.of_gates;
    const int quad = t.lane() % 4;
    if (!of_gates) begin_moving(t);
    if (!of_gates && scan.slopes)
      each<scan_lines>(
          [&](auto a) { each<scan_own>([&](auto j) { of_slope[a] += number(dx, a, j) * gates[a].sum[j]; }); });
    else if (!of_gates)
      put_runs(t, dx);
    each<scan_lines>([&](auto a) {
      Registers<Number<C>, scan_own> up;
      Number<C> all = 0.0f;
      each<scan_own>([&](auto j) { up[j] = all += rise[a][j] * number(dx, a, j); });
      const Number<C> before = sum_dp[a] + of_other_lanes<1, 2, false>(t, all);
      if (!of_gates && quad % 2 == 0) store(scan.gradients, scan.at(head, 2 * tile + quad / 2, row + 8 * a), before);
      sum_dp[a] += all;
      if (others && !of_gates) return;
      each<scan_own>([&](auto j) {
        const Number<C> gate = gates[a].gate[j];
        number(dx, a, j) =
            (others ? Number<C>(0.0f) : number(dx, a, j)) + (ln2<C> * before + ln2<C> * up[j]) * (gate - gate * gate);
      });
    });
  }

  // Runs once, after all tiles. Gradients of q gain scale dz e; `tiles` is free for e.
  template <class Sums> WHENCE_HD void finish(Thread& t, const OfPositions<T>& to, Shared<T> tiles, Sums& of_queries) {
    constexpr int width = 8 * Sums::Value::count;
    if (others && scan.of_gates) return;
    begin_moving(t);
    each<scan_lines>([&](auto a) {
      const int own_row = row + 8 * a;
      if (scan.slopes) {
        (void)of_other_lanes<1, 2, false>(t, of_slope[a]);
        if (t.lane() % 4 == 0 && own_row < facts.queries)
          store(scan.of_slopes, index_t(head) * facts.queries + own_row, of_slope[a]);
      } else if (t.lane() % 4 == 0) {
        put(8 * a, 0, sum[a], sum_share[a]);
      }
    });
    if (scan.slopes) return;
    if (to.position_keys.at) {
      t.sync();  // the tiles are no longer read
      fetch_positions<width>(t, tiles, to.position_keys, scan.positions, facts.d);
      cp_async_commit(t);
      cp_async_wait<0>(t);
      t.sync();
    }
    t.sync_warp();
    const Place place = place_in_transposed<T>(t.lane());
    for (int first = 0; first < to.width; first += depth<T>) {
      Registers<FragmentC<T>, depth<T> / 8> of_positions;
      each<depth<T> / 8>([&](auto c) {
        each<2>([&](auto a) {
          const int m = first + 8 * c + t.lane() % 4 * 2, own_row = row + 8 * a;
          const Number<C> low = gradient_of_position(8 * a, m), high = gradient_of_position(8 * a, m + 1);
          if (own_row < facts.queries && m < to.width)
            store_pack<2>(to.d_logits, (index_t(head) * facts.queries + own_row) * to.width + m, two_of<T>(low, high));
          of_positions[c][Nth<2 * a>{}] = low * scan.position_scale;
          of_positions[c][Nth<2 * a + 1>{}] = high * scan.position_scale;
        });
      });
      if (!to.position_keys.at) continue;
      const int at = first + place.row, phase = key_phase<position_tile>(at % position_tile);
      Registers<Factor<T>, 1> left;
      left[Nth<0>{}] = factor_of<T>(left_of<T>(of_positions, Nth<0>{}));
      add_step<T, width>(t, tiles, tile_at<T>(at, place.column, width, phase), 0, left, of_queries);
    }
  }

 private:
  WHENCE_HD void read_sums(int of) {
    if (static_cast<C>(of) < first_tile || 2 * of >= scan.groups) return;
    each<scan_lines>([&](auto a) { upcoming[a] = load<C>(scan.sums, scan.at(head, 2 * of + 1, row + 8 * a)); });
  }
  // From the first tile that moves on, all lanes of a quad have the sums; before it each lane has its own.
  WHENCE_HD void begin_moving(Thread& t) {
    if (!moved) each<scan_lines>([&](auto a) { (void)of_other_lanes<1, 2, false>(t, sum[a]); });
    moved = true;
  }
  // Stores the running sums of dx and of w dx to the slots of the runs that end here.
  template <class Pairs> WHENCE_HD void put_runs(Thread& t, const Pairs& dx) {
    const int quad = t.lane() % 4;
    bool skips = false;
    Registers<Registers<Number<C>, scan_own>, scan_lines> up, up_share;
    Registers<int, scan_lines> end;  // the floor of the key after the lane's last
    each<scan_lines>([&](auto a) {
      Number<C> all = 0.0f, all_share = 0.0f;
      each<scan_own>([&](auto j) {
        up[a][j] = all += number(dx, a, j), up_share[a][j] = all_share += share[a][j] * number(dx, a, j);
      });
      const Number<C> before = sum[a] + of_other_lanes<1, 2, false>(t, all),
                      share_before = sum_share[a] + of_other_lanes<1, 2, false>(t, all_share);
      sum[a] += all, sum_share[a] += all_share;
      end[a] = t.shuffle(floor[a][Nth<0>{}], (t.lane() & ~3) | (quad + 1) % 4);
      if (quad == 3) end[a] = whole_below(behind[a] < scan.full() ? behind[a] : Number<C>(scan.full())).index;
      each<scan_own>([&](auto j) {
        up[a][j] += before, up_share[a][j] += share_before;
        const int next = floor_behind(a, j, end[a]);
        if (floor[a][j] > next) put(8 * a, floor[a][j], up[a][j], up_share[a][j]);
        skips = skips || floor[a][j] > next + 1;
      });
    });
    if (skips)  // a gate is at most 1, but sums are rounded: one slot may be skipped
      each<scan_lines>([&](auto a) {
        each<scan_own>([&](auto j) {
          const int between = floor[a][j] - 1;
          if (between > floor_behind(a, j, end[a])) put(8 * a, between, up[a][j], up_share[a][j]);
        });
      });
  }
  template <int a, int j> WHENCE_HD int floor_behind(Nth<a>, Nth<j>, int end) const {
    if constexpr (j + 1 < scan_own) return floor[Nth<a>{}][Nth<j + 1>{}];
    return end;
  }

  // Returns dz of a row. Differences of slots are the sums of dx and of w dx at one floor; w dx belongs to the position
  // above.
  WHENCE_HD Number<C> gradient_of_position(int line, int m) const {
    const auto at = [&](int n) {
      return n >= 0 && n < scan.positions ? load_pack<2>(slots, (line * scan.pitch + n) * 2) : Pack<C, 2>{};
    };
    const auto below = at(m - 1), own = at(m), above = at(m + 1);
    if (m >= scan.positions) return 0.0f;
    const Number<C> dx = (Number<C>(own.of[0]) - above.of[0]) - (Number<C>(own.of[1]) - above.of[1]);
    return m > 0 ? dx + (Number<C>(below.of[1]) - own.of[1]) : dx;
  }
  WHENCE_HD void put(int line, int floor_of, Number<C> dx, Number<C> share_dx) const {
    store_pack<2>(slots, (line * scan.pitch + floor_of) * 2, Pack<C, 2>{{plain(dx), plain(share_dx)}});
  }
};

// Rows are keys, a lane's two are neighbours; columns are queries.
template <class T, GatesOf gates_of> struct ScanOfKeys {
  using C = compute_t<T>;
  static constexpr bool others = gates_of == GatesOf::others;
  static constexpr int apart = 8;  // padding between blocks of eight rows, so that a quad reads different banks
  // Terms of a stage: first tiles and last numbers of the columns; sums and gradients of each warp's keys.
  static constexpr int first_tiles = 4, last_numbers = scan_columns, of_warps = head_warps * scan_columns,
                       term_count = first_tiles + last_numbers + 2 * of_warps;
  const GateScan<T>& scan;
  const HeadFacts<C>& facts;
  int head, group;            // the group of the warp's keys
  Shared<Position<T>> pairs;  // two stages
  Shared<C> terms;            // two stages
  Number<C> slope;
  Pack<C, 4> upcoming;                    // the first tiles of the columns after those being fetched
  bool unasked = true;                    // upcoming is not loaded yet
  bool moves = false, own_moves = false;  // some of the tile's columns; the lane's
  Registers<GateRow<C, scan_lines, 4, 16>, scan_own> gates;
  Registers<Registers<Number<C>, scan_own>, scan_lines> rise;  // d scan / d P, in base 2

  static WHENCE_HD int stage_of(const GateScan<T>& scan) {
    return scan.positions ? (scan_columns * scan.pitch + scan_columns / 8 * apart) * 2 : 0;
  }
  static std::size_t shared_bytes(const GateScan<T>& scan) {
    return shared_bytes_for<Position<T>>(static_cast<std::size_t>(2 * stage_of(scan))) +
           shared_bytes_for<C>(2 * term_count);
  }

  WHENCE_HD ScanOfKeys(Thread& t, const GateScan<T>& told, const HeadFacts<C>& of, int head_of, int first_key)
      : scan(told), facts(of), head(head_of), group(first_key / gate_group) {
    slope = scan.slopes ? load<C>(scan.slopes, head % facts.heads) * log2e<C> : Number<C>(0.0f);
    pairs = t.shared<Position<T>>(2 * stage_of(scan)), terms = t.shared<C>(2 * term_count);
  }

  // Fetches pairs, sums and gradients if a sum of some warp of the block moves. That is known a tile earlier.
  WHENCE_HD void fetch(Thread& t, int n, int first_query) {
    const Shared<C> to = terms + n * term_count;
    if (unasked) upcoming = first_tiles_of(first_query);
    Number<C> first = upcoming.of[0];
    each<3>([&](auto k) { first = min_number(first, Number<C>(upcoming.of[k + 1])); });
    unasked = first_query + scan_columns >= scan.rows;
    if (!unasked) upcoming = first_tiles_of(first_query + scan_columns);
    if (t.index() == 0) cp_async<C, 4>(t, to, 0, scan.first_tile, scan.row_at(head, first_query) / 8);
    if (scan.positions && t.index() < scan_columns / 4)
      cp_async<C, 4>(t, to, first_tiles + 4 * t.index(), scan.last, scan.row_at(head, first_query + 4 * t.index()));
    const int first_group = group - t.warp();
    if (static_cast<C>((first_group + head_warps - 1) / 2) < first) return;
    if (t.index() < 2 * of_warps / 4) {
      const int which = t.index() / (scan_columns / 4), query = t.index() % (scan_columns / 4) * 4;
      const Global<const C> from = which < head_warps ? scan.sums : scan.gradients;
      const int of_group = first_group + which % head_warps;
      cp_async<C, 4>(t, to, first_tiles + last_numbers + which * scan_columns + query, from,
          scan.at(head, of_group < scan.groups ? of_group : 0, first_query + query), of_group < scan.groups);
    }
    if (scan.positions) fetch_pairs<scan_columns, apart>(t, pairs + n * stage_of(scan), scan, head, first_query);
  }
  WHENCE_HD void ask(int) {}
  WHENCE_HD bool moving(int n) const {
    const auto firsts = load_pack<4>(terms + n * term_count, 0);
    bool some = false;
    each<4>([&](auto k) { some = some || !(static_cast<C>(group / 2) < Number<C>(firsts.of[k])); });
    return some;
  }

  template <class Pairs> WHENCE_HD void add(Thread& t, int n, bool whole, C unit, Pairs& x) {
    const Shared<C> own = terms + n * term_count;
    const C full = scan.full(), tile = static_cast<C>(group / 2);
    const int quad = t.lane() % 4;
    moves = moving(n);
    own_moves = !(tile < load<C>(own, quad));
    const auto each_four = [&](const auto& f) {
      each<scan_own / 4>([&](auto four) { f(four, quad * scan_own + 4 * four); });
    };
    if (!moves)
      return each_four([&](auto four, int query) {
        const auto last = load_pack<4>(own, first_tiles + query);
        each<4>([&](auto e) {
          each<scan_lines>([&](auto a) {
            Number<C>& of = number(x, a, Nth<4 * four + e>{});
            of = of * unit + Number<C>(last.of[e]);
          });
        });
      });
    each_four([&](auto four, int query) {
      const auto sums = known_four(own, first_tiles + last_numbers + t.warp() * scan_columns + query, whole, 0.0f);
      each<4>([&](auto e) {
        constexpr Nth<4 * four + e> j{};
        // A row that is full while others move has a sum beyond the table.
        const Number<C> behind = own_moves ? sums.of[e] : full;
        gates[j].add_up(
            t, [&](auto a) { return take_score<gates_of>(number(x, a, j), unit); }, behind);
      });
    });
    if (scan.slopes)
      return each<scan_own>([&](auto j) {
        each<scan_lines>([&](auto a) { number(x, a, j) += slope * gates[j].sum[a], rise[a][j] = slope; });
      });
    const Shared<Position<T>> of_lane = pairs + n * stage_of(scan) + quad * (scan_own * scan.pitch + apart) * 2;
    each<scan_own>([&](auto j) {
      each<scan_lines>([&](auto a) {
        const PlaceInPairs<C> place(of_lane + j * scan.pitch * 2, gates[j].sum[a], full);
        number(x, a, j) += place.value, rise[a][j] = place.slope();
      });
    });
  }

  template <class Pairs> WHENCE_HD void gather(Thread& t, int n, bool whole, Pairs& dx) {
    if (!moves || (others && !scan.of_gates)) return;
    const Shared<C> own = terms + n * term_count + first_tiles + last_numbers + of_warps + t.warp() * scan_columns;
    each<scan_own / 4>([&](auto four) {
      const auto given = known_four(own, t.lane() % 4 * scan_own + 4 * four, whole, -1e30f);
      each<4>([&](auto e) {
        constexpr Nth<4 * four + e> j{};
        Registers<Number<C>, scan_lines> up;
        Number<C> all = 0.0f;
        each<scan_lines>([&](auto a) { up[a] = all += rise[a][j] * number(dx, a, j); });
        const Number<C> stored = own_moves ? given.of[e] : 0.0f;
        const Number<C> before = stored + of_other_lanes<4, 16, false>(t, all);
        each<scan_lines>([&](auto a) {
          const Number<C> gate = gates[j].gate[a];
          number(dx, a, j) =
              (others ? Number<C>(0.0f) : number(dx, a, j)) + (ln2<C> * before + ln2<C> * up[a]) * (gate - gate * gate);
        });
      });
    });
  }

  template <class... Rest> WHENCE_HD void finish(Thread&, const Rest&...) {}

 private:
  static WHENCE_HD Pack<C, 4> known_four(Shared<C> from, int at, bool whole, float lowest) {
    auto four = load_pack<4>(from, at);
    if (!whole) each<4>([&](auto k) { four.of[k] = plain(known(Number<C>(four.of[k]), lowest)); });
    return four;
  }
  // Returns the first tiles in which sums of these columns move.
  WHENCE_HD Pack<C, 4> first_tiles_of(int first_query) const {
    return load_pack<4>(scan.first_tile, scan.row_at(head, first_query) / 8);
  }
};

}  // namespace whence::gpu
