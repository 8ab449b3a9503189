// What other commands ask of `train`.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace whence {

// Every option of `train TASK`, or of `train lm`, with its value when these are typed. InputError when it would refuse
// them, or the model that they ask for; nothing is run and nothing written. Of lm the text is not read.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> checked_train_options(
    const std::string& task, const std::vector<std::string>& options);

// What one sequence costs in training (examples/whence/run/training_operations.h); InputError as above.
[[nodiscard]] double operations_per_sequence(const std::string& task, const std::vector<std::string>& options);

}  // namespace whence
