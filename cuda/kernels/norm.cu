// Normalisation of rows: y = n w + b with n = (x - mean) rstd. Layer norm: rstd = 1 / sqrt(var + epsilon). Root mean
// square norm: the same with mean 0 and without b. And their backward.
#include "cuda/kernels/kernels.h"
#include "cuda/vocabulary/rows.h"
#include "tensor/math.h"

namespace whence::gpu {
namespace {

template <class T> struct NormTensors {
  using C = compute_t<T>;
  Global<const T> x, weight, bias;
  Global<T> y;
  Global<C> mean, rstd;  // [rows], what backward starts from
  index_t rows, width;
  C share, epsilon;  // share: 1 / width
  bool centered;     // layer norm: with mean and bias
};

// Two passes over the row: the mean first, then squares of differences from it, which do not cancel.
template <class T, class P> struct NormRows {
  static constexpr const char* name = "norm";
  static constexpr int threads = P::threads;
  using C = compute_t<T>;
  static constexpr std::size_t shared_bytes = 2 * P::template reduce_bytes<Number<C>>;
  NormTensors<T> of;

  WHENCE_HD void operator()(Thread& t) const {
    const Team<P> team(t);
    const index_t row = team.row();
    if (row >= of.rows) return;
    RowPart<T, P> values(of.x, row * of.width);
    values.hold(team, of.width);
    Number<C> center = Number<C>(C(0));
    if (of.centered) center = sum(team, values, [](Number<C> v) { return v; }) * Number<C>(of.share);
    const Number<C> spread = sum(team, values, [center](Number<C> v) { return (v - center) * (v - center); });
    const Number<C> scale = Number<C>(C(1)) / math::sqrt(spread * Number<C>(of.share) + Number<C>(of.epsilon));
    write(team, values, row, center, scale);
    if (team.member() != 0) return;
    if (of.centered) store(of.mean, row, center);
    store(of.rstd, row, scale);
  }

  template <class F> WHENCE_HD Number<C> sum(const Team<P>& team, const RowPart<T, P>& values, const F& term) const {
    Number<C> total = Number<C>(C(0));
    team.each_pack(of.width, [&](int p, index_t j) {
      const auto pack = values(p, j);
      for (int k = 0; k < P::pack; ++k) total += term(pack.of[k]);
    });
    return team.reduce(total, Plus{});
  }

  WHENCE_HD void write(
      const Team<P>& team, const RowPart<T, P>& values, index_t row, Number<C> center, Number<C> scale) const {
    team.each_pack(of.width, [&](int p, index_t j) {
      auto pack = values(p, j);
      const auto gain = load_numbers<C, P::pack>(of.weight, j);
      for (int k = 0; k < P::pack; ++k) pack.of[k] = (pack.of[k] - center) * scale * gain.of[k];
      if (of.centered) {
        const auto shift = load_numbers<C, P::pack>(of.bias, j);
        for (int k = 0; k < P::pack; ++k) pack.of[k] = pack.of[k] + shift.of[k];
      }
      store_numbers(of.y, row * of.width + j, pack);
    });
  }
};

template <class T> struct NormGradients {
  using C = compute_t<T>;
  Global<const T> x, weight, dy;
  Global<const C> mean, rstd;
  Global<T> dx;
  index_t rows, width;
  C share;  // 1 / width
  bool centered;
};

// With n = (x - mean) rstd and g = dy w:  dx = rstd (g - mean(g) - n mean(g n)). Root mean square norm: without
// mean(g), since nothing was centered.
template <class T, class P> struct NormBackward {
  static constexpr const char* name = "norm_backward";
  static constexpr int threads = P::threads;
  using C = compute_t<T>;
  using Sums = Pair<Number<C>, Number<C>>;  // of g and of g n
  static constexpr std::size_t shared_bytes = P::template reduce_bytes<Sums>;
  NormGradients<T> of;

  WHENCE_HD void operator()(Thread& t) const {
    const Team<P> team(t);
    const index_t row = team.row();
    if (row >= of.rows) return;
    RowPart<T, P> values(of.x, row * of.width), gradient(of.dy, row * of.width);
    values.hold(team, of.width);
    gradient.hold(team, of.width);
    const Number<C> scale = load<C>(of.rstd, row), center = of.centered ? load<C>(of.mean, row) : Number<C>(C(0));
    Sums sums{Number<C>(C(0)), Number<C>(C(0))};
    team.each_pack(of.width, [&](int p, index_t j) {
      const auto n = values(p, j), g = weighted(gradient(p, j), j);
      for (int k = 0; k < P::pack; ++k) {
        sums.first += g.of[k];
        sums.second += g.of[k] * ((n.of[k] - center) * scale);
      }
    });
    sums = team.reduce(sums, PlusBoth{});
    const Number<C> mean_g = of.centered ? Number<C>(sums.first * Number<C>(of.share)) : Number<C>(C(0));
    const Number<C> mean_gn = sums.second * Number<C>(of.share);
    team.each_pack(of.width, [&](int p, index_t j) {
      const auto n = values(p, j);
      auto g = weighted(gradient(p, j), j);
      for (int k = 0; k < P::pack; ++k) g.of[k] = scale * (g.of[k] - mean_g - (n.of[k] - center) * scale * mean_gn);
      store_numbers(of.dx, row * of.width + j, g);
    });
  }

  WHENCE_HD Numbers<C, P::pack> weighted(Numbers<C, P::pack> g, index_t j) const {
    const auto gain = load_numbers<C, P::pack>(of.weight, j);
    for (int k = 0; k < P::pack; ++k) g.of[k] = g.of[k] * gain.of[k];
    return g;
  }
};

// dw = sum dy n and db = sum dy over one chunk of rows and 32 columns: every warp reads 32 neighbours of a row, so that
// memory comes in whole lines; then the warps' sums are added in order.
constexpr index_t chunk_rows = 256;
template <class T> struct NormColumns {
  static constexpr const char* name = "norm_backward_columns";
  static constexpr int threads = 256, warps = threads / Thread::warp_size;
  using C = compute_t<T>;
  static constexpr std::size_t shared_bytes = 2 * shared_bytes_for<C>(threads);
  Global<const T> x, dy;
  Global<const C> mean, rstd;
  Global<C> dweight, dbias;  // [chunks, width]
  index_t rows, width;
  bool centered;

  static constexpr index_t tiles(index_t width) { return (width + Thread::warp_size - 1) / Thread::warp_size; }
  WHENCE_HD void operator()(Thread& t) const {
    const index_t chunk = t.block() / tiles(width), column = t.block() % tiles(width) * Thread::warp_size + t.lane();
    const index_t begin = chunk * chunk_rows, end = begin + chunk_rows < rows ? begin + chunk_rows : rows;
    Number<C> dw = Number<C>(C(0)), db = Number<C>(C(0));
    if (column < width) {
      for (index_t row = begin + t.warp(); row < end; row += warps) {
        const Number<C> g = load<C>(dy, row * width + column), center = centered ? load<C>(mean, row) : Number<C>(C(0));
        dw += g * ((load<C>(x, row * width + column) - center) * load<C>(rstd, row));
        db += g;
      }
    }
    const Shared<C> all_dw = t.template shared<C>(threads), all_db = t.template shared<C>(threads);
    store(all_dw, t.index(), dw);
    store(all_db, t.index(), db);
    t.sync();
    if (t.warp() != 0 || column >= width) return;
    for (int other = 1; other < warps; ++other) {
      dw += load<C>(all_dw, other * Thread::warp_size + t.lane());
      db += load<C>(all_db, other * Thread::warp_size + t.lane());
    }
    store(dweight, chunk * width + column, dw);
    store(dbias, chunk * width + column, db);
  }
};

template <class C> C share_of(index_t width) { return static_cast<C>(1 / static_cast<double>(width)); }

void join_chunks(CudaKernels& kernels, const Tensor& partial, const Tensor& out) {
  if (!out.defined()) return;
  const Shape one_row{1, partial.size(1)};
  const bool direct = out.dtype() == partial.dtype();
  const Tensor total = direct ? out.view(one_row, contiguous_strides(one_row))
                              : Tensor::empty(one_row, partial.dtype(), partial.device());
  kernels.reduce(Reduction::sum, partial, total);
  if (!direct) kernels.copy(total.view(out.shape(), contiguous_strides(out.shape())), out);
}

// `mean` is undefined for the root mean square norm.
void norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double epsilon, const Tensor& y,
    const Tensor& mean, const Tensor& rstd) {
  if (x.numel() == 0) return;
  const index_t width = x.size(-1), rows = x.numel() / width;
  visit_floating("norm", x.dtype(), [&]<class T>(Type<T>) {
    using C = compute_t<T>;
    const NormTensors<T> tensors{global<const T>(x), global<const T>(weight), global<const T>(bias), global<T>(y),
        global<C>(mean), global<C>(rstd), rows, width, share_of<C>(width), static_cast<C>(epsilon), mean.defined()};
    with_held_part<T>(width, rows_fit_packs<T>(width, {&x, &weight, &bias, &y}), [&]<class P>(P) {
      using Body = NormRows<T, P>;
      launch_kernel(Body{tensors}, {P::blocks(rows), Body::shared_bytes});
    });
  });
}

// dw and db, of which the caller wants at least one.
template <class T>
void norm_columns(CudaKernels& kernels, const Tensor& x, const Tensor& mean, const Tensor& rstd, const Tensor& dy,
    const Tensor& dweight, const Tensor& dbias) {
  using C = compute_t<T>;
  using Body = NormColumns<T>;
  const index_t width = x.size(-1), rows = x.numel() / width, chunks = blocks_for(rows, chunk_rows);
  const Tensor dw = Tensor::empty({chunks, width}, dtype_of<C>, x.device()),
               db = Tensor::empty(dw.shape(), dw.dtype(), x.device());
  const Body columns{global<const T>(x), global<const T>(dy), global<const C>(mean), global<const C>(rstd),
      global<C>(dw), global<C>(db), rows, width, mean.defined()};
  launch_kernel(columns, {chunks * Body::tiles(width), Body::shared_bytes});
  join_chunks(kernels, dw, dweight);
  join_chunks(kernels, db, dbias);
}

// Outputs that are undefined are not made.
void norm_backward(CudaKernels& kernels, const Tensor& x, const Tensor& weight, const Tensor& mean, const Tensor& rstd,
    const Tensor& dy, const Tensor& dx, const Tensor& dweight, const Tensor& dbias) {
  if (x.numel() == 0) {
    if (dweight.defined()) kernels.fill(dweight, 0);
    if (dbias.defined()) kernels.fill(dbias, 0);
    return;
  }
  const index_t width = x.size(-1), rows = x.numel() / width;
  visit_floating("norm_backward", x.dtype(), [&]<class T>(Type<T>) {
    using C = compute_t<T>;
    const NormGradients<T> tensors{global<const T>(x), global<const T>(weight), global<const T>(dy),
        global<const C>(mean), global<const C>(rstd), dx.defined() ? global<T>(dx) : Global<T>{}, rows, width,
        share_of<C>(width), mean.defined()};
    if (dx.defined()) {
      with_held_part<T>(width, rows_fit_packs<T>(width, {&x, &weight, &dy, &dx}), [&]<class P>(P) {
        using Body = NormBackward<T, P>;
        launch_kernel(Body{tensors}, {P::blocks(rows), Body::shared_bytes});
      });
    }
    if (dweight.defined() || dbias.defined()) norm_columns<T>(kernels, x, mean, rstd, dy, dweight, dbias);
  });
}

}  // namespace
}  // namespace whence::gpu

