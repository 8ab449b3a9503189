// Rotary position embedding: pairs of query and key dims are rotated by the position, so that q.k depends only on the
// distance.                                                                         Su et al. 2021, arXiv:2104.09864
//   theta_m = base^(-2m/d'),  m = 0 ... d'/2 - 1;   pair m is rotated by t theta_m;   values are unchanged
//   half (NeoX, Llama): pairs (m, m + d'/2).   interleaved (RoFormer): pairs (2m, 2m + 1)
//   d' = width <= d dims are rotated, the rest are unchanged.
// keep: the slowest pairs are not rotated, theta_m = 0 from m = floor(keep d'/2) on. They carry content that no
// distance blurs; if no pair is rotated this is none      (p-RoPE, Barbero et al. 2024, arXiv:2410.06205)
// scaling, for runs kappa = factor times longer than the L = original training tokens, with Hugging Face's names:
//   ntk       base' = base kappa^(d'/(d'-2)): the slowest pair is interpolated, the fastest is unchanged
//   dynamic   the same with kappa T/L - (kappa - 1) in place of kappa, for a run of T > L tokens: each token decoded
//             beyond L changes all rows before it, and costs a pass over the whole run
//   llama3    theta' = theta s + (theta / kappa)(1 - s),  s = clip((r - low) / (high - low), 0, 1),  r = L theta / 2 pi:
//             the number of rotations of a pair within L
//   longrope  theta_m / short_m, in a run of more than L tokens theta_m / long_m; rotated dims of q and k times
//             sqrt(1 + ln kappa / ln L) in both                                    (Ding et al. 2024, arXiv:2402.13753)
// T counts the tokens of a sequence, wherever its positions begin (nn/errata.md, D18).
#include <numbers>

#include "nn/positional/rotation.h"

namespace whence {
namespace {

class Rope final : public Rotating {
 public:
  explicit Rope(const SchemeArguments& arguments)
      : Rotating(arguments, other_speeds(arguments)),
        scaling_(arguments.word("scaling")),
        base_(arguments.number("base")),
        factor_(arguments.number("factor")),
        low_(arguments.number("low_freq_factor")),
        high_(arguments.number("high_freq_factor")),
        rotating_pairs_(static_cast<std::size_t>(arguments.number("keep") * static_cast<double>(pairs()))) {
    const auto refuse_unless = [&](bool read, const char* option, const char* without) {
      if (!read) arguments.refuse_if_given(option, to_text("without ", without));
    };
    const bool llama3 = scaling_ == "llama3", longrope = scaling_ == "longrope";
    refuse_unless(scaling_ != "none", "factor", "a scaling");
    refuse_unless(scaling_ != "none" && scaling_ != "ntk", "original", "a scaling that reads it");
    for (const char* option : {"low_freq_factor", "high_freq_factor"}) refuse_unless(llama3, option, "scaling=llama3");
    for (const char* option : {"short_factor", "long_factor"}) refuse_unless(longrope, option, "scaling=longrope");
    if (scaling_ != "none" && scaling_ != "ntk")
      original_ = static_cast<double>(arguments.or_length("original", "original length"));
    if (rotating_pairs_ == 0 && !longrope) arguments.refuse_if_given("scaling", "where no pair rotates");
    if (pairs() == 1 && (scaling_ == "ntk" || scaling_ == "dynamic"))
      arguments.refuse_if_given("scaling", "with one pair of dims, whose speed is 1 for every base");
    if (low_ >= high_)
      throw InputError("rope: low_freq_factor ", low_, " and high_freq_factor ", high_, " given; low < high required");
    if (longrope && original_ < 2) throw InputError("rope: original 1 given; 2 or more required, as ln 1 = 0");
    short_ = by_pair(arguments, "short_factor"), long_ = by_pair(arguments, "long_factor");
  }

  Claims claims() const override {
    Claims claims = Rotating::claims();
    claims.uses_positions = rotating_pairs_ > 0;
    return claims;
  }

 private:
  static Lengths other_speeds(const SchemeArguments& arguments) {
    const std::string& scaling = arguments.word("scaling");
    const bool dynamic = scaling == "dynamic";
    if (!dynamic && (scaling != "longrope" || arguments.numbers("short_factor") == arguments.numbers("long_factor")))
      return {};
    const index_t longer = arguments.or_length("original", "original length") + 1;
    return {longer, dynamic ? Claims::any_length : longer};
  }

