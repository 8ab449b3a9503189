// Writes the page of `look`, and the files next to it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "examples/whence/look/patch.h"
#include "examples/whence/look/subject.h"

namespace whence::look {

struct PageRequest {
  SubjectOptions subject;
  std::string out;               // file of the page; empty: in the run's folder, or in the current one
  std::string beside;            // another run, shown on the same tokens
  std::int64_t checkpoints = 0;  // number of the run's checkpoints to show
  std::int64_t edits = 0;        // number of strongest edits to show
  bool numbers = false;          // write numbers as safetensors, and tables as CSV
  PatchSource patched_from;      // for the map of patches; empty: another sequence of the task
  std::int64_t token = -1;       // the token of the patches' answer; -1: the last one with a target
  std::string answer;            // the patches' answer; empty: the target
};

// Returns --out, or RUN/ENDING, or for a scheme ENDING in the current folder.
[[nodiscard]] std::filesystem::path file_to_write(const PageRequest& request, const std::string& ending);

// Returns "cope on flip_flop, loss 0.01; run runs/a; tokens 64".
[[nodiscard]] std::string title_line(const Subject& subject, double loss);

// Returns the page. `served`: with an engine behind it.
[[nodiscard]] std::string html_of(const Subject& subject, const PageRequest& request, bool served = false);

// Writes the files and prints their names. `subject` is the subject of request.subject. Throws InputError before anything is
// written if something does not fit.
void write_page(const Subject& subject, const PageRequest& request);

// Serves the page to this machine alone, with the engine behind it; null in a program built without cpp-httplib. serve.cpp sets
// it, and says more.
inline void (*serve)(const PageRequest& request) = nullptr;

}  // namespace whence::look
