// A device without numbers. Its tensors have shapes and addresses, and the common allocator counts their bytes; its
// kernels return at once. Code here allocates and frees what it would on a GPU, so the memory of a whole training step
// is known in the time of its calls. Reading a number gives 0.
#include <algorithm>
#include <cstring>
#include <string_view>

#include "tensor/backend.h"
#include "tensor/convolution.h"
#include "tensor/device/allocator.h"
#include "tensor/device/device_runtime.h"
#include "tensor/device/gpu_kernels.h"
#include "tensor/device/planned.h"
#include "tensor/device/product_layout.h"
#include "tensor/error.h"
#include "tensor/random.h"
#include "tensor/raw.h"
#include "tensor/tiles/gpu_programs.h"

namespace whence {
namespace {

thread_local PlannedOperations operations;

// Counts one operation per number that a kernel reads or writes, whichever are more.
void count(const Tensor& numbers) {
  if (numbers.defined()) operations.others += static_cast<double>(numbers.numel());
}
void count_products(index_t sums, index_t terms) {
  operations.products += 2 * static_cast<double>(sums) * static_cast<double>(terms);
}

// Kernels that compute count their operations. The others move numbers, and return at once.
class PlannedKernels final : public GpuKernels {
 public:
  explicit PlannedKernels(bool of_cpu) : of_cpu_(of_cpu) {}

  void unary(Unary, UnaryAttributes, const Tensor&, const Tensor& y) override { count(y); }
  void unary_backward(Unary, UnaryAttributes, const Tensor&, const Tensor&, const Tensor& dx) override { count(dx); }
  void unary_second(Unary, UnaryAttributes, const Tensor&, const Tensor&, const Tensor& dx) override { count(dx); }
  void binary(Binary, const Tensor&, const Tensor&, const Tensor& y) override { count(y); }
  void reduce(Reduction, const Tensor& x, const Tensor&) override { count(x); }
  // The CPU widens 16-bit products (tensor/cpu/products.cpp). Its other scratch is small or short-lived.
  void matmul(const Tensor& a, const Tensor& b, const Tensor* bias, double, const Tensor& out) override {
    count_products(out.numel(), a.size(-1));
    if (bias) count(out);
    if (const auto extents = of_cpu_ ? std::nullopt : aligned_extents(a, b, out))
      (void)aligned_product(*extents, a, b, bias, out);  // the copies that a GPU makes
    if (!of_cpu_ || size_of(out.dtype()) != 2) return;
    const auto wide = [&out](const Tensor& x) { return Tensor::empty(x.shape(), DType::f32, out.device()); };
    const Tensor product = wide(out), left = wide(a), right = wide(b);
  }
  void softmax(const Tensor&, const Tensor&, const Tensor& y) override { count(y); }
  void softmax_backward(const Tensor&, const Tensor&, const Tensor& dx) override { count(dx); }
  void norm(const Tensor& x, const Tensor& added, const Tensor&, const Tensor&, double, const Tensor&, const Tensor&,
      const Tensor&, const Tensor&) override {
    count(x), count(added);
  }
  void norm_backward(const Tensor& x, const Tensor&, const Tensor&, const Tensor&, const Tensor& dsum, const Tensor&,
      const Tensor&, const Tensor&, const Tensor&) override {
    count(x), count(dsum);
  }
  void cross_entropy(const Tensor& logits, const Tensor&, index_t, const Tensor&, const Tensor&) override {
    count(logits);
  }
  void cross_entropy_backward(
      const Tensor& logits, const Tensor&, index_t, const Tensor&, const Tensor&, double, const Tensor&) override {
    count(logits);
  }
  void cumulative_sum(const Tensor& x, bool, const Tensor&) override { count(x); }
  void scatter_add_rows(const Tensor&, const Tensor& from, const Tensor&) override { count(from); }
  void sum_by_index(const Tensor& x, const Tensor&, int, const Tensor&) override { count(x); }
  void lerp_at(const Tensor&, const Tensor&, const Tensor& y) override { count(y); }
  void lerp_at_backward(const Tensor&, const Tensor&, const Tensor& dy, const Tensor&, const Tensor&) override {
    count(dy);
  }
  void sum_by_distance(const Steps&, const Tensor& dy, const Tensor&) override { count(dy); }
  void convolve_keys(
      const Convolution& at, const Tensor&, const Tensor&, bool, const Tensor& bias, const Tensor& y) override {
    count_products(y.numel(), at.terms());
    if (bias.defined()) count(y);
    if (!of_cpu_) (void)spread(at, y);
  }
  void convolve_keys_weight(const Convolution& at, const Tensor&, const Tensor& dy, const Tensor&) override {
    count_products(dy.numel(), at.terms());
    if (!of_cpu_) (void)spread(at, dy);
  }

