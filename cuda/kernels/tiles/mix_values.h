// The last part of the head mix forward: softmax over the logits as mix_logits.h stores them, and sums of values.
//   e_ij = 2^(A_ij - base),  base: for every four keys of a row, the whole number above their logits
//   P_ij = e_ij 2^(base - top_i) share_i,  top_i >= all bases of the row,  o_i = sum_j drop(P_ij) v_j
// So powers keep the digits of f16 for large logits, too.
#pragma once

#include "cuda/kernels/tiles/dropout.h"
#include "cuda/kernels/tiles/mix_pairs.h"

namespace whence::gpu {

template <class T, int width> struct MixValues {
  using C = compute_t<T>;
  using M = Mixed<T>;
  static constexpr const char* name = "values of the mix";
  static constexpr int threads = head_threads, keys = mix_tile, own = keys / 4;
  static constexpr int fragments = fragments_of<T, width>, of_warp = 16 * fragments, queries = head_warps * of_warp;
  static constexpr std::size_t shared_bytes = shared_bytes_for<T>((2 * keys + queries) * width);
  static constexpr float lowest_top = -1e20f;  // a row's first top

  HeadFacts<C> facts;
  PairDropout<C> dropout;
  MixRows group;
  PairBlocks<const M> powers;
  PairBlocks<const C, 2> bases;
  HeadRows<const T> v;
  HeadRows<T> o;
  Global<C> norms;  // [b h queries 2]: top and share
  Global<const std::int32_t> present;

  struct Row {
    Number<C> top = lowest_top, sum = 0.0f;  // the sum is the lane's own
  };
  using Pairs = SummedRows<T, keys, fragments>;
  using Sums = SummedRows<T, width, fragments>;

  static index_t blocks(const MixRows& group, int heads) {
    return index_t(group.sequences) * heads * (group.rows / queries);
  }
  WHENCE_HD void operator()(Thread& t) const {
    const int blocks_of_rows = group.rows / queries;
    int n = static_cast<int>(t.block());
    // The last rows, which may see the most, come first.
    const int row = (blocks_of_rows - 1 - n % blocks_of_rows) * queries, h = (n /= blocks_of_rows) % facts.heads,
              sequence = n / facts.heads, b = group.first_sequence + sequence;
    const Shared<T> stages = t.shared<T>((2 * keys + queries) * width);
    const auto fetch = [&](int tile, int stage) {
      fetch_rows<keys, width>(t, stages + stage * keys * width, v, v.of(b, h), tile * keys, facts.keys, facts.d,
          [](int key) { return key_phase<keys>(key); });
    };
    const KeysOfStrip seen = keys_of_strip(facts, present, b, group.first_query + row);
    if (seen.begin < seen.end) fetch(seen.begin / keys, 0);
    cp_async_commit(t);
    const int own_row = row + t.warp() * of_warp + t.lane() / 4;
    const index_t of_powers = powers.of(sequence, own_row, h), of_bases = bases.of(sequence, own_row, h);
    Registers<Row, 2 * fragments> running;
    Sums sums;
    for (int tile = seen.begin / keys, stage = 0; tile < seen.end / keys; ++tile, stage = 1 - stage) {
      cp_async_wait<0>(t);
      t.sync();
      if (tile + 1 < seen.end / keys) fetch(tile + 1, 1 - stage);
      cp_async_commit(t);
      Pairs x;
      pattern(t, of_powers, of_bases, tile * (keys / 8) + t.lane() % 4 * 2, running, x, sums);
      if (dropout) {
        StayingPairs<2 * fragments, own, false> staying;
        staying.draw(t, dropout, facts, b * facts.heads + h, group.first_query + row + t.warp() * of_warp, tile * keys);
        staying.drop(dropout.factor, x);
      }
      add_rows<T, keys, width>(t, stages + stage * keys * width, x, sums);
    }
    finish(t, b, h, group.first_query + row + t.warp() * of_warp, stages + 2 * keys * width, running, sums);
  }

 private:
  WHENCE_HD void pattern(Thread& t, index_t of_powers, index_t of_bases, int key_block,
      Registers<Row, 2 * fragments>& running, Pairs& x, Sums& sums) const {
    each<2 * fragments>([&](auto a) {
      const index_t at = index_t(a) * powers.key_blocks + key_block;
      Registers<Number<C>, 4> base;
      Number<C> most = lowest_top;
      each<2>([&](auto eight) {
        const auto two = load_pack<2>(bases.at, of_bases + (at + eight) * bases.step());
        each<2>([&](auto four) {
          const Number<C> of_four = two.of[four];
          base[Nth<2 * eight + four>{}] = of_four, most = max_nan(most, of_four);
        });
      });
      for (int mask = 1; mask <= 2; mask *= 2) most = max_nan(most, t.shuffle_xor(most, mask));
      const Number<C> top = max_nan(running[a].top, most), fade = ex2_approx(running[a].top - top);
      running[a].top = top, running[a].sum *= fade;
      scale_line(sums, a, fade);
      each<2>([&](auto eight) {
        const auto power = load_pack<8>(powers.at, of_powers + (at + eight) * powers.step());
        each<2>([&](auto four) {
          const Number<C> unit = ex2_approx(base[Nth<2 * eight + four>{}] - top);
          each<4>([&](auto j) {
            const Number<C> p = from_stored<C>(power.of[4 * four + j]) * unit;
            number(x, a, Nth<8 * eight + 4 * four + j>{}) = p, running[a].sum += p;
          });
        });
      });
    });
  }
  WHENCE_HD void finish(Thread& t, int b, int h, int first, Shared<T> tile,
      const Registers<Row, 2 * fragments>& running, Sums& sums) const {
    each<2 * fragments>([&](auto a) {
      Number<C> all = running[a].sum;
      for (int mask = 1; mask <= 2; mask *= 2) all += t.shuffle_xor(all, mask);
      const Number<C> share = all > 0.0f ? rcp_approx(all) : Number<C>(0.0f);  // 0 for a row that sees nothing
      scale_line(sums, a, share);
      const int row = first + 8 * a + t.lane() / 4;
      const index_t norm = (index_t(b * facts.heads + h) * facts.queries + row) * 2;
      if (t.lane() % 4 == 0 && row < facts.queries) store(norms, norm, running[a].top), store(norms, norm + 1, share);
    });
    store_rows<T, width>(t, tile, sums, o, o.of(b, h), first, facts.queries, facts.d);
  }
};

}  // namespace whence::gpu
