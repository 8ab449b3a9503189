// The number of kernels of a layer, forward and backward. Each launch costs a GPU the time of a small kernel.

#include "cuda/emulator/counters.h"
#include "cuda/emulator/settings.h"
#include "nn/decoding.h"
#include "tests/support/device.h"

using namespace whence;
using namespace whence::test;

namespace {

// Returns the launches of f, as "1 copy, 2 matmul bf16".
template <class F> std::string launches_of(const F& f) {
  gpu::emulator::reset_counters();
  f();
  std::string launches;
  for (const auto& [kernel, counted] : gpu::emulator::counters())
    launches += to_text(launches.empty() ? "" : ", ", counted.launches, ' ', kernel);
  return launches;
}

Tensor leaf(const Shape& shape, DType dtype, std::uint64_t seed) {
  return requires_grad(on_gpu(random_contiguous(shape, dtype, seed)));
}

struct Both {
  std::string forward, backward;
};
template <class F> Both launches_of_training(const std::vector<Tensor>& leaves, const F& f) {
  Tensor y;
  Both both;
  both.forward = launches_of([&] { y = f(); });
  const Tensor dy = on_gpu(random_contiguous(y.shape(), y.dtype(), 9));
  both.backward = launches_of([&] { (void)grad(y, dy, leaves); });
  return both;
}

// Returns the launches of f, without copies from and to the CPU.
template <class F> std::uint64_t launches_in(const F& f) {
  gpu::emulator::reset_counters();
  f();
  std::uint64_t launches = 0;
  for (const auto& [name, counted] : gpu::emulator::counters())
    if (!name.starts_with("copy from cpu") && !name.starts_with("copy to cpu")) launches += counted.launches;
  return launches;
}

std::uint64_t launches_of_step(const std::string& scheme, index_t layers, index_t batch, const std::string& executor) {
  TransformerOptions options;
  options.vocabulary = 16, options.dim = 32, options.heads = 2, options.layers = layers, options.length = 16;
  options.scheme = scheme, options.executor = executor;
  Transformer model(options);
  model.to(DType::bf16);
  model.to(Device::cuda(0));
  const Tensor tokens = Tensor::zeros({batch, 16}, DType::i64, Device::cuda(0));
  const auto step = [&] { backward(cross_entropy_sum(model(tokens), tokens)); };
  step();
  for (const auto& parameter : model.parameters()) clear_gradient(parameter.tensor);
  return launches_in(step);
}

std::uint64_t launches_per_layer(const std::string& scheme, index_t batch, const std::string& executor = "reference") {
  return launches_of_step(scheme, 2, batch, executor) - launches_of_step(scheme, 1, batch, executor);
}

// Returns the launches of a decoded token, as its graph has them.
std::uint64_t launches_of_token(const std::string& scheme, index_t layers) {
  const NoGrad values_only;
  TransformerOptions options;
  options.vocabulary = 16, options.dim = 32, options.heads = 2, options.layers = layers, options.length = 16;
  options.scheme = scheme;
  Transformer model(options);
  model.to(DType::bf16);
  model.to(Device::cuda(0));
  Decoding decoding(model, 16);
  const Tensor token = Tensor::zeros({1, 1}, DType::i64);
  for (int n = 0; n < 2; ++n) (void)decoding(token);
  return launches_in([&] { (void)decoding(token); });
}

}  // namespace

TEST_CASE("emulator: a layer is one product, its backward two; two layers with GELU between are two, and four") {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    const std::string products = to_text(" matmul ", to_string(dtype));
    const Tensor x = leaf({2, 4, 16}, dtype, 1), in = leaf({32, 16}, dtype, 2), of_in = leaf({32}, dtype, 3),
                 out = leaf({16, 32}, dtype, 4), of_out = leaf({16}, dtype, 5);
    const Both one = launches_of_training({x, in, of_in}, [&] { return linear(x, in, of_in); });
    CHECK(one.forward == "1" + products);
    CHECK(one.backward == "2" + products);
    const Both two = launches_of_training(
        {x, in, of_in, out, of_out}, [&] { return linear_gelu_linear(x, in, of_in, out, of_out); });
    CHECK(two.forward == "2" + products + (dtype == DType::f32 ? ", 1 unary" : ""));  // f32: a GELU of our own
    CHECK(two.backward == "4" + products + ", 1 reduce_columns, 1 unary_backward");
  }
}

