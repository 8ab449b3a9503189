// How attention is computed once queries, keys and values are there. An executor is one way; all ways mean the same.
//   reference   composed differentiable ops on [b h i j] tensors, every probe live: what readers read
#pragma once

#include <string>
#include <vector>

#include "nn/position.h"

namespace whence {

struct AttendInputs {
  Tensor x;                  // [b t c]; undefined where attention is run on bare queries, keys and values
  Tensor query, key, value;  // [b h i d], [b h j d], [b h j d]
  Tensor mask;               // bool, broadcasts to [b h i j]; undefined: every key is seen
  Positions positions;
  bool causal = true;
};

class Executor {
 public:
  virtual ~Executor() = default;
  virtual const char* name() const = 0;
  // Why these stages cannot run here, as the end of a sentence; empty when they can.
  virtual std::string refusal(const Stages& stages) const = 0;
  // [b h i d]
  [[nodiscard]] virtual Tensor attend(const AttendInputs& inputs, const Stages& stages) const = 0;
};

const Executor& reference_executor();

// The executors in order of preference, and the choice among them: `wanted` is "auto" or a name. Throws InputError when the name is
// unknown, or when the wanted one cannot run these stages.
std::vector<const Executor*> executors();
struct ExecutorChoice {
  const Executor* executor;
  std::string reason;  // one line: which, and why
};
ExecutorChoice choose_executor(const std::string& wanted, const Stages& stages);

}  // namespace whence
