#include "cuda/emulator/launcher.h"

#include <cstdint>
#include <cstring>
#include <new>

#include "cuda/emulator/arena.h"
#include "cuda/emulator/counters.h"
#include "cuda/runtime/backend.h"
#include "cuda/runtime/index_launcher.h"
#include "cuda/runtime/runtime.h"
#include "tensor/device/backend.h"

namespace whence::gpu::emulator {

// Between members lies what was there before, which may complete a number to an address; since the two faces of the
// arena are the same in the lower half of their addresses, the number stays as it is.
BodyCopy::BodyCopy(const IndexBody& body)
    : bytes_(static_cast<std::byte*>(::operator new(body.bytes, std::align_val_t{64})),
          [](std::byte* memory) { ::operator delete(memory, std::align_val_t{64}); }),
      call_(body.call) {
  std::memcpy(bytes_.get(), body.body, body.bytes);
  const Arena& arena = Arena::instance();
  uses_ = arena.uses_in(body.body, body.bytes);
  for (std::size_t at = 0; at + sizeof(void*) <= body.bytes; at += sizeof(void*)) {
    void* word = nullptr;
    std::memcpy(&word, bytes_.get() + at, sizeof word);
    if (!arena.contains(word)) continue;
    word = arena.bytes_at(word);
    std::memcpy(bytes_.get() + at, &word, sizeof word);
  }
}

CUstream_st* Launcher::stream() { return gpu::stream(); }
void Launcher::launched(const char* op, index_t blocks, int threads) { gpu::launched({op, blocks, threads, 0}); }

}  // namespace whence::gpu::emulator

namespace whence {

IndexLauncher& index_launcher() {
  static gpu::emulator::Launcher& launcher = *new gpu::emulator::Launcher;
  return launcher;
}

gpu::emulator::Settings* emulator_settings() { return &gpu::emulator::settings(); }

}  // namespace whence
