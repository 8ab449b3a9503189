// Makes three tensors contiguous with one kernel.    y_k = x_k    dx_k = dy_k
#include "autograd/check/checked.h"
#include "autograd/joined/joined_ops.h"
#include "tensor/device/joined_kernels.h"
#include "tensor/raw.h"

namespace whence {
namespace {

using Three = std::array<Tensor, 3>;

struct ContiguousAll {
  static constexpr const char* name = "contiguous_all";
  struct Saved {
    std::array<Shape, 3> shapes;
  };
  Three forward(Saved& saved, const Tensor& a, const Tensor& b, const Tensor& c) const {
    Three y{a, b, c};
    std::vector<Tensor> from, to;
    for (std::size_t k = 0; k < y.size(); ++k) {
      saved.shapes[k] = y[k].shape();
      if (y[k].is_contiguous()) continue;
      from.push_back(y[k]);
      to.push_back(y[k] = Tensor::like(y[k]));
    }
    joined_kernels(a).copy_all(from, to);
    return y;
  }
  Grads<3> backward(const Saved& saved, std::span<const Tensor, 3> dy, Needs<3>) const {
    const Tensor& read = *std::ranges::find_if(dy, &Tensor::defined);
    Grads<3> dx;
    for (std::size_t k = 0; k < dx.size(); ++k)
      dx[k] = dy[k].defined() ? dy[k] : Tensor::zeros(saved.shapes[k], read.dtype(), read.device());
    return dx;
  }
};

CheckedSample contiguous_sample(std::string name, bool transposed, bool unread) {
  return {std::move(name), false, {draw::normal({2, 3, 4}), draw::normal({2, 3, 1}), draw::normal({2, 3, 2})},
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

const CheckedEntry checked({ContiguousAll::name, false,
    [] {
      return std::vector{contiguous_sample("transposed", true, false),
          contiguous_sample("one of them transposed", false, false),
          contiguous_sample("one that nobody reads", true, true)};
    },
    {}, contiguous_reference});

}  // namespace

Three contiguous_all(const Three& x, Site site) { return apply(ContiguousAll{}, site, x[0], x[1], x[2]); }

}  // namespace whence
