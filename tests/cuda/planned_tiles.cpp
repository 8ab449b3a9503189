// Tiled attention takes on a GPU, or on the emulated one, the memory that the planned device predicts.
#include "autograd/tiled/tiled_ops.h"
#include "tensor/device/allocator.h"
#include "tests/support/device.h"

using namespace whence;
using namespace whence::test;

namespace {

using At = TiledCall;

struct Case {
  std::string name;
  index_t batch, heads, key_heads, tokens, d;
  std::vector<std::pair<std::size_t, Shape>> terms = {};
  bool learned = true;  // the terms
  DType dtype = DType::bf16;
  index_t bins = 0;
  index_t mix_beside = -1;  // taps on either side; -1: no head mix
};

std::vector<std::pair<std::size_t, Shape>> mix_terms(index_t heads, index_t taps, index_t tokens) {
  const index_t beside = taps / 2;
  return {{At::mix_input, {32, heads, taps}}, {At::mix_table, {beside + 1, 32, tokens + beside}},
      {At::mix_output, {heads, 32, taps}}, {At::distance_table, {heads, tokens}}};
}
std::vector<std::pair<std::size_t, Shape>> with_pieces(
    std::vector<std::pair<std::size_t, Shape>> terms, index_t batch, index_t heads, index_t tokens) {
  terms[0].second[1] *= 2;
  for (const auto& term : std::vector<std::pair<std::size_t, Shape>>{{At::piece_distance, {tokens}},
           {At::piece_row, {batch, heads, tokens}}, {At::piece_begins, {33}}, {At::piece_slopes, {heads, 33}},
           {At::piece_offsets, {heads, 33}}})
    terms.push_back(term);
  return terms;
}

const std::vector<Case> cases{
    {"none", 2, 12, 12, 512, 64},
    {"alibi", 1, 12, 12, 2048, 64, {{At::distance_table, {12, 2048}}}, false},
    {"kerple, whose sums are made for some heads at a time", 1, 12, 12, 32768, 64, {{At::distance_table, {12, 32768}}}},
    {"forgetting", 2, 12, 12, 1000, 64, {{At::column_term, {2, 12, 1000}}}},
    {"f32, a column and its rest", 2, 4, 4, 1001, 64,
        {{At::column_term, {2, 4, 1001}}, {At::column_rest, {2, 4, 1001}}}, true, DType::f32},
    {"cope, for some heads at a time", 2, 12, 12, 8192, 64, {{At::position_keys, {65, 64}}}},
    {"cope, of logits", 1, 4, 4, 1024, 64, {{At::position_logits, {1, 4, 1024, 65}}}},
    {"cope, gates of others, heads of no whole packs that share keys", 2, 4, 2, 1000, 20,
        {{At::position_keys, {65, 20}}, {At::gate_query, {2, 4, 1000, 20}}, {At::gate_key, {2, 2, 1000, 20}}}},
    {"relative keys of each head", 2, 12, 12, 1000, 64,
        {{At::relative_query, {2, 12, 1000, 64}}, {At::relative_keys, {12, 1000, 64}}}},
    {"relative keys that heads share, bins", 2, 4, 2, 1000, 64,
        {{At::relative_query, {2, 4, 1000, 64}}, {At::relative_keys, {1, 1000, 64}}}, true, DType::bf16, 33},
    {"a table and a sink", 1, 4, 4, 8192, 128, {{At::distance_table, {4, 8192}}, {At::sink, {4}}}},
    {"heads that share keys", 2, 12, 3, 1024, 64},
    {"heads of no whole packs", 2, 3, 3, 300, 20, {{At::distance_table, {3, 300}}}},
    {"f32, kerple", 1, 4, 4, 4096, 64, {{At::distance_table, {4, 4096}}}, true, DType::f32},
    {"dape, some sequences at a time", 8, 12, 12, 1000, 64, mix_terms(12, 1, 1000), true, DType::bf16, 0, 0},
    {"cdape, some rows at a time, heads that share keys", 1, 12, 4, 4096, 64, mix_terms(12, 3, 4096), true, DType::bf16,
        0, 1},
    {"dape, pieces", 8, 12, 12, 1000, 64, with_pieces(mix_terms(12, 1, 1000), 8, 12, 1000), true, DType::bf16, 0, 0},
    {"dape, pieces, some rows at a time", 1, 12, 12, 4096, 64, with_pieces(mix_terms(12, 1, 4096), 1, 12, 4096), true,
        DType::bf16, 0, 0},
    {"f32, cope of logits", 1, 4, 4, 1024, 64, {{At::position_logits, {1, 4, 1024, 65}}}, true, DType::f32},
};

// Returns the bytes above the operands, at the peak of forward and backward.
double peak_of(const Case& each, Device device) {
  At::Operands x;
  std::vector<Tensor> asked;
  const auto put = [&](std::size_t k, const Shape& shape, bool learned) {
    x[k] = Tensor::zeros(shape, each.dtype, device);
    if (learned) asked.push_back(requires_grad(x[k]));
  };
  for (const std::size_t k : {At::query, At::key, At::value})
    put(k, {each.batch, k == At::query ? each.heads : each.key_heads, each.tokens, each.d}, true);
  for (const auto& [k, shape] : each.terms) put(k, shape, each.learned);
  const Tensor cotangent = Tensor::zeros(x[At::query].shape(), each.dtype, device);
  Allocator& memory = memory_of(device);
  const std::size_t before = memory.statistics().live;
  memory.reset_peak();
  const bool mixes = each.mix_beside >= 0;
  At at;
  at.total_rows = each.tokens, at.bins = each.bins;
  if (each.bins) at.bin_of = Tensor::zeros({each.tokens}, DType::i64, device);
  if (mixes) at.left = at.right = each.mix_beside, at.table_lowest = -each.mix_beside;
  (void)grad(mixes ? tiled_mix(at, x) : tiled_attention(at, x).output, cotangent, asked);
  return static_cast<double>(memory.statistics().peak - before);
}

}  // namespace

TEST_CASE("cuda tiles: the memory of a call and its backward is what is planned") {
  std::optional<With<bool>> dry;
  if (gpu::emulator::Settings* const settings = emulator_settings()) dry.emplace(settings->dry, true);
  for (const Case& each : cases) {
    CAPTURE(each.name);
    const double planned = peak_of(each, Device::planned(Device::cuda(0))), taken = peak_of(each, Device::cuda(0));
    CHECK(planned == doctest::Approx(taken).epsilon(0.03));
  }
}
