#include "tensor/dtype.h"

#include "tensor/error.h"

namespace whence {

const char* to_string(DType dtype) {
  switch (dtype) {
    case DType::f16: return "f16";
    case DType::bf16: return "bf16";
    case DType::f32: return "f32";
    case DType::f64: return "f64";
    case DType::i32: return "i32";
    case DType::i64: return "i64";
    case DType::boolean: return "bool";
    case DType::dual: return "dual";
  }
  __builtin_unreachable();
}

double epsilon_of(DType dtype) {
  switch (dtype) {
    case DType::f16: return 0x1p-10;
    case DType::bf16: return 0x1p-7;
    case DType::f32: return 0x1p-23;
    case DType::f64:
    case DType::dual: return 0x1p-52;
    case DType::i32:
    case DType::i64:
    case DType::boolean: break;
  }
  wrong_dtype("epsilon_of", dtype, "a floating dtype");
}

void wrong_dtype(const char* op, DType given, const char* required) {
  fail(op, "dtype ", given, " given; ", required, " required; convert with cast");
}

}  // namespace whence
