// `train lm`: a transformer trained on text files, scored on validation text at its own and at greater lengths.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace whence::language {

// The program: `arguments` are those behind "train lm". Exit code 0; throws what run_main() knows.
[[nodiscard]] int train_language(const std::vector<std::string>& arguments);

// Every option with its value when these are typed. InputError when `train lm` would refuse them, or the model; nothing
// is run, and the text is not read.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> checked_options(
    const std::vector<std::string>& arguments);
// What one window costs in training (examples/whence/run/training_operations.h); InputError as above.
[[nodiscard]] double operations_per_sequence(const std::vector<std::string>& arguments);
// InputError unless the text that these options (checked_options) name can be read and has room for their windows. What
// run.json will call it: a SHA-256.
[[nodiscard]] std::string check_text(const std::vector<std::string>& arguments);

}  // namespace whence::language
