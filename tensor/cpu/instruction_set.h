// The instruction set of tiled attention's vector code, chosen when it runs.
#pragma once

namespace whence {

enum class InstructionSet : unsigned char { best, avx512, avx2, plain };

bool cpu_has(InstructionSet set);              // this machine, and this build
void use_instruction_set(InstructionSet set);  // from now on; Error when cpu_has() says no

}  // namespace whence
