// The searches: along positions in order, and along a dtype's numbers by halving.
#include "examples/whence/verify/precision_report.h"

#include <cmath>
#include <functional>
#include <limits>

#include "autograd/backward.h"
#include "autograd/ops.h"
#include "nn/positional/alibi_slopes.h"
#include "tensor/error.h"
#include "tensor/random.h"
#include "tensor/raw.h"

namespace whence {
namespace {

constexpr double not_found = std::numeric_limits<double>::quiet_NaN();
constexpr double infinity = std::numeric_limits<double>::infinity();

// What a dtype makes of positions n, n + 1, ..., given in f64: a tensor [n] or [n m].
using OfPositions = std::function<Tensor(const Tensor& positions, DType dtype)>;

// The first n that looks like n + 1: all numbers of their rows are equal.
double first_equal_neighbours(const OfPositions& f, DType dtype, std::int64_t furthest) {
  constexpr index_t together = 1 << 16;
  for (index_t first = 0; first < furthest; first += together) {
    const Tensor positions = Tensor::arange(together + 1, DType::f64) + static_cast<double>(first);
    const std::vector<double> numbers = f(positions, dtype).to_vector();
    const std::size_t width = numbers.size() / (together + 1);
    for (std::size_t n = 0; n < together; ++n) {
      const auto row = numbers.begin() + static_cast<std::ptrdiff_t>(n * width);
      if (std::equal(row, row + static_cast<std::ptrdiff_t>(width), row + static_cast<std::ptrdiff_t>(width)))
        return static_cast<double>(first) + static_cast<double>(n);
    }
  }
  return not_found;
}

double at(const std::function<Tensor(const Tensor&)>& f, double x, DType dtype) {
  return f(Tensor::scalar(x, dtype)).item();
}

double rounded(double x, DType dtype) { return Tensor::scalar(x, dtype).item(); }

// The number nearest to `no`, towards `yes`, for which `holds`: bisection until no number of the dtype lies between.
double border(double no, double yes, DType dtype, const std::function<bool(double)>& holds) {
  if (!holds(rounded(yes, dtype))) return not_found;
  for (int halving = 0; halving < 200; ++halving) {
    const double middle = rounded((no + yes) / 2, dtype);
    if (middle == rounded(no, dtype) || middle == rounded(yes, dtype)) break;
    (holds(middle) ? yes : no) = middle;
  }
  return rounded(yes, dtype);
}

Tensor sigmoid_of(const Tensor& x) { return sigmoid(x); }
Tensor exp_of(const Tensor& x) { return exp(x); }

double gate_gradient(double logit, DType dtype) {
  const Tensor x = requires_grad(Tensor::scalar(logit, dtype));
  return grad(sigmoid(x), {}, {x})[0].item();
}

// ---- What schemes make of positions

Tensor slowest_pair(const Tensor& positions, DType dtype) {
  const Tensor angle = reshape(positions * 1e-4, {-1, 1});
  return cast(concat_along(1, {sin(angle), cos(angle)}), dtype);
}

// t theta with both in the dtype, as code that keeps its angle table in 16 bits has it.
Tensor angle_in_dtype(const Tensor& positions, DType dtype) {
  return cast(positions, dtype) * Tensor::scalar(1, dtype);
}

OfPositions alibi_bias(double slope) {
  return [slope](const Tensor& n, DType dtype) { return cast(n * -slope, dtype); };
}
OfPositions kerple_bias(double strength, double rate) {
  return [strength, rate](const Tensor& n, DType dtype) { return cast(log1p(n * rate) * -strength, dtype); };
}
// The same beside a logit, where attention adds them.
OfPositions beside(double logit, const OfPositions& bias) {
  return [logit, bias](const Tensor& n, DType dtype) { return bias(n, dtype) + Tensor::scalar(logit, dtype); };
}

// ---- CoPE's sums

enum class Sum : unsigned char { stepwise, stored, wide };

// The largest error among T positions p_j = sum_{l>=j} g_l of unit-normal logits, against gates and sums in f64.
double position_error(int length, Sum how, DType dtype) {
  constexpr index_t rows = 16;
  const Tensor logits = raw::cast(Tensor::normal({rows, length}, 0, 1, Stream(1, "gate logits"), DType::f64), dtype);
  const Tensor exact = reverse_cumulative_sum(sigmoid(cast(logits, DType::f64))), gates = sigmoid(logits);
  Tensor sums;
  if (how == Sum::stored) sums = reverse_cumulative_sum(gates);
  if (how == Sum::wide) sums = reverse_cumulative_sum(cast(gates, DType::f32));
  if (how == Sum::stepwise) {
    std::vector<Tensor> columns(static_cast<std::size_t>(length));
    Tensor total = Tensor::zeros({rows, 1}, dtype);
    for (index_t j = length - 1; j >= 0; --j)
      columns[static_cast<std::size_t>(j)] = total = total + slice(gates, 1, j, j + 1);
    sums = concat_along(1, columns);
  }
  return raw::reduce(Reduction::maximum, abs(cast(sums, DType::f64) - exact), {}, false).item();
}

class Report {
 public:
  explicit Report(const std::vector<DType>& dtypes) : dtypes_(dtypes) {}
  void ask(const std::string& key, const std::string& question, const std::function<double(DType)>& answer) {
    PrecisionRow row{key, question};
    for (const DType dtype : dtypes_) row.answers.push_back(answer(dtype));
    rows.push_back(std::move(row));
  }
  std::vector<PrecisionRow> rows;