  void fill(const Tensor&, double) override {}
  void copy(const Tensor&, const Tensor&) override {}
  void masked(const Tensor&, const Tensor&, double, const Tensor&) override {}
  void argmax(const Tensor&, const Tensor&) override {}
  void gather(const Tensor&, const Tensor&, int, const Tensor&) override {}
  void read_by_distance(const Steps&, const Tensor&, const Tensor&) override {}
  void band_mask(const Band&, const Tensor&, const Tensor&) override {}
  void random_uniform(const Tensor&, const Stream&, double, double) override {}
  void random_normal(const Tensor&, const Stream&, double, double) override {}
  void adam_all(const AdamStep&, const Tensor&, std::span<const AdamEntry>) override {}
  void sum_of_squares(std::span<const Tensor>, double, const Tensor&) override {}
  void clip_scale(const Tensor&, const Tensor&) override {}
  Tensor checked_index(const IndexCheck&, const Tensor& index) override { return index; }

  // On a GPU, for each pair: two products in forward and seven in backward; one and ten more if gates have operands of
  // their own; one and fourteen more if keys are relative. Then the scratch of cuda/kernels/tiles/attention.cu.
  void attention(
      const TiledCall&, std::span<const Tensor> x, const Tensor& output, const Tensor&, const Tensor&) override {
    count_products((gates_of_others(x) || relative(x) ? 3 : 2) * output.numel(), x[TiledCall::key].size(2));
    const std::vector<Tensor> laid_out = laid_out_for_tiles(x);
    const index_t heads = output.size(0) * output.size(1), queries = output.size(2), keys = x[TiledCall::key].size(2),
                  parts = relative(x) ? 0 : parts_of_keys(queries, keys);
    const Tensor of_logits = x[TiledCall::position_logits].defined() ? pairs(output, heads, positions(x)) : Tensor();
    if (parts == 0) return;
    const Tensor results = floats(output, {heads, queries, parts, (output.size(3) <= 64 ? 64 : 128) + 2}),
                 carries = reads_gates(x) ? floats(output, {heads, (keys + 31) / 32 * 2 * 32 + 4}) : Tensor();
  }
  void attention_backward(const TiledCall&, std::span<const Tensor> x, const Tensor& output, const Tensor&,
      const Tensor&, const Tensor& d_output, const Tensor&, std::span<const Tensor> d) override {
    const index_t heads = output.size(0) * output.size(1), queries = output.size(2), keys = x[TiledCall::key].size(2),
                  blocks = (queries + 31) / 32;
    count_products((relative(x) ? 21 : gates_of_others(x) ? 17 : 7) * output.numel(), keys);
    const std::vector<Tensor> laid_out = laid_out_for_tiles(x);
    const Tensor of_output = in_packs(d_output), output_in_packs = in_packs(output),
                 of_rows = floats(output, {heads, blocks, 2, 32});
    std::vector<Tensor> scan;  // of several heads at a time
    if (reads_gates(x)) {
      const index_t of_head = (keys + 31) / 32 * 2 * blocks * 32, at_once = heads_at_once(heads, 2 * of_head);
      scan = {floats(output, {2, at_once, of_head}), floats(output, {at_once, blocks * 4})};
      if (const index_t n = positions(x)) {
        scan.push_back(Tensor::like(output, {heads, queries, (n + 7) / 8 * 8}));
        scan.push_back(pairs(output, at_once, n));
      }
    }
    if (const Tensor& of_table = d[TiledCall::distance_table]; of_table.defined()) {
      const index_t rows = reads_gates(x) || relative(x) ? 64 : rows_of_gpu_block(output.size(3), output.dtype());
      const index_t slice = slice_numbers(queries, keys, rows);
      const Tensor sums = floats(of_table, of_table.shape()),
                   slices = floats(output, {heads_at_once(heads, slice), slice});
    }
    const auto wide = [&](const Tensor& to) {
      return to.defined() && to.size(1) < output.size(1) ? floats(to, {heads, keys, to.size(3)}) : Tensor();
    };
    const Tensor of_keys = wide(d[TiledCall::key]), of_values = wide(d[TiledCall::value]),
                 of_gates = wide(d[TiledCall::gate_key]);
    const Tensor& d_relative = d[TiledCall::relative_keys];
    const Tensor of_relative =
        d_relative.defined() ? floats(output, {heads, d_relative.size(1), d_relative.size(2)}) : Tensor();
    if (of_keys.defined()) (void)floats(of_keys, d[TiledCall::key].shape());  // their sums
    if (of_relative.defined()) (void)floats(output, d_relative.shape());
  }

