// The system, where Linux offers more than C++ and POSIX. Each function has a plain form for other systems, which
// WHENCE_PLAIN_SYSTEM takes on Linux too.
#pragma once

#include <cstddef>

namespace whence {

int allowed_processors();  // that this process may use; plain: those of the machine
// Asks for pages of 2 MiB in this mapping. Plain: does nothing.
void prefer_huge_pages(void* mapped, std::size_t bytes);

}  // namespace whence
