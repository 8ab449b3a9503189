#include "autograd/check/gradcheck.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "autograd/backward.h"
#include "autograd/graph.h"
#include "autograd/ops.h"
#include "autograd/recording.h"
#include "tensor/random.h"
#include "tensor/raw.h"

namespace whence {
namespace {

using Numbers = std::vector<double>;

double dot_product(const Numbers& a, const Numbers& b) {
  double total = 0;
  for (std::size_t i = 0; i < a.size(); ++i) total += a[i] * b[i];
  return total;
}

double norm(const Numbers& a) { return std::sqrt(dot_product(a, a)); }

// Returns the largest absolute value.
double largest(const Numbers& a) {
  double result = 0;
  for (const double x : a) result = std::max(result, std::abs(x));
  return result;
}

Numbers random_numbers(index_t count, std::uint64_t seed, std::uint64_t index) {
  const Stream stream(seed, "gradcheck", index);
  Numbers result(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < result.size(); ++i) result[i] = stream.normal(i);
  return result;
}

// Returns the tangents of x, or zeros unless x is dual.
Numbers tangents_of(const Tensor& x) {
  Numbers result(static_cast<std::size_t>(x.numel()));
  if (x.dtype() != DType::dual) return result;
  const Tensor flat = raw::to_device(raw::contiguous(x), Device::cpu());
  for (std::size_t i = 0; i < result.size(); ++i) result[i] = flat.data<Dual>()[i].tangent;
  return result;
}

bool same_bits(const Numbers& a, const Numbers& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(double)) == 0);
}

// Returns `values` with the strides of x. Strides that would put two elements at one address are not kept.
Tensor laid_out_like(const Tensor& x, DType dtype, const Numbers& values, const Numbers* tangents) {
  Tensor numbers = Tensor::of(values, x.shape(), dtype);
  if (dtype == DType::dual && tangents)
    for (std::size_t i = 0; i < values.size(); ++i) numbers.data<Dual>()[i].tangent = (*tangents)[i];
  numbers = raw::to_device(numbers, x.device());
  if (x.is_contiguous() || x.numel() == 0) return numbers;
  // An axis of stride 0 would tie elements together that are checked one by one. Such inputs become contiguous.
  index_t span = 1;
  for (int axis = 0; axis < x.rank(); ++axis) {
    if (x.size(axis) > 1 && x.strides()[axis] == 0) return numbers;
    span += (x.size(axis) - 1) * x.strides()[axis];
  }
  const Tensor result = Tensor::empty({span}, dtype, x.device()).view(x.shape(), x.strides());
  raw::copy_into(numbers, result);
  return result;
}

// The inputs of a function under gradcheck. Exchanges their numbers, and always restores the old ones.
class CheckedInputs {
 public:
  CheckedInputs(const char* op, const std::vector<Named>& named, bool any_dtype) {
    for (const Named& input : named) {
      raw::require_floating(op, input.name.c_str(), input.tensor);
      if (input.tensor.dtype() != DType::f64 && !any_dtype) {
        fail(op, input.name, " is ", input.tensor.dtype(),
            "; f64 required, because rounding would hide what is looked for; cast the ",
            "inputs and parameters to f64 first");
      }
      if (node_of(input.tensor) && !node_of(input.tensor)->is_leaf())
        fail(
            op, input.name, " is a result of ", node_of(input.tensor)->name(), "; a leaf required; use detach() first");
      for (const Entry& other : entries_)
        if (other.handle.identity() == input.tensor.identity())
          fail(op, input.name, " is named twice; each tensor once required");
      entries_.push_back(
          {input.tensor, input.tensor.detach(), Ref<GraphLink>(input.tensor.link()), input.tensor.to_vector()});
    }
  }
  ~CheckedInputs() { restore(); }
  CheckedInputs(const CheckedInputs&) = delete;
  CheckedInputs& operator=(const CheckedInputs&) = delete;

  std::size_t count() const { return entries_.size(); }
  const Numbers& values(std::size_t k) const { return entries_[k].values; }
  std::vector<Tensor> tensors() const {
    std::vector<Tensor> result;
    for (const Entry& entry : entries_) result.push_back(entry.handle);
    return result;
  }

  void restore() {
    for (const Entry& entry : entries_) {
      entry.handle.replace(entry.original);
      entry.handle.set_link(entry.link);
    }
  }

