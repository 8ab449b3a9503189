// Gradient checks by name: an op on its samples, a scheme text on random operands.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "autograd/check/gradcheck.h"
#include "autograd/samples/samples.h"

namespace whence {

struct GradientCheckOptions {
  index_t length = 6;  // tokens, for schemes
  bool differences = true;
  bool twice = false;  // second derivatives, by duals alone
  // Tensors up to this size are checked element by element, larger tensors along random directions.
  index_t one_by_one = 64;
  std::uint64_t seed = 1;  // for operands, parameters, cotangents and directions
  Device device = {};      // of all computation
};

// One function that was checked: a sample of an op, or a scheme under one kind of mask.
struct GradientCase {
  std::string label;  // "interior", "causal", "bidirectional"
  GradcheckReport report;
};

struct GradientFigures {
  std::size_t inputs = 0, kinks = 0;  // parameters included
  double duals = 0, differences = 0;  // largest relative error by each method
  void add(const GradientFigures& more);
};

struct GradientChecks {
  std::string name;
  std::vector<GradientCase> cases;
  std::string note = {};  // exceptional treatment, if any

  [[nodiscard]] bool ok() const { return problems().empty(); }
  [[nodiscard]] std::vector<std::string> problems() const;  // "causal: ..."
  [[nodiscard]] GradientFigures figures() const;            // over all cases
};

[[nodiscard]] GradientChecks check_gradients(const CheckedOp& op, const GradientCheckOptions& options);

// Checks output, defined logits and embedded tokens with respect to every input and every parameter at once: causal,
// bidirectional if the schemes support it, and with one key head for all queries. Throws InputError if the text is wrong
// or the schemes refuse it.
[[nodiscard]] GradientChecks check_gradients(const std::string& text, const GradientCheckOptions& options);

[[nodiscard]] std::vector<std::string> op_names();  // names of all ops with samples

// The meaning of a user's NAME: an op, else a scheme text. Throws InputError with the nearest name if it is neither.
struct Checkable {
  std::string name;               // of a scheme: its canonical text
  const CheckedOp* op = nullptr;  // nullptr: a scheme
};
[[nodiscard]] Checkable find_checkable(const std::string& name);
[[nodiscard]] GradientChecks check_gradients(const Checkable& what, const GradientCheckOptions& options);

}  // namespace whence
