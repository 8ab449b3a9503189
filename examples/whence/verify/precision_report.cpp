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

// Maps positions n, n + 1, ... in f64 to numbers of a dtype, [n] or [n m].
using OfPositions = std::function<Tensor(const Tensor& positions, DType dtype)>;

// Returns the first n whose row equals that of n + 1.
double first_equal_neighbours(const OfPositions& f, DType dtype, std::int64_t furthest) {
  constexpr index_t together = 1 << 16;
  for (index_t first = 0; first < furthest; first += together) {
    const Tensor positions = Tensor::arange(together + 1, DType::f64) + static_cast<double>(first);
    const std::vector<double> numbers = f(positions, dtype).to_vector();
    const auto width = static_cast<std::ptrdiff_t>(numbers.size() / (together + 1));
    for (index_t n = 0; n < together; ++n) {
      const auto row = numbers.begin() + n * width;
      if (std::equal(row, row + width, row + width)) return static_cast<double>(first + n);
    }
  }
  return not_found;
}

double rounded(double x, DType dtype) { return Tensor::scalar(x, dtype).item(); }

// Returns the number nearest to 0, towards `far`, for which `holds`, by bisection down to neighbours of the dtype.
double border(double far, DType dtype, const std::function<bool(const Tensor&)>& holds) {
  double no = 0, yes = far;
  if (!holds(Tensor::scalar(yes, dtype))) return not_found;
  for (int halving = 0; halving < 200; ++halving) {
    const double middle = rounded((no + yes) / 2, dtype);
    if (middle == rounded(no, dtype) || middle == rounded(yes, dtype)) break;
    (holds(Tensor::scalar(middle, dtype)) ? yes : no) = middle;
  }
  return rounded(yes, dtype);
}

// ---- Positions in schemes

Tensor slowest_pair(const Tensor& positions, DType dtype) {
  const Tensor angle = reshape(positions * 1e-4, {-1, 1});
  return cast(concat_along(1, {sin(angle), cos(angle)}), dtype);
}

// Returns t theta with both in the dtype, as in code that keeps its angle table in 16 bits.
Tensor angle_in_dtype(const Tensor& positions, DType dtype) {
  return cast(positions, dtype) * Tensor::scalar(1, dtype);
}

// ---- CoPE's sums

enum class Sum : unsigned char { stepwise, stored, wide };

// Returns the largest error of T positions p_j = sum_{l>=j} g_l for unit-normal logits, against gates and sums in f64.
double position_error(int length, Sum how, DType dtype) {
  constexpr index_t rows = 16;
  const Tensor logits = raw::cast(Tensor::normal({rows, length}, 0, 1, Stream(1, "gate logits"), DType::f64), dtype);
  const Tensor exact = reverse_cumulative_sum(sigmoid(cast(logits, DType::f64))), gates = sigmoid(logits);
  Tensor sums;
  if (how == Sum::stored) sums = reverse_cumulative_sum(gates);
  if (how == Sum::wide) sums = reverse_cumulative_sum(gates, -1, true);
  if (how == Sum::stepwise) {
    std::vector<Tensor> columns(static_cast<std::size_t>(length));
    Tensor total = Tensor::zeros({rows, 1}, dtype);
    for (index_t j = length - 1; j >= 0; --j)
      columns[static_cast<std::size_t>(j)] = total = total + slice(gates, 1, j, j + 1);
    sums = concat_along(1, columns);
  }
  return raw::reduce(Reduction::maximum, abs(cast(sums, DType::f64) - exact), {}, false).item();
}

// ---- The questions

class Report {
 public:
  Report(const std::vector<DType>& dtypes, const PrecisionOptions& options) : dtypes_(dtypes), options_(options) {}

