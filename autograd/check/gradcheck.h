// gradcheck: checks the gradients of a function: an op, a layer or a whole model.
//
//   const Tensor w = requires_grad(Tensor::normal({3, 4}, 0, 1, Stream(1, "w"), DType::f64));
//   const GradcheckReport report = gradcheck([&] { return softmax(matmul(x, w)); }, {{"w", w}});
//   if (!report.ok()) std::cout << report.text();
//
// It makes two comparisons, each with a random cotangent v. Dual numbers run the ordinary forward code and give J u
// exactly: <v, J u> must equal <J'v, u> to rounding (1e-12). Central differences use neither backward nor duals. Small
// inputs are checked element by element. A cotangent of ones (".sum()") is never used: it would accept a softmax
// backward of any scale or sign, and a transpose that is not inverted.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tensor/tensor.h"

namespace whence {

struct Named {
  std::string name;
  Tensor tensor;  // f64, contiguous or not; a leaf, or without history
};

struct GradcheckOptions {
  bool duals = true;
  bool differences = true;
  double dual_tolerance = 1e-12;  // relative, see GradcheckError
  double difference_tolerance = 1e-6;
  double step = 1e-6;  // step of the differences, relative to the input's largest number
  // Inputs of at most this many elements are checked along every element, larger ones along random directions.
  index_t one_by_one = 64;
  bool any_dtype = false;  // also takes f32 and 16-bit inputs; choose tolerances to match
  std::uint64_t seed = 1;  // for cotangent and directions
};

// The largest disagreement found. `relative` is |expected - got| over the size of the terms that were summed.
struct GradcheckError {
  double relative = 0;
  std::string where;  // "[1,2]", or "a random direction"
  double expected = 0, got = 0;
};

struct GradcheckInput {
  std::string name;
  Shape shape;
  GradcheckError duals, differences;
  std::vector<std::string> kinks;  // "kink at [2]: left derivative 0, right derivative 1, we return 0": no failures
};

struct GradcheckReport {
  std::vector<GradcheckInput> inputs;
  std::vector<std::string> problems;  // the reasons why this is not ok; empty if it is
  bool ok() const { return problems.empty(); }
  std::string text() const;
};

// f reads the tensors of `with_respect_to` through its own handles and must be a function of them alone. Their numbers
// are exchanged during the check, and restored when it returns or throws. Error for inputs that are not f64 (unless
// any_dtype), are results of an op, or are named twice.
[[nodiscard]] GradcheckReport gradcheck(const std::function<Tensor()>& f, const std::vector<Named>& with_respect_to,
    GradcheckOptions options = {}, Site site = Site::current());

// Checks the gradients as functions (create_graph): derivatives of J'v with respect to every input and v, compared with
// duals that run through forward and backward.
[[nodiscard]] GradcheckReport gradgradcheck(const std::function<Tensor()>& f, const std::vector<Named>& with_respect_to,
    GradcheckOptions options = {}, Site site = Site::current());

}  // namespace whence
