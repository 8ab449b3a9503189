// A config.json of Hugging Face's transformers, and the rotation that it says.
#pragma once

#include <string>

#include "examples/whence/cli/json.h"
#include "nn/scheme.h"

namespace whence::language {

// Where null is as good as nothing.
class Config {
 public:
  explicit Config(const Json& json) : json_(json) {}

  bool has(const char* name) const { return json_.has(name) && !json_.find(name)->is_null(); }
  [[noreturn]] void refuse(const char* name, const std::string& required) const;
  void require(const char* name, bool holds, const std::string& required) const {
    if (!holds) refuse(name, required);
  }
  double number(const char* name, double otherwise) const { return has(name) ? json_.number(name) : otherwise; }
  bool yes(const char* name, bool otherwise) const { return has(name) ? json_.truth(name) : otherwise; }
  std::string word(const char* name, const std::string& otherwise) const {
    return has(name) ? json_.text(name) : otherwise;
  }
  const Json& json() const { return json_; }

 private:
  Json json_;
};

// The scheme of rope_parameters, as newer versions of transformers have it, or of rope_scaling beside fields of their
// own, for heads of `head_dim` and runs of `length` tokens. FileError where there is no such rotation here.
[[nodiscard]] std::string rope_scheme_of(const Config& config, index_t head_dim, index_t length);

// Whether transformers has that rotation: nothing, or what it would have to be.
[[nodiscard]] std::string rope_refusal(const SchemeSpec& scheme);
// As versions old and new read it. REQUIRES: no refusal
void add_rope(Json& config, const SchemeSpec& scheme, const SchemeSizes& sizes);

}  // namespace whence::language