  // Sets input k to values + h u in its own dtype and restores the others.
  void shift(std::size_t k, const Numbers& u, double h) {
    restore();
    Numbers moved = entries_[k].values;
    for (std::size_t i = 0; i < moved.size(); ++i) moved[i] += h * u[i];
    entries_[k].handle.replace(laid_out_like(entries_[k].original, entries_[k].original.dtype(), moved, nullptr));
  }

  // Makes all inputs dual; u is the tangent of input k, the other tangents are 0. Links are dropped first, because a
  // dual must not look like a leaf of the caller's dtype.
  void make_dual(std::size_t k, const Numbers& u) {
    for (std::size_t other = 0; other < entries_.size(); ++other) {
      const Entry& entry = entries_[other];
      entry.handle.set_link({});
      entry.handle.replace(laid_out_like(entry.original, DType::dual, entry.values, other == k ? &u : nullptr));
    }
  }

  // Makes leaves of the present dtype, so that nothing is added to the caller's gradients.
  void make_leaves() {
    for (const Entry& entry : entries_) {
      entry.handle.set_link({});
      requires_grad(entry.handle);
    }
  }

 private:
  struct Entry {
    Tensor handle, original;
    Ref<GraphLink> link;
    Numbers values;
  };
  std::vector<Entry> entries_;
};

// Compares two derivatives along one direction u of one input.
struct Comparison {
  double expected, got, scale;
  double left = 0, right = 0;  // one-sided derivatives, from differences only
  double relative() const {
    const double error = std::abs(expected - got);
    return error == 0 ? 0 : error / scale;
  }
};

class Checker {
 public:
  // `inner_size`: the size of numbers inside f whose rounding reaches the result even if the result is small.
  Checker(const char* op, const std::function<Tensor()>& f, const std::vector<Named>& named,
      const GradcheckOptions& options, double inner_size = 0)
      : op_(op), f_(f), options_(options), inputs_(op, named, options.any_dtype), inner_size_(inner_size) {
    for (const Named& input : named) report_.inputs.push_back({input.name, input.tensor.shape(), {}, {}, {}});
  }

  GradcheckReport run() {
    differentiate();
    for (std::size_t k = 0; k < inputs_.count(); ++k) {
      if (inputs_.values(k).empty() || y_.empty()) continue;
      if (options_.duals)
        walk(k, report_.inputs[k].duals, "duals", options_.dual_tolerance,
            [&](const Numbers& u) { return by_duals(k, u); });
      if (!options_.differences) continue;
      walk(k, report_.inputs[k].differences, "differences", options_.difference_tolerance,
          [&](const Numbers& u) { return by_differences(k, u); });
    }
    return std::move(report_);
  }

 private:
  // Computes v'J for every input in two recorded runs, which must give the same bits.
  void differentiate() {
    for (int run = 0; run < 2; ++run) {
      inputs_.restore();
      inputs_.make_leaves();
      const RecordingScope record(true);
      const Tensor y = f_();
      if (!is_floating(y.dtype())) fail(op_, "f returned ", y.dtype(), "; a floating result required");
      // Never ones: a plain sum lets a softmax backward of any scale pass (tests/autograd/check/mutation.cpp).
      v_ = random_numbers(y.numel(), options_.seed, 0);
      const Tensor v = raw::cast(raw::to_device(Tensor::of(v_, y.shape(), DType::f64), y.device()), y.dtype());
      const std::vector<Tensor> found =
          tracked(y) ? grad(y, v, inputs_.tensors(), {.allow_unused = true}) : std::vector<Tensor>(inputs_.count());
      std::vector<Numbers> gradients;
      for (std::size_t k = 0; k < inputs_.count(); ++k) {
        gradients.push_back(found[k].defined() ? found[k].to_vector() : Numbers(inputs_.values(k).size()));
        if (run == 1 && !same_bits(gradients[k], gradients_[k])) problem(k, "two backward passes gave different bits");
      }
      const Numbers values = y.to_vector();
      if (run == 1 && !same_bits(values, y_))
        report_.problems.push_back("f is not a function of its inputs: two runs gave different bits");
      y_ = values;
      gradients_ = gradients;
    }
  }