  bool makes_terms() const override { return !of_cpu_; }
  void kerple(bool, const Tensor&, const Tensor&, const Tensor&, const Tensor& table) override { count(table); }
  void kerple_backward(
      bool, const Tensor&, const Tensor&, const Tensor&, const Tensor& dtable, const Tensor&, const Tensor&) override {
    count(dtable);
  }
  void mix_terms(const MixNetwork&, DType, const Tensor&, const Tensor& input, const Tensor&, const Tensor&,
      const Tensor&, const Tensor& u, const Tensor&) override {
    count_products(u.numel(), input.numel() / input.size(0));
  }
  void mix_terms_backward(const MixNetwork&, DType, const Tensor&, const Tensor& input, const Tensor&, const Tensor& du,
      const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&) override {
    if (du.defined()) count_products(2 * du.numel(), input.numel() / input.size(0));
  }

  // Counts the products of heads and the network's of each pair, and takes the scratch of cuda/kernels/tiles/mix.cu.
  void mix(const TiledCall& at, std::span<const Tensor> x, const Tensor& output, const Tensor&) override {
    count_mix(x, output, 2, 1);
    const std::vector<Tensor> laid_out = laid_out_for_mix(x);
    const index_t quarters = 5 + 4 * parts_of_mix(x);
    const Tensor numbers = pairs_of_mix(x, output, scratch_of_mix(at, x, output, quarters), quarters);
  }
  void mix_backward(const TiledCall& at, std::span<const Tensor> x, const Tensor& output, const Tensor&,
      const Tensor& d_output, std::span<const Tensor> d) override {
    using At = TiledCall;
    const index_t heads = output.size(0) * output.size(1), queries = output.size(2), keys = x[At::key].size(2),
                  taps = x[At::mix_output].size(2);
    count_mix(x, output, 5, 4);
    const std::vector<Tensor> laid_out = laid_out_for_mix(x);
    const Tensor of_output = in_packs(d_output), output_in_packs = in_packs(output),
                 of_rows = floats(output, {heads, (queries + 31) / 32, 2, 32});
    const index_t parts = parts_of_mix(x), quarters = taps > 1 ? 16 : 4 + 8 * parts;
    const MixScratch scratch = scratch_of_mix(at, x, output, quarters);
    std::vector<Tensor> held{pairs_of_mix(x, output, scratch, quarters)};
    for (const std::size_t k : {At::key, At::value})
      if (d[k].defined() && (d[k].size(1) < output.size(1) || scratch.rows < queries))
        held.push_back(floats(output, {heads, keys, d[k].size(3)}));
    const bool asked = d[At::mix_table].defined();
    if (asked && at.left > 0) held.push_back(floats(output, {output.size(0), at.left, queries, most_mix_hidden}));
    const index_t warps = scratch.sequences * (scratch.rows / 64) * mix_walks(keys) * mix_walk_warps;
    index_t numbers = 0;  // numbers of one warp's slices
    if (d[At::mix_input].defined() || d[At::mix_output].defined())
      numbers += (1 + parts) * taps * most_mix_heads * most_mix_hidden;
    if (d[At::distance_table].defined()) numbers += mix_slice_rows * most_mix_heads;
    if (asked) numbers += mix_slice_rows * most_mix_hidden;
    if (taps > 1) numbers += (mix_walk_keys / 8 + 1) * 128;  // signs
    if (numbers > 0) held.push_back(floats(output, {warps, numbers}));
  }

