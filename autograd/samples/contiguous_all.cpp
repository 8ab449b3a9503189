// Samples of autograd/joined/contiguous_all.cpp.
#include "autograd/check/samples.h"
#include "autograd/joined/joined_ops.h"

namespace whence {
namespace {

CheckedSample contiguous_sample(std::string name, bool transposed, bool unread) {
  return {std::move(name), {draw::normal({2, 3, 4}), draw::normal({2, 3, 1}), draw::normal({2, 3, 2})},
      [transposed, unread](const std::vector<Tensor>& in) {
        const auto given = [&](std::size_t k) { return transposed || k == 1 ? transpose(in[k]) : in[k]; };
        const auto [a, b, c] = contiguous_all({given(0), given(1), given(2)});
        return unread ? concat_along(transposed ? 1 : 2, {a, c})
                      : concat_along(0, {reshape(a, {-1}), reshape(b, {-1}), reshape(c, {-1})});
      }};
}

Tensor contiguous_reference(const std::vector<Tensor>& in) {
  std::vector<Tensor> rows;
  for (const Tensor& x : in) rows.push_back(reshape(transpose(x), {-1}));
  return concat_along(0, rows);
}

const Checked checked({"contiguous_all",
    [] {
      return std::vector{contiguous_sample("transposed", true, false),
          contiguous_sample("one of them transposed", false, false),
          contiguous_sample("one that nobody reads", true, true)};
    },
    {}, contiguous_reference});

}  // namespace
}  // namespace whence
