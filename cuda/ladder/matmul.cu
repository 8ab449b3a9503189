// A product of matrices: c = a b, [m, k] [k, n] -> [m, n]. whence itself uses a library (library/blas.h), which has
// tensor cores too; these rungs show what such a library is made of.
#include "cuda/ladder/ladder.h"
#include "cuda/vocabulary/rows.h"
#include "tensor/random.h"
#include "tensor/raw.h"

namespace whence::gpu::ladder {
namespace {

struct Product {
  Global<const float> a, b;
  Global<float> c;
  index_t m, n, k;
};

// 1. A thread per result: it reads a row of a and a column of b. Every number of a is read n times, and every number of
// b m times.
struct Naive {
  static constexpr const char* name = "a thread per result";
  static constexpr int threads = 256;
  static constexpr std::size_t shared_bytes = 0;
  static index_t blocks(index_t m, index_t n) { return blocks_for(m * n, threads); }
  Product of;
  WHENCE_HD void operator()(Thread& t) const {
    const index_t i = t.block() * threads + t.index(), row = i / of.n, column = i % of.n;
    if (row >= of.m) return;
    Number<float> sum = 0.0f;
    for (index_t l = 0; l < of.k; ++l) sum += load<float>(of.a, row * of.k + l) * load<float>(of.b, l * of.n + column);
    store(of.c, row * of.n + column, sum);
  }
};

// 2. Tiles: a block makes 16 x 16 results. It loads 16 x 16 numbers of a and of b into shared memory, where each is
// used 16 times: a sixteenth of the bytes of global memory.
struct Tiles {
  static constexpr const char* name = "tiles in shared memory";
  static constexpr int tile = 16, threads = tile * tile;
  static constexpr std::size_t shared_bytes = 2 * shared_bytes_for<float>(tile * tile);
  static index_t blocks(index_t m, index_t n) { return blocks_for(m, tile) * blocks_for(n, tile); }
  Product of;
  WHENCE_HD void operator()(Thread& t) const {
    const Shared<float> a = t.shared<float>(tile * tile), b = t.shared<float>(tile * tile);
    const index_t across = (of.n + tile - 1) / tile;
    const int y = t.index() / tile, x = t.index() % tile;
    const index_t row = t.block() / across * tile + y, column = t.block() % across * tile + x;
    Number<float> sum = 0.0f;
    for (index_t l = 0; l < of.k; l += tile) {
      const Number<float> zero = 0.0f;  // beyond the edges
      store(a, t.index(), row < of.m && l + x < of.k ? load<float>(of.a, row * of.k + l + x) : zero);
      store(b, t.index(), l + y < of.k && column < of.n ? load<float>(of.b, (l + y) * of.n + column) : zero);
      t.sync();
      for (int q = 0; q < tile; ++q) sum += load<float>(a, y * tile + q) * load<float>(b, q * tile + x);
      t.sync();  // before the tiles change
    }
    if (row < of.m && column < of.n) store(of.c, row * of.n + column, sum);
  }
};

// 3. Registers: a block makes 64 x 64 results, a thread 4 x 4 of them. 8 numbers from shared memory feed 16 products,
// not 2 for one: a quarter of the requests to shared memory per product, and of the bytes of global memory.
struct Registers {
  static constexpr const char* name = "4 x 4 results per thread";
  static constexpr int tile = 64, depth = 16, threads = 256;
  static constexpr std::size_t shared_bytes = 2 * shared_bytes_for<float>(tile * depth);
  static index_t blocks(index_t m, index_t n) { return blocks_for(m, tile) * blocks_for(n, tile); }
  Product of;
  WHENCE_HD void operator()(Thread& t) const {
    const Shared<float> a = t.shared<float>(tile * depth), b = t.shared<float>(depth * tile);
    const index_t across = (of.n + tile - 1) / tile, top = t.block() / across * tile, left = t.block() % across * tile;
    const int y = t.index() / 16, x = t.index() % 16;  // results at rows y + 16 i, columns x + 16 j of the tile
    Number<float> sum[4][4] = {};
    for (index_t l = 0; l < of.k; l += depth) {
      const Number<float> zero = 0.0f;
      for (int e = t.index(); e < tile * depth; e += threads) {
        const index_t row = top + e / depth, q = l + e % depth, p = l + e / tile, column = left + e % tile;
        store(a, e, row < of.m && q < of.k ? load<float>(of.a, row * of.k + q) : zero);
        store(b, e, p < of.k && column < of.n ? load<float>(of.b, p * of.n + column) : zero);
      }
      t.sync();
      for (int q = 0; q < depth; ++q) {
        Number<float> down[4], along[4];
        for (int i = 0; i < 4; ++i) down[i] = load<float>(a, (y + 16 * i) * depth + q);
        for (int j = 0; j < 4; ++j) along[j] = load<float>(b, q * tile + x + 16 * j);
        for (int i = 0; i < 4; ++i)
          for (int j = 0; j < 4; ++j) sum[i][j] += down[i] * along[j];
      }
      t.sync();
    }
    for (int i = 0; i < 4; ++i)
      for (int j = 0; j < 4; ++j)
        if (top + y + 16 * i < of.m && left + x + 16 * j < of.n)
          store(of.c, (top + y + 16 * i) * of.n + left + x + 16 * j, sum[i][j]);
  }
};

// 4. Packs: the 4 x 4 results of a thread are neighbours, and a's tile is transposed, so that 4 numbers of a and 4 of b
// are one access each. A row of that tile is 68 long: a warp's store then uses 16 banks, and takes two passes; with 64
// it would use 8, and take four.
struct Packs {
  static constexpr const char* name = "packs of 4";
  static constexpr int tile = 64, depth = 16, threads = 256, pitch = tile + 4;
  static constexpr std::size_t shared_bytes =
      shared_bytes_for<float>(depth * pitch) + shared_bytes_for<float>(depth * tile);
  static index_t blocks(index_t m, index_t n) { return blocks_for(m, tile) * blocks_for(n, tile); }
  Product of;  // REQUIRES: n and k are multiples of 4
  WHENCE_HD void operator()(Thread& t) const {
    const Shared<float> a = t.shared<float>(depth * pitch), b = t.shared<float>(depth * tile);
    const index_t across = (of.n + tile - 1) / tile, top = t.block() / across * tile, left = t.block() % across * tile;
    const int y = t.index() / 16 * 4, x = t.index() % 16 * 4;  // this thread's first result in the tile
    const int a_row = t.index() / 4, a_first = t.index() % 4 * 4, b_row = t.index() / 16;  // what it loads
    Number<float> sum[4][4] = {};
    for (index_t l = 0; l < of.k; l += depth) {
      Numbers<float, 4> from_a = {}, from_b = {};
      if (top + a_row < of.m && l + a_first < of.k)
        from_a = load_numbers<float, 4>(of.a, (top + a_row) * of.k + l + a_first);
      if (l + b_row < of.k && left + x < of.n) from_b = load_numbers<float, 4>(of.b, (l + b_row) * of.n + left + x);
      for (int q = 0; q < 4; ++q) store(a, (a_first + q) * pitch + a_row, from_a.of[q]);
      store_pack(b, b_row * tile + x, in_pack(from_b));
      t.sync();
      for (int q = 0; q < depth; ++q) {
        const auto down = load_numbers<float, 4>(a, q * pitch + y), along = load_numbers<float, 4>(b, q * tile + x);
        for (int i = 0; i < 4; ++i)
          for (int j = 0; j < 4; ++j) sum[i][j] += down.of[i] * along.of[j];
      }
      t.sync();
    }
    for (int i = 0; i < 4; ++i)
      if (top + y + i < of.m && left + x < of.n)
        store_numbers(
            of.c, (top + y + i) * of.n + left + x, Numbers<float, 4>{{sum[i][0], sum[i][1], sum[i][2], sum[i][3]}});
  }
  static WHENCE_HD Pack<float, 4> in_pack(const Numbers<float, 4>& numbers) {
    Pack<float, 4> pack;
    for (int k = 0; k < 4; ++k) pack.of[k] = plain(numbers.of[k]);
    return pack;
  }
};

template <class Body> Rung rung(std::optional<Count> fewer, bool packs = false) {
  return {Body::name, fewer, packs, [](const Tensors& in, const Tensor& c) {
            const index_t m = c.size(0), n = c.size(1), k = in[0].size(1);
            launch_kernel(Body{{global<const float>(in[0]), global<const float>(in[1]), global<float>(c), m, n, k}},
                {.blocks = Body::blocks(m, n), .shared_bytes = Body::shared_bytes});
          }};
}

}  // namespace

Ladder matmul() {
  return {"matmul", "c = a b   [m, n, k]", {128, 128, 64}, {4096, 4096, 4096},
      [](const Shape& sizes) {
        return Tensors{Tensor::normal({sizes[0], sizes[2]}, 0, 1, Stream(1, "a")),
            Tensor::normal({sizes[2], sizes[1]}, 0, 1, Stream(1, "b"))};
      },
      [](const Tensors& in) { return raw::matmul(in[0], in[1]); },
      {rung<Naive>({}), rung<Tiles>(Count::bytes), rung<Registers>(Count::shared_requests),
          rung<Packs>(Count::shared_requests, true)}};
}

}  // namespace whence::gpu::ladder
