// A table with one row for every index.
#pragma once

#include "nn/layers/module.h"

namespace whence {

class Embedding final : public Module {
 public:
  // weight [rows, dim], each at least 1, else Error
  Embedding(index_t rows, index_t dim, Init init = Init::normal(0, 0.02));

  // index [...] i64 or i32 in [0, rows), else Error (on a GPU when numbers are next read) -> [..., dim]
  [[nodiscard]] Tensor operator()(const Tensor& index, Site site = Site::current()) const;

  const Tensor& weight() const { return weight_; }

 private:
  Tensor weight_;
};

}  // namespace whence
