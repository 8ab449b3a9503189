// Powers of the head mix's logits, of all heads of a pair at once (mix_walk.h):
//   A_h[j] = S_h[j] + B_h[j] + table_h[i-j] + sum_{d,t} W2[h d t] hidden_d[j + t - left]
// They are stored with their bases, from which PairSums makes the softmax.
#pragma once

#include "cuda/kernels/tiles/mix_walk.h"

namespace whence::gpu {

template <class T, int beside, int slots, int parts> struct MixForward {
  using C = compute_t<T>;
  using M = Mixed<T>;
  using Walk = MixWalk<M, beside, slots, parts>;
  using Slots = typename Walk::Slots;
  static constexpr const char* name = "logits of the mix";
  static constexpr int threads = head_threads, blocks_at_once = parts == 1 && slots == 3 ? 4 - beside : 0;
  static constexpr std::size_t shared_bytes = Walk::shared_bytes + shared_bytes_for<M>(Slots::of_block);

  MixFacts<M> mix;
  PairBlocks<T> powers;
  PairBlocks<C, 1> bases;

  WHENCE_HD void operator()(Thread& t) const {
    Walk walk(t, mix);
    if (walk.empty()) return;
    walk.prepare(t);
    const Slots x(t, mix.facts.heads);
    const auto fetch = [&](int step) { x.fetch(t, walk, mix.scores, step), cp_async_commit(t); };
    const auto arrive = [&] { cp_async_wait<0>(t), t.sync_warp(); };
    int step = walk.begin_step;
    fetch(step);
    std::uint32_t signs;
    if (beside > 0 && step < walk.end_step) {
      fetch(step + 1), arrive();
      WHENCE_ROLLED
      for (int n = Walk::first_column - Walk::ahead; n < 8; ++n) {
        walk.read(t, x, 8 * step ^ (n + Walk::ahead));
        if (n >= Walk::first_column) walk.make_hidden(t, step, n, signs, std::false_type{});
      }
      t.sync_warp(), ++step;
    }
    const auto walk_on = [&](auto inside) {
      do {
        if (beside == 0) arrive();
        fetch(step + 1);
        Registers<Registers<Registers<Number<C>, slots>, 2>, 8> logit;
        Registers<Registers<Number<C>, slots>, 2> base;
        each<2>([&](auto half) { each<slots>([&](auto s) { base[half][s] = Walk::nothing / 1e10f; }); });
        each<8>([&](auto n) {
          if (beside > 0 && n + Walk::ahead == 8) arrive();
          walk.read(t, x, 8 * step ^ (n + Walk::ahead));
          const auto y = walk.logits(t, step, n, signs, inside);
          each<2>([&](auto half) {
            const bool seen = inside || walk.sees(t, half, walk.key + 8 * (step + half) + n);
            each<slots>([&](auto s) {
              Number<C>& own = logit[n][half][s];
              own = seen ? y[Nth<s / 2>{}][Nth<2 * half + s % 2>{}] : Number<C>(Walk::nothing);
              base[half][s] = max_nan(base[half][s], own);
            });
          });
        });
        each<2>([&](auto half) {
          each<slots>([&](auto s) {
            Number<C>& of = base[half][s];
            of = whole_below(of * Walk::in_powers).value + 1.0f;
            const int head = 4 * s + t.lane() % 4;
            if (walk.has_keys(step, half) && head < mix.facts.heads)
              store(bases.at, index_t(walk.block(step, half)) * bases.step() + head * 8 + t.lane() / 4, of);
          });
        });
        t.sync_warp();  // X has been read: powers take its place
        each<8>([&](auto n) {
          FragmentA<M> of_pairs;
          each<4>([&](auto r) {
            constexpr int slot = r / 2 * 2, half = r % 2;
            const auto power = [&](auto s) {
              if constexpr (s < slots)
                return ex2_approx(logit[n][Nth<half>{}][s] * Walk::in_powers - base[Nth<half>{}][s]);
              else
                return Number<C>(0.0f);
            };
            of_pairs[r] = pack_two<T>(power(Nth<slot>{}), power(Nth<slot + 1>{}));
          });
          x.put(t, 8 * step ^ n, of_pairs);
        });
        t.sync_warp();
        x.template store<1>(t, walk, powers, step);
      } while (++step < walk.end_step && walk.inside(step) == inside);
    };
    while (step < walk.end_step) walk.inside(step) ? walk_on(std::true_type{}) : walk_on(std::false_type{});
    cp_async_wait<0>(t);
  }
};

}  // namespace whence::gpu
