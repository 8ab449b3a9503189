// A row of a table for every index.
#pragma once

#include "nn/layers/module.h"

namespace whence {

class Embedding final : public Module {
 public:
  // table [rows, dim]
  Embedding(index_t rows, index_t dim, Init init = Init::normal(0, 0.02));

  // index [...] in [0, rows) -> [..., dim]
  [[nodiscard]] Tensor operator()(const Tensor& index, Site site = Site::current()) const;

  const Tensor& weight() const { return weight_; }

 private:
  Tensor weight_;
};

}  // namespace whence
