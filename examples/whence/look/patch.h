// Patching: replaces numbers of one pass by the same numbers of another, and computes the rest of the pass from them. If the
// answer changes, these numbers decide it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "examples/whence/cli/json.h"
#include "examples/whence/look/attribution.h"
#include "examples/whence/look/edits.h"
#include "examples/whence/look/inspection.h"

namespace whence::look {

// The pass that the numbers come from, by its differences from the subject that receives them.
struct PatchSource {
  std::string run = {};      // another run
  std::int64_t sample = -1;  // another sequence of the task; -1: the same
  std::string prompt = {};   // another prompt of a language model

  [[nodiscard]] bool given() const { return !run.empty() || sample >= 0 || !prompt.empty(); }
  // Reads --from: a run's folder; beside a scheme, another; else the number of a test sequence, or a prompt.
  [[nodiscard]] static PatchSource named(const std::string& from, const SubjectOptions& options);
  // Reads the tokens of `options` with the other run's model.
  [[nodiscard]] Subject of(SubjectOptions options) const;
};

struct PatchOutcome {
  std::string place;                // "output layer=0 head=2"
  std::optional<double> predicted;  // change of the loss, gradient times change; empty if there is no gradient
  double real;                      // loss after the patch minus loss before
  double logit, probability;        // of the chosen answer, after the patch
  std::string likeliest;            // likeliest answer there, after the patch
};

// Returns the changes of patches such as "output layer=0 head=2 i=62 = i=58", separated by ';'. Before '=' is a place
// (place.h), whose unmasked numbers are replaced; after it, the differences of the place in the source. Throws InputError if
// a patch cannot be read, its place does not exist, or the source has another shape.
[[nodiscard]] std::vector<Change> changes_of(
    const Inspection& inspection, const Forward& source, const std::string& patches);

class Patching {
 public:
  // Patches the inspected pass from `source`. `token`, `answer`: as for asked_of. REQUIRES: both passes outlive this
  Patching(const Inspection& inspection, const Forward& source, index_t token = -1, const std::string& answer = "");

  [[nodiscard]] std::string words() const;  // a sentence about the outcomes

  [[nodiscard]] PatchOutcome before() const { return outcome("none", before_); }
  [[nodiscard]] PatchOutcome outcome_of(const std::string& patches) const;
  // Patches a place without a layer in every layer and head separately. For a quantity without heads, patches every token up
  // to the chosen one separately.
  [[nodiscard]] std::vector<PatchOutcome> map_of(const std::string& place) const;
  // Returns maps for the page: of output, pattern, the schemes' quantities with heads, and last the residual stream, as long
  // as `most` passes suffice.
  [[nodiscard]] Json maps(std::size_t most) const;

 private:
  [[nodiscard]] PatchOutcome outcome(const std::string& place, const Forward& after) const;

  const Inspection& inspection_;
  const Forward& source_;
  Forward before_;
  Asked asked_;
};

// Returns the requested source. Without one, a task's page takes the first of the next 32 sequences that has another target
// at `token`. Empty otherwise.
[[nodiscard]] std::optional<Subject> patch_source(
    const Subject& subject, const SubjectOptions& options, const PatchSource& source, index_t token);

// True if there is one patch and it names no layer. Then a map is meant.
[[nodiscard]] bool is_map(const std::string& patches);

// A row for `before`, and one for each patch.
[[nodiscard]] Table patch_table(const PatchOutcome& before, const std::vector<PatchOutcome>& outcomes);

}  // namespace whence::look