namespace whence {

void CudaKernels::layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double epsilon, const Tensor& y,
    const Tensor& mean, const Tensor& rstd) {
  gpu::norm(x, weight, bias, epsilon, y, mean, rstd);
}

void CudaKernels::layer_norm_backward(const Tensor& x, const Tensor& weight, const Tensor& mean, const Tensor& rstd,
    const Tensor& dy, const Tensor& dx, const Tensor& dweight, const Tensor& dbias) {
  gpu::norm_backward(*this, x, weight, mean, rstd, dy, dx, dweight, dbias);
}

void CudaKernels::rms_norm(const Tensor& x, const Tensor& weight, double epsilon, const Tensor& y, const Tensor& rstd) {
  gpu::norm(x, weight, {}, epsilon, y, {}, rstd);
}

void CudaKernels::rms_norm_backward(const Tensor& x, const Tensor& weight, const Tensor& rstd, const Tensor& dy,
    const Tensor& dx, const Tensor& dweight) {
  gpu::norm_backward(*this, x, weight, {}, rstd, dy, dx, dweight, {});
}

void CudaKernels::add_norm(const Tensor& x, const Tensor& added, const Tensor& weight, const Tensor& bias,
    double epsilon, const Tensor& sum, const Tensor& y, const Tensor& mean, const Tensor& rstd) {
  Kernels::add_norm(x, added, weight, bias, epsilon, sum, y, mean, rstd);
}

void CudaKernels::add_norm_backward(const Tensor& sum, const Tensor& weight, const Tensor& mean, const Tensor& rstd,
    const Tensor& dsum, const Tensor& dy, const Tensor& dx, const Tensor& dweight, const Tensor& dbias) {
  Kernels::add_norm_backward(sum, weight, mean, rstd, dsum, dy, dx, dweight, dbias);
}

}  // namespace whence
