#include "nn/layers/embedding.h"

#include "autograd/observer.h"
#include "autograd/ops.h"

namespace whence {

Embedding::Embedding(index_t rows, index_t dim, Init init) {
  if (rows < 1 || dim < 1) fail("Embedding", rows, " rows of ", dim, " given; 1 or more of each required");
  weight_ = param("weight", {rows, dim}, init);
}

Tensor Embedding::operator()(const Tensor& index, Site site) const {
  const Scope scope(path());
  return take_rows(weight_, index, site);
}

}  // namespace whence
