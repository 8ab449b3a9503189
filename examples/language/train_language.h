// `train lm`: a transformer trained on text files, scored on validation text at its own and at greater lengths.
#pragma once

#include <string>
#include <vector>

namespace whence::language {

// The program: `arguments` are those behind "train lm". Exit code 0; throws what run_main() knows.
[[nodiscard]] int train_language(const std::vector<std::string>& arguments);

}  // namespace whence::language
