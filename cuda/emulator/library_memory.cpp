// Device memory as libraries see it: the emulated one, where the host has it.
#include "cuda/runtime/library_memory.h"

#include "cuda/emulator/arena.h"
#include "cuda/runtime/runtime.h"

namespace whence::gpu {

void* address_for_libraries(const void* address) { return emulator::Arena::instance().bytes_at(address); }

bool all_has_ended() {
  synchronise();
  return true;
}

}  // namespace whence::gpu
