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
    walk.begin(t);
    const Slots x(t);
    const MixPlace& place = walk.place;
    const auto fetch = [&](int step) { x.fetch(t, walk, mix.scores, step), cp_async_commit(t); };
    const auto arrive = [&] { cp_async_wait<0>(t), t.sync_warp(); };
    fetch(place.begin_step);
    std::uint32_t signs;
    int step = place.begin_step;
    if (beside > 0 && step < place.end_step) {
      fetch(step + 1), arrive(), walk.begin_step(t, step);
      for (int n = Walk::first_column - Walk::ahead; n < 8; ++n) {
        walk.read(t, x, step, n + Walk::ahead);
        if (n >= Walk::first_column) walk.make_hidden(t, step, n, signs);
      }
      t.sync_warp(), ++step;
    }
    for (; step < place.end_step; ++step) {
      if (beside == 0) arrive();
      fetch(step + 1), walk.begin_step(t, step);
      const auto seen = walk.seen(step, t);
      Registers<Registers<Registers<Number<C>, slots>, 2>, 8> logit;
      Registers<Registers<Number<C>, slots>, 2> base;
      each<2>([&](auto half) { each<slots>([&](auto s) { base[half][s] = Walk::nothing / 1e10f; }); });
      each<8>([&](auto n) {
        if (beside > 0 && n + Walk::ahead == 8) arrive();
        const auto y = walk.logits(t, x, step, n, signs);
        each<2>([&](auto half) {
          each<slots>([&](auto s) {
            Number<C>& own = logit[n][half][s];
            own = seen[half].has(n) ? y[Nth<s / 2>{}][Nth<2 * half + s % 2>{}] : Number<C>(Walk::nothing);
            base[half][s] = max_nan(base[half][s], own);
          });
        });
      });
      each<2>([&](auto half) {
        each<slots>([&](auto s) {
          Number<C>& of = base[half][s];
          of = whole_below(of * Walk::in_powers).value + 1.0f;
          if (walk.has_keys(step, half) && 4 * s + t.lane() % 4 < walk.head_count())
            store(bases.at,
                bases.of(place.sequence, place.row + 8 * half + t.lane() / 4, 4 * s + t.lane() % 4) +
                    index_t(place.key / 8 + step + half) * bases.step(),
                of);
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
        x.put(t, walk, step, n, of_pairs);
      });
      t.sync_warp();
      x.template store<1>(t, walk, powers, step);
    }
    cp_async_wait<0>(t);
  }
};

}  // namespace whence::gpu
