// Two engines in two threads on separate graphs have the same bits as one after the other, and share nothing that they
// must not share.
#include <doctest/doctest.h>
#include <thread>
#include <vector>

#include "autograd/backward.h"
#include "autograd/ops.h"
#include "tensor/error.h"
#include "tensor/parallel.h"
#include "tensor/random.h"
#include "tensor/tensor.h"

using namespace whence;

namespace {

// A few steps of gradient descent on a small network: values, gradients, updates, and an error on the way.
std::vector<double> train(std::uint64_t seed) {
  Tensor first = Tensor::normal({96, 128}, 0, 0.1, Stream(seed, "first"));
  Tensor second = Tensor::normal({96, 96}, 0, 0.1, Stream(seed, "second"));
  for (int step = 0; step < 6; ++step) {
    const Tensor x = Tensor::normal({256, 128}, 0, 1, Stream(seed, "x"));
    const Tensor w = requires_grad(first.detach()), u = requires_grad(second.detach());
    const Tensor scores = softmax(linear(gelu(linear(x, w, {})), u, {}));
    const Tensor loss =
        mean(square(scores - layer_norm(scores, Tensor::full({96}, 1, DType::f32), Tensor::full({96}, 0, DType::f32))));
    const std::vector<Tensor> gradients = grad(loss, Tensor::full({}, 1, DType::f32), {w, u});
    first = (w - 0.1 * gradients[0]).detach();
    second = (u - 0.1 * gradients[1]).detach();
    CHECK_THROWS_WITH_AS((void)matmul(first, first), doctest::Contains("matmul: "), Error);
  }
  std::vector<double> numbers = first.to_vector();
  const std::vector<double> others = second.to_vector();
  numbers.insert(numbers.end(), others.begin(), others.end());
  return numbers;
}

}  // namespace

TEST_CASE("two engines in two threads on separate graphs give the bits of one after the other") {
  const std::vector<double> of_one = train(1), of_two = train(2);
  CHECK(of_one != of_two);
  for (int round = 0; round < 3; ++round) {
    std::vector<double> beside;
    std::thread other([&beside] { beside = train(2); });
    const std::vector<double> here = train(1);
    other.join();
    CHECK(here == of_one);
    CHECK(beside == of_two);
  }
}

TEST_CASE("tensors made in one thread are freed in another") {
  std::vector<Tensor> made(64);
  std::thread maker([&made] {
    for (std::size_t k = 0; k < made.size(); ++k)
      made[k] = Tensor::full({static_cast<index_t>(100 + k)}, static_cast<double>(k), DType::f32);
  });
  maker.join();
  std::vector<std::thread> users;
  for (std::size_t t = 0; t < 4; ++t) {
    users.emplace_back([&made, t] {
      for (std::size_t k = t; k < made.size(); k += 4) made[k] = Tensor();
      for (int k = 0; k < 100; ++k) (void)Tensor::full({k + 1}, 1, DType::f32);
    });
  }
  for (std::thread& user : users) user.join();
  for (const Tensor& tensor : made) CHECK_FALSE(tensor.defined());
}
