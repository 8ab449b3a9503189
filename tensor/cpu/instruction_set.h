// The instruction set of the CPU's products and tiles of attention, chosen when a program runs: they are compiled for
// each (tensor/CMakeLists.txt). The other kernels are compiled for one, WHENCE_CPU. Bits do not depend on threads, but on
// the set.
#pragma once

#include <string>

namespace whence {

enum class InstructionSet : unsigned char { best, avx512, avx2, plain };

[[nodiscard]] std::string to_string(InstructionSet set);

bool cpu_has(InstructionSet set);  // this machine, and this build
// The set that this program runs: the best that the machine has, or what the environment's WHENCE_INSTRUCTIONS names. Never
// `best`. InputError when that is no set, or none of this machine's.
[[nodiscard]] InstructionSet instruction_set();
void use_instruction_set(InstructionSet set);  // of tiled attention, from now on; Error when cpu_has() says no

}  // namespace whence
