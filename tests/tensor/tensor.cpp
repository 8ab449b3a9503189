// Shapes, strides, views, copies, versions, the texts of errors, and how tensors are printed.
#include "tensor/tensor.h"

#include <numeric>

#include "tensor/cpu/threads.h"
#include "tensor/device/device_runtime.h"
#include "tests/support/tensors.h"

using namespace whence;
using namespace whence::test;

namespace {

// 0, 1, 2, ... in row-major order: an element's value is its index.
Tensor numbered(const Shape& shape, DType dtype = DType::f32) {
  std::vector<double> values(static_cast<std::size_t>(numel(shape)));
  std::iota(values.begin(), values.end(), 0);
  return Tensor::of(values, shape, dtype);
}

index_t place(const std::vector<index_t>& position, const Shape& shape) {
  index_t result = 0;
  for (int axis = 0; axis < shape.rank(); ++axis)
    result = result * shape[axis] + position[static_cast<std::size_t>(axis)];
  return result;
}

}  // namespace

TEST_CASE("shapes count, stride and print") {
  CHECK(numel(Shape{}) == 1);
  CHECK(numel(Shape{2, 3, 4}) == 24);
  CHECK(numel(Shape{2, 0, 4}) == 0);
  CHECK(contiguous_strides({2, 3, 4}) == Strides{12, 4, 1});
  CHECK(to_string(Shape{2, 3}) == "[2,3]");
  CHECK(to_string(Shape{}) == "[]");
  CHECK(Shape{2, 3, 4}[-1] == 4);
  CHECK(Shape{2, 3, 4}.leading(2) == Shape{2, 3});
  CHECK(Shape{2, 3, 4}.leading(-2) == Shape{2});
  CHECK(Shape{2, 3, 4}.without(1) == Shape{2, 4});
  CHECK(is_contiguous({2, 1, 3}, {3, 77, 1}));  // an axis of extent 1 does not matter
  CHECK_FALSE(is_contiguous({2, 3}, {1, 2}));
  CHECK(has(error_text([] { Shape shape{1, 1, 1, 1, 1, 1, 1}; }), "more than 6"));
}

TEST_CASE("views move axes and steps, not numbers, alone and in a chain") {
  const Shape shape{3, 4, 5};
  const Tensor x = numbered(shape), chain = raw::slice(raw::permute(x, {2, 0, 1}), 0, 1, 5, 2);
  using At = const std::vector<index_t>&;
  const auto check = [&](const Tensor& view, const Shape& wanted, const std::function<index_t(At)>& index) {
    CAPTURE(wanted);
    CHECK(view.shape() == wanted);
    CHECK(&view.storage() == &x.storage());
    const auto values = read(view);
    std::size_t i = 0;
    for (const auto& p : positions(wanted)) CHECK(values[i++] == index(p));
    CHECK(view.to_vector() == values);
  };
  check(raw::permute(x, {2, 0, -2}), {5, 3, 4}, [&](At p) { return place({p[1], p[2], p[0]}, shape); });
  check(raw::transpose(x), {3, 5, 4}, [&](At p) { return place({p[0], p[2], p[1]}, shape); });
  check(raw::transpose(x, 0, -1), {5, 4, 3}, [&](At p) { return place({p[2], p[1], p[0]}, shape); });
  check(raw::slice(x, 2, 1, 4, 2), {3, 4, 2}, [&](At p) { return place({p[0], p[1], 1 + 2 * p[2]}, shape); });
  check(raw::select(x, -2, 2), {3, 5}, [&](At p) { return place({p[0], 2, p[1]}, shape); });
  check(chain, {2, 3, 4}, [&](At p) { return place({p[1], p[2], 1 + 2 * p[0]}, shape); });
  check(raw::select(raw::transpose(chain, 1, 2), 1, 2), {2, 3}, [&](At p) {
    return place({p[1], 2, 1 + 2 * p[0]}, shape);
  });
  check(raw::expand(raw::unsqueeze(raw::unsqueeze(raw::select(x, 0, 0), 1), -1), {2, 4, 3, 5, 1}), {2, 4, 3, 5, 1},
      [](At p) { return 5 * p[1] + p[3]; });
  CHECK(raw::unsqueeze(x, 1).is_contiguous());
  CHECK(raw::slice(x, 0, 3, 3).shape() == Shape{0, 4, 5});
  CHECK(raw::expand(numbered({1, 3}), {0, 3}).numel() == 0);
  CHECK(chain.at({1, 2, 3}) == place({2, 3, 3}, shape));
  CHECK(has(error_text([&] { (void)chain.at({1, 2, 4}); }), "at: position [1,2,4]"));
  CHECK(has(error_text([&] { (void)raw::transpose(x, 0, 3); }), "3 given for 3"));
  CHECK(has(error_text([&] { (void)raw::slice(x, 1, -1, 3); }), "-1"));
}

