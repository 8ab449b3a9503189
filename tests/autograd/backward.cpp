// The recording of operations and the backward pass: values, refusals, second derivatives, long chains, order, threads.
#include <pthread.h>
#include <set>

#include "autograd/op.h"
#include "autograd/samples/samples.h"
#include "tensor/device/allocator.h"
#include "tensor/pairs.h"
#include "tests/support/tensors.h"

using namespace whence;
using namespace whence::test;

namespace {

std::vector<double> values(const Tensor& x) { return x.to_vector(); }
using Numbers = std::vector<double>;

std::size_t live_bytes() { return Allocator::cpu().statistics().live; }

// y = x. Backward gives a gradient of the wrong shape, of the wrong dtype, or none.
struct Wrong {
  static constexpr const char* name = "wrong";
  int how;
  struct Saved {};
  Tensor forward(Saved&, const Tensor& x) const { return raw::copy(x); }
  Grads<1> backward(const Saved&, const Tensor& dy, Needs<1>) const {
    return {how == 0 ? sum(dy) : how == 1 ? raw::cast(dy, DType::f32) : Tensor()};
  }
};

// Runs f on a thread with a stack of 256 KiB, where recursion over a long graph would crash.
void on_small_stack(void (*f)()) {
  pthread_attr_t attributes;
  REQUIRE(pthread_attr_init(&attributes) == 0);
  REQUIRE(pthread_attr_setstacksize(&attributes, 256 * 1024) == 0);
  pthread_t thread;
  const auto run = [](void* function) -> void* {
    reinterpret_cast<void (*)()>(function)();
    return nullptr;
  };
  REQUIRE(pthread_create(&thread, &attributes, run, reinterpret_cast<void*>(f)) == 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
}

}  // namespace

TEST_CASE("grad takes intermediate results, leaves, and y itself as inputs") {
  const Tensor x = leaf({2}, {}), middle = x * x, y = middle * middle;
  const auto g = grad(y, {}, {middle, x, y});
  CHECK(g[0].item() == 8);   // 2 m
  CHECK(g[1].item() == 32);  // 4 x^3
  CHECK(g[2].item() == 1);
  CHECK_FALSE(gradient(x).defined());  // grad leaves nothing on the leaves
}

TEST_CASE("inputs that y does not depend on: an error, or undefined where that is allowed") {
  const Tensor x = leaf({2}, {}), other = leaf({1, 2}, {2}), constant = Tensor::ones({2}, DType::f64);
  const Tensor y = x * x;
  const std::string text = error_text([&] { (void)grad(y, {}, {x, other}); });
  CHECK(text.starts_with(above() + ": grad: "));
  CHECK(has(text, "input 1, [2]"));
  const auto g = grad(y, {}, {other, x, constant}, {.allow_unused = true});
  CHECK_FALSE(g[0].defined());
  CHECK(g[1].item() == 4);
  CHECK_FALSE(g[2].defined());
  CHECK_FALSE(grad(y, {}, {other}, {.allow_unused = true})[0].defined());
}

TEST_CASE("what y and seed must be") {
  const Tensor x = leaf({1, 2}, {2}), y = x * x;
  CHECK(has(message([&] { (void)grad(y, {}, {x}); }), "y is [2]"));
  CHECK(has(message([&] { backward(y); }), "y is [2]"));
  CHECK(has(message([&] { backward(sum(x.detach())); }), "f64 [] without"));
  CHECK(has(message([&] { (void)grad(y, Tensor::ones({3}, DType::f64), {x}); }), "seed is [3]"));
  CHECK(message([&] { (void)grad(y, Tensor::ones({2}), {x}); }).find("grad: ") == 0);  // f32 for f64
  const Tensor planned = Tensor::ones({2}, DType::f64, Device::planned(Device::cpu()));
  CHECK(message([&] { (void)grad(y, planned, {x}); }).find("grad: ") == 0);
}

TEST_CASE("requires_grad wants floating leaves") {
  const Tensor x = leaf({1, 2}, {2});
  CHECK(requires_grad(x).identity() == x.identity());  // again: nothing changes
  CHECK(has(message([&] { (void)requires_grad(x * x); }), "requires_grad: a"));
  CHECK(has(message([] { (void)requires_grad(Tensor::arange(3)); }), "requires_grad: leaf"));
  CHECK(message([&] { set_gradient(x, Tensor::ones({2})); }).starts_with("set_gradient: a gradient of f32"));
  CHECK_FALSE(tracked(x.detach()));
  CHECK(tracked(requires_grad((x * x).detach())));
  CHECK(has(message([&] { (void)gradient(x * x); }), "gradient: a [2]"));
}

TEST_CASE("backward adds to the leaves") {
  const Tensor x = leaf({1, -2}, {2});
  for (const double expected : {2.0, 4.0, 6.0, 8.0}) {
    backward(sum(x * x));
    CHECK(values(gradient(x)) == Numbers{expected, -2 * expected});
  }
  clear_gradient(x);
  CHECK_FALSE(gradient(x).defined());
  backward(x * x, Tensor::of({1, 10}, {2}, DType::f64));
  CHECK(values(gradient(x)) == Numbers{2, -40});
}

TEST_CASE("a second backward through one graph: refused, or exactly twice with keep_graph") {
  const Tensor x = leaf({1.3, -0.7}, {2}), z = leaf({0.2, 0.4}, {2});
  const Tensor product = multiply(x, z);
  const std::string made = above();
  const Tensor loss = sum(product);
  backward(loss, {}, {.keep_graph = true});
  const Tensor once = raw::copy(gradient(x));
  backward(loss);
  CHECK(distance(gradient(x), raw::add(once, once)) == 0);
  CHECK(message([&] { (void)grad(sum(product), {}, {x}); }).starts_with("backward: multiply recorded at " + made));
}

TEST_CASE("numbers overwritten between forward and backward are refused, with both places") {
  const Tensor x = leaf({1, 2}, {2});
  const auto overwrite = [&](bool add) {
    const Site here = Site::current();
    const CallSite place(here);
    if (add)
      raw::add_into(Tensor::ones({2}, DType::f64), x);
    else
      raw::copy_into(Tensor::ones({2}, DType::f64), x);
    return to_string(here);
  };
  for (const bool add : {false, true}) {
    const Tensor y = multiply(x, x);
    const std::string made = above(), written = overwrite(add);
    const std::string text = message([&] { backward(sum(y)); });
    CHECK_MESSAGE((has(text, "recorded at " + made) && has(text, "overwritten at " + written)), text);
  }
  const Tensor view = select(reshape(x, {2, 1}), 0, 1), y = square(view);  // views share the version of their storage
  overwrite(true);
  CHECK(has(message([&] { backward(sum(y)); }), "was overwritten"));
  const Tensor at = Tensor::arange(3).view({1, 3}, {3, 1}), table = normal_leaf({1, 3}, 1);
  const Tensor read = by_distance(table, Steps::of(raw::copy(at), at, true));
  raw::copy_into(Tensor::of({0, 1, 5000}, {1, 3}, DType::i64), at);
  CHECK(has(message([&] { backward(sum(read)); }), "was overwritten"));
  const Tensor sum_of_it = x + x;  // saves no numbers, so writing does no harm
  overwrite(true);
  CHECK(values(grad(sum_of_it, Tensor::ones({2}, DType::f64), {x})[0]) == Numbers{2, 2});
}

TEST_CASE("NoGrad records nothing") {
  const Tensor x = leaf({2}, {});
  {
    const NoGrad values_only;
    CHECK_FALSE(recording());
    CHECK_FALSE(tracked(x * x));
  }
  CHECK(recording());
  CHECK(tracked(x * x));
  CHECK_FALSE(tracked(grad(x * x, {}, {x})[0]));
}

TEST_CASE("an op that gives a wrong gradient is named, with its line") {
  const Tensor x = leaf({1, 2}, {2});
  const char* expected[] = {"gradient f64 []", "gradient f32 [2]", "no gradient"};
  for (int how = 0; how < 3; ++how) {
    const Tensor y = apply(Wrong{how}, Site::current(), x);
    const std::string made = above();
    const std::string text = error_text([&] { backward(sum(y)); });
    CHECK_MESSAGE((text.starts_with(made + ": backward: wrong recorded at " + made) && has(text, expected[how])), text);
  }
}

TEST_CASE("a chain of a million ops: forward, backward and destruction without recursion") {
  on_small_stack([] {
    const Tensor x = leaf({0.25}, {});
    Tensor y = x;
    for (int k = 0; k < 1'000'000; ++k) y = y + 1.0;
    CHECK(y.item() == 1'000'000.25);
    CHECK(grad(y, {}, {x})[0].item() == 1);
    backward(y);
    CHECK(gradient(x).item() == 1);
  });
}

TEST_CASE("a chain that its saved tensors hold as well is freed without recursion") {
  const std::size_t before = live_bytes();
  on_small_stack([] {
    const Tensor x = leaf({1}, {}), factor = leaf({1}, {});
    Tensor y = x;
    for (int k = 0; k < 200'000; ++k) y = multiply(y, factor);
    CHECK(grad(y, {}, {factor})[0].item() == 200'000);
    y = {};  // frees the unused graph with all saved tensors
    Tensor z = x;
    for (int k = 0; k < 200'000; ++k) z = multiply(z, factor);
    backward(z);
    CHECK(gradient(factor).item() == 200'000);
  });
  CHECK(live_bytes() == before);
}

TEST_CASE("cross_entropy: the gradient takes the place of logits that nobody else names, with the same numbers") {
  const Tensor target = Tensor::of({2, -1, 0}, {3}, DType::i64);
  const Tensor x = requires_grad(Tensor::normal({3, 5}, 0, 1, Stream(0, "logits")));
  const auto gradient_of = [&](bool hold, bool keep) {
    const Tensor logits = x * 2.0;
    const std::vector<double> before = logits.to_vector();
    const Tensor loss = cross_entropy(hold ? logits : x * 2.0, target);
    clear_gradient(x);
    backward(loss, {}, {.keep_graph = keep});
    const std::vector<double> once = gradient(x).to_vector();
    CHECK(logits.to_vector() == before);
    if (!keep) return once;
    clear_gradient(x);
    backward(loss);
    CHECK(gradient(x).to_vector() == once);
    return once;
  };
  const std::vector<double> alone = gradient_of(false, false);
  for (const bool hold : {false, true}) CHECK(gradient_of(hold, !hold) == alone);
  CHECK(gradient_of(true, true) == alone);
}

TEST_CASE("cross_entropy: a batch whose labels are all ignored has loss 0 and gradient 0, whatever its logits") {
  const double infinity = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  const Tensor ignored = Tensor::full({3}, -1, DType::i64);
  for (const DType dtype : {DType::f64, DType::f32})
    for (const bool sum : {false, true}) {
      const Tensor x = requires_grad(Tensor::of({1, 2, infinity, 4, nan, -infinity}, {3, 2}, dtype));
      const Tensor loss = sum ? cross_entropy_sum(x, ignored) : cross_entropy(x, ignored);
      CHECK(loss.item() == 0);
      backward(loss);
      CHECK(gradient(x).to_vector() == std::vector<double>(6, 0));
    }
}

TEST_CASE("cross_entropy: backward needs no second tensor as large as the logits") {
  const index_t rows = 64, width = 4096;
  const Tensor x = requires_grad(Tensor::ones({rows, 1})), weight = Tensor::ones({1, width});
  const Tensor target = Tensor::zeros({rows}, DType::i64);
  const Tensor loss = cross_entropy(matmul(x, weight), target);
  Allocator::cpu().reset_peak();
  const std::size_t before = Allocator::cpu().statistics().live;
  backward(loss);
  CHECK(Allocator::cpu().statistics().peak - before < static_cast<std::size_t>(rows * width) * sizeof(float) / 2);
}

TEST_CASE("a gradient is contiguous, shares no numbers and never changes afterwards") {
  const Tensor x = requires_grad(Tensor::ones({1000})), row = leaf({1, 2}, {1, 2});
  backward(sum(x) + mean(x));  // both send one number to all of x
  REQUIRE(gradient(x).is_contiguous());
  raw::copy_into(Tensor::arange(1000, DType::f32), gradient(x));
  CHECK(gradient(x).at({999}) == 999);

  const Tensor a = leaf({1, 2}, {2}), b = leaf({3, 4}, {2}), seed = Tensor::of({5, 6}, {2}, DType::f64);
  backward(a + b + reshape(row, {2}), seed);
  raw::copy_into(Tensor::zeros({2}), seed);
  const Tensor of_a = gradient(a), of_b = gradient(b), of_row = gradient(row);
  for (const Tensor& written : {of_a, of_row}) raw::copy_into(Tensor::zeros(written.shape()), written);
  CHECK(values(of_b) == Numbers{5, 6});
  const auto g = grad(a * 2.0 + b * 2.0, seed, {a, a, b});
  raw::copy_into(Tensor::ones({2}), g[0]);
  CHECK(values(g[1]) == Numbers{0, 0});
  const auto recorded = grad(a + b, Tensor::ones({2}, DType::f64), {a, b}, {.create_graph = true});
  raw::copy_into(Tensor::zeros({2}), recorded[0]);
  CHECK(values(recorded[1]) == Numbers{1, 1});

  const Tensor w = leaf({1}, {});
  for (const double passes : {1.0, 2.0, 3.0}) {
    const Tensor before = gradient(w);
    backward(w * 1.0);
    CHECK(gradient(w).item() == passes);
    if (before.defined()) CHECK(before.item() == passes - 1);
  }
}

TEST_CASE("results of ops are contiguous, but for views and the tiles' rows by token") {
  const std::set<std::string> by_token{"tiled_attention", "tiled_mix", "project_heads"};
  for (const CheckedOp& op : checked_ops()) {
    if (by_token.contains(op.name)) continue;
    for (const CheckedSample& sample : op.samples()) {
      INFO(op.name, ", name ", sample.name);
      const Tensor y = sample.run(sample.inputs);
      const bool view = std::ranges::any_of(
          sample.inputs, [&](const Tensor& x) { return x.defined() && &x.storage() == &y.storage(); });
      CHECK((view || y.is_contiguous()));
    }
  }
}
