// What must hold of an op or of a scheme, in one call: for tests of one's own (examples/own_program/checks.cpp), in any
// framework or none:
//   const CheckReport report = check_op("softsign");
//   REQUIRE_MESSAGE(report.ok(), report.text());
#pragma once

#include <string>
#include <vector>

#include "autograd/check/samples.h"

namespace whence {

struct CheckReport {
  std::string name;                        // a scheme's is canonical
  int checks = 0;                          // that were made
  std::vector<std::string> problems = {};  // what does not hold, where
  [[nodiscard]] bool ok() const { return problems.empty(); }
  [[nodiscard]] std::string text() const;  // "softsign: 310 checks: ok", or a line for each problem
};

// On every sample of the op, however its inputs lie in memory: gradients by dual numbers and by differences; second
// derivatives, or their refusal where it says `once`; the same bits again and on any number of threads; nothing written
// outside its results; values and gradients of f32, bf16 and f16 near those of f64; values of f64 as by the plain kernels
// (tensor/plain/). Then, where it has them, its reference, the parts that it joins, and the calls that it must refuse.
// InputError where no op of this name has samples.
[[nodiscard]] CheckReport check_op(const std::string& name);
[[nodiscard]] CheckReport check_op(const CheckedOp& op);

// Everything that the conformance matrix demands, by what the scheme claims: gradients of the scheme alone and of a
// whole model; no row sees later tokens, other sequences or padding; decoding gives the rows of the full pass; all
// executors agree. `text` is any that names schemes: "mine(width=4) + rope". InputError where it is none, or is
// refused.
[[nodiscard]] CheckReport check_scheme(const std::string& text);

}  // namespace whence