TEST_CASE("reshape keeps the order of the elements, without a copy where strides allow") {
  const Tensor x = numbered({2, 3, 4});
  CHECK(&raw::reshape(x, {6, -1}).storage() == &x.storage());
  CHECK(raw::reshape(x, {-1}).shape() == Shape{24});
  const Tensor swapped = raw::transpose(x, 0, 1);  // [3,2,4], strides 4 12 1
  struct Case {
    Tensor from;
    Shape to;
    bool view;
  };
  const std::vector<Case> cases{{swapped, {3, 2, 2, 2}, true}, {swapped, {3, 1, 8}, false},
      {raw::slice(x, 2, 0, 2), {6, 2}, true}, {raw::slice(x, 2, 0, 2), {2, 6}, false},
      {raw::slice(x, 1, 0, 2), {2, 8}, true}, {raw::transpose(x, 1, 2), {2, 2, 2, 3, 1}, true},
      {raw::expand(numbered({2, 1}), {2, 6}), {2, 3, 2}, true}, {raw::expand(numbered({2, 1}), {2, 6}), {12}, false}};
  for (const Case& c : cases) {
    const Tensor y = raw::reshape(c.from, c.to);
    INFO(c.from.shape(), ", to ", c.to);
    CHECK(y.shape() == c.to);
    CHECK(read(y) == read(c.from));
    CHECK((&y.storage() == &c.from.storage()) == c.view);
  }
  CHECK(raw::reshape(Tensor::zeros({0, 4}), {2, 0, 7}).numel() == 0);
}

TEST_CASE("copies are new, contiguous only when needed, and land in place") {
  const Tensor x = numbered({2, 3}), turned = raw::transpose(x);
  CHECK(raw::contiguous(x).identity() == x.identity());
  CHECK(raw::contiguous(turned).is_contiguous());
  CHECK(read(raw::contiguous(turned)) == read(turned));
  const Tensor copy = raw::copy(x);
  CHECK(&copy.storage() != &x.storage());
  const Tensor target = Tensor::zeros({3, 2}), block = Tensor::zeros({4, 4});
  raw::copy_into(turned, target);
  CHECK(read(target) == read(turned));
  raw::copy_into(turned, raw::slice(raw::slice(block, 0, 1, 4), 1, 0, 4, 2));
  CHECK(read(block) == std::vector<double>{0, 0, 0, 0, 0, 0, 3, 0, 1, 0, 4, 0, 2, 0, 5, 0});
  CHECK(has(error_text([&] { raw::copy_into(x, target); }), "from is [2,3]; [3,2]"));
}

TEST_CASE("writes in place bump the version and leave their site") {
  const Tensor x = numbered({2, 3});
  CHECK(x.storage().version() == 0);
  raw::copy_into(Tensor::zeros({2, 3}), x);
  CHECK(x.storage().version() == 1);
  raw::add_into(Tensor::ones({2, 3}), raw::transpose(raw::transpose(x)));
  CHECK(x.storage().version() == 2);  // views share it
  CHECK(read(x) == std::vector<double>(6, 1.0));
  const Site here = Site::current();
  {
    const CallSite site(here);
    raw::add_into(Tensor::ones({3, 2}), raw::transpose(x));  // not contiguous
  }
  CHECK(x.storage().version() == 3);
  CHECK(x.storage().last_write().line() == here.line());
  CHECK(read(x) == std::vector<double>(6, 2.0));
  (void)raw::add(x, x);
  CHECK(x.storage().version() == 3);
}

TEST_CASE("making tensors") {
  CHECK(read(Tensor::arange(4)) == std::vector<double>{0, 1, 2, 3});
  CHECK(Tensor::arange(4).dtype() == DType::i64);
  CHECK(Tensor::scalar(2.5).item() == 2.5);
  CHECK(read(Tensor::full({2, 2}, 7, DType::i32)) == std::vector<double>(4, 7));
  CHECK(read(Tensor::ones({3}, DType::boolean)) == std::vector<double>(3, 1));
  CHECK(Tensor::empty({0, 5}).numel() == 0);
  CHECK(read(Tensor::arange(0)).empty());
  const Tensor x = Tensor::ones({2}), alias = x;
  x.replace(Tensor::zeros({2}, DType::f64));
  CHECK(alias.dtype() == DType::f64);
  CHECK(alias.detach().identity() != alias.identity());
  CHECK(has(error_text([] { (void)Tensor().shape(); }), "undefined tensor"));
  CHECK(has(error_text([] { (void)Tensor::empty({2, -1}); }), "empty: shape [2,-1]"));
  CHECK(has(error_text([] { (void)Tensor::of({1, 2}, {3}); }), "for shape [3]; 3"));
  CHECK(has(error_text([&] { (void)x.item(); }), "item: shape [2]"));
  CHECK(has(error_text([&] { (void)x.data<float>(); }), "dtype f64"));
}

