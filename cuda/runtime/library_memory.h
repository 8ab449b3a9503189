// What a library that is loaded at run time needs of the device: NCCL.
#pragma once

namespace whence::gpu {

// Where it finds the bytes at a device address: there; of the emulated GPU, where the host has them.
void* address_for_libraries(const void* address);

// Whether everything launched has ended. Error when something failed.
bool all_has_ended();

}  // namespace whence::gpu
