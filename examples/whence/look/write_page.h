// Writes the page of `look`, and what stands beside it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "examples/whence/look/patch.h"
#include "examples/whence/look/subject.h"

namespace whence::look {

struct PageRequest {
  SubjectOptions subject;
  std::string out;               // the page; empty: in the run's folder, or here
  std::string beside;            // another run, on the same tokens
  std::int64_t checkpoints = 0;  // of the run, to go through
  std::int64_t edits = 0;        // of the strongest edits
  std::string at;                // "i=4100 j=4050; ...", of texts of which a page has no room for every number
  bool numbers = false;          // as safetensors, and tables as CSV
  PatchSource patched_from;      // for the map of patches; nothing: another sequence of the task
  std::int64_t token = -1;       // whose answer that is about; -1: the last one that is asked
  std::string answer;            // likewise; empty: the wanted one
};

// RUN/ENDING, or ENDING here for a scheme; or --out.
[[nodiscard]] std::filesystem::path file_to_write(const PageRequest& request, const std::string& ending);

// "cope on flip_flop, loss 0.01; run runs/a; tokens 64"
[[nodiscard]] std::string title_line(const Subject& subject, double loss);

// Prints what it writes. `subject` is that of request.subject. InputError where something does not fit, before anything
// is written.
void write_page(const Subject& subject, const PageRequest& request);

}  // namespace whence::look