 private:
  const std::vector<DType>& dtypes_;
};

void ask_about_functions(Report& report) {
  const auto sigmoid_is = [](double value, double far) {
    return
        [=](DType dtype) { return border(0, far, dtype, [&](double x) { return at(sigmoid_of, x, dtype) == value; }); };
  };
  report.ask("sigmoid_is_one", "a gate is exactly 1 from the logit", sigmoid_is(1, 100));
  report.ask("sigmoid_is_zero", "a gate is exactly 0 from the logit", sigmoid_is(0, -200));
  for (const double side : {100.0, -200.0}) {
    report.ask(side > 0 ? "gate_gradient_is_zero_above" : "gate_gradient_is_zero_below",
        to_text("a gate has no gradient ", side > 0 ? "above" : "below", " the logit"),
        [side](DType dtype) { return border(0, side, dtype, [&](double x) { return gate_gradient(x, dtype) == 0; }); });
  }
  report.ask("exp_overflows", "exp is infinite from",
      [](DType dtype) { return border(0, 1000, dtype, [&](double x) { return at(exp_of, x, dtype) == infinity; }); });
}

void ask_about_positions(Report& report, const PrecisionOptions& options) {
  const auto neighbours = [&report, &options](
                              const std::string& key, const std::string& question, const OfPositions& f) {
    report.ask(key, question, [&](DType dtype) { return first_equal_neighbours(f, dtype, options.furthest); });
  };
  neighbours("positions",
      "whole positions: n equals n + 1 from n =", [](const Tensor& n, DType dtype) { return cast(n, dtype); });
  neighbours("sinusoidal", "sinusoidal, slowest pair: n equals n + 1 from n =", slowest_pair);
  neighbours(
      "rotation_angle", "an angle of RoPE's fastest pair kept in the dtype: n equals n + 1 from n =", angle_in_dtype);
  const std::vector<double> slopes = alibi_slopes(options.heads);
  for (int head = 0; head < options.heads; ++head) {
    const double slope = slopes[static_cast<std::size_t>(head)];
    const std::string name = to_text("head ", head + 1, ", slope ", slope);
    neighbours(to_text("alibi_", head + 1), to_text("ALiBi, ", name, ": the bias of n equals that of n + 1 from n ="),
        alibi_bias(slope));
    neighbours(to_text("alibi_beside_logit_", head + 1), to_text("  the same beside a logit of ", options.logit),
        beside(options.logit, alibi_bias(slope)));
  }
  for (int head = 0; head<options.heads; head += options.heads> 1 ? options.heads - 1 : 1) {
    const double rate = (head + 1.0) / options.heads;
    neighbours(to_text("kerple_", head + 1),
        to_text("KERPLE, ln(1 + ", rate, " n): the bias of n equals that of n + 1 from n ="), kerple_bias(1, rate));
    neighbours(to_text("kerple_beside_logit_", head + 1), to_text("  the same beside a logit of ", options.logit),
        beside(options.logit, kerple_bias(1, rate)));
  }
}

void ask_about_sums(Report& report, const PrecisionOptions& options) {
  for (const int length : options.lengths) {
    const auto error = [length](Sum how) { return [=](DType dtype) { return position_error(length, how, dtype); }; };
    const std::string title = to_text("CoPE, T = ", length, ": largest error of a position, ");
    report.ask(to_text("cope_stepwise_", length), title + "each sum rounded", error(Sum::stepwise));
    report.ask(to_text("cope_stored_", length), title + "summed in f32, stored in the dtype", error(Sum::stored));
    report.ask(
        to_text("cope_wide_", length), title + "gates in the dtype, sums in f32 (what whence does)", error(Sum::wide));
  }
}

}  // namespace

std::vector<PrecisionRow> precision_report(const std::vector<DType>& dtypes, const PrecisionOptions& options) {
  Report report(dtypes);
  ask_about_functions(report);
  ask_about_positions(report, options);
  ask_about_sums(report, options);
  return std::move(report.rows);
}

}  // namespace whence
