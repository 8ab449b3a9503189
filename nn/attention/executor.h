// Executors compute attention from queries, keys and values, in several ways with one result. The reference, which
// readers read, is ops on whole [b h i j] tensors, every probe live. Others register (nn/attention/executors.h).
#pragma once

#include <string>
#include <vector>

#include "nn/attention/attend.h"

namespace whence {

// A call, as far as the choice of its executor depends on it.
struct AttendCall {
  Device device;
  DType dtype;
  index_t pairs;  // b h i j
};

// An executor's fit to a call. suits: it runs where nobody names another.
enum class Fit : unsigned char { cannot, can, suits };

class Executor {
 public:
  virtual ~Executor() = default;
  virtual const char* name() const = 0;
  // Why these stages cannot run here, as the end of a sentence; empty when they can.
  virtual std::string refusal(const Stages& stages) const = 0;
  virtual Fit fit(const AttendCall& call) const = 0;
  virtual std::string reason_of_fit(const AttendCall&) const { return {}; }
  // Why it hands such operands to the next below it, as "what is given; what is required"; empty where it does not.
  // `call` says where: operands of an example may be elsewhere.
  virtual std::string refusal_of(const AttendInputs&, const Stages&, const AttendCall&) const { return {}; }
  // [b h i d] in the query's dtype. A masked pair adds exactly nothing as long as numbers are finite. Infinity and NaN
  // are not looked for: 0 x NaN is NaN, so that one in a later token or in padding may reach every row of its sequence.
  [[nodiscard]] virtual Tensor attend(const AttendInputs& inputs, const Stages& stages) const = 0;
};

const Executor& reference_executor();

// Makes an executor known. One of a higher rank is asked first; the reference has rank 0.
struct RegisterExecutor {
  RegisterExecutor(int rank, const Executor& executor);
};
std::vector<const Executor*> executors();  // by rank, the reference first

}  // namespace whence