TEST_CASE("errors of what no op's bad inputs try name the op and what was given, with the caller's line") {
  const Tensor f32 = Tensor::zeros({2, 3}), i64 = Tensor::zeros({2, 3}, DType::i64), bias = Tensor::zeros({3}),
               dual = Tensor::zeros({1}, DType::dual);
  const Tensor two = Tensor::zeros({2, 2, 3}), three = Tensor::zeros({3, 3, 2}), nothing = Tensor::zeros({2, 0}),
               product = Tensor::zeros({3, 2});
  const std::pair<std::function<void()>, const char*> rows[] = {{[&] { (void)raw::add(i64, i64); }, "add: a is i64"},
      {[&] { (void)raw::matmul(f32, bias); }, "matmul: b is [3]"},
      {[&] { (void)raw::matmul(two, three); }, "batch extents 2 and 3"},
      {[&] { (void)raw::matmul(f32, product, 1, &bias); }, "bias is [3]; [2]"},
      {[&] { (void)raw::reduce(Reduction::maximum, nothing, {1}, false); }, "maximum: x is [2,0]"},
      {[&] {
         (void)raw::reduce(Reduction::sum, f32, {0, -2}, false);
       },
          "axis 0 given"},
      {[&] { kernels(Device::cpu()).unary_second(functions::Exp{}, {}, dual, dual, dual); }, "unary_second: dual"}};
  for (const auto& [call, part] : rows) CHECK_MESSAGE(has(error_text(call), part), part);
  const Site here = Site::current();
  const CallSite site(here);
  CHECK(error_text([&] { (void)raw::add(f32, raw::cast(f32, DType::f64)); }) ==
        to_text("tensor.cpp:", here.line(), ": add: a is f32, b is f64; equal dtypes required; convert with cast"));
}

TEST_CASE("beyond 2^31 elements indices are still right") {
  const index_t count = index_t(3) << 30;
  const Tensor large = Tensor::empty({count}, DType::boolean);  // untouched pages cost nothing
  const Tensor last = raw::slice(large, 0, count - 2, count);
  kernels(Device::cpu()).fill(last, 0);
  kernels(Device::cpu()).fill(raw::slice(large, 0, count - 1, count), 1);
  CHECK(last.to_vector() == std::vector<double>{0, 1});
  CHECK(raw::select(raw::reshape(large, {3, 1 << 15, 1 << 15}), 0, 2).at({(1 << 15) - 1, (1 << 15) - 1}) == 1);
}

TEST_CASE("printed: nested rows, aligned; both ends of long axes; views, empty tensors and special numbers") {
  const Tensor dual = Tensor::scalar(2, DType::dual), six = Tensor::of({1, -2.5, 1000000, 0.1, 3, 1e-7}, {2, 3});
  dual.data<Dual>()->tangent = -0.5;
  const std::pair<Tensor, const char*> rows[] = {{Tensor::scalar(2.5), "tensor f32 [] cpu 2.5"},
      {Tensor::scalar(1, DType::boolean), "tensor bool [] cpu true"}, {Tensor(), "tensor undefined"},
      {dual, "tensor dual [] cpu 2-0.5e"},
      {six, "tensor f32 [2,3] cpu\n[[    1,  -2.5, 1e+06],\n [  0.1,     3, 1e-07]]"},
      {raw::transpose(Tensor::of({1, 2, 3, 4, 5, 6}, {2, 3})), "tensor f32 [3,2] cpu\n[[1, 4],\n [2, 5],\n [3, 6]]"},
      {raw::reshape(Tensor::arange(8, DType::i32), {2, 2, 2}),
          "tensor i32 [2,2,2] cpu\n[[[0, 1],\n  [2, 3]],\n [[4, 5],\n  [6, 7]]]"},
      {Tensor::of({NAN, INFINITY, -INFINITY, -0.0}, {4}), "tensor f32 [4] cpu\n[ nan,  inf, -inf,   -0]"},
      {Tensor::zeros({2, 0}), "tensor f32 [2,0] cpu\n[[],\n []]"},
      {Tensor::arange(9), "tensor i64 [9] cpu\n[0, 1, 2, ..., 6, 7, 8]"},
      {Tensor::arange(8), "tensor i64 [8] cpu\n[0, 1, 2, 3, 4, 5, 6, 7]"}};
  for (const auto& [tensor, text] : rows) CHECK(to_string(tensor) == text);
  const Tensor huge = raw::expand(Tensor::scalar(1), {1000000, 1000000});  // printing reads only what it shows
  CHECK(to_text(huge).size() < 300);
}