 private:
  static Tensor floats(const Tensor& x, const Shape& shape) { return Tensor::empty(shape, DType::f32, x.device()); }
  static index_t heads_at_once(index_t heads, index_t numbers) {
    return std::min(heads, std::max<index_t>(1, most_slice_bytes / 4 / numbers));
  }
  static bool gates_of_others(std::span<const Tensor> x) { return x[TiledCall::gate_query].defined(); }
  static bool relative(std::span<const Tensor> x) { return x[TiledCall::relative_keys].defined(); }
  static index_t positions(std::span<const Tensor> x) {
    const Tensor &keys = x[TiledCall::position_keys], &logits = x[TiledCall::position_logits];
    return keys.defined() ? keys.size(0) : logits.defined() ? logits.size(3) : 0;
  }
  // Heads as tiles read them: a copy with rows of whole packs, if the rows are not, or if sums over bins follow them.
  static Tensor in_packs(const Tensor& x) {
    const index_t pack = product_pack(x.dtype()), width = (x.size(3) + pack - 1) / pack * pack;
    return width == x.size(3) && x.strides()[2] % pack == 0 ? x
                                                            : Tensor::like(x, {x.size(0), x.size(1), x.size(2), width});
  }
  // Operands as tiles read them: in_packs for heads; terms become f32 unless they are already.
  static std::vector<Tensor> laid_out_for_tiles(std::span<const Tensor> x) {
    using At = TiledCall;
    std::vector<Tensor> all;
    for (std::size_t k = 0; k < x.size(); ++k) {
      if (!x[k].defined() || k == At::position_keys || k == At::position_logits || k == At::column_rest) continue;
      if (k == At::column_term && size_of(x[At::query].dtype()) > 2) {  // with its rest after it
        all.push_back(floats(x[k], {x[k].size(0), x[k].size(1), 2, (x[k].size(2) + 3) / 4 * 4}));
        continue;
      }
      const bool lies_there = x[k].dtype() == DType::f32 && x[k].numel() % 4 == 0;
      const Tensor given = k == At::relative_keys ? raw::unsqueeze(x[k], 0) : x[k];
      all.push_back(given.rank() == 4 ? in_packs(given) : lies_there ? given : floats(given, given.shape()));
    }
    return all;
  }
  static std::vector<Tensor> laid_out_for_mix(std::span<const Tensor> x) {
    using At = TiledCall;
    const index_t tables = x[At::mix_table].size(0), distances = x[At::mix_table].size(2);
    std::vector<Tensor> all{in_packs(x[At::query]), in_packs(x[At::key]), in_packs(x[At::value])};
    all.push_back(Tensor::like(x[At::query], {tables, distances, most_mix_hidden}));
    all.push_back(floats(x[At::query], {distances, most_mix_heads}));
    return all;
  }
  static index_t parts_of_mix(std::span<const Tensor> x) { return x[TiledCall::piece_begins].defined() ? 2 : 1; }
  static index_t keys_of_mix(std::span<const Tensor> x) { return (x[TiledCall::key].size(2) + 63) / 64 * 64; }
  static MixScratch scratch_of_mix(
      const TiledCall& at, std::span<const Tensor> x, const Tensor& output, index_t quarters) {
    return mix_scratch(
        at.scratch_bytes, output.size(0), output.size(2), keys_of_mix(x) * output.size(1) * quarters / 2);
  }
  // Numbers for all pairs of a group. `quarters`: their size, in quarters of a 16-bit number.
  static Tensor pairs_of_mix(std::span<const Tensor> x, const Tensor& output, const MixScratch& of, index_t quarters) {
    return Tensor::like(output, {of.sequences * of.rows * output.size(1) * keys_of_mix(x) * quarters / 4});
  }
  static void count_mix(std::span<const Tensor> x, const Tensor& output, index_t products, index_t networks) {
    const Tensor& weights = x[TiledCall::mix_input];
    count_products(products * output.numel(), x[TiledCall::key].size(2));
    count_products(2 * networks * output.size(0) * output.size(2) * x[TiledCall::key].size(2), weights.numel());
  }
  // Positions of a head's pairs, two numbers each, and one number more per row.
  static Tensor pairs(const Tensor& output, index_t heads, index_t positions) {
    const index_t of_row = pitch_of_positions(positions) * (output.dtype() == DType::f32 ? 2 : 1) + 1;
    return floats(output, {heads, (output.size(2) + 31) / 32 * 32, of_row});
  }

