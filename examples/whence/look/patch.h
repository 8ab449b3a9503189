// Patching: numbers of a pass are put in place of the same numbers of another, and the rest of the pass follows from
// them. What changes with them, they decide.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "examples/whence/cli/json.h"
#include "examples/whence/look/attribution.h"
#include "examples/whence/look/edits.h"
#include "examples/whence/look/inspection.h"

namespace whence::look {

// Where the numbers come from: what differs from the subject that they are put into.
struct PatchSource {
  std::string run = {};      // another run
  std::int64_t sample = -1;  // another sequence of the task; -1: the same
  std::string prompt = {};   // another prompt of a language model

  [[nodiscard]] bool given() const { return !run.empty() || sample >= 0 || !prompt.empty(); }
  [[nodiscard]] SubjectOptions of(SubjectOptions subject) const;
};

struct PatchOutcome {
  std::string place;                // "output layer=0 head=2"
  std::optional<double> predicted;  // change of the loss, gradient times change; nothing where no gradient is taken
  double real;                      // the loss afterwards minus the loss before
  double logit, probability;        // of what is asked, afterwards
  std::string likeliest;            // answer there, afterwards
};

// What "output layer=0 head=2 i=62 = i=58", a place (place.h), puts into a pass: every number that the mask does not
// hide. Behind '=' stands where the source has them, in what it differs. Several between ';'. InputError: what cannot be read or is not there,
// or is of another shape in the source.
[[nodiscard]] std::vector<Change> changes_of(
    const Inspection& inspection, const Forward& source, const std::string& patches);

class Patching {
 public:
  // Into the pass that was inspected, from `source`. REQUIRES: both outlive this
  // `token`, `answer`: of asked_of.
  Patching(const Inspection& inspection, const Forward& source, index_t token = -1, const std::string& answer = "");

  [[nodiscard]] std::string words() const;  // a sentence about the outcomes

  [[nodiscard]] PatchOutcome before() const { return outcome("none", before_); }
  [[nodiscard]] PatchOutcome outcome_of(const std::string& patches) const;
  // Of one place that names no layer: in every layer and head by itself, or every token up to the one that is asked
  // where it has no heads.
  [[nodiscard]] std::vector<PatchOutcome> map_of(const std::string& place) const;
  // For the page: the maps of output, pattern, and what schemes have of heads, as many as `most` passes allow, and behind
  // them that of the residual stream.
  [[nodiscard]] Json maps(std::size_t most) const;

 private:
  [[nodiscard]] PatchOutcome outcome(const std::string& place, const Forward& after) const;

  const Inspection& inspection_;
  const Forward& source_;
  Forward before_;
  Asked asked_;
};

// The source that is asked for. Of a task's page without one, the next of 32 sequences in which another answer is wanted
// at `token`; else nothing.
[[nodiscard]] std::optional<Subject> patch_source(
    const Subject& subject, const SubjectOptions& options, const PatchSource& source, index_t token);

// Whether a patch names no layer, so that a map is meant.
[[nodiscard]] bool is_map(const std::string& patches);

// Of `before`, and of each patch.
[[nodiscard]] Table patch_table(const PatchOutcome& before, const std::vector<PatchOutcome>& outcomes);

}  // namespace whence::look
