// Schemes at other positions: the same scheme gets other positions for its tokens.
//   shifted(S, by=n)        p -> p + n
//   interpolated(S, factor) p -> p / factor, i - j -> (i - j) / factor       position interpolation, Chen et al. 2023,
//                                                                            arXiv:2306.15595
//   randomised(S, length)   p -> the p-th smallest of T draws from 0 ... length - 1 without replacement, new in every
//                           pass (Ruoss et al. 2023, arXiv:2305.16843). If S reads only distances (ALiBi,
//                           Transformer-XL), the distances 1 ... T - 1 are drawn instead. Then a row and a column of
//                           distances remain one sequence.
// A draw is a function of (seed, step, path): training resumes with it, and layers with their own scheme draw
// separately.
// The draw passes the probe "drawn", where a capture may read or replace it.
#include <algorithm>
#include <numeric>

#include "autograd/observer.h"
#include "autograd/ops.h"
#include "nn/scheme.h"
#include "tensor/error.h"
#include "tensor/random.h"

namespace whence {
namespace {

class Moved : public PositionalScheme, public MovesPositions {
 public:
  // `length`: of the longest run of the base
  Moved(const SchemeArguments& arguments, index_t length) : base_(arguments.base(length)) {
    child("base", *base_);
    const std::string& name = arguments.spec().info().name;
    if (!base_->claims().uses_positions)
      throw InputError(name, ": the scheme inside reads no positions, so that ", name, " has no effect; leave it out");
  }

  void join(Stages& stages) const override {
    Stages inner;
    base_->join(inner);
    stages.enter_moved(inner, *this);
  }
  void check_company(const Stages& stages) const override { base_->check_company(stages); }

 protected:
  const PositionalScheme& base() const { return *base_; }

 private:
  std::unique_ptr<PositionalScheme> base_;
};

class Shifted final : public Moved {
 public:
  explicit Shifted(const SchemeArguments& arguments)
      : Moved(arguments, arguments.sizes().length + arguments.integer("by")), by_(arguments.integer("by")) {}

  Claims claims() const override {
    Claims claims = base().claims();
    if (claims.longest != Claims::any_length) claims.longest -= by_;
    return claims;
  }
  Positions move(const Positions& positions) const override {
    Positions moved = positions;
    moved.query = positions.query + static_cast<double>(by_);
    moved.key = positions.key + static_cast<double>(by_);
    if (positions.undivided_query.defined()) {
      moved.undivided_query = positions.undivided_query + static_cast<double>(by_);
      moved.undivided_key = positions.undivided_key + static_cast<double>(by_);
    }
    moved.length = positions.length + by_;
    return moved;
  }

 private:
  index_t by_;
};

class Interpolated final : public Moved {
 public:
  explicit Interpolated(const SchemeArguments& arguments)
      : Moved(arguments, arguments.sizes().length), factor_(arguments.number("factor")) {
    if (base().claims().whole_positions && factor_ != 1) {
      throw InputError(
          "interpolated: the scheme inside has a row of a table for each position; whole positions required; use one "
          "that computes");
    }
  }

  Claims claims() const override { return base().claims(); }
  Positions move(const Positions& positions) const override {
    Positions moved = positions;
    moved.query = positions.query * (1 / factor_);
    moved.key = positions.key * (1 / factor_);
    if (!positions.undivided_query.defined()) {
      moved.undivided_query = positions.query;
      moved.undivided_key = positions.key;
    }
    moved.divisor = positions.divisor * factor_;
    return moved;
  }

 private:
  double factor_;
};

class Randomised final : public Moved {
 public:
  explicit Randomised(const SchemeArguments& arguments)
      : Moved(arguments, arguments.integer("length")),
        length_(arguments.integer("length")),
        draws_distances_(base().claims().drawn == Claims::Drawn::distances) {}

  // All positions of a run are drawn at once. So with the same draw a row does not change when the run becomes longer.
  Claims claims() const override {
    Claims claims = base().claims();
    claims.shift_invariant = claims.shift_invariant && draws_distances_;
    claims.longest = length_;
    claims.drawn_each_step = true;
    return claims;
  }