  // Returns the size that an error is relative to: that of the terms that were summed, plus a little of the natural
  // size of a derivative, y / x.
  double scale(std::size_t k, const Numbers& u, const Numbers& moved) const {
    Numbers touched = gradients_[k];
    for (std::size_t i = 0; i < u.size(); ++i) touched[i] *= u[i] == 0 ? 0 : 1;
    const double x = largest(inputs_.values(k)),
                 natural = norm(v_) * std::max(largest(y_), inner_size_) / (x > 0 ? x : 1);
    return norm(v_) * norm(moved) + norm(touched) * norm(u) + 1e-2 * norm(u) * (largest(gradients_[k]) + natural) +
           1e-300;
  }

  // Computes J u exactly: the ordinary forward code on x + u e.
  Comparison by_duals(std::size_t k, const Numbers& u) {
    const NoGrad values_only;
    inputs_.make_dual(k, u);
    const Numbers moved = tangents_of(f_());
    return {dot_product(v_, moved), dot_product(gradients_[k], u), scale(k, u, moved)};
  }

  // Computes (f(x + h u) - f(x - h u)) / 2h, and the two one-sided quotients that reveal kinks.
  Comparison by_differences(std::size_t k, const Numbers& u) {
    const NoGrad values_only;
    const double x = largest(inputs_.values(k)), h = options_.step * (x > 0 ? x : 1) / largest(u);
    inputs_.shift(k, u, h);
    const Numbers after = f_().to_vector();
    inputs_.shift(k, u, -h);
    const Numbers before = f_().to_vector();
    Numbers central(y_.size()), left(y_.size()), right(y_.size());
    for (std::size_t i = 0; i < y_.size(); ++i) {
      central[i] = (after[i] - before[i]) / (2 * h);
      left[i] = (y_[i] - before[i]) / h;
      right[i] = (after[i] - y_[i]) / h;
    }
    return {dot_product(v_, central), dot_product(gradients_[k], u), scale(k, u, central), dot_product(v_, left),
        dot_product(v_, right)};
  }

  // Compares along a random direction, and along each element of a small input. In a large input that fails, looks for
  // the worst element.
  template <class Compare>
  void walk(std::size_t k, GradcheckError& worst, const char* method, double tolerance, const Compare& compare) {
    const index_t count = static_cast<index_t>(inputs_.values(k).size());
    const Numbers u = random_numbers(count, options_.seed, k + 1);
    const auto judge_element = [&](index_t i, double allowed) {
      Numbers unit(u.size());
      unit[static_cast<std::size_t>(i)] = 1;
      return judge(k, worst, to_string(position_of(i, report_.inputs[k].shape)), allowed, compare(unit), unit);
    };
    bool passed = judge(k, worst, "a random direction", tolerance, compare(u), u);
    if (count <= options_.one_by_one) {
      for (index_t i = 0; i < count; ++i) passed = judge_element(i, tolerance) && passed;
    } else if (!passed) {
      worst = {};
      judge_element(worst_element(u, compare), 0);
    }
    if (!passed) problem(k, to_text(method, " at ", worst.where, ": expected ", worst.expected, ", got ", worst.got));
  }

  // Halves the direction repeatedly and follows the half with the larger error.
  template <class Compare> index_t worst_element(const Numbers& u, const Compare& compare) {
    std::size_t begin = 0, end = u.size();
    while (end - begin > 1) {
      const std::size_t middle = (begin + end) / 2;
      const auto error = [&](std::size_t from, std::size_t until) {
        Numbers part(u.size());
        std::copy(u.begin() + static_cast<std::ptrdiff_t>(from), u.begin() + static_cast<std::ptrdiff_t>(until),
            part.begin() + static_cast<std::ptrdiff_t>(from));
        const Comparison c = compare(part);
        return std::abs(c.expected - c.got);
      };
      const bool in_first = error(begin, middle) >= error(middle, end);
      (in_first ? end : begin) = middle;
    }
    return static_cast<index_t>(begin);
  }

  // True if within tolerance, or at a kink where backward returns one of the possible derivatives.
  bool judge(std::size_t k, GradcheckError& worst, const std::string& where, double tolerance, const Comparison& c,
      const Numbers& u) {
    const double slack = tolerance * c.scale;
    const bool close = std::abs(c.expected - c.got) <= slack;
    if (!close && tolerance > 0 && c.left != c.right && is_kink(k, c, u, slack)) {
      report_.inputs[k].kinks.push_back(to_text(
          "kink at ", where, ": left derivative ", c.left, ", right derivative ", c.right, ", we return ", c.got));
      return true;
    }
    if (!(c.relative() <= worst.relative)) worst = {c.relative(), where, c.expected, c.got};
    return close;
  }