  void ask_about_functions() {
    ask("sigmoid_is_one", "a gate is exactly 1 from the logit",
        [](DType dtype) { return border(100, dtype, [](const Tensor& x) { return sigmoid(x).item() == 1; }); });
    ask("sigmoid_is_zero", "a gate is exactly 0 from the logit",
        [](DType dtype) { return border(-200, dtype, [](const Tensor& x) { return sigmoid(x).item() == 0; }); });
    const auto no_gradient = [](const Tensor& x) { return grad(sigmoid(requires_grad(x)), {}, {x})[0].item() == 0; };
    ask("gate_gradient_is_zero_above", "a gate has no gradient above the logit",
        [&](DType dtype) { return border(100, dtype, no_gradient); });
    ask("gate_gradient_is_zero_below", "a gate has no gradient below the logit",
        [&](DType dtype) { return border(-200, dtype, no_gradient); });
    ask("exp_overflows", "exp is infinite from",
        [](DType dtype) { return border(1000, dtype, [](const Tensor& x) { return exp(x).item() == infinity; }); });
  }

  void ask_about_positions() {
    neighbours("positions",
        "whole positions: n equals n + 1 from n =", [](const Tensor& n, DType dtype) { return cast(n, dtype); });
    neighbours("sinusoidal", "sinusoidal, slowest pair: n equals n + 1 from n =", slowest_pair);
    neighbours(
        "rotation_angle", "an angle of RoPE's fastest pair kept in the dtype: n equals n + 1 from n =", angle_in_dtype);
    const int heads = options_.heads;
    for (int head = 0; head < heads; ++head) {
      const double slope = alibi_slopes(heads)[static_cast<std::size_t>(head)];
      bias("alibi_", head, to_text("ALiBi, head ", head + 1, ", slope ", slope),
          [slope](const Tensor& n, DType dtype) { return cast(n * -slope, dtype); });
    }
    for (int head = 0; head < heads; head += std::max(heads - 1, 1)) {  // the first and the last
      const double rate = (head + 1.0) / heads;
      bias("kerple_", head, to_text("KERPLE, ln(1 + ", rate, " n)"),
          [rate](const Tensor& n, DType dtype) { return cast(log1p(n * rate) * -1.0, dtype); });
    }
  }

  void ask_about_sums() {
    for (const int length : options_.lengths) {
      const auto error = [&](const char* key, Sum how, const char* question) {
        ask(to_text(key, length), to_text("CoPE, T = ", length, ": largest error of a position, ", question),
            [=](DType dtype) { return position_error(length, how, dtype); });
      };
      error("cope_stepwise_", Sum::stepwise, "each sum rounded");
      error("cope_stored_", Sum::stored, "summed in f32, stored in the dtype");
      error("cope_wide_", Sum::wide, "gates in the dtype, sums in f32 (what whence does)");
    }
  }

  std::vector<PrecisionRow> rows;

 private:
  void ask(const std::string& key, const std::string& question, const std::function<double(DType)>& answer) {
    rows.push_back({key, question});
    for (const DType dtype : dtypes_) rows.back().answers.push_back(answer(dtype));
  }
  void neighbours(const std::string& key, const std::string& question, const OfPositions& f) {
    ask(key, question, [&](DType dtype) { return first_equal_neighbours(f, dtype, options_.furthest); });
  }
  // The bias alone, and added to a logit as in attention.
  void bias(const std::string& key, int head, const std::string& name, const OfPositions& f) {
    neighbours(to_text(key, head + 1), name + ": the bias of n equals that of n + 1 from n =", f);
    neighbours(to_text(key, "beside_logit_", head + 1), to_text("  the same added to a logit of ", options_.logit),
        [&](const Tensor& n, DType dtype) { return f(n, dtype) + Tensor::scalar(options_.logit, dtype); });
  }

  const std::vector<DType>& dtypes_;
  const PrecisionOptions& options_;
};

}  // namespace

std::vector<PrecisionRow> precision_report(const std::vector<DType>& dtypes, const PrecisionOptions& options) {
  Report report(dtypes, options);
  report.ask_about_functions();
  report.ask_about_positions();
  report.ask_about_sums();
  return std::move(report.rows);
}

}  // namespace whence
