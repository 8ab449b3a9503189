// --json: standard output has lines of JSON alone; text for people goes to standard error.
#pragma once

#include <iostream>
#include <string>

#include "examples/whence/cli/fields.h"

namespace whence {

class JsonOutput {
 public:
  // Takes effect from here to its end, if `on`.
  explicit JsonOutput(bool on) : output_(on ? std::cout.rdbuf(std::cerr.rdbuf()) : nullptr) {}
  ~JsonOutput() {
    if (output_) std::cout.rdbuf(output_);
  }
  JsonOutput(const JsonOutput&) = delete;
  JsonOutput& operator=(const JsonOutput&) = delete;

  // Does nothing if off.
  void lines(const std::string& text) const {
    if (output_) std::ostream(output_) << text << std::flush;
  }

 private:
  std::streambuf* output_;
};

inline Fields& declare_json(Fields& line, bool* json) {
  return line.flag("json", json, {"results as lines of JSON on standard output; all else goes to standard error"});
}

}  // namespace whence
