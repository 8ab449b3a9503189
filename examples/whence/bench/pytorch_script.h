// pytorch.py, which CMake fills in.
#pragma once

namespace whence::bench {

extern const char* const pytorch_script;

}  // namespace whence::bench
