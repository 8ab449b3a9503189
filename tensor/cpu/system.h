// The system, where Linux offers more than C++ and POSIX. Each function has a plain form for other systems, which
// WHENCE_PLAIN_SYSTEM takes on Linux too.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace whence {

int allowed_processors();  // that this process may use; plain: those of the machine
// Asks for pages of 2 MiB in this mapping. Plain: does nothing.
void prefer_huge_pages(void* mapped, std::size_t bytes);
// After a fork: this process dies with its parent. Plain: does nothing.
void die_with_parent();

// Sleeps until another process calls wake(word) or the seconds are over, if word equals `heard`. May return early. Plain:
// sleeps for at most 50 microseconds.
using SharedWord = std::atomic<std::uint32_t>;
void sleep_unless_changed(SharedWord& word, std::uint32_t heard, double seconds);
void wake(SharedWord& word);

}  // namespace whence