  bool is_kink(std::size_t k, const Comparison& c, const Numbers& u, double slack) {
    if (std::abs(c.left - c.right) <= slack) return false;
    // At a corner any value between the two sides is a derivative; the choice is a convention.
    const auto [low, high] = std::minmax(c.left, c.right);
    if (c.got >= low - slack && c.got <= high + slack) return true;
    if (std::abs(c.left - c.right) <= 1e-4 * c.scale) return false;
    const Comparison branch = by_duals(k, u);  // a jump: only the derivative of the branch taken can be returned
    return branch.relative() <= options_.dual_tolerance;
  }

  void problem(std::size_t k, const std::string& text) {
    report_.problems.push_back(to_text(report_.inputs[k].name, ": ", text));
  }

  const char* op_;
  const std::function<Tensor()>& f_;
  GradcheckOptions options_;
  CheckedInputs inputs_;
  double inner_size_;
  GradcheckReport report_;
  Numbers y_, v_;
  std::vector<Numbers> gradients_;
};

}  // namespace

GradcheckReport gradcheck(
    const std::function<Tensor()>& f, const std::vector<Named>& with_respect_to, GradcheckOptions options, Site site) {
  const CallSite place(site);
  return Checker("gradcheck", f, with_respect_to, options).run();
}

// The function x, v -> (J'v, contracted with fixed random c) is checked like any other. Its gradient comes from
// create_graph. Duals run through its forward, which consists of our forward and backward.
GradcheckReport gradgradcheck(
    const std::function<Tensor()>& f, const std::vector<Named>& with_respect_to, GradcheckOptions options, Site site) {
  const CallSite place(site);
  Tensor y;
  {
    const NoGrad values_only;
    y = f();
  }
  std::vector<Named> named = with_respect_to;
  const Numbers cotangent = random_numbers(y.numel(), options.seed, 1000);
  named.push_back({"cotangent", raw::to_device(Tensor::of(cotangent, y.shape(), DType::f64), y.device())});
  // Recorded when gradcheck differentiates it. Duals and differences need only its value.
  const auto first_derivative = [&]() -> Tensor {
    const bool outer = recording();
    const RecordingScope record(true);
    std::vector<Tensor> inputs;
    for (std::size_t k = 0; k < with_respect_to.size(); ++k) inputs.push_back(with_respect_to[k].tensor);
    if (!outer)
      for (const Tensor& input : inputs) requires_grad(input);
    const std::vector<Tensor> gradients =
        grad(f(), named.back().tensor, inputs, {.create_graph = outer, .allow_unused = true});
    const RecordingScope as_before(outer);
    Tensor total;
    for (std::size_t k = 0; k < inputs.size(); ++k) {
      if (!gradients[k].defined()) continue;
      // Each element gets its own number, so that no two wrong second derivatives cancel.
      const Tensor drawn =
          Tensor::of(random_numbers(inputs[k].numel(), options.seed, 2000 + k), inputs[k].shape(), DType::f64);
      const Tensor c = raw::to_device(drawn, inputs[k].device());
      const Tensor term = sum(multiply(gradients[k], c));
      total = total.defined() ? add(total, term) : term;
    }
    return total.defined() ? total : Tensor::scalar(0, DType::f64);
  };
  return Checker("gradgradcheck", first_derivative, named, options, norm(cotangent) * largest(y.to_vector())).run();
}

std::string GradcheckReport::text() const {
  std::string out = ok() ? "gradcheck: ok\n" : "gradcheck: FAILED\n";
  for (const GradcheckInput& input : inputs) {
    out += to_text("  ", input.name, " ", input.shape, ": duals ", input.duals.relative,
        input.duals.where.empty() ? "" : " at ", input.duals.where, ", differences ", input.differences.relative,
        input.differences.where.empty() ? "" : " at ", input.differences.where, "\n");
    for (const std::string& kink : input.kinks) out += to_text("    ", kink, "\n");
  }
  for (const std::string& problem : problems) out += to_text("  ", problem, "\n");
  return out;
}

}  // namespace whence
