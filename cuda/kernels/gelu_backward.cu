// dh gelu'(h), written over dh, and the sums of its columns.
#include "cuda/kernels/gelu_backward.h"

#include "cuda/kernels/chunks_of_rows.h"
#include "cuda/vocabulary/rows.h"
#include "tensor/pointwise.h"

namespace whence::gpu {
namespace {

// A block takes a chunk of rows of 32 packs of columns: a lane has a pack, the warps take rows in turn, and their sums
// are added in shared memory.
// Per element: 2 numbers read, 1 written, gelu' and 2 operations: memory.
template <class T, int pack> struct GeluBackward {
  static constexpr const char* name = "gelu_backward";
  static constexpr int threads = 256, warps = threads / Thread::warp_size, columns = Thread::warp_size * pack;
  using C = compute_t<T>;
  // One unused entry after each 32 separates lanes that store packs.
  WHENCE_HD static constexpr int padded(int i) { return i + i / Thread::warp_size; }
  static constexpr int apart = padded(columns);
  static constexpr std::size_t shared_bytes = shared_bytes_for<C>(warps * apart);
  Global<const T> h;
  Global<T> dh;
  Global<C> sums;  // [chunks, width]
  index_t rows, width, chunk;

  static index_t tiles(index_t width) { return blocks_for(width, columns); }
  WHENCE_HD void operator()(Thread& t) const {
    const index_t all_tiles = (width + columns - 1) / columns, which = t.block() / all_tiles;
    const index_t first = t.block() % all_tiles * columns, column = first + t.lane() * pack, begin = which * chunk,
                  end = begin + chunk < rows ? begin + chunk : rows;
    Numbers<C, pack> sum;
    for (int k = 0; k < pack; ++k) sum.of[k] = Number<C>(C(0));
    if (column < width) {
      for (index_t row = begin + t.warp(); row < end; row += warps) {
        const auto at = load_numbers<C, pack>(h, row * width + column);
        auto gradient = load_numbers<C, pack>(dh, row * width + column);
        for (int k = 0; k < pack; ++k) {
          gradient.of[k] = gradient.of[k] * functions::Gelu::derivative(at.of[k], {});
          sum.of[k] += gradient.of[k];
        }
        store_numbers(dh, row * width + column, gradient);
      }
    }
    const Shared<C> of_warps = t.template shared<C>(warps * apart);
    for (int k = 0; k < pack; ++k) store(of_warps, t.warp() * apart + padded(t.lane() * pack + k), sum.of[k]);
    t.sync();
    for (int i = t.index(); i < columns; i += threads) {
      if (first + i >= width) return;
      Number<C> total = load<C>(of_warps, padded(i));
      for (int warp = 1; warp < warps; ++warp) total += load<C>(of_warps, warp * apart + padded(i));
      store(sums, which * width + first + i, total);
    }
  }
};

}  // namespace

void gelu_backward(const Tensor& h, const Tensor& dh, const Tensor& sums) {
  const index_t rows = h.size(0), width = h.size(1), chunk = chunk_of(rows);
  visit_real("gelu_backward", h.dtype(), [&]<class T>(Type<T>) {
    using C = compute_t<T>;
    const Tensor of_chunks = Tensor::empty({blocks_for(rows, chunk), width}, dtype_of<C>, h.device());
    const auto run = [&]<class Body>(Type<Body>) {
      const Body body{global<const T>(h), global<T>(dh), global<C>(of_chunks), rows, width, chunk};
      launch_kernel(body, {of_chunks.size(0) * Body::tiles(width), Body::shared_bytes});
    };
    if (rows_fit_packs<T>(width, {&h, &dh}))
      run(Type<GeluBackward<T, pack_size<T>>>{});
    else
      run(Type<GeluBackward<T, 1>>{});
    join_chunks<T>(of_chunks, sums);
  });
}

}  // namespace whence::gpu
