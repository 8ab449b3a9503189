// The curvature of a loss.
//
//   const Hessian hessian(loss, parameters);      // H_kl = d2 loss / d theta_k d theta_l, never stored
//   hessian.times(v)                              // H v, a backward pass through the backward pass (Pearlmutter 1994)
//   hessian.largest().value                       // the sharpness of the loss here
#pragma once

#include <cstdint>
#include <vector>

#include "tensor/tensor.h"

namespace whence {

class Hessian {
 public:
  // The Hessian of the scalar `loss` with respect to `inputs`, leaves or intermediate results; use f64 where digits
  // matter. Keeps the graph of the gradient. Throws the Errors of grad(), and Error where an op has no second
  // derivative. A model's attention has one with executor=reference.
  Hessian(const Tensor& loss, std::vector<Tensor> inputs, Site site = Site::current());

  [[nodiscard]] const std::vector<Tensor>& gradient() const { return gradient_; }  // one for each input
  // v and H v have one tensor for each input, of its shape, else Error. H v is 0 where the loss is linear.
  [[nodiscard]] std::vector<Tensor> times(const std::vector<Tensor>& v, Site site = Site::current()) const;

  struct Eigenvalue {
    double value;                // the eigenvalue of largest absolute value, with its sign
    double residual;             // |H v - value v| / |value|, |v| = 1
    int iterations;              // number of products H v
    std::vector<Tensor> vector;  // v
  };
  // Runs power iteration from a vector drawn by `seed`, until the residual is below `tolerance` or `most` products are
  // made.
  [[nodiscard]] Eigenvalue largest(double tolerance = 1e-3, int most = 200, std::uint64_t seed = 0) const;

 private:
  std::vector<Tensor> inputs_, gradient_;
};

}  // namespace whence
