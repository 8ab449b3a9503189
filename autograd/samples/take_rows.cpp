// Samples of autograd/ops/take_rows.cpp.
#include "autograd/ops.h"
#include "autograd/samples/samples.h"

namespace whence {
namespace {

Samples samples() {
  return {{"repeated rows", {draw::normal({5, 3}), draw::index({2, 7}, 5)}, call(take_rows)},
      {"one row, 0-d index", {draw::normal({3, 4}), draw::index({}, 3)}, call(take_rows)},
      {"no index", {draw::normal({3, 2}), draw::index({0}, 3)}, call(take_rows)}};
}
std::vector<BadInput> bad_inputs() {
  const Tensor table = draw::zeros(5, 2);
  return {refusal("take_rows: index at [1,0] is 5; a value in [0, 5) required", take_rows, table,
              Tensor::of({0, 4, 5, 1}, {2, 2}, DType::i64)),
      refusal("take_rows: index at [0] is -1; a value in [0, 5) required", take_rows, table,
          Tensor::of({-1}, {1}, DType::i32)),
      refusal("take_rows: table is [5]; [n,c] required", take_rows, draw::zeros(5), Tensor::zeros({1}, DType::i64))};
}

Samples adjoints() {
  const auto rows = [](const Tensor& table, const std::vector<Tensor>& in) { return take_rows(table, in[1]); };
  return {{"repeated rows", {draw::normal({2, 5, 3}), draw::index({2, 5}, 4)}, adjoint(rows, {4, 3})},
      {"no index", {draw::normal({0, 3}), draw::index({0}, 2)}, adjoint(rows, {2, 3})}};
}

const Checked checked[] = {{{"take_rows", samples, bad_inputs}}, {{"scatter_rows", adjoints}}};

}  // namespace
}  // namespace whence
