// The functions of cuda/vocabulary/tensor_cores.h against plain loops, on a GPU or on the emulated one: the lane of
// each number, sums, copies. cuda/check runs it first on a card.
#include "tests/cuda/tensor_cores.h"

#include <cmath>
#include <set>

#include "cuda/vocabulary/fragments.h"
#include "tests/support/device.h"

using namespace whence;
using namespace whence::test;
using gpu::a_place, gpu::b_place, gpu::c_place, gpu::depth, gpu::key_of_column, gpu::key_phase, gpu::matrix_place,
    gpu::matrix_row, gpu::per_register, gpu::Place;

namespace {

using Values = std::vector<double>;

// Calls f(DType, T()) for every operand: f64 on the emulated GPU alone.
template <class F> void for_each_operand(const F& f) {
  f(DType::f16, Float16()), f(DType::bf16, BFloat16()), f(DType::f32, float());
  if (emulator_settings()) f(DType::f64, double());
}

Tensor whole_numbers(const Shape& shape, index_t most, std::uint64_t seed, DType dtype) {
  const Stream random(seed, "whole numbers");
  Values values;
  for (index_t i = 0; i < numel(shape); ++i)
    values.push_back(static_cast<double>(
        random.below(static_cast<std::uint64_t>(i), static_cast<std::uint32_t>(2 * most + 1)) - most));
  return Tensor::of(values, shape, dtype);
}

// Returns c + a b, [rows, inner] [inner, columns].
Values product(const Values& a, const Values& b, Values c, index_t inner, index_t columns) {
  for (std::size_t i = 0; i < c.size(); ++i) {
    const index_t row = static_cast<index_t>(i) / columns, column = static_cast<index_t>(i) % columns;
    for (index_t k = 0; k < inner; ++k)
      c[i] += a[static_cast<std::size_t>(row * inner + k)] * b[static_cast<std::size_t>(k * columns + column)];
  }
  return c;
}

// Runs f with both roundings of the emulator; a GPU has its own.
template <class F> void with_each_sum(const F& f) {
  for (const bool cut : {false, true}) {
    std::optional<With<bool>> chosen;
    if (gpu::emulator::Settings* const settings = emulator_settings()) chosen.emplace(settings->cut_sums, cut);
    if (emulator_settings() || cut) f(cut);
  }
}

template <class T, class PlaceOf>
void check_covers(int rows, int columns, int registers, int halves, const PlaceOf& of) {
  std::set<std::pair<int, int>> places;
  for (int lane = 0; lane < 32; ++lane)
    for (int r = 0; r < registers; ++r)
      for (int half = 0; half < halves; ++half) places.emplace(of(lane, r, half).row, of(lane, r, half).column);
  CHECK(places.size() == static_cast<std::size_t>(rows * columns));
  CHECK(*places.begin() == std::pair(0, 0));
  CHECK(*places.rbegin() == std::pair(rows - 1, columns - 1));
}

double one_sum(DType operand, const Values& of_a, const Values& of_b, double c) {
  const index_t inner = operand == DType::f32 ? 8 : 16;
  Values a(static_cast<std::size_t>(16 * inner)), b(static_cast<std::size_t>(8 * inner)), sums(128);
  for (std::size_t k = 0; k < of_a.size(); ++k) a[k] = of_a[k], b[8 * k] = of_b[k];
  sums[0] = c;
  return product_by_maps(operand, on_gpu(Tensor::of(a, {16, inner}, DType::f32)),
      on_gpu(Tensor::of(b, {inner, 8}, DType::f32)), on_gpu(Tensor::of(sums, {16, 8}, DType::f32)))
      .to_vector()[0];
}

}  // namespace

