#include "tensor/cpu/instruction_set.h"

#include <atomic>
#include <cstdlib>

#include "tensor/cpu/tiles/sets.h"
#include "tensor/error.h"

namespace whence {

std::string to_string(InstructionSet set) {
  if (set == InstructionSet::avx512) return "avx512";
  if (set == InstructionSet::avx2) return "avx2";
  return set == InstructionSet::plain ? "plain" : "best";
}

static bool machine_has(InstructionSet set) {
#if defined(__x86_64__)
  if (set == InstructionSet::avx512)
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
  if (set == InstructionSet::avx2) return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#endif
  return set == InstructionSet::plain || set == InstructionSet::best;
}
bool cpu_has(InstructionSet set) {
  return machine_has(set) && (set == InstructionSet::best || tiles::functions_of<float>(set));
}

static InstructionSet choose() {
  const char* named = std::getenv("WHENCE_INSTRUCTIONS");
  const std::string wanted = named ? named : "";
  std::string here;
  for (const InstructionSet set : {InstructionSet::avx512, InstructionSet::avx2, InstructionSet::plain}) {
    if (!cpu_has(set)) continue;
    if (wanted.empty() || wanted == to_string(set)) return set;
    here += (here.empty() ? "" : ", ") + to_string(set);
  }
  throw InputError("WHENCE_INSTRUCTIONS: '", wanted, "' given; one of ", here, " required on this machine; unset it");
}

InstructionSet instruction_set() {
  static const InstructionSet chosen = choose();
  return chosen;
}

// For tiled attention; `best` until one is chosen.
static std::atomic<InstructionSet> of_tiles = InstructionSet::best;
namespace tiles {
InstructionSet chosen_set() {
  const InstructionSet set = of_tiles;
  return set == InstructionSet::best ? instruction_set() : set;
}
}  // namespace tiles
void use_instruction_set(InstructionSet set) {
  if (!cpu_has(set)) fail("use_instruction_set", "this machine or this build does not have that instruction set");
  of_tiles = set;
}

}  // namespace whence