TEST_CASE("shapes whose number of elements overflows are refused") {
  constexpr index_t far = index_t{1} << 32;
  CHECK_THROWS_AS((void)raw::reshape(Tensor::zeros({0}), {far, far}), Error);
  CHECK_THROWS_AS((void)raw::reshape(Tensor::zeros({4}), {4, (index_t{1} << 62) + 1}), Error);
  CHECK_THROWS_AS((void)raw::reshape(Tensor::zeros({0}), {-1, 0}), Error);
  CHECK_THROWS_AS((void)raw::reshape(Tensor::zeros({6}), {-1, -1}), Error);
  CHECK_THROWS_AS((void)raw::expand(Tensor::ones({1, 1}), {far, far}), Error);
  CHECK_THROWS_AS((void)raw::expand(Tensor::ones({3}), {-1, 3}), Error);
  CHECK_THROWS_AS((void)Tensor::of({}, {far, far}), Error);
  CHECK_THROWS_AS((void)Tensor::empty({0, far, far}), Error);  // its strides would overflow
  const Tensor long_row = raw::expand(Tensor::ones({1}), {index_t{1} << 58});
  CHECK_THROWS_AS((void)concat_along(0, std::vector<Tensor>(64, long_row)), Error);  // 2^64 elements
  const Tensor x = numbered({5});
  for (const index_t step : {index_t{5}, INT64_MAX - 1, INT64_MAX})
    CHECK(raw::slice(x, 0, 1, 5, step).to_vector() == std::vector<double>{1});
  CHECK(raw::slice(x, 0, 5, 5, INT64_MAX).numel() == 0);
  const Tensor keys = Tensor::zeros({1, 1, 1, 4}), weight = Tensor::ones({1, 1, 1, 1});
  CHECK_THROWS_AS((void)convolve_keys(keys, weight, {}, INT64_MAX, INT64_MAX), Error);
  for (const StripOf& strip : {StripOf{INT64_MAX, 9, 9}, StripOf{0, 9, 9, INT64_MAX}, StripOf{0, INT64_MAX, INT64_MAX}})
    CHECK_THROWS_AS((void)dropout(numbered({2, 3}), 0.5, {}, strip), Error);
  const Tensor table = raw::expand(Tensor::ones({1}), {(index_t{1} << 24) + 4});
  CHECK_THROWS_AS((void)lerp_at(table, Tensor::full({1}, 1e9)), Error);  // f32 has no row 2^24 + 3
  CHECK_THROWS_AS(
      (void)lerp_at(raw::expand(Tensor::ones({1}, DType::bf16), table.shape()), Tensor::full({1}, 1e9, DType::bf16)),
      Error);
}

TEST_CASE("writes: source and target may overlap; a target that names a number twice is refused") {
  const int before = threads();
  for (const int count : {1, 3}) {
    set_threads(count);
    const Tensor t = Tensor::arange(100'001), m = numbered({300, 300}, DType::f64);
    raw::copy_into(raw::slice(t, 0, 0, 100'000), raw::slice(t, 0, 1, 100'001));
    CHECK(t.at({0}) == 0);
    for (const index_t i : {1, 2, 50'000, 100'000}) CHECK(t.at({i}) == static_cast<double>(i - 1));
    raw::add_into(raw::transpose(m, 0, 1), m);
    for (const index_t i : {1, 150, 299}) CHECK(m.at({i, 7}) == static_cast<double>(301 * (i + 7)));
    raw::add_into(m, m);
    CHECK(m.at({1, 0}) == 602);
  }
  set_threads(before);
  const Tensor one = Tensor::zeros({1}), three = Tensor::of({1, 2, 3}, {3});
  CHECK_THROWS_AS(raw::copy_into(three, raw::expand(one, {3})), Error);
  CHECK_THROWS_AS(raw::add_into(three, raw::expand(one, {3})), Error);
  CHECK_THROWS_AS(raw::copy_into(numbered({2, 2}), Tensor::zeros({3}).view({2, 2}, {1, 1})), Error);
  CHECK(one.item() == 0);
  raw::copy_into(Tensor::zeros({0, 3}), raw::expand(Tensor::zeros({0, 1}), {0, 3}));
}