  // The keys that each tap reads, in a GPU's layout.
  static Tensor spread(const Convolution& at, const Tensor& x) {
    const index_t sequences = at.spreads() ? at.sequences_at_once(size_of(x.dtype())) : 0;
    return Tensor::like(x, {sequences, at.terms(), at.rows, at.keys_out});
  }

  bool of_cpu_;
};

// Addresses that are never dereferenced.
class Addresses final : public BlockSource {
 public:
  void* take(std::size_t bytes) override {
    next_ += bytes;
    return reinterpret_cast<void*>(next_ - bytes);
  }
  void give_back(void*, std::size_t) noexcept override {}
  Room room() const override { return {}; }
  const char* name() const override { return "planned memory"; }
  bool host_may_read() const override { return false; }
  void copy_to_cpu(const void*, void* to, std::size_t bytes) override { std::memset(to, 0, bytes); }
  void copy_from_cpu(const void*, void*, std::size_t) override {}

 private:
  std::uintptr_t next_ = std::uintptr_t{1} << (sizeof(std::uintptr_t) == 8 ? 44 : 28);
};

class PlannedRuntime final : public DeviceRuntime {
 public:
  void synchronise() override {}
  std::unique_ptr<RecordedWork> record(const std::function<void()>&) override {
    fail("record", "the planned device given; a device that computes required");
  }
};

class PlannedLauncher final : public IndexLauncher {
 public:
  CUstream_st* stream() override { return nullptr; }
  void launched(const char*, index_t, int) override {}
  // take_rows only moves numbers; the other index-style ops compute.
  void run(const char* op, index_t count, const IndexBody&) override {
    if (op != std::string_view("take_rows")) operations.others += static_cast<double>(count);
  }
};

}  // namespace

PlannedOperations planned_operations() { return operations; }

// Never destroyed: tensors may outlive it.
static Backend find_planned(Device planned) {
  struct Parts {
    explicit Parts(bool of_cpu) : kernels(of_cpu) {}
    PlannedKernels kernels;
    Addresses addresses;
    Allocator memory{addresses};
    PlannedRuntime runtime;
    PlannedLauncher launcher;
  };
  static auto& cpu = *new Parts(true);
  static auto& gpu = *new Parts(false);
  Parts& parts = planned.index == 0 ? cpu : gpu;
  return {&parts.kernels, &parts.memory, &parts.launcher, &parts.runtime};
}
static const RegisteredBackend registered(Device::Kind::planned, find_planned);

}  // namespace whence
