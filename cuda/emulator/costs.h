// The cost of a warp's memory accesses on a GPU. Global memory comes in sectors of 32 bytes, which all lanes of a
// request share. Shared memory has 32 banks of 4 bytes; a bank serves one word at a time, to any number of lanes.
//
// Lanes run one after the other here, so each notes its accesses. When all lanes of a warp meet, or its block ends, the
// accesses since the last meeting become requests: the n-th access of each lane at one place in the source is one
// request. If lanes run a loop different numbers of times, the missing iterations are assumed to be the last ones.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "cuda/emulator/running.h"
#include "cuda/emulator/shadow.h"

namespace whence::gpu::emulator {

class Costs {
 public:
  static Costs& instance();

  void begin_block(int threads);
  // The running thread reads or writes, in accesses of at most 16 bytes.
  void note(Space space, const void* first, std::size_t bytes, const Site& at, bool writes);
  // Adds the requests of the warp whose first thread is `first`, and whose lanes have met, to running.now.
  void settle(int first);
  void end_launch();  // writes the most expensive places to running.now

 private:
  struct Access {
    std::uintptr_t address;
    std::int32_t site;
    Space space;
    std::uint8_t bytes, lane;
    bool writes;
  };
  struct Place {
    std::uint64_t sectors = 0, wavefronts = 0;  // beyond the minimum
  };
  using Accesses = std::vector<Access>;

  void global_request();  // counts the accesses in together_ as one request
  void shared_request();

  std::vector<Accesses> of_thread_;
  Accesses together_;
  std::map<std::int32_t, Place> places_;
};

}  // namespace whence::gpu::emulator
