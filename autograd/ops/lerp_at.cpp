// Reads a table at a real-valued index: CoPE's interpolation.  (Golovneva et al. 2024, Listing 1; nn/errata.md, A1, A9)
//   table t:[... n]   position p:[... m], 0 <= p <= n-1   ->   y:[... m]
//   y_j  = (1-w) t[a] + w t[c],   a = floor(p_j),  c = ceil(p_j),  w = p_j - a
//   dt[a] += (1-w) dy_j     dt[c] += w dy_j     dp_j = (t[c] - t[a]) dy_j
// At an integer a = c: the value is t[p], and dp_j is exactly 0 although the function has a corner there. Positions
// outside the table read its nearest end with derivative 0; a NaN reads row 0, because an index must be inside its
// table. That hides no NaN: the scores behind such a position are NaN, and CoPE adds them to the value read here.
#include <algorithm>

#include "autograd/op.h"
#include "autograd/ops.h"
#include "tensor/raw.h"

namespace whence {
namespace {

struct LerpAt {
  static constexpr const char* name = "lerp_at";
  static constexpr std::size_t factor = 1;
  struct Saved {
    SavedTensor table, position;
  };

  Tensor forward(Saved& saved, const Tensor& table, const Tensor& position) const {
    check(table, position);
    const Tensor t = raw::contiguous(table), p = raw::contiguous(position);
    saved.table.as(t, table);
    saved.position.as(p, position);
    const Tensor y = Tensor::like(t, p.shape());
    kernels(p).lerp_at(t, p, y);
    return y;
  }

  Grads<2> backward(const Saved& saved, const Tensor& dy, Needs<2>) const {
    const Tensor t = saved.table.get(), p = saved.position.get();
    const Tensor g = raw::contiguous(dy);
    const Tensor dt = Tensor::like(t), dp = Tensor::like(p);
    kernels(p).lerp_at_backward(t, p, g, dt, dp);
    return {dt, dp};
  }

  // At an integer both rows are the same, so the derivative with respect to position is 0 here too.
  static std::array<Tensor, 2> inputs(const Saved& saved) { return {saved.table.get(), saved.position.get()}; }
  static Tensor composed(const std::vector<Tensor>& in) {
    const DType dtype = in[1].dtype();
    const Tensor table = cast(in[0], dtype);
    const Tensor inside = raw::unary(functions::Clamp{}, in[1], {0, static_cast<double>(in[0].size(-1) - 1)});
    const Tensor below = raw::cast(inside, DType::i64), floor = raw::cast(below, dtype), w = in[1] - floor;
    const Tensor whole = raw::binary(name, functions::GreaterEqual{}, floor, inside);  // 1 or 0
    const Tensor ceiling =
        raw::binary(name, functions::Subtract{}, raw::add(floor, Tensor::ones({}, dtype, floor.device())), whole);
    const Tensor high = gather(table, -1, raw::cast(ceiling, DType::i64));
    return cast(affine(w, -1, 1) * gather(table, -1, below) + w * high, in[0].dtype());
  }

  bool by_element(std::size_t input) const { return input == 1; }
  std::vector<Stop> stops(const Saved& saved, std::size_t input) const {
    if (input == 0) return {Stop::unread};
    const std::vector<double> t = saved.table.peek().to_vector(), p = saved.position.peek().to_vector();
    const auto rows = static_cast<std::size_t>(saved.table.peek().size(-1));
    const auto width = static_cast<std::size_t>(saved.position.peek().size(-1));
    std::vector<Stop> all;
    bool level = false;  // all rows of this line's table are equal
    for (std::size_t i = 0; i < p.size(); ++i) {
      const auto row = t.begin() + static_cast<std::ptrdiff_t>(i / width * rows);
      if (i % width == 0)
        level = std::all_of(row, row + static_cast<std::ptrdiff_t>(rows), [&](double x) { return x == *row; });
      const bool outside = p[i] < 0 || p[i] >= static_cast<double>(rows - 1);
      all.push_back(!level && outside ? Stop::clamped : !level && p[i] == std::floor(p[i]) ? Stop::whole : Stop::flat);
    }
    return all;
  }

  static void check(const Tensor& table, const Tensor& position) {
    raw::require_floating(name, "table", table);
    raw::require_same_device(name, "table", table, "position", position);
    if (position.dtype() != compute_dtype(table.dtype()))
      raw::require_same_dtype(name, "table", table, "position", position);
    bool agree = table.rank() == position.rank() && table.rank() > 0 && table.size(-1) > 0;
    for (int axis = 0; agree && axis + 1 < table.rank(); ++axis) agree = table.size(axis) == position.size(axis);
    if (const index_t most =
            compute_dtype(position.dtype()) == DType::f32 ? index_t{1} << 24 : std::numeric_limits<int>::max();
        agree && table.size(-1) > most)
      fail(name, "table is ", table.shape(), "; at most ", most, " rows required, beyond which ", position.dtype(),
          " cannot count them");
    if (!agree) {
      fail(name, "table is ", table.shape(), ", position is ", position.shape(),
          "; [... n] with n > 0 and [... m] with the same leading axes required; expand one of them");
    }
  }
};

}  // namespace

Tensor lerp_at(const Tensor& table, const Tensor& position, Site site) {
  return apply(LerpAt{}, site, table, position);
}

}  // namespace whence
