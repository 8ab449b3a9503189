// Rotary position embedding: pairs of query and key dims turn with the position, so that q.k depends on the distance alone.   (SPEC 3.12)
//   theta_m = base^(-2m/d'),  m = 0 ... d'/2 - 1;   the pair m is rotated by t theta_m;   values stay
//   half (NeoX, Llama): pairs (m, m + d'/2).   interleaved (RoFormer): pairs (2m, 2m + 1).   d' = width <= d dims rotate, the rest stay.
#include <cmath>

#include "autograd/ops.h"
#include "nn/scheme.h"
#include "tensor/error.h"

namespace whence {
namespace {

class Rope final : public PositionalScheme, public RotatesQueryKey {
 public:
  Rope(index_t width, double base, bool interleaved) : width_(width), base_(base), interleaved_(interleaved) {}

  Claims claims() const override { return {.shift_invariant = true}; }

  // q:[b h i d], k:[b h j d]
  void rotate(Tensor& query, Tensor& key, const Positions& positions) const override {
    query = rotary(query, angles(positions.query), interleaved_);
    key = rotary(key, angles(positions.key), interleaved_);
  }

 private:
  // [t, width/2] f64: t theta_m, in double whatever the model's dtype, so that far positions stay apart.
  Tensor angles(const Tensor& positions) const {
    std::vector<double> theta;
    for (index_t m = 0; m < width_ / 2; ++m) theta.push_back(std::pow(base_, -2 * static_cast<double>(m) / static_cast<double>(width_)));
    return reshape(positions, {-1, 1}) * Tensor::of(theta, {1, width_ / 2}, DType::f64);
  }

  index_t width_;
  double base_;
  bool interleaved_;
};

const RegisterScheme registered{
    {.name = "rope",
     .aliases = {"rotary"},
     .title = "rotary position embedding",
     .paper = "Su et al. 2021, arXiv:2104.09864",
     .equation = "S_ij = (R_i q_i).(R_j k_j) / sqrt(d),  R_t turns pair m by t base^(-2m/d)",
     .options = {{"base", SchemeOption::Kind::real, "10000", 1, 1e12, {}, "the slowest pair turns once in about 2 pi base positions"},
                 {"layout", SchemeOption::Kind::word, "half", 0, 0, {"half", "interleaved"}, "which dims make a pair"},
                 {"width", SchemeOption::Kind::integer, "0", 0, 65536, {}, "dims that rotate, an even number; 0: all of a head"}},
     .make = [](const SchemeArguments& arguments) -> std::unique_ptr<PositionalScheme> {
       const index_t head_dim = arguments.sizes().head_dim(), given = arguments.integer("width"), width = given ? given : head_dim;
       if (width % 2 || width > head_dim) {
         throw InputError(
             concat("rope: width ", width, " for heads of ", head_dim, " dims; an even width of at most ", head_dim, " required"));
       }
       return std::make_unique<Rope>(width, arguments.real("base"), arguments.word("layout") == "interleaved");
     }}};

}  // namespace
}  // namespace whence