  Positions move(const Positions& positions) const override {
    if (positions.length < 1 || positions.length > length_) {
      throw InputError(
          "randomised: a run of ", positions.length, " tokens given; 1 to length = ", length_, " required");
    }
    const Stream stream(positions.seed, path(), positions.step);
    std::vector<double> all = sorted_draw(stream, draws_distances_ ? positions.length - 1 : positions.length);
    if (draws_distances_) all.insert(all.begin(), 0);
    const Scope scope(path());
    const Tensor drawn = probe("drawn", Tensor::of(all, {positions.length}, DType::f64));  // [t]
    Positions moved = positions;
    if (draws_distances_) {
      moved.distances = drawn;
    } else {
      const bool divided = positions.undivided_query.defined();  // then the draws are divided in place of the tokens
      moved.query =
          looked_up(drawn.to_vector(), divided ? positions.undivided_query : positions.query);      // [i] or [b i]
      moved.key = looked_up(drawn.to_vector(), divided ? positions.undivided_key : positions.key);  // [j] or [b j]
      if (divided) {
        moved.undivided_query = moved.query, moved.undivided_key = moved.key;
        moved.query = moved.query * (1 / positions.divisor), moved.key = moved.key * (1 / positions.divisor);
      }
    }
    moved.length = length_;
    return moved;
  }

 private:
  // Draws `count` positions of 0 ... length - 1, or distances of 1 ... length - 1, without replacement, ascending.
  std::vector<double> sorted_draw(const Stream& stream, index_t count) const {
    const index_t first = draws_distances_ ? 1 : 0;
    std::vector<double> all(static_cast<std::size_t>(length_ - first));
    std::iota(all.begin(), all.end(), static_cast<double>(first));
    for (index_t n = 0; n < count; ++n) {  // Fisher and Yates, the first `count` elements
      const auto left = static_cast<std::uint32_t>(length_ - first - n);
      std::swap(all[static_cast<std::size_t>(n)],
          all[static_cast<std::size_t>(n) + stream.below(static_cast<std::uint64_t>(n), left)]);
    }
    all.resize(static_cast<std::size_t>(count));
    std::sort(all.begin(), all.end());
    return all;
  }

  // Positions of padding are outside [0, T); their draw does not matter.
  static Tensor looked_up(const std::vector<double>& drawn, const Tensor& positions) {
    std::vector<double> found;
    for (const double position : positions.to_vector()) {
      found.push_back(
          drawn[static_cast<std::size_t>(std::clamp(position, 0.0, static_cast<double>(drawn.size() - 1)))]);
    }
    return Tensor::of(found, positions.shape(), DType::f64);
  }

  index_t length_;
  bool draws_distances_;
};

const RegisterScheme shifted{{.name = "shifted",
    .title = "shifted positions",
    .paper = "Kiyono et al. 2021, arXiv:2109.05644",
    .equation = "p -> p + by",
    .options = {option::integer("by", 0, {0, 1e9}, "tokens")},
    .takes_base = true,
    .variants = {"shifted(rope, by=17)", "shifted(sinusoidal, by=3)", "shifted(yarn(original=4, dynamic=yes), by=5)"},
    .make = make_scheme<Shifted>}};

const RegisterScheme interpolated{{.name = "interpolated",
    .aliases = {"pi"},
    .title = "position interpolation",
    .paper = "Chen et al. 2023, arXiv:2306.15595",
    .equation = "p -> p / factor,  i - j -> (i - j) / factor",
    .options = {option::number("factor", 1, {1e-6, 1e6}, "evaluation length over training length")},
    .takes_base = true,
    .variants = {"interpolated(rope, factor=4)", "interpolated(t5, factor=3)",
        "randomised(interpolated(alibi, factor=1.5), length=64)"},
    .make = make_scheme<Interpolated>}};

const RegisterScheme randomised{{.name = "randomised",
    .aliases = {"randomized"},
    .title = "randomised positions",
    .paper = "Ruoss et al. 2023, arXiv:2305.16843",
    .equation = "p -> s_p,  s = T draws from 0 ... length - 1, sorted",
    .options = {option::integer("length", 2048, {1, 1e7}, "positions to draw from; at least the longest run")},
    .probes = {{"drawn", "t", "the position of each token, or the distance used for each",
        "sorted draws from 0 ... length - 1  (Ruoss et al.)", ProbeInfo::sequential}},
    .takes_base = true,
    .variants = {"randomised(rope, length=64)", "randomised(alibi, length=64)", "randomised(sinusoidal, length=64)",
        "randomised(yarn(original=4, dynamic=yes), length=64)"},
    .make = make_scheme<Randomised>}};

}  // namespace
}  // namespace whence