TEST_CASE("tensor cores: the maps name each number of a fragment once") {
  for_each_operand([]<class T>(DType, T) {
    constexpr int halves = per_register<T>;
    check_covers<T>(8, matrix_row<T>, 1, halves, [](int lane, int, int half) { return matrix_place<T>(lane, half); });
    check_covers<T>(16, depth<T>, 4, halves, a_place<T>);
    check_covers<T>(depth<T>, 8, 2, halves, b_place<T>);
    check_covers<T>(16, 8, 4, 1, [](int lane, int r, int) { return c_place(lane, r); });
  });
  const auto check_keys = []<int keys>(std::integral_constant<int, keys>) {
    std::set<int> all;
    for (int column = 0; column < keys; ++column) {
      all.insert(key_of_column<keys>(column));
      const int lane = column % 8 / 2;  // the first row's lanes: neighbouring keys of each
      CHECK(key_of_column<keys>(column) / (keys / 4) == lane);
    }
    CHECK(all.size() == keys);
    for (int column = 0; column < keys; column += 8) {
      std::set<int> phases;
      for (int k = 0; k < 8; ++k) phases.insert(key_phase<keys>(key_of_column<keys>(column + k)));
      CHECK(phases.size() == 8);
    }
  };
  check_keys(std::integral_constant<int, 32>{}), check_keys(std::integral_constant<int, 64>{});
}

TEST_CASE("tensor cores: mma adds up what plain loops do, whole numbers exactly") {
  with_each_sum([](bool) {
    for_each_operand([]<class T>(DType operand, T) {
      CAPTURE(std::string(to_string(operand)));
      const DType numbers = operand == DType::f64 ? DType::f64 : DType::f32;
      const Tensor a = whole_numbers({16, depth<T>}, 7, 1, numbers), b = whole_numbers({depth<T>, 8}, 7, 2, numbers),
                   c = whole_numbers({16, 8}, 99, 3, numbers);
      in_every_order([&] {
        const Tensor d = product_by_maps(operand, on_gpu(a), on_gpu(b), on_gpu(c));
        CHECK(d.to_vector() == product(a.to_vector(), b.to_vector(), c.to_vector(), depth<T>, 8));
      });
      const auto random = [&](const Shape& shape, std::uint64_t seed) {
        const Tensor x = random_contiguous(shape, operand == DType::f32 ? DType::bf16 : operand, seed);
        return raw::cast(x, numbers);
      };
      const Tensor e = random({16, depth<T>}, 4), f = random({depth<T>, 8}, 5), g = random({16, 8}, 6);
      expect_close(product_by_maps(operand, on_gpu(e), on_gpu(f), on_gpu(g)).to_vector(),
          product(e.to_vector(), f.to_vector(), g.to_vector(), depth<T>, 8), numbers, depth<T>);
    });
  });
}

// Measured on an H200, the same for all three types: products are exact; all of them and c are added at once, with two
// bits more than f32 has, counted from the largest of them; lower bits are truncated, and so is the sum.
TEST_CASE("tensor cores: sums are cut as an H200 cuts them") {
  if (!emulator_settings() && cuda_facts().capability != 90) {
    MESSAGE("sums of this card are not compared: it may keep other bits than an H200");
    return;
  }
  const auto p = [](int exponent) { return std::ldexp(1.0, exponent); };
  const double last = p(-23);
  with_each_sum([&](bool cut) {
    for (const DType operand : {DType::f16, DType::bf16, DType::f32}) {
      INFO(operand, ", cut ", cut);
      const auto nearest_or = [&](double if_cut, double nearest) { return cut ? if_cut : nearest; };
      // 1 and three quarters of the last place, of both signs.
      CHECK(one_sum(operand, {1, p(-12), p(-12)}, {1, p(-12), p(-13)}, 0) == 1);
      CHECK(one_sum(operand, {1, 3 * p(-13)}, {1, p(-12)}, 0) == nearest_or(1, 1 + last));
      CHECK(one_sum(operand, {-1, -3 * p(-13)}, {1, p(-12)}, 0) == nearest_or(-1, -1 - last));
      // Two halves, and four quarters, of the last place of c: kept until they are one. Eight eighths are not.
      CHECK(one_sum(operand, {p(-12), p(-12)}, {p(-12), p(-12)}, 1) == nearest_or(1 + last, 1));
      CHECK(one_sum(operand, Values(4, p(-12)), Values(4, p(-13)), 1) == nearest_or(1 + last, 1));
      CHECK(one_sum(operand, Values(8, p(-12)), Values(8, p(-14)), 1) == 1);
      // The remainder after the largest terms have cancelled.
      CHECK(one_sum(operand, {1, -1, p(-12)}, {1, 1, p(-13)}, 0) == p(-25));
      CHECK(one_sum(operand, {-4096, 1}, {4096, 1.25}, p(24)) == nearest_or(1, 1.25));
      CHECK(one_sum(operand, {-1, p(-13)}, {1, p(-13)}, 1) == nearest_or(0, p(-26)));
      const double infinity = std::numeric_limits<double>::infinity();
      CHECK(one_sum(operand, {1, infinity}, {1, -1}, 5) == -infinity);
      CHECK(std::isnan(one_sum(operand, {infinity}, {1}, -infinity)));
    }
  });
}

