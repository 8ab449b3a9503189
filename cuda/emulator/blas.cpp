// The emulated twin of cuda/library/blas.cpp: products by OpenBLAS, one matrix after the other, on copies without gaps.
#include "cuda/library/blas.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <utility>
#include <vector>

#include "cuda/emulator/arena.h"
#include "cuda/emulator/counters.h"
#include "cuda/emulator/run.h"
#include "cuda/emulator/settings.h"
#include "tensor/cpu/blas.h"
#include "tensor/pointwise.h"

namespace whence {
namespace {

template <class T> T* device_numbers(const void* address) {
  return reinterpret_cast<T*>(gpu::emulator::Arena::instance().bytes_at(address));
}

// Returns the matrix in the compute type, row-major without gaps.
template <class T>
std::vector<compute_t<T>> gathered(const BlasMatrix& from, index_t which, index_t rows, index_t columns) {
  const T* const first = device_numbers<T>(from.first) + which * from.step;
  std::vector<compute_t<T>> matrix(static_cast<std::size_t>(rows * columns));
  for (index_t i = 0; i < rows; ++i) {
    for (index_t j = 0; j < columns; ++j) {
      matrix[static_cast<std::size_t>(i * columns + j)] =
          static_cast<compute_t<T>>(first[from.transposed ? j * from.leading + i : i * from.leading + j]);
    }
  }
  return matrix;
}

template <class T, class Out> void multiply_now(const BlasProduct& p, const BlasEpilogue& e) {
  using C = compute_t<T>;
  const C alpha = static_cast<C>(p.alpha), beta = static_cast<C>(p.beta);
  std::vector<C> product(static_cast<std::size_t>(p.m * p.n));
  const T* const bias = device_numbers<T>(e.bias);
  T *const before = device_numbers<T>(e.before_gelu), *const row_sums = device_numbers<T>(e.row_sums);
  for (index_t batch = 0; batch < p.batch; ++batch) {
    const std::vector<C> a = gathered<T>(p.a, batch, p.m, p.k);
    const std::vector<C> b = gathered<T>(p.b, batch, p.k, p.n);
    blas::multiply<C>(p.m, p.n, p.k, C(1), {a.data(), p.k}, {b.data(), p.n}, C(0), product.data(), p.n);
    Out* const first = device_numbers<Out>(p.out) + batch * p.m * p.n;
    for (index_t i = 0; i < p.m * p.n; ++i) {
      Out& out = first[i / p.n * p.out_leading() + i % p.n];
      C sum = alpha * product[static_cast<std::size_t>(i)];
      if (p.beta != 0) sum += beta * static_cast<C>(out);
      if (bias) sum += static_cast<C>(bias[i % p.n]);
      if (before) before[i] = static_cast<T>(sum);
      out = static_cast<Out>(e.gelu ? functions::Gelu::value(sum, {}) : sum);
    }
    for (index_t i = 0; row_sums && i < p.m; ++i)
      row_sums[i] = static_cast<T>(std::accumulate(a.begin() + i * p.k, a.begin() + (i + 1) * p.k, C(0)));
  }
}

void note_product(const BlasProduct& p, const BlasEpilogue& e, std::size_t size) {
  const auto numbers = [&](index_t count) { return static_cast<std::uint64_t>(count * p.batch) * size; };
  gpu::emulator::Counters counted;
  counted.launches = 1;
  counted.arithmetic = static_cast<std::uint64_t>(2 * p.m * p.n * p.k * p.batch);
  counted.special = e.gelu ? static_cast<std::uint64_t>(p.m * p.n) : 0;
  counted.global_read = numbers(p.m * p.k + p.k * p.n + (p.beta != 0 ? p.m * p.n : 0) + (e.bias ? p.n : 0));
  counted.global_written =
      numbers(p.m * p.n * (e.before_gelu ? 2 : 1) + (e.row_sums ? p.m : 0)) * size_of(p.out_dtype()) / size;
  gpu::emulator::count(to_text("matmul ", to_string(p.dtype)).c_str(), counted);
}

// Checks cuBLAS's rules for a matrix, and that all of it belongs to one tensor.
void require_matrix(const char* name, const BlasMatrix& x, index_t rows, index_t columns, index_t batch, index_t size) {
  const index_t lines = x.transposed ? columns : rows, extent = x.transposed ? rows : columns;
  const auto wrong = [&](const std::string& given, const std::string& required) {
    fail("matmul", to_text(name, " [", rows, ' ', columns, "] ", given, "; ", required, " is required"));
  };
  if (x.leading < extent)
    wrong(to_text("has rows that begin ", x.leading, " numbers apart"), to_text("at least ", extent));
  const index_t steps = (batch - 1) * x.step, numbers = (lines - 1) * x.leading + extent;
  const auto* const first = static_cast<const std::byte*>(x.first) + (steps < 0 ? steps * size : 0);
  if (!gpu::emulator::Arena::instance().in_use(first, static_cast<std::size_t>((std::abs(steps) + numbers) * size)))
    wrong("is not all in memory of one tensor", "a tensor's memory");
}

void require_product(const BlasProduct& p, const BlasEpilogue& e) {
  const index_t size = static_cast<index_t>(size_of(p.dtype));
  require_matrix("a", p.a, p.m, p.k, p.batch, size);
  require_matrix("b", p.b, p.k, p.n, p.batch, size);
  require_matrix("out", {p.out, false, p.out_leading(), p.m * p.n}, p.m, p.n, p.batch,
      static_cast<index_t>(size_of(p.out_dtype())));
  // The arrays of the epilogue: each is checked as one row, or as one matrix.
  const auto plain = [&](const char* name, const void* numbers, index_t rows, index_t columns) {
    if (numbers) require_matrix(name, {numbers, false, columns, 0}, rows, columns, 1, size);
  };
  plain("bias", e.bias, 1, p.n);
  plain("before_gelu", e.before_gelu, p.m, p.n);
  plain("row_sums", e.row_sums, 1, p.m);
}

// The first product sets up the library, which takes memory and time that a graph cannot record.
void require_set_up() {
  if (!gpu::emulator::products_are_set_up && gpu::capturing()) {
    fail("matmul",
        "the library of products is set up while work is being recorded; run the work once before it is "
        "recorded");
  }
  gpu::emulator::products_are_set_up = true;
}

void submit_product(const BlasProduct& p, const BlasEpilogue& e) {
  require_set_up();
  require_product(p, e);
  const std::pair arguments(p, e);
  visit_real("matmul", p.dtype, [&]<class T>(Type<T>) {
    gpu::emulator::submit("matmul", {&arguments, sizeof arguments}, [p, e] {
      if (!gpu::emulator::settings().dry) p.wide ? multiply_now<T, compute_t<T>>(p, e) : multiply_now<T, T>(p, e);
      note_product(p, e, sizeof(T));
    });
  });
  gpu::launched({"a product", 0, 0, 0});
  count_product(p);
}

}  // namespace

void multiply(const BlasProduct& product) { submit_product(product, {}); }

// The cases that cuBLASLt is known to have kernels for.
bool multiply_fused(const BlasProduct& product, const BlasEpilogue& epilogue) {
  const bool supported = product.dtype == DType::f16 || product.dtype == DType::bf16 || product.dtype == DType::f32;
  if (!supported || !fits_epilogue(epilogue, product.n)) return false;
  submit_product(product, epilogue);
  return true;
}

}  // namespace whence
