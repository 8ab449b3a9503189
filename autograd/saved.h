// Note [Saved tensors and versions]
// Backward needs some of the numbers that forward saw. An op names them as members of its struct
// Saved, and assigns them in forward:
//     saved.x = x;               an input, or something computed from inputs
//     saved.y.output(y);         the op's own result; output(y, k): one of several
//     saved.x.as(rows, x);       an input's numbers, laid out or shaped otherwise
// A SavedTensor holds the detached body and the storage's version at that time. Detached, it keeps no graph
// alive, and an op that saves its own output makes no cycle. get() refuses, naming both places, when the
// storage was written since: the derivative would belong to other numbers than the value. When nothing is
// recorded, assignment does nothing. The last assignment of several counts.
#pragma once

#include "autograd/node.h"

namespace whence {

class SavedTensor {
 public:
  SavedTensor() = default;
  SavedTensor(const SavedTensor&) = delete;
  SavedTensor& operator=(const SavedTensor&) = delete;

  void operator=(const Tensor& value) { save(value, edge_of(value), false); }
  void output(const Tensor& value, std::uint8_t result = 0) { save(value, {{}, result}, true); }
  // With the history of `source`, and then in its shape, while a graph of the backward pass is made.
  void as(const Tensor& value, const Tensor& source) { save(value, edge_of(source), false); }

  // The saved numbers; with their history while a graph of the backward pass is made (create_graph).
  // Throws Error when overwritten.
  Tensor get() const;
  bool defined() const { return value_.defined(); }
  const Tensor& peek() const { return value_; }  // for reports: no check, no history
  const SavedTensor* next() const { return next_; }
  void release() { value_ = {}, source_ = {}; }

 private:
  void save(const Tensor& value, const Edge& source, bool is_output);

  Tensor value_;
  Edge source_;
  std::uint64_t version_ = 0;
  bool is_output_ = false, listed_ = false;  // listed: the node has it in its list already
  const SavedTensor* next_ = nullptr;
};

}  // namespace whence
