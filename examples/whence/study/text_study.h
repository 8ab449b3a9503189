// A text as a study, `train lm`: the next token of text files, scored beyond the training length.
#pragma once

#include <memory>

#include "examples/whence/study/study.h"

namespace whence {

inline constexpr const char* text_study_name = "lm";

[[nodiscard]] std::unique_ptr<Study> make_text_study();

}  // namespace whence
