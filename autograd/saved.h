// Note [Saved tensors and versions]
// Backward needs some of the numbers that forward saw. An op declares them as members of its struct Saved, and assigns
// them in forward:
//     saved.x = x;               an input, or something computed from inputs
//     saved.y.output(y);         the op's own result; output(y, k): one of several
//     saved.x.as(rows, x);       an input's numbers in another layout or shape
// A SavedTensor holds the detached tensor and its storage's version at that time. Because it is detached, it keeps no
// graph alive, and an op that saves its own output makes no cycle. get() throws if the storage was written since, and
// names both places: the derivative would belong to other numbers than the value. When nothing is recorded, assignment
// does nothing. Of several assignments the last one counts.
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
  // Saves `value` with the history of `source`. While backward is recorded, get() returns it in the shape of `source`.
  void as(const Tensor& value, const Tensor& source) { save(value, edge_of(source), false); }

  // Returns the saved numbers; while backward is recorded (create_graph), with their history. Error if overwritten.
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
  bool is_output_ = false, listed_ = false;  // listed: the node's list contains it already
  const SavedTensor* next_ = nullptr;
};

}  // namespace whence
