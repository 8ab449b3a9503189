// Convolving rows along their keys: a block keeps the kernel, and a tile of every channel of one row, in its memory.
#include "tensor/convolution.h"

#include <algorithm>

#include "cuda/kernels/kernels.h"
#include "cuda/vocabulary/launch_kernel.h"
#include "cuda/vocabulary/packs.h"
#include "tensor/device/launch.h"
#include "tensor/divisor.h"

namespace whence {
namespace gpu {
namespace {

constexpr std::size_t most_shared_bytes = 96 * 1024;

// Units of work, each a tile of one row (b, i): which that is.
struct TileUnits {
  index_t count;
  Divisor tiles, rows;
  struct Place {
    index_t b, i, tile;
  };
  static TileUnits of(const Convolution& at, index_t tile) {
    const index_t tiles = blocks_for(at.keys_out, tile), count = at.batch * at.rows * tiles;
    return {count, {tiles, count}, {at.rows, count}};
  }
  WHENCE_HD Place operator()(index_t unit) const {
    const auto [row, tile] = tiles(unit);
    const auto [b, i] = rows(row);
    return {b, i, tile};
  }
};

// A tile of every channel of one row, zeros outside: to[c pitch + s] = x[c, begin + s] for s < width. `first` is
// where the row of channel 0 begins.
template <class C, class T>
WHENCE_HD void load_tile(Thread& t, int threads, const Global<const T>& x, index_t first, index_t channels,
    index_t channel_step, index_t keys, index_t begin, const Divisor& width, index_t pitch, const Shared<C>& to) {
  for (index_t i = t.index(); i < channels * width.by(); i += threads) {
    const auto [c, s] = width(i);
    const index_t key = begin + s;
    store(to, c * pitch + s, key >= 0 && key < keys ? load<C>(x, first + c * channel_step + key) : Number<C>(C(0)));
  }
}

// One unit is a tile of keys of one row (b, i). A warp takes every eighth block of four outputs, a lane every
// 32nd key: 16 sums in registers.
// Per key: `channels` numbers read, `outputs` written, 2 channels taps outputs operations: from a few channels on,
// shared memory, read 5 times for 32 operations.
template <class T> struct ConvolveTiles {
  using C = compute_t<T>;
  static constexpr const char* name = "convolve_keys";
  static constexpr int warps = 8, threads = warps * Thread::warp_size, keys_per_lane = 4, pack = sizeof(C) == 4 ? 4 : 2;
  static constexpr index_t tile = Thread::warp_size * keys_per_lane;
  Convolution at;
  Global<const T> x, bias;  // bias: null without one
  Global<const C> packed;
  Global<T> y;
  TileUnits units;
  Divisor tile_width;

  WHENCE_HD index_t width() const { return tile_width.by(); }
  std::size_t shared_bytes() const {
    return shared_bytes_for<C>(static_cast<std::size_t>(at.packed_size())) +
           shared_bytes_for<C>(static_cast<std::size_t>(at.channels * width()));
  }

  WHENCE_HD void operator()(Thread& t) const {
    const index_t kernel_size = at.output_blocks() * at.terms() * outputs_at_once;
    const Shared<C> kernel = t.template shared<C>(static_cast<int>(kernel_size));
    const Shared<C> rows = t.template shared<C>(static_cast<int>(at.channels * width()));
    for (index_t i = t.index(); i < kernel_size; i += threads) store(kernel, i, load<C>(packed, i));
    for (index_t unit = t.block(); unit < units.count; unit += t.blocks()) {
      const auto [b, i, tile_number] = units(unit);
      const index_t first = tile_number * tile;
      t.sync();  // the tile before is done with
      load_tile<C, T>(t, threads, x, (b * at.channels * at.rows + i) * at.keys, at.channels, at.rows * at.keys, at.keys,
          first - at.left, tile_width, width(), rows);
      t.sync();
      for (index_t block = t.warp(); block < at.output_blocks(); block += warps)
        convolve(t, kernel, rows, block, b, i, first);
    }
  }

  WHENCE_HD void convolve(Thread& t, const Shared<C>& kernel, const Shared<C>& rows, index_t block, index_t b,
      index_t i, index_t first) const {
    Number<C> sums[outputs_at_once][keys_per_lane];
    for (int u = 0; u < outputs_at_once; ++u) {
      const index_t o = block * outputs_at_once + u;
      const Number<C> start = bias && o < at.outputs ? load<C>(bias, o) : Number<C>(C(0));
      for (int m = 0; m < keys_per_lane; ++m) sums[u][m] = start;
    }
    index_t term = block * at.terms();
    for (index_t c = 0; c < at.channels; ++c) {
      for (index_t tap = 0; tap < at.taps; ++tap, ++term) {
        Number<C> weights[outputs_at_once];
        for (int u = 0; u < outputs_at_once; u += pack) {
          const auto some = load_pack<pack>(kernel, term * outputs_at_once + u);
          for (int k = 0; k < pack; ++k) weights[u + k] = Number<C>(some.of[k]);
        }
        for (int m = 0; m < keys_per_lane; ++m) {
          const Number<C> value = load<C>(rows, c * width() + tap + m * Thread::warp_size + t.lane());
          for (int u = 0; u < outputs_at_once; ++u) sums[u][m] += weights[u] * value;
        }
      }
    }
    for (int u = 0; u < outputs_at_once; ++u) {
      const index_t o = block * outputs_at_once + u;
      for (int m = 0; m < keys_per_lane; ++m) {
        const index_t key = first + m * Thread::warp_size + t.lane();
        if (o < at.outputs && key < at.keys_out)
          store(y, ((b * at.outputs + o) * at.rows + i) * at.keys_out + key, sums[u][m]);
      }
    }
  }
};

// dw(o,c,t) over one chunk of units. A thread has four outputs by four terms; blocks of one chunk share them out. Its
// terms lie apart, so that at each of the four neighbouring threads read and store neighbours.
// Per key: `channels` + `outputs` numbers read, again by each block of a chunk, 2 channels taps outputs operations:
// from a few channels on, shared memory, read 8 times for 32 operations.
template <class T> struct WeightGradientTiles {
  using C = compute_t<T>;
  static constexpr const char* name = "convolve_keys, gradient of the kernel";
  static constexpr int threads = 256, side = 4;
  static constexpr index_t tile = 32;
  Convolution at;
  Global<const T> x, dy;
  Global<C> partial;  // [chunks, o, c t]
  TileUnits units;
  index_t units_per_chunk;
  Divisor groups, terms_apart, taps, tile_width, given_width;

  // Rows of x begin as many banks apart as there are taps, so that term k begins in bank k; rows of dy one bank apart.
  WHENCE_HD index_t pitch() const { return tile + at.taps; }
  static constexpr index_t pitch_given = tile + 1;
  std::size_t shared_bytes() const {
    return shared_bytes_for<C>(static_cast<std::size_t>(at.channels * pitch())) +
           shared_bytes_for<C>(static_cast<std::size_t>(at.outputs * pitch_given));
  }

  WHENCE_HD void operator()(Thread& t) const {
    const Shared<C> rows = t.template shared<C>(static_cast<int>(at.channels * pitch()));
    const Shared<C> given = t.template shared<C>(static_cast<int>(at.outputs * pitch_given));
    const auto [chunk, group] = groups(t.block());
    const auto [outputs_before, term] = terms_apart(group * threads + t.index());
    const index_t o = outputs_before * side;
    Number<C> sums[side][side];
    for (int u = 0; u < side; ++u)
      for (int s = 0; s < side; ++s) sums[u][s] = Number<C>(C(0));
    const index_t end = (chunk + 1) * units_per_chunk < units.count ? (chunk + 1) * units_per_chunk : units.count;
    for (index_t unit = chunk * units_per_chunk; unit < end; ++unit) {
      const auto [b, i, tile_number] = units(unit);
      const index_t first = tile_number * tile;
      t.sync();  // the tile before is done with
      load_tile<C, T>(t, threads, x, (b * at.channels * at.rows + i) * at.keys, at.channels, at.rows * at.keys, at.keys,
          first - at.left, tile_width, pitch(), rows);
      load_tile<C, T>(t, threads, dy, (b * at.outputs * at.rows + i) * at.keys_out, at.outputs, at.rows * at.keys_out,
          at.keys_out, first, given_width, pitch_given, given);
      t.sync();
      if (o < at.outputs) add_tile(rows, given, o, term, sums);
    }
    for (int u = 0; u < side && o + u < at.outputs; ++u)
      for (int s = 0; s < side && term + s * terms_apart.by() < at.terms(); ++s)
        store(partial, (chunk * at.outputs + o + u) * at.terms() + term + s * terms_apart.by(), sums[u][s]);
  }

  // sums[u][s] += sum over the tile of dy[o + u] x[term + s terms_apart].
  // Behind the last output and term the last one stands in; nobody stores it.
  WHENCE_HD void add_tile(
      const Shared<C>& rows, const Shared<C>& given, index_t o, index_t term, Number<C> (&sums)[side][side]) const {
    index_t from_given[side], from_rows[side];
    for (int s = 0; s < side; ++s) {
      from_given[s] = (o + s < at.outputs ? o + s : at.outputs - 1) * pitch_given;
      const index_t which = term + s * terms_apart.by();
      const auto [c, tap] = taps(which < at.terms() ? which : at.terms() - 1);
      from_rows[s] = c * pitch() + tap;
    }
    for (index_t j = 0; j < tile; ++j) {
      Number<C> g[side];
      for (int u = 0; u < side; ++u) g[u] = load<C>(given, from_given[u] + j);
      for (int s = 0; s < side; ++s) {
        const Number<C> value = load<C>(rows, from_rows[s] + j);
        for (int u = 0; u < side; ++u) sums[u][s] += g[u] * value;
      }
    }
  }
};

template <class T>
bool convolve_in_tiles(
    const Convolution& at, const Tensor& x, const Tensor& packed, const Tensor& bias, const Tensor& y) {
  if constexpr (!std::is_same_v<T, Dual>) {
    using C = compute_t<T>;
    constexpr index_t tile = ConvolveTiles<T>::tile;
    const index_t width = tile + at.taps - 1;
    const ConvolveTiles<T> kernel{at, global<const T>(x), global<const T>(bias), global<const C>(packed), global<T>(y),
        TileUnits::of(at, tile), {width, at.channels * width}};
    if (kernel.shared_bytes() > most_shared_bytes) return false;
    launch_kernel(
        kernel, {.blocks = std::min<index_t>(kernel.units.count, 2048), .shared_bytes = kernel.shared_bytes()});
    return true;
  }
  return false;
}

// [chunks, o c t] as [1, o c t], in the type that sums are made in.
Tensor summed(CudaKernels& kernels, const Tensor& partial) {
  const Tensor total = Tensor::empty({1, partial.size(1)}, partial.dtype(), partial.device());
  kernels.reduce(Reduction::sum, partial, total);
  return total;
}

// Undefined when no tile fits.
template <class T>
Tensor weight_gradient_in_tiles(CudaKernels& kernels, const Convolution& at, const Tensor& x, const Tensor& dy) {
  if constexpr (!std::is_same_v<T, Dual>) {
    using C = compute_t<T>;
    using Kernel = WeightGradientTiles<T>;
    const TileUnits units = TileUnits::of(at, Kernel::tile);
    const index_t each = std::max<index_t>(blocks_for(units.count, 512), 1), chunks = blocks_for(units.count, each);
    const index_t terms_apart = blocks_for(at.terms(), Kernel::side), width = Kernel::tile + at.taps - 1,
                  threads = blocks_for(at.outputs, Kernel::side) * terms_apart,
                  groups = blocks_for(threads, Kernel::threads);
    Kernel kernel{.at = at,
        .x = global<const T>(x),
        .dy = global<const T>(dy),
        .partial = {},
        .units = units,
        .units_per_chunk = each,
        .groups = {groups, chunks * groups},
        .terms_apart = {terms_apart, groups * Kernel::threads},
        .taps = {at.taps, at.terms()},
        .tile_width = {width, at.channels * width},
        .given_width = {Kernel::tile, at.outputs * Kernel::tile}};
    if (kernel.shared_bytes() > most_shared_bytes) return {};
    const Tensor partial = Tensor::empty({chunks, at.outputs * at.terms()}, dtype_of<C>, x.device());
    kernel.partial = global<C>(partial);
    launch_kernel(kernel, {.blocks = chunks * groups, .shared_bytes = kernel.shared_bytes()});
    return summed(kernels, partial);
  }
  return {};
}

template <class T>
Tensor weight_gradient_plainly(CudaKernels& kernels, const Convolution& at, const Tensor& x, const Tensor& dy) {
  using C = compute_t<T>;
  const index_t rows = at.batch * at.rows, each = std::max<index_t>(blocks_for(rows, 64), 1),
                size = at.outputs * at.terms();
  const Tensor partial = Tensor::empty({blocks_for(rows, each), size}, dtype_of<C>, x.device());
  launch("convolve_keys", x.device(), partial.numel(),
      KernelGradientPlain<T>{at, x.data<T>(), dy.data<T>(), partial.data<C>(), each}, each * at.keys_out);
  return summed(kernels, partial);
}

}  // namespace
}  // namespace gpu

void CudaKernels::convolve_keys(
    const Convolution& at, const Tensor& x, const Tensor& weight, bool adjoint, const Tensor& bias, const Tensor& y) {
  visit_floating("convolve_keys", x.dtype(), [&]<class T>(Type<T>) {
    using C = compute_t<T>;
    const Tensor packed = Tensor::empty({at.packed_size()}, dtype_of<C>, x.device());
    launch("convolve_keys", x.device(), packed.numel(),
        PackKernel<T>{weight.data<T>(), packed.data<C>(), at.outputs, at.channels, at.taps, adjoint}, 16);
    if (gpu::convolve_in_tiles<T>(at, x, packed, bias, y)) return;
    launch("convolve_keys", x.device(), at.batch * at.output_blocks() * at.rows * at.keys_out,
        ConvolvePlain<T>{at, x.data<T>(), bias.defined() ? bias.data<T>() : nullptr, packed.data<C>(), y.data<T>()},
        4 * at.terms());
  });
}

void CudaKernels::convolve_keys_weight(
    const Convolution& at, const Tensor& x, const Tensor& dy, const Tensor& dweight) {
  visit_floating("convolve_keys", x.dtype(), [&]<class T>(Type<T>) {
    Tensor total = gpu::weight_gradient_in_tiles<T>(*this, at, x, dy);
    if (!total.defined()) total = gpu::weight_gradient_plainly<T>(*this, at, x, dy);
    copy(total, dweight.view(total.shape(), contiguous_strides(total.shape())));
  });
}

}  // namespace whence
