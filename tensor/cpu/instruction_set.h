// The instruction set of the CPU's products and tiles of attention, chosen at run time: they are compiled for each. The
// other kernels are compiled for one, WHENCE_CPU. Bits do not depend on threads, but on the set.
#pragma once

#include <string>

namespace whence {

enum class InstructionSet : unsigned char { best, avx512, avx2, plain };

[[nodiscard]] std::string to_string(InstructionSet set);

bool cpu_has(InstructionSet set);  // true if this machine and this program have it
// Returns the set that this program runs: the machine's best, or the one in the environment's WHENCE_INSTRUCTIONS.
// Never `best`. Throws InputError if that is no set, or not one of this machine's.
[[nodiscard]] InstructionSet instruction_set();
void use_instruction_set(InstructionSet set);  // for tiled attention, from now on; throws Error unless cpu_has(set)

}  // namespace whence
