// Bad and odd tensors, sizes and options that no other file tries: nothing to reduce, very many elements, mixed and
// narrow dtypes, parameters of schemes at their bounds.
#include <cmath>

#include "autograd/backward.h"
#include "tests/support/schemes.h"

using namespace whence;
using namespace whence::test;

TEST_CASE("sums of nothing are 0, softmax of nothing is nothing, a mean or maximum of nothing is refused by name") {
  const Tensor none = normal_leaf({3, 0}, 1);
  CHECK(sum(none, {1}).to_vector() == std::vector<double>{0, 0, 0});
  CHECK(softmax(none).shape() == Shape{3, 0});
  CHECK(mean(none, {0}).shape() == Shape{0});
  CHECK(grad(sum(none), {}, {none})[0].shape() == Shape{3, 0});
  CHECK(message([&] { (void)mean(none, {1}); }) == "mean: x is [3,0]; at least one element for each mean required");
  CHECK(message([&] { (void)mean(none); }).starts_with("mean: x is [3,0]"));
  CHECK(message([&] { (void)maximum_along(none, 1); }).starts_with("maximum_along: x is [3,0]"));
}

TEST_CASE("beyond 2^31 elements indices are still right") {
  const index_t count = index_t(3) << 30;
  const Tensor large = Tensor::empty({count}, DType::boolean);  // pages that nobody touches cost nothing
  const Tensor last = raw::slice(large, 0, count - 2, count);
  kernels({}).fill(last, 0);
  kernels({}).fill(raw::slice(large, 0, count - 1, count), 1);
  CHECK(last.to_vector() == std::vector<double>{0, 1});
  CHECK(raw::select(raw::reshape(large, {3, 1 << 15, 1 << 15}), 0, 2).at({(1 << 15) - 1, (1 << 15) - 1}) == 1);
}

TEST_CASE("dtypes do not mix unasked, f16 overflows to infinity, and sums of 16 bits are made in f32") {
  CHECK(message([] { (void)(Tensor::ones({2}) + Tensor::ones({2}, DType::bf16)); }).find("equal dtypes required") !=
        std::string::npos);
  CHECK((Tensor::full({1}, 65504, DType::f16) * 2.0).item() == INFINITY);
  for (const DType dtype : {DType::f16, DType::bf16}) {
    CHECK(sum(Tensor::ones({4096}, dtype)).item() == 4096);
    CHECK(matmul(Tensor::ones({1, 4096}, dtype), Tensor::ones({4096, 1}, dtype)).item() == 4096);
    CHECK(mean(Tensor::full({4096}, 60, dtype)).item() == 60);  // f16's sum would be infinite
  }
}

TEST_CASE("CoPE of one token, with a table for one position, and beyond its last position") {
  for (const std::string text : {"cope(p_max=1)", "cope(p_max=3)"}) {
    for (const index_t tokens : {1, 2, 9}) {
      const Bare scheme(text);
      const AttendInputs inputs = random_inputs(tokens);
      const Tensor output = scheme.output(inputs);
      CHECK(std::isfinite(largest(output)));
      for (const Tensor& gradient : grad(sum(output), {}, {inputs.query, inputs.key, scheme["table"]}))
        CHECK(std::isfinite(largest(gradient)));
      const Tensor cotangent = normal(output.shape(), 9);
      const std::vector<Named> expected = output_and_gradients(scheme, inputs, reference_executor(), cotangent),
                               found = output_and_gradients(scheme, inputs, tiled_executor(), cotangent);
      for (std::size_t k = 0; k < found.size(); ++k) CHECK(distance(found[k].tensor, expected[k].tensor) < 1e-12);
    }
  }
}

TEST_CASE("with all parameters at 0, or put inside their bounds from there, biases and gradients are finite") {
  for (const std::string text : {"kerple", "kerple(form=power)", "fire(width=4)", "t5", "alibi"}) {
    for (const double value : {0.0, -1.0}) {
      CAPTURE(text);
      CAPTURE(value);
      const Bare scheme(text);
      std::vector<Tensor> leaves;
      for (const Module::Parameter& parameter : scheme.root().parameters()) {
        kernels({}).fill(parameter.tensor.detach(), value);
        parameter.put_inside_bounds();
        leaves.push_back(parameter.tensor);
      }
      const Tensor output = scheme.output(random_inputs(6));
      CHECK(std::isfinite(largest(output)));
      for (const Tensor& gradient : grad(sum(square(output)), {}, leaves, {.allow_unused = true}))
        if (gradient.defined()) CHECK(std::isfinite(largest(gradient)));
    }
  }
}

TEST_CASE("RoPE refuses odd heads and bases below 1, and is exact at position 10^6") {
  const auto refusal = [](const std::string& text, const SchemeSizes& sizes) {
    return message([&] { (void)parse_schemes(text)[0].make(sizes); });
  };
  CHECK(refusal("rope", {9, 3, 9}).find("even") != std::string::npos);
  for (const char* base : {"0", "-1", "nan"}) CHECK(refusal(to_text("rope(base=", base, ")"), {8, 2, 9}) != "");
  const auto scheme = parse_schemes("rope(layout=interleaved)")[0].make({2, 1, 4});
  Tensor q = Tensor::of({1, 0}, {1, 1, 1, 2}, DType::f64), k = q;
  Positions far = Sequence::run(1).positions;
  far.query = far.key = Tensor::full({1}, 1e6, DType::f64);
  dynamic_cast<const RotatesQueryKey&>(*scheme).rotate(q, k, far);
  CHECK(distance(q, Tensor::of({std::cos(1e6), std::sin(1e6)}, {1, 1, 1, 2}, DType::f64)) < 1e-15);
}
