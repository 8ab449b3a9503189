// In which numbers products in f32 are made. Of the program, not of one of the instruction sets that matmul.cpp is
// compiled for.
#include <atomic>

#include "tensor/cpu/instruction_set.h"
#include "tensor/error.h"
#include "tensor/products.h"

namespace whence {

static std::atomic<bool> rounds_to_bf16 = false;

bool can_multiply_bf16() {
#ifdef __x86_64__
  return instruction_set() == InstructionSet::avx512 && __builtin_cpu_supports("avx512bf16");
#else
  return false;
#endif
}
DType product_numbers() { return rounds_to_bf16 ? DType::bf16 : DType::f32; }
void set_product_numbers(DType dtype) {
  if (dtype != DType::f32 && dtype != DType::bf16)
    fail("set_product_numbers", to_string(dtype), " given; f32 or bf16 required");
  if (dtype == DType::bf16 && !can_multiply_bf16())
    fail("set_product_numbers", "bf16 given; this processor or build lacks AVX512_BF16, which multiplies it; use f32");
  rounds_to_bf16 = dtype == DType::bf16;
}

}  // namespace whence
