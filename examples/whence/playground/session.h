// Questions of the playground's page to the engine: models learn a task while the reader looks. Questions and answers
// are lines of JSON; a pass is sent in the format of `look` (examples/whence/look/page_data.h).
//   {"ask": "schemes"}                                        {"schemes": [{"name": "cope", "title": "..."}, ...], "palettes": {...}}
//   {"ask": "begin", "model": 0, "scheme": "cope", "length": 32, "asked_length": 64}   {"parameters": 27712, "steps": 1500, ...}
//   {"ask": "open", "model": 0, "run": "runs/a", ...}         {"parameters": 27712, "label": "the end of training", ...}, of question_that_opens()
//   {"ask": "train", "model": 0, "steps": 5}                  {"step": 5, "losses": [1.73, ...]}
//   {"ask": "errors", "model": 0, "sequences": 64}            {"sets": ["in distribution", ...], "percent": [...]}
//   {"ask": "look", "model": 0, "sample": 3, "edits": [...]}   {"loss": 0.31, "page": {...}}
// and about that look, or (edits) the pass without any,
//   {"ask": "value", "model": 0, "what": "gates layer=0 head=0 i=9 j=3"}     {"value": 0.7, "gradient": 0, "cause": "clamped"}
//   {"ask": "explain", "model": 0, "what": "dLoss/dgates layer=0 head=0 i=9 j=3"}     {"text": "..."}
//   {"ask": "edit", "model": 0, "edits": ["gates layer=0 = 0"]}   {"edits": [{"predicted": ..., "real": ...}]}
//   {"ask": "turn", "model": 0, "edit": "gates ... = 0.3", "number": 0.3, "layer": 0, "head": 0, "i": 9}   {"real": ..., "rows": [...], ...}
//   {"ask": "inspect", "model": 0}                            {"page": {...}}, of that look, with links, paths and graph
// or {"error": "..."}, a sentence; then nothing has changed.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "examples/whence/cli/json.h"
#include "examples/whence/look/subject.h"

namespace whence::playground {

class Learner;

// Returns the question that opens the subject of `look` as model 0.
[[nodiscard]] Json question_that_opens(const look::SubjectOptions& options);

class Session {
 public:
  Session();
  ~Session();

  [[nodiscard]] std::string answer(const std::string& question);
  // The block that the page of the last answer to "look" or "inspect" refers to.
  [[nodiscard]] std::span<const std::uint8_t> numbers() const;

 private:
  std::map<std::int64_t, std::unique_ptr<Learner>> learners_;
  std::span<const std::uint8_t> numbers_;
};

}  // namespace whence::playground
