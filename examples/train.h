// What other commands ask of `train`.
#pragma once

#include <string>
#include <vector>

namespace whence {

// InputError when `train TASK` would refuse these options; nothing is run and nothing written.
void check_train_options(const std::string& task, const std::vector<std::string>& options);

}  // namespace whence
