// `ladder`: runs every rung, compares its numbers with the CPU's and prints its cost. See README.md.
#include <exception>
#include <iostream>

#include "cuda/ladder/ladder.h"
#include "cuda/runtime/runtime.h"

int main() {
  try {
    std::cout << whence::gpu::ladder::climb_all(whence::gpu::device_facts().emulated);
    return 0;
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
