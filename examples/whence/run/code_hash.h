// Which code trained: a result that is kept is known to be old by it.
#pragma once

#include <string>

namespace whence {

// 16 hexadecimal digits over the files that a trained number depends on, with their names: the libraries, the tasks,
// what reads text and what trains (code_hash.cmake lists them). Of the sources as they were when this program was
// compiled.
[[nodiscard]] std::string code_hash();

}  // namespace whence
