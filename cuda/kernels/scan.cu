// Running sums along rows. A warp or a block takes a row chunk by chunk and carries the sum of all earlier chunks.
#include "cuda/kernels/kernels.h"
#include "cuda/vocabulary/rows.h"

namespace whence::gpu {
namespace {

// Per element: 1 number read, 1 written, about 2 operations: memory; for few rows the latency of chunk after chunk.
template <class From, class To, class P> struct CumulativeSum {
  static constexpr const char* name = "cumulative_sum";
  static constexpr int threads = P::threads;
  using C = compute_t<From>;
  using OfWarps = WarpValues<threads, Number<C>, 2>;
  static constexpr std::size_t shared_bytes = P::by_warp ? 0 : OfWarps::shared_bytes;
  Global<const From> x;
  Global<To> y;
  index_t rows, width;
  bool reverse;

  WHENCE_HD void operator()(Thread& t) const {
    const Team<P> team(t);
    const index_t row = team.row();
    if (row >= rows) return;
    if constexpr (P::by_warp) {
      run(team, row, [&t](Number<C> value) { return warp_sum_before(t, value); });
    } else {
      OfWarps of_warps(t);
      run(team, row, [&](Number<C> value) { return block_sum_before(t, of_warps, value); });
    }
  }

  template <class F> WHENCE_HD void run(const Team<P>& team, index_t row, const F& sum_before) const {
    Number<C> carry = Number<C>(C(0));
    for (index_t begin = 0; begin < width; begin += P::team * P::pack) {        // all threads take part in every chunk
      const index_t j = begin + static_cast<index_t>(team.member()) * P::pack;  // from the end where the sum starts
      const index_t at = row * width + (reverse ? width - P::pack - j : j);
      Numbers<C, P::pack> pack = {};
      if (j < width) pack = load_numbers<C, P::pack>(x, at);
      const Number<C> total = running(pack);
      const Before<Number<C>> sum = sum_before(total);
      const Number<C> start = carry + sum.before;
      for (int k = 0; k < P::pack; ++k) pack.of[k] = start + pack.of[k];
      if (j < width) store_numbers(y, at, pack);
      carry += sum.all;
    }
  }

  // Makes running sums inside a pack, from its beginning or its end; returns the sum of all.
  WHENCE_HD Number<C> running(Numbers<C, P::pack>& pack) const {
    constexpr int last = P::pack - 1;
    if (reverse) {
      for (int k = last - 1; k >= 0; --k) pack.of[k] += pack.of[k + 1];
      return pack.of[0];
    }
    for (int k = 1; k <= last; ++k) pack.of[k] += pack.of[k - 1];
    return pack.of[last];
  }
};

}  // namespace
}  // namespace whence::gpu

namespace whence {

using namespace gpu;

void CudaKernels::cumulative_sum(const Tensor& x, bool reverse, const Tensor& y) {
  if (x.numel() == 0) return;
  const index_t width = x.size(-1), rows = x.numel() / width;
  visit_real("cumulative_sum", x.dtype(), y.dtype(), [&]<class From, class To>(Type<From>, Type<To>) {
    using Wider = std::conditional_t<(sizeof(From) > sizeof(To)), From, To>;
    launch_rows<Wider, passing(256)>(rows, width, rows_fit_packs<Wider>(width, {&x, &y}), [&]<class P>(P) {
      return CumulativeSum<From, To, P>{global<const From>(x), global<To>(y), rows, width, reverse};
    });
  });
}

}  // namespace whence
