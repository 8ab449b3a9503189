// Normalisation of rows: y = n w + b with n = (x - mean) rstd. Layer norm: rstd = 1 / sqrt(var + epsilon). Root mean
// square norm: the same with mean 0 and without b. With `added` the residual is added first, and the sum normalised.
// Below: all their gradients.
#include <algorithm>

#include "cuda/kernels/kernels.h"
#include "cuda/vocabulary/rows.h"
#include "tensor/math.h"

namespace whence::gpu {
namespace {

template <class T> struct NormTensors {
  using C = compute_t<T>;
  Global<const T> x, added, weight, bias;  // added: null, or `sum` = x + added is normed instead of x
  Global<T> sum, y;
  Global<C> mean, rstd;  // [rows], for backward; mean: null without centring, as is bias
  index_t rows, width;
  C share, epsilon;  // share: 1 / width
};

// Two passes over the row: first the mean, then squares of differences from it, which do not cancel.
// Per element: 1 number read, 1 written (2 and 2 with a sum), 8 operations: memory. A row too wide to be held is read 2
// or 3 times.
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
    RowPart<P, StoredRow<T>> values({of.added ? Global<const T>(of.sum) : of.x, row * of.width}), gain({of.weight, 0}),
        shift({of.bias, 0});
    if (of.added)
      join(team, values, row);
    else
      values.hold(team, of.width);
    gain.hold(team, of.width);  // before the sums, so that the row waits for memory once
    if (of.mean) shift.hold(team, of.width);
    Number<C> center = Number<C>(C(0));
    if (of.mean) center = total(team, values, [](Number<C> v) { return v; }) * Number<C>(of.share);
    const Number<C> spread = total(team, values, [center](Number<C> v) { return (v - center) * (v - center); });
    const Number<C> scale = Number<C>(C(1)) / math::sqrt(spread * Number<C>(of.share) + Number<C>(of.epsilon));
    write(team, values, gain, shift, row, center, scale);
    if (team.member() != 0) return;
    if (of.mean) store(of.mean, row, center);
    store(of.rstd, row, scale);
  }

  // Norms the sums as they are stored, because backward reads them.
  WHENCE_HD void join(const Team<P>& team, RowPart<P, StoredRow<T>>& values, index_t row) const {
    team.each_pack(of.width, [&](int p, index_t j) {
      const auto a = load_numbers<C, P::pack>(of.x, row * of.width + j);
      const auto b = load_numbers<C, P::pack>(of.added, row * of.width + j);
      Pack<T, P::pack> sum;
      for (int k = 0; k < P::pack; ++k) sum.of[k] = to_stored<T>(a.of[k] + b.of[k]);
      store_pack(of.sum, row * of.width + j, sum);
      values.hold(p, sum);
    });
  }

  template <class F>
  WHENCE_HD Number<C> total(const Team<P>& team, const RowPart<P, StoredRow<T>>& values, const F& term) const {
    Number<C> sum = Number<C>(C(0));
    team.each_pack(of.width, [&](int p, index_t j) {
      const auto pack = values(p, j);
      for (int k = 0; k < P::pack; ++k) sum += term(pack.of[k]);
    });
    return team.reduce(sum, Plus{});
  }

  WHENCE_HD void write(const Team<P>& team, const RowPart<P, StoredRow<T>>& values,
      const RowPart<P, StoredRow<T>>& gain, const RowPart<P, StoredRow<T>>& shift, index_t row, Number<C> center,
      Number<C> scale) const {
    team.each_pack(of.width, [&](int p, index_t j) {
      auto pack = values(p, j);
      const auto times = gain(p, j);
      for (int k = 0; k < P::pack; ++k) pack.of[k] = (pack.of[k] - center) * scale * times.of[k];
      if (of.mean) {
        const auto more = shift(p, j);
        for (int k = 0; k < P::pack; ++k) pack.of[k] = pack.of[k] + more.of[k];
      }
      store_numbers(of.y, row * of.width + j, pack);
    });
  }
};

template <class T> struct NormGradients {
  using C = compute_t<T>;
  Global<const T> x, weight, dy, dsum;  // dsum: null without a residual
  Global<const C> mean, rstd;           // mean: null without centring
  Global<T> dx;                         // null: not wanted
  Global<C> dweight, dbias;             // [chunks, width]: sums over each chunk's rows; null: not wanted
  index_t rows, width, chunk;
  C share;  // 1 / width
};

