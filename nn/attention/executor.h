// Executors compute attention from queries, keys and values, by different methods with one result. The reference is the
// one to read: ops on whole [b h i j] tensors, with every probe. Others register themselves (nn/attention/executors.h).
#pragma once

#include <string>
#include <vector>

#include "nn/attention/attend.h"

namespace whence {

// The properties of a call that the choice of its executor depends on.
struct AttendCall {
  Device device;
  DType dtype;
  index_t pairs;  // b h i j
};

// An executor's fit to a call. suits: "auto" may choose it.
enum class Fit : unsigned char { cannot, can, suits };

class Executor {
 public:
  virtual ~Executor() = default;
  virtual const char* name() const = 0;
  // Returns why these stages cannot run here, as the end of a sentence; empty if they can.
  virtual std::string refusal(const Stages& stages) const = 0;
  virtual Fit fit(const AttendCall& call) const = 0;
  virtual std::string reason_of_fit(const AttendCall&) const { return {}; }
  // Returns why it passes such operands on to the next executor below, as "what is given; what is required"; empty if
  // it does not. The device is that of `call`: example operands may be elsewhere.
  virtual std::string refusal_of(const AttendInputs&, const Stages&, const AttendCall&) const { return {}; }
  // Returns [b h i d] in the query's dtype. A masked pair adds exactly nothing as long as numbers are finite. Infinity
  // and NaN are not checked for. Because 0 x NaN is NaN, a NaN in a later token or in padding may reach every row of
  // its sequence.
  [[nodiscard]] virtual Tensor attend(const AttendInputs& inputs, const Stages& stages) const = 0;
};

const Executor& reference_executor();

// Registers an executor. Higher ranks are tried first; the reference has rank 0.
struct RegisterExecutor {
  RegisterExecutor(int rank, const Executor& executor);
};
std::vector<const Executor*> executors();  // by rank, the reference first

}  // namespace whence
