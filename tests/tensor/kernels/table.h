// One table of calls to the kernels of a device (tensor/kernels.h). Its rows are in
// this folder, by family. Every row runs on the CPU (walk_on_cpu), and on a GPU against the CPU (tests/cuda/walk.h). Rows in shapes of a transformer are also held to their costs on a GPU
// (tests/cuda/emulator/costs.cpp).
#pragma once

#include "tensor/kernels.h"
#include "tests/support/tensors.h"

namespace whence::test {

using Tensors = std::vector<Tensor>;
using In = const Tensors&;
using Numbers = std::vector<double>;
struct Results : std::vector<Numbers> {  // of each output
  Results() = default;
  Results(Numbers one) { push_back(std::move(one)); }
  Results(std::initializer_list<Numbers> all) : std::vector<Numbers>(all) {}
};

inline const std::vector<DType> all_dtypes{
    DType::f16, DType::bf16, DType::f32, DType::f64, DType::i32, DType::i64, DType::boolean, DType::dual};

// The dtype and layout in which a row runs, and the seed of the next draw.
struct Draw {
  DType dtype = DType::f32;
  Layout layout = Layout::contiguous;
  std::uint64_t seed = 0;
};
// Draws an operand. No two of a row are equal.
using Operand = std::function<Tensor(Draw&)>;
Operand none();
Operand any(const Shape& shape);                   // in the layout of the draw
Operand rows(const Shape& shape);                  // contiguous
Operand laid(const Shape& shape, Layout layout);   // in `layout`
Operand shifted(index_t count, index_t shift);     // [count], beginning `shift` elements into its memory
Operand at_least(double low, const Shape& shape);  // as any
Operand few(const Shape& shape);                   // small whole numbers, many of them equal
Operand below(index_t count, const Shape& shape);  // i64 in [0, count)
Operand mask(const Shape& shape);                  // bool, half of it true
Operand chosen(const Numbers& numbers, const Shape& shape, DType dtype);
Operand wide(const Operand& operand);             // in the compute type
Operand of(DType dtype, const Operand& operand);  // in that dtype
Operand then(const Operand& operand, const std::function<Tensor(const Tensor&)>& f);
Operand expanded(const Operand& operand, const Shape& shape);

struct KernelCase {
  std::string kernel, name;
  std::vector<Operand> in = {}, out = {};  // outputs before the call, which may add to them
  std::function<void(Kernels&, In in, In out)> call;
  // The expected result, in double. Empty: the numbers of the same call in duals, except in integers and bool.
  std::function<Results(In in, In out)> loops = {};
  // The number of terms in each number of an output; the last entry is for all further outputs. 0: nothing is rounded.
  std::vector<index_t> terms = {1};
  std::vector<DType> dtypes = floating_dtypes;
  bool any_strides = false;                 // in every layout of operands from any()
  std::function<void(In in)> prepare = {};  // makes inputs consistent with each other, in place
  double size = 0;                          // size of the terms that cancel, if only their rounding is left
  bool on_cpu_alone = false;                // too large for an emulator
  decltype(call) composed = {};             // the same by several calls: equal bits
  bool of_a_transformer = false;
  std::uint64_t launches = 0;  // on a GPU, in f32 and bf16; 0: it depends

  index_t terms_of(std::size_t output) const { return terms[std::min(output, terms.size() - 1)]; }
  // A row in a shape of a transformer; then one that tests threads alone.
  KernelCase counted(std::uint64_t of_a_gpu) const;
  KernelCase on_threads() const;
};
using KernelCases = std::vector<KernelCase>;

KernelCases elementwise_cases();
KernelCases row_cases();
KernelCases product_cases();
KernelCases lookup_cases();
KernelCases step_cases();
KernelCases all_kernel_cases();

struct Given {
  Tensors in, out;
};
Given given(const KernelCase& row, Draw draw);
Tensors twins(const Tensors& all);  // copies, with the rest of their storages
// Runs rows on the CPU, in every dtype and layout. Expects the numbers of the loops, or those in duals; no
// other writes; the same bits on 1, 2 and 3 threads, and by the calls that a row
// fuses.
void walk_on_cpu(const KernelCases& rows);
// Calls f(draw) for each dtype and layout that a row runs in.
void for_each_way(const KernelCase& row, const std::function<void(const Draw&)>& f);

// ---- For loops in double.
template <class F> Numbers mapped(const Tensor& x, const F& f) {
  Numbers y = read(x);
  for (double& number : y) number = f(number);
  return y;
}
template <class F> Numbers mapped(const Tensor& a, const Tensor& b, const F& f) {
  Numbers y = read(a);
  const Numbers other = read(b);
  for (std::size_t i = 0; i < y.size(); ++i) y[i] = f(y[i], other[i]);
  return y;
}
inline std::size_t place(index_t n) { return static_cast<std::size_t>(n); }

index_t offset_of(const Tensor& x);  // where x begins in its storage
Tensor whole(const Tensor& x);       // all numbers of x's storage, used or not
// As expect_close; equal numbers if terms are 0 or the dtype does not round.
void expect_numbers(const KernelCase& row, std::size_t output, Numbers got, Numbers expected, DType dtype);
void expect_same_bits(const Tensors& got, const Tensors& expected);

}  // namespace whence::test