// The gradients of a chunk of rows. With n = (x - mean) rstd and g = dy w:
//   dx = rstd (g - mean(g) - n mean(g n)) + dsum,  dw = sum over rows of dy n,  db = sum over rows of dy
// Root mean square norm: without mean(g), since nothing was centered. A thread has the same columns of every row of its
// team, and keeps their two sums next to the row; for a row too wide to be held it keeps them in memory.
// Per element: 2 numbers read (3 with dsum), 1 written, 15 operations: memory. A row too wide to be held is read twice,
// and the sums of its columns are read and written too.
template <class T, class P> struct NormBackward {
  static constexpr const char* name = "norm_backward";
  static constexpr int threads = P::threads, warps = threads / Thread::warp_size;
  static constexpr unsigned blocks_at_once = 512 / threads;  // 128 registers: all chunks fit on a large GPU
  using C = compute_t<T>;
  using Pack = Numbers<C, P::pack>;
  using Sums = Pair<Number<C>, Number<C>>;  // of g and of g n
  using OfWarps = WarpValues<P::by_warp ? 0 : threads, Sums, 2>;
  struct Columns {
    Pack dw[P::packs > 0 ? P::packs : 1], db[P::packs > 0 ? P::packs : 1];
  };
  NormGradients<T> of;

  // If each warp has its own rows, the warps' sums are joined in shared memory: one unused entry after each 32
  // separates lanes that store packs.
  WHENCE_HD static constexpr index_t padded(index_t j) { return j + j / Thread::warp_size; }
  WHENCE_HD static constexpr index_t numbers_of_warps(index_t width) { return P::by_warp ? warps * padded(width) : 0; }
  static constexpr std::size_t shared_bytes(index_t width) {
    return OfWarps::shared_bytes + 2 * shared_bytes_for<C>(static_cast<std::size_t>(numbers_of_warps(width)));
  }

  WHENCE_HD void operator()(Thread& t) const {
    const Team<P> team(t);
    const index_t begin = t.block() * of.chunk, end = begin + of.chunk < of.rows ? begin + of.chunk : of.rows;
    OfWarps of_warps(t);
    Columns columns;
    for (int p = 0; p < P::packs; ++p)
      for (int k = 0; k < P::pack; ++k) columns.dw[p].of[k] = columns.db[p].of[k] = Number<C>(C(0));
    for (index_t row = begin + (P::by_warp ? t.warp() : 0); row < end; row += P::rows_per_block) {
      RowPart<P, StoredRow<T>> values({of.x, row * of.width}), gradient({of.dy, row * of.width});
      values.hold(team, of.width);
      gradient.hold(team, of.width);
      const Number<C> scale = load<C>(of.rstd, row), center = of.mean ? load<C>(of.mean, row) : Number<C>(C(0));
      Sums sums{Number<C>(C(0)), Number<C>(C(0))};
      team.each_pack(of.width, [&](int p, index_t j) {
        auto n = values(p, j);
        const auto dy = gradient(p, j), gain = load_numbers<C, P::pack>(of.weight, j);
        for (int k = 0; k < P::pack; ++k) {
          n.of[k] = (n.of[k] - center) * scale;
          const Number<C> g = dy.of[k] * gain.of[k];
          sums.first += g;
          sums.second += g * n.of[k];
          n.of[k] = n.of[k] * dy.of[k];
        }
        add(columns, p, j, n, dy, t.block(), row == begin);
      });
      if (!of.dx) continue;
      if constexpr (P::by_warp)
        sums = team.reduce(sums, PlusBoth{});
      else
        sums = of_warps.reduce(t, sums, PlusBoth{});
      const Number<C> mean_g = of.mean ? Number<C>(sums.first * Number<C>(of.share)) : Number<C>(C(0));
      const Number<C> slope = sums.second * Number<C>(of.share) * scale;  // mean(g n) rstd
      team.each_pack(of.width, [&](int p, index_t j) {
        const auto n = values(p, j), gain = load_numbers<C, P::pack>(of.weight, j);
        auto g = gradient(p, j);
        for (int k = 0; k < P::pack; ++k)
          g.of[k] = scale * (g.of[k] * gain.of[k] - mean_g - (n.of[k] - center) * slope);
        if (of.dsum) {
          const auto more = load_numbers<C, P::pack>(of.dsum, row * of.width + j);
          for (int k = 0; k < P::pack; ++k) g.of[k] = g.of[k] + more.of[k];
        }
        store_numbers(of.dx, row * of.width + j, g);
      });
    }
    if constexpr (P::by_warp)
      store_sums_of_warps(t, team, columns);
    else if constexpr (P::packs > 0)
      team.each_pack(of.width, [&](int p, index_t j) {
        if (of.dweight) store_numbers(of.dweight, t.block() * of.width + j, columns.dw[p]);
        if (of.dbias) store_numbers(of.dbias, t.block() * of.width + j, columns.db[p]);
      });
  }

  // dw += dy n and db += dy in the columns from j on.
  WHENCE_HD void add(
      Columns& columns, int p, index_t j, const Pack& dy_n, const Pack& dy, index_t chunk, bool first) const {
    if constexpr (P::packs > 0) {
      for (int k = 0; k < P::pack; ++k) columns.dw[p].of[k] += dy_n.of[k], columns.db[p].of[k] += dy.of[k];
    } else {
      if (of.dweight) add_in_memory(of.dweight, chunk * of.width + j, dy_n, first);
      if (of.dbias) add_in_memory(of.dbias, chunk * of.width + j, dy, first);
    }
  }
  WHENCE_HD static void add_in_memory(Global<C> sums, index_t i, Pack more, bool first) {
    if (!first) {
      const auto before = load_numbers<C, P::pack>(sums, i);
      for (int k = 0; k < P::pack; ++k) more.of[k] = before.of[k] + more.of[k];
    }
    store_numbers(sums, i, more);
  }

  WHENCE_HD void store_sums_of_warps(Thread& t, const Team<P>& team, const Columns& columns) const {
    const index_t all = numbers_of_warps(of.width), apart = padded(of.width);
    const Shared<C> dw = t.template shared<C>(static_cast<int>(all)), db = t.template shared<C>(static_cast<int>(all));
    team.each_pack(of.width, [&](int p, index_t j) {
      for (int k = 0; k < P::pack; ++k) {
        store(dw, t.warp() * apart + padded(j + k), columns.dw[p].of[k]);
        store(db, t.warp() * apart + padded(j + k), columns.db[p].of[k]);
      }
    });
    t.sync();
    for (index_t j = t.index(); j < of.width; j += threads) {
      if (of.dweight) store(of.dweight, t.block() * of.width + j, sum_of_warps(dw, j));
      if (of.dbias) store(of.dbias, t.block() * of.width + j, sum_of_warps(db, j));
    }
  }
  WHENCE_HD Number<C> sum_of_warps(Shared<C> sums, index_t j) const {
    Number<C> sum = load<C>(sums, padded(j));
    for (int warp = 1; warp < warps; ++warp) sum += load<C>(sums, warp * padded(of.width) + padded(j));
    return sum;
  }
};

