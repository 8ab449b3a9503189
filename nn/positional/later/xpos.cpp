// xPos: rope whose pairs also fade with the distance, fast ones first.            Sun et al. 2022, arXiv:2212.10554
//   zeta_m = (2m/d' + gamma) / (1 + gamma),  m = 0 ... d'/2 - 1      between gamma / (1 + gamma) and 1
//   S_ij   = sum of the pairs' products, rotated by (i - j) theta_m as in rope and times zeta_m^((i - j) / B)
//   q_i is multiplied by zeta^((i - c) / B), k_j by zeta^((c - j) / B). Any c gives these products; the middle of the
//   sequence keeps both factors near 1, whatever else is in the batch. B = 512: up to 150 at 4096 tokens, 22 000 at
//   8192. Factors that a dtype cannot hold are refused.
// gamma = 0.4 is the paper's, B = scale_base = 512 the authors' code's. Causal only: for later keys zeta^(i - j) grows.
// No parameter is learned. The gradient of a pair of dims fades with it: tokens far apart teach the fast dims nothing.
#include <algorithm>
#include <limits>

#include "nn/positional/rotation.h"
#include "tensor/raw.h"

namespace whence {
namespace {

class XPos final : public PositionalScheme, public RotatesQueryKey, public CancelsInProduct {
 public:
  explicit XPos(const SchemeArguments& arguments)
      : rotation_(rotation_of(arguments)),
        theta_(Tensor::of(
            rotation_frequencies(rotation_.width, arguments.number("base")), {rotation_.width / 2}, DType::f64)) {
    const index_t dims = arguments.sizes().head_dim(), pairs = rotation_.width / 2;
    const double gamma = arguments.number("gamma");
    std::vector<double> log_zeta(static_cast<std::size_t>(dims), 0.0);
    for (index_t dim = 0; dim < rotation_.width; ++dim) {
      const index_t m = rotation_.interleaved ? dim / 2 : dim % pairs;
      const double zeta = (static_cast<double>(m) / static_cast<double>(pairs) + gamma) / (1 + gamma);
      log_zeta[static_cast<std::size_t>(dim)] = std::log(zeta) / arguments.number("scale_base");
    }
    log_zeta_ = Tensor::of(log_zeta, {dims}, DType::f64);
  }

  Claims claims() const override { return {.causal_only = true, .shift_invariant = true}; }
  void check_company(const Stages& stages) const override { require_one_rotation("xpos", stages); }

  // q:[b h i d], k:[b h j d]
  void rotate(Tensor& query, Tensor& key, const AttendContext& context) const override {
    const Positions& positions = context.positions;
    const std::vector<Span> spans = spans_of(context);
    for (const Span& span : spans) require_held(span.last - span.first, query.dtype());
    query = probe("rotated_q", faded(query, positions.query, from_middle(positions.query, spans), context));
    key = probe("rotated_k", faded(key, positions.key, from_middle(positions.key, spans) * -1.0, context));
  }

 private:
  // The first and last position of a sequence, without padding.
  struct Span {
    double first = std::numeric_limits<double>::infinity(), last = -first;
  };
  // Returns one span for each sequence, or one for all if they are equal.
  static std::vector<Span> spans_of(const AttendContext& context) {
    const Tensor& keys = context.positions.key;
    const std::vector<double> all = keys.to_vector();
    const std::vector<double> present = context.present.defined() ? context.present.to_vector() : std::vector<double>{};
    const auto tokens = static_cast<std::size_t>(keys.size(-1));
    std::vector<Span> spans(std::max(all.size(), present.size()) / std::max<std::size_t>(tokens, 1));
    for (std::size_t n = 0; n < spans.size() * tokens; ++n) {
      if (!present.empty() && present[n % present.size()] == 0) continue;
      Span& span = spans[n / tokens];
      span.first = std::min(span.first, all[n % all.size()]), span.last = std::max(span.last, all[n % all.size()]);
    }
    return spans;
  }
  // at [t] or [b t]   ->   distance of each token from the middle of its sequence, [t] or [b t]; 0 for padding
  static Tensor from_middle(const Tensor& at, const std::vector<Span>& spans) {
    const std::vector<double> all = at.to_vector();
    const index_t tokens = at.size(-1),
                  sequences = std::max<index_t>(at.numel() / std::max<index_t>(tokens, 1), std::ssize(spans));
    std::vector<double> distances;
    for (index_t n = 0; n < sequences * tokens; ++n) {
      const Span& span = spans[static_cast<std::size_t>(n / tokens) % spans.size()];
      const double position = all[static_cast<std::size_t>(n) % all.size()];
      const bool inside = span.first <= position && position <= span.last;
      distances.push_back(inside ? position - (span.first + span.last) / 2 : 0);
    }
    return Tensor::of(distances, sequences <= 1 && at.rank() == 1 ? at.shape() : Shape{sequences, tokens}, DType::f64);
  }

  Tensor faded(const Tensor& x, const Tensor& at, const Tensor& distance, const AttendContext& context) const {
    const Tensor rotated = rotary(x, rotation_angles(at, theta_), rotation_.interleaved);
    const Tensor factors = raw::unary(functions::Exp{}, rotation_angles(distance, log_zeta_));  // [t d] or [b 1 t d]
    return rotated * context.on_device(raw::cast(factors, x.dtype()));
  }

  // The factors may use half of a dtype's range, in logarithms; the other half is for queries and keys.
  void require_held(double span, DType dtype) const {
    const double largest = dtype == DType::f16                             ? 65504
                           : size_of(compute_dtype(dtype)) > sizeof(float) ? std::numeric_limits<double>::max()
                                                                           : std::numeric_limits<float>::max();
    const double longest = std::log(largest) / -std::ranges::min(log_zeta_.to_vector());
    if (span <= longest) return;
    throw InputError("xpos: positions ", span, " apart in ", dtype, " given, whose factors it cannot hold; at most ",
        std::floor(longest), " required; a larger scale_base, or another dtype");
  }

  Rotation rotation_;
  Tensor theta_, log_zeta_;  // [d'/2] f64; [d] f64, of zeta^(1 / B), 0 for dims not rotated
};

std::vector<SchemeOption> xpos_options() {
  std::vector<SchemeOption> all{
      option::number("gamma", 0.4, {1e-3, 1e6}, "a larger gamma fades less, and makes pairs more equal"),
      option::number("scale_base", 512, {1, 1e12}, "B: the distance over which pair m fades by zeta_m")};
  for (SchemeOption& option : rotation_options()) all.push_back(std::move(option));
  return all;
}

const RegisterScheme registered{{.name = "xpos",
    .title = "rotary positions that fade with the distance",
    .paper = "Sun et al. 2022, arXiv:2212.10554",
    .equation = "rope, pair m times ((2m/d + gamma) / (1 + gamma))^((i - j) / scale_base)",
    .options = xpos_options(),
    .picture = SchemeInfo::turn,
    .probes = {{"rotated_q", "b h i d", "queries, each pair rotated and scaled by its position",
                   "R_i q_i zeta^((i - c) / B)  (xPos)"},
        {"rotated_k", "b h j d", "keys, each pair rotated and scaled inversely", "R_j k_j zeta^((c - j) / B)  (xPos)"}},
    .variants = {"xpos(scale_base=4, layout=interleaved, width=2)", "xpos(gamma=1, scale_base=8)"},
    .make = make_scheme<XPos>}};

}  // namespace
}  // namespace whence
