// Names and properties of dtypes.
#include "tensor/dtype.h"

#include "tensor/error.h"

namespace whence {

const char* to_string(DType dtype) {
  constexpr const char* names[] = {"f16", "bf16", "f32", "f64", "i32", "i64", "bool", "dual"};
  return names[static_cast<int>(dtype)];
}

double epsilon_of(DType dtype) {
  switch (dtype) {
    case DType::f16: return 0x1p-10;
    case DType::bf16: return 0x1p-7;
    case DType::f32: return 0x1p-23;
    case DType::f64:
    case DType::dual: return 0x1p-52;
    default: wrong_dtype("epsilon_of", dtype, "a floating dtype");
  }
}

void wrong_dtype(const char* op, DType given, const char* required) {
  fail(op, to_text("dtype ", given, " given; ", required, " required; convert with cast"));
}

}  // namespace whence
