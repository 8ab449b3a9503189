// Note [Saved tensors and versions]
// Backward needs some of the numbers that forward saw. An op names them as members of its struct
// Saved, and assigns them in forward:
//     saved.x = x;               an input, or something computed from inputs
//     saved.y.output(y);         the op's own result
// A SavedTensor holds the detached body and the storage's version at that time. Detached, it keeps no graph
// alive, and an op that saves its own output makes no cycle. get() refuses, naming both places, when the
// storage was written since: the derivative would belong to other numbers than the value. When nothing is
// recorded, assignment does nothing.
#pragma once

#include "autograd/node.h"

namespace whence {

class SavedTensor {
 public:
  SavedTensor() = default;
  SavedTensor(const SavedTensor&) = delete;
  SavedTensor& operator=(const SavedTensor&) = delete;

  void operator=(const Tensor& value) { save(value, false); }
  void output(const Tensor& value) { save(value, true); }

  // The saved numbers; with their history while a graph of the backward pass is made (create_graph).
  // Throws Error when overwritten.
  Tensor get() const;
  bool defined() const { return value_.defined(); }
  const Tensor& peek() const { return value_; }  // for reports: no check, no history
  const SavedTensor* next() const { return next_; }
  void release() { value_ = {}, source_ = {}; }

 private:
  void save(const Tensor& value, bool is_output);

  Tensor value_;
  Ref<GraphLink> source_;
  std::uint64_t version_ = 0;
  bool is_output_ = false;
  const SavedTensor* next_ = nullptr;
};

namespace detail {
inline thread_local Node* saving_node = nullptr;    // whose forward runs
inline thread_local Node* backward_node = nullptr;  // whose backward runs

class Exchange {  // sets a thread-local for the length of a block
 public:
  Exchange(Node*& slot, Node* value) : slot_(slot), previous_(slot) { slot = value; }
  ~Exchange() { slot_ = previous_; }
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

 private:
  Node*& slot_;
  Node* previous_;
};
}  // namespace detail

}  // namespace whence