TEST_CASE(
    "tensor cores: copies ahead, zeros where there is nothing; ldmatrix, movmatrix, stmatrix: each lane has its "
    "places") {
  for_each_operand([]<class T>(DType dtype, T) {
    CAPTURE(std::string(to_string(dtype)));
    constexpr int row = matrix_row<T>, halves = per_register<T>;
    const auto copied = [](int r, int column) { return r % 3 == 0 ? 0 : r * row + column; };
    Values numbers;
    for (int i = 0; i < 32 * row; ++i) numbers.push_back(i);
    in_every_order([&] {
      const Held held = held_matrices(on_gpu(Tensor::of(numbers, {32, row}, dtype)));
      Values loaded, transposed;
      for (int k = 0; k < 4 * 32 * halves; ++k) {
        const int matrix = k / halves / 32;
        const Place at = matrix_place<T>(k / halves % 32, k % halves);
        loaded.push_back(copied(matrix * 8 + at.row, at.column));
        transposed.push_back(copied(matrix * 8 + at.column, at.row));
      }
      CHECK(held.loaded.to_vector() == loaded);
      if (dtype == DType::f32) return;
      CHECK(held.transposed.to_vector() == transposed);
      CHECK(held.moved.to_vector() == Values(transposed.begin(), transposed.begin() + 64));
      Values stored;
      for (int i = 0; i < 32 * row; ++i) stored.push_back(copied(31 - i / row, i % row));
      CHECK(held.stored.to_vector() == stored);
    });
  });
}

TEST_CASE("tensor cores: floor at integers and next to them, 2^x, 1 / x, tf32 and pairs of f16") {
  Values numbers;
  for (int i = -400; i <= 400; ++i) numbers.push_back(i * 0.0625);
  for (const float whole : {-3.0f, 1.0f, 64.0f, 4096.0f, 4194000.0f})
    for (const float beside : {std::nextafter(whole, -1e9f), whole, std::nextafter(whole, 1e9f)})
      numbers.push_back(beside);
  for (const double odd : {1 + 0x1p-11, 1 + 0x1p-11 - 0x1p-23, 1 + 0x1p-10, -1 - 0x1p-11, 1.0 / 3})
    numbers.push_back(odd);
  const Values all =
      functions_of(on_gpu(Tensor::of(numbers, {static_cast<index_t>(numbers.size())}, DType::f32))).to_vector();
  const std::size_t n = numbers.size();
  for (std::size_t i = 0; i < n; ++i) {
    const double x = numbers[i];
    CAPTURE(x);
    CHECK(all[i] == std::floor(x));
    if (std::abs(x) < 100) CHECK(std::abs(all[n + i] / std::exp2(x) - 1) < 0x1p-21);
    if (x == 0)
      CHECK(std::isinf(all[2 * n + i]));
    else
      CHECK(std::abs(all[2 * n + i] * x - 1) < 0x1p-22);
    int exponent = 0;
    const double digits = std::frexp(x, &exponent);  // 11 binary digits; of two equally near ones the larger
    CHECK(all[3 * n + i] == std::ldexp(std::round(digits * 2048) / 2048, exponent));
    CHECK(all[4 * n + i] == static_cast<double>(Float16(static_cast<float>(x))));
    CHECK(all[5 * n + i] == std::max(x, 1.0));
  }
}