  std::vector<double> by_pair(const SchemeArguments& arguments, const char* option) const {
    std::vector<double> numbers = arguments.numbers(option);
    const auto count = static_cast<index_t>(numbers.size());
    if (count == 1) numbers.resize(static_cast<std::size_t>(pairs()), numbers[0]);
    if (count != 1 && count != pairs())
      throw InputError("rope: ", option, " of ", count, " numbers for ", pairs(),
          " pairs given; one for all, or one for each, required");
    return numbers;
  }

  PairSpeeds speeds_for(double tokens) const override {
    const double d = static_cast<double>(width());
    double wider = scaling_ == "ntk" ? factor_ : 1;
    if (scaling_ == "dynamic") wider = factor_ * std::max(tokens / original_, 1.0) - (factor_ - 1);
    PairSpeeds run{rotation_frequencies(width(), base_ * std::pow(wider, d / (d - 2)))};
    for (std::size_t m = 0; m < run.theta.size(); ++m) {
      double& theta = run.theta[m];
      const double rotations = original_ * theta / (2 * std::numbers::pi),
                   stays = scaling_ == "llama3" ? std::clamp((rotations - low_) / (high_ - low_), 0.0, 1.0) : 1;
      theta = theta * stays + theta / factor_ * (1 - stays);
      if (scaling_ == "longrope") theta /= tokens > original_ ? long_[m] : short_[m];
      if (m >= rotating_pairs_) theta = 0;
    }
    if (scaling_ == "longrope") run.magnitude = std::sqrt(1 + std::log(factor_) / std::log(original_));
    return run;
  }

  std::string scaling_;
  double base_, factor_, low_, high_, original_ = 0;  // original: L, if it is used
  std::size_t rotating_pairs_;                        // this many pairs are rotated
  std::vector<double> short_, long_;
};

std::vector<SchemeOption> rope_options() {
  std::vector<SchemeOption> all = rotation_options();
  for (SchemeOption& option : std::vector<SchemeOption>{
           option::number("keep", 1, {0, 1}, "share of the pairs that are rotated, the fastest ones"),
           option::words("scaling", {"none", "ntk", "dynamic", "llama3", "longrope"},
               "for longer runs than trained; dynamic: each token decoded beyond that costs a pass over the whole run"),
           option::number("factor", 4, {1, 1e6}, "kappa: how many times longer runs become"),
           option::integer("original", 0, {0, 1e9}, "L, the length that was trained on; 0: the training length"),
           option::number("low_freq_factor", 1, {1e-3, 1e6}, "llama3 interpolates pairs with fewer rotations within L"),
           option::number("high_freq_factor", 4, {1e-3, 1e6}, "llama3 keeps pairs with more rotations within L"),
           option::numbers("short_factor", 1, {1e-6, 1e9}, "longrope's divisor of each pair in runs up to L"),
           option::numbers("long_factor", 1, {1e-6, 1e9}, "the same in longer runs; one number: for all pairs")})
    all.push_back(std::move(option));
  return all;
}

const RegisterScheme registered{{.name = "rope",
    .aliases = {"rotary"},
    .title = "rotary position embedding",
    .paper = "Su et al. 2021, arXiv:2104.09864",
    .equation = "S_ij = (R_i q_i).(R_j k_j) / sqrt(d),  R_t rotates pair m by t base^(-2m/d)",
    .options = rope_options(),
    .picture = SchemeInfo::turn,
    .probes = Rotating::probes("  (RoPE)"),
    .variants = {"rope(layout=interleaved, width=2)", "rope(keep=0.5)", "rope(keep=0)", "rope(keep=0.75, scaling=ntk)",
        "rope(scaling=dynamic, factor=2, original=4)", "rope(scaling=llama3, factor=8, original=6)",
        "rope(layout=interleaved, width=4, scaling=longrope, original=9, short_factor=1:2, long_factor=1.5:4)"},
    .make = make_scheme<Rope>}};

}  // namespace
}  // namespace whence