// ---- Sums of columns over very many rows: each block sums a chunk of rows, and JoinChunks adds the chunks in order.

// Returns the rows of a chunk, which one block sums. The shape alone decides it, so that the bits of the sums are the
// same on every device. Chunks are few enough to be joined quickly, and have enough rows to be worth a block.
index_t chunk_of(index_t rows) { return std::max<index_t>(16, blocks_for(rows, 512)); }

// Joins the chunks of up to two arrays of sums: [chunks, width] to [width] each, by blocks of 32 columns. Every warp
// reads 32 neighbours of a chunk, so that memory comes in whole lines; then the warps' sums are added in order.
// Per sum of a chunk: 1 number read, 1 operation, by few blocks: the latency of a launch.
template <class T> struct JoinChunks {
  static constexpr const char* name = "sums of chunks";
  static constexpr int threads = 1024, warps = threads / Thread::warp_size;
  using C = compute_t<T>;
  static constexpr std::size_t shared_bytes = shared_bytes_for<C>(threads);
  Global<const C> sums[2];
  Global<T> out[2];
  index_t chunks, width;

  static constexpr index_t tiles(index_t width) { return blocks_for(width, Thread::warp_size); }
  WHENCE_HD void operator()(Thread& t) const {
    const index_t tile = t.block() % tiles(width);
    const bool second = t.block() >= tiles(width);
    const index_t column = tile * Thread::warp_size + t.lane();
    const Global<const C> from = second ? sums[1] : sums[0];
    Number<C> sum = Number<C>(C(0));
    if (column < width)
      for (index_t chunk = t.warp(); chunk < chunks; chunk += warps) sum += load<C>(from, chunk * width + column);
    const Shared<C> of_warps = t.template shared<C>(threads);
    store(of_warps, t.index(), sum);
    t.sync();
    if (t.warp() != 0 || column >= width) return;
    for (int other = 1; other < warps; ++other) sum += load<C>(of_warps, other * Thread::warp_size + t.lane());
    store(second ? out[1] : out[0], column, sum);
  }
};

