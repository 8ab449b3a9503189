// Attention of one head: y = softmax(q k' / sqrt d) v, [queries, d] [keys, d] [keys, d] -> [queries, d]. It starts with
// three kernels that exchange all pairs through memory, goes on to one that never stores a pair, and ends on tensor
// cores. Rungs 1 and 4 to 6 are in attention.h.
#include "cuda/ladder/attention.h"
#include "tensor/kernels.h"
#include "tensor/random.h"
#include "tensor/raw.h"

namespace whence::gpu::ladder {
namespace {

// 2. One kernel, a warp per query, which keeps its query and its row of pairs in shared memory: only k and v are still
// read for every pair. The row must fit there.
struct WarpPerQuery {
  static constexpr const char* name = "a warp per query";
  static constexpr int threads = 32 * warps, queries = warps;
  static std::size_t shared_bytes(const Arguments& of) {
    return shared_bytes_for<float>(static_cast<std::size_t>(warps * (of.keys + of.d)));
  }
  Arguments of;
  WHENCE_HD void operator()(Thread& t) const {
    const int keys = static_cast<int>(of.keys), d = static_cast<int>(of.d);
    const Shared<float> own = t.shared<float>(warps * (keys + d)) + t.warp() * (keys + d);  // the row, then the query
    const index_t row = t.block() * warps + t.warp();
    if (row >= of.queries) return;
    for (int c = t.lane(); c < d; c += 32) store(own, keys + c, load<float>(of.q, row * d + c) * of.scale);
    t.sync_warp();
    Number<float> top = lowest<float>(), sum = 0.0f;
    for (int j = t.lane(); j < keys; j += 32) {
      Number<float> score = 0.0f;
      for (int c = 0; c < d; ++c) score += load<float>(own, keys + c) * load<float>(of.k, j * of.d + c);
      store(own, j, score);
      top = Larger{}(top, score);
    }
    top = warp_reduce(t, top, Larger{});
    for (int j = t.lane(); j < keys; j += 32) {
      const Number<float> power = math::exp(load<float>(own, j) - top);
      store(own, j, power);
      sum += power;
    }
    sum = warp_reduce(t, sum, Plus{});
    t.sync_warp();
    for (int c = t.lane(); c < d; c += 32) {
      Number<float> total = 0.0f;
      for (int j = 0; j < keys; ++j) total += load<float>(own, j) * load<float>(of.v, j * of.d + c);
      store(of.y, row * d + c, total / sum);
    }
  }
};

// 3. Tiles: a block of 32 queries loads 32 keys and values at a time into shared memory, where all its queries use
// them: a thirty-second of the bytes. A row of pairs is never complete.
struct Tiles {
  static constexpr const char* name = "tiles, running softmax";
  static constexpr int threads = 32 * warps, queries = 32, keys = 32, pitch = widest + 1, own_keys = keys / 4;
  static std::size_t shared_bytes(const Arguments&) {
    return 3 * shared_bytes_for<float>(queries * pitch) + shared_bytes_for<float>(queries * (keys + 1));
  }
  Arguments of;
  WHENCE_HD void bring(Thread& t, Shared<float> to, Global<const float> from, index_t first, index_t rows) const {
    for (int row = t.index() / 32; row < queries; row += warps)
      for (int c = t.lane(); c < widest; c += 32) {
        const bool there = first + row < rows && c < of.d;
        store(to, row * pitch + c, there ? load<float>(from, (first + row) * of.d + c) : Number<float>(0.0f));
      }
  }
  WHENCE_HD void operator()(Thread& t) const {
    const Shared<float> q = t.shared<float>(queries * pitch), k = t.shared<float>(keys * pitch),
                        v = t.shared<float>(keys * pitch), p = t.shared<float>(queries * (keys + 1));
    const int row = t.index() / 4, part = t.index() % 4, d = static_cast<int>(of.d);
    const index_t first_query = t.block() * queries;
    bring(t, q, of.q, first_query, of.queries);
    RunningRow running;
    Registers<Number<float>, widest / 4> totals;  // of columns part, part + 4, ...
    for (index_t first = 0; first < of.keys; first += keys) {
      t.sync();  // the last tiles are no longer used
      bring(t, k, of.k, first, of.keys), bring(t, v, of.v, first, of.keys);
      t.sync();
      Number<float> score[own_keys], largest = lowest<float>();
      for (int j = 0; j < own_keys; ++j) {
        score[j] = 0.0f;
        for (int c = 0; c < d; ++c)
          score[j] += load<float>(q, row * pitch + c) * load<float>(k, (part + 4 * j) * pitch + c);
        score[j] = first + part + 4 * j < of.keys ? score[j] * of.scale : lowest<float>();
        largest = Larger{}(largest, score[j]);
      }
      const Number<float> factor = running.raise(t, largest);
      for (int j = 0; j < own_keys; ++j) {
        const Number<float> power = math::exp(score[j] - running.top);
        store(p, row * (keys + 1) + part + 4 * j, power);
        running.sum += power;
      }
      t.sync_warp();
      each<widest / 4>([&](auto c) {  // so that totals are registers
        if (part + 4 * c >= d) return;
        Number<float> total = totals[c] * factor;
        for (int j = 0; j < keys; ++j)
          total += load<float>(p, row * (keys + 1) + j) * load<float>(v, j * pitch + part + 4 * c);
        totals[c] = total;
      });
    }
    const Number<float> sum = running.whole(t);
    each<widest / 4>([&](auto c) {
      if (first_query + row < of.queries && part + 4 * c < d)
        store(of.y, (first_query + row) * of.d + part + 4 * c, totals[c] / sum);
    });
  }
};

}  // namespace

Ladder attention() {
  return {"attention", "y = softmax(q k' / sqrt d) v   [queries, keys, d]", {64, 256, 64}, {4096, 4096, 64},
      [](const Shape& sizes) {
        return Tensors{Tensor::normal({sizes[0], sizes[2]}, 0, 1, Stream(1, "q")),
            Tensor::normal({sizes[1], sizes[2]}, 0, 1, Stream(1, "k")),
            Tensor::normal({sizes[1], sizes[2]}, 0, 1, Stream(1, "v"))};
      },
      [](const Tensors& in) {
        const double scale = 1 / std::sqrt(static_cast<double>(in[0].size(1)));
        const Tensor pairs = raw::matmul(in[0], raw::transpose(in[1]), scale), pattern = Tensor::empty(pairs.shape());
        kernels(Device::cpu()).softmax(pairs, Tensor(), pattern);
        return raw::matmul(pattern, in[2]);
      },
      {{"three kernels", {}, false, [](const Tensors& in, const Tensor& y) { all_pairs(in, y, [](const Tensor&) {}); }},
          rung<WarpPerQuery>(Count::bytes), rung<Tiles>(Count::bytes), rung<TensorCores<4>>(Count::arithmetic, true),
          rung<TensorCores<5>>(Count::shared_bytes, true), rung<TensorCores<6>>(Count::barriers, true)}};
}

}  // namespace whence::gpu::ladder