TEST_CASE("emulator: logits with gaps between rows take one more kernel than without, for zeros in the gaps") {
  for (const DType dtype : {DType::f16, DType::bf16}) {
    const auto launches = [&](index_t vocabulary) {
      const Tensor x = leaf({2, 4, 16}, dtype, 1), weight = leaf({vocabulary, 16}, dtype, 2);
      const Tensor target = Tensor::zeros({2, 4}, DType::i64, Device::cuda(0));
      return launches_of([&] { backward(cross_entropy_sum(linear(x, weight, {}), target)); });
    };
    (void)launches(136);  // launches that only the first call makes
    std::string one_more = launches(136);
    one_more.replace(one_more.find("1 fill"), 1, "2");
    CHECK(launches(133) == one_more);
    // Requests of warps to memory: 16 bytes for each thread at once. Rows without gaps would need eight times the
    // requests.
    const auto requests = [&](index_t vocabulary) {
      const With counting(gpu::emulator::settings().costs, true);
      (void)launches(vocabulary);
      const auto counted = gpu::emulator::counters();
      return counted.at("cross_entropy").global_requests + counted.at("cross_entropy_backward").global_requests;
    };
    CHECK(requests(5001) < 3 * requests(5008) / 2);
  }
}

TEST_CASE("emulator: backward of scores transposes nothing, and copies a gradient of heads inside tokens once") {
  const Tensor query = leaf({2, 3, 64, 16}, DType::bf16, 1), key = leaf({2, 3, 64, 16}, DType::bf16, 2);
  const Both scores = launches_of_training({query, key}, [&] { return matmul(query, transpose(key)); });
  CHECK(scores.forward == "1 matmul bf16");
  CHECK(scores.backward == "2 matmul bf16");
  const Tensor weights = leaf({2, 3, 64, 64}, DType::bf16, 3);
  const Both values = launches_of_training({weights, key}, [&] {
    return reshape(permute(matmul(weights, key), {0, 2, 1, 3}), {2, 64, 48});
  });
  CHECK(values.backward == "1 copy, rows in packs, 2 matmul bf16");
}

TEST_CASE(
    "launches: a layer by the reference takes 35 without positions, 37 with ALiBi, 53 with CoPE, whatever the batch") {
  for (const std::string scheme : {"none", "alibi", "cope"}) {
    CAPTURE(scheme);
    const std::uint64_t few = launches_per_layer(scheme, 2);
    CHECK(few == (scheme == "cope" ? 53 : scheme == "alibi" ? 37 : 35));
    CHECK(launches_per_layer(scheme, 8) == few);
  }
}

TEST_CASE("launches: in tiles a layer takes 25, with ALiBi's table too, with CoPE 29; auto takes them in 16 bit") {
  CHECK(launches_per_layer("none", 2, "auto") == 25);
  CHECK(launches_per_layer("alibi", 2, "auto") == 25);
  CHECK(launches_per_layer("alibi", 8, "tiled") == 25);
  CHECK(launches_per_layer("cope", 2, "auto") == 29);
}

TEST_CASE("launches: a layer of a decoded token takes 7, and 7 are made besides") {
  const auto per_layer = [](const char* scheme) { return launches_of_token(scheme, 2) - launches_of_token(scheme, 1); };
  CHECK(per_layer("none") == 7);
  CHECK(per_layer("alibi") == 7);
  CHECK(launches_of_token("alibi", 2) == 2 * 7 + 7);  // besides: indices and tokens, the last norm, logits
}
