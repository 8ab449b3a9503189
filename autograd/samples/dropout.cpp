// Samples of autograd/ops/dropout.cpp.
#include "autograd/ops.h"
#include "autograd/samples/samples.h"
#include "tensor/random.h"

namespace whence {
namespace {

std::vector<BadInput> dropout_refusals() {
  return {refusal("dropout: probability 1 given; a number in [0, 1) required", dropout, draw::zeros(2), 1, Stream(),
              StripOf{}),
      refusal("dropout: x is [2], a strip of 4 rows; [... i, j] required", dropout, draw::zeros(2), 0.5, Stream(),
          StripOf{0, 4, 2}),
      refusal("dropout: x is [3,2] at row 2, column 0 of [4,2]; a strip that lies inside required", dropout,
          draw::zeros(3, 2), 0.5, Stream(), StripOf{2, 4, 2})};
}

const Checked checked({"dropout",
    drawn<double, Stream, StripOf>(
        dropout, {{"a third", {3, 7}, {1.0 / 3, Stream(7, "dropout", 3), StripOf{}}},
                     {"none", {5}, {0, Stream(7, "dropout", 3), StripOf{}}},
                     {"a strip", {2, 3, 5}, {0.4, Stream(7, "dropout", 3), StripOf{2, 9, 5}}},
                     {"a strip of fewer columns", {2, 3, 5}, {0.4, Stream(7, "dropout", 3), StripOf{2, 9, 7}}},
                     {"0-d", {}, {0.5, Stream(1, "dropout"), StripOf{}}},
                     {"nothing", {0, 2}, {0.5, Stream(1, "dropout"), StripOf{}}}}),
    dropout_refusals});

}  // namespace
}  // namespace whence
