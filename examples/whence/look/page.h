// The page of `look`: one file of HTML that refers to nothing outside.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>

#include "examples/whence/look/inspection.h"
#include "examples/whence/look/subject.h"

namespace whence::look {

// The most bytes of numbers that a browser still opens quickly.
inline constexpr std::size_t most_bytes = std::size_t(25) << 20;
// Throws InputError with a length that fits if a page with `others` more runs would have more. Sizes are from a planned pass.
void require_small_page(const Subject& subject, std::size_t others);

struct PageRequest {
  SubjectOptions subject;
  std::string out = {};          // file of the page; empty: in the run's folder, or in the current one
  std::string beside = {};       // other runs on the same tokens, commas between them
  std::int64_t checkpoints = 0;  // number of the run's checkpoints to show
  bool numbers = false;          // write all numbers as safetensors too
  std::string from = {};         // source of patches (PatchSource::named); empty: another sequence of the task
};

// Returns --out, or RUN/ENDING, or for a scheme ENDING in the current folder.
[[nodiscard]] std::filesystem::path file_to_write(const PageRequest& request, const std::string& ending);

// Returns "cope on flip_flop, loss 0.01; run runs/a; tokens 64".
[[nodiscard]] std::string title_line(const Subject& subject, double loss);

// Returns the page of an inspection of request.subject. `served`: with an engine behind it.
[[nodiscard]] std::string page_of(const Inspection& inspection, const PageRequest& request = {}, bool served = false);
[[nodiscard]] std::string html_of(const Subject& subject, const PageRequest& request, bool served = false);

// Writes the files and prints their names. `subject` is the subject of request.subject. Throws InputError before anything is
// written if something does not fit.
void write_page(const Subject& subject, const PageRequest& request);

// Serves the page to this machine alone, with the engine behind it; null in a program built without cpp-httplib. serve.cpp sets
// it, and says more.
inline void (*serve)(const PageRequest& request) = nullptr;

}  // namespace whence::look