// Adds the sums of chunks [chunks, width] in T's compute type, of one array or two, into [width].
template <class T>
void join_chunks(const Tensor& sums, const Tensor& out, const Tensor& more_sums = {}, const Tensor& more_out = {}) {
  using Join = JoinChunks<T>;
  using C = compute_t<T>;
  const Join join{{global<const C>(sums), global<const C>(more_sums)}, {global<T>(out), global<T>(more_out)},
      sums.size(0), sums.size(1)};
  launch_kernel(join, {(more_sums.defined() ? 2 : 1) * Join::tiles(sums.size(1)), Join::shared_bytes});
}

template <class C> C share_of(index_t width) { return static_cast<C>(1 / static_cast<double>(width)); }

// Holds x and dy as they are stored, and two sums of each column: a smaller budget than for one row, so that all stays
// below 128 registers.
constexpr RowBudget rows_and_sums{.few = 32, .many = 96, .single = 48, .block = 512, .few_by_block = true};

}  // namespace
}  // namespace whence::gpu

namespace whence {

using namespace gpu;

void CudaKernels::norm(const Tensor& x, const Tensor& added, const Tensor& weight, const Tensor& bias, double epsilon,
    const Tensor& sum, const Tensor& y, const Tensor& mean, const Tensor& rstd) {
  if (x.numel() == 0) return;
  const index_t width = x.size(-1), rows = x.numel() / width;
  visit_real("norm", x.dtype(), [&]<class T>(Type<T>) {
    using C = compute_t<T>;
    const auto in = [](const Tensor& from) { return global<const T>(from); };
    const NormTensors<T> tensors{in(x), in(added), in(weight), in(bias), global<T>(sum), global<T>(y), global<C>(mean),
        global<C>(rstd), rows, width, share_of<C>(width), static_cast<C>(epsilon)};
    launch_rows<T, one_row>(rows, width, rows_fit_packs<T>(width, {&x, &added, &weight, &bias, &sum, &y}),
        [&]<class P>(P) { return NormRows<T, P>{tensors}; });
  });
}

void CudaKernels::norm_backward(const Tensor& x, const Tensor& weight, const Tensor& mean, const Tensor& rstd,
    const Tensor& dsum, const Tensor& dy, const Tensor& dx, const Tensor& dweight, const Tensor& dbias) {
  if (x.numel() == 0) {
    if (dweight.defined()) fill(dweight, 0);
    if (dbias.defined()) fill(dbias, 0);
    return;
  }
  const index_t width = x.size(-1), rows = x.numel() / width, chunk = chunk_of(rows), chunks = blocks_for(rows, chunk);
  visit_real("norm_backward", x.dtype(), [&]<class T>(Type<T>) {
    using C = compute_t<T>;
    const auto sums_for = [&](const Tensor& out) {
      return out.defined() ? Tensor::empty({chunks, width}, dtype_of<C>, x.device()) : Tensor();
    };
    const Tensor dw = sums_for(dweight), db = sums_for(dbias);
    const auto in = [](const Tensor& from) { return global<const T>(from); };
    const NormGradients<T> tensors{in(x), in(weight), in(dy), in(dsum), global<const C>(mean), global<const C>(rstd),
        global<T>(dx), global<C>(dw), global<C>(db), rows, width, chunk, share_of<C>(width)};
    with_part<T, rows_and_sums>(width, rows_fit_packs<T>(width, {&x, &weight, &dy, &dsum, &dx}), [&]<class P>(P) {
      using Body = NormBackward<T, P>;
      launch_kernel(Body{tensors}, {chunks, Body::shared_bytes(width)});
    });
    if (dweight.defined())
      join_chunks<T>(dw, dweight, db, dbias);
    else if (dbias.defined())
      join_chunks<T>(db, dbias);
  });
}

}  // namespace whence
