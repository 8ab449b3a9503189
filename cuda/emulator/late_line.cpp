#include "cuda/emulator/late_line.h"

#include <cstring>
#include <deque>
#include <limits>

#include "cuda/emulator/arena.h"
#include "cuda/emulator/settings.h"

namespace whence::gpu::emulator {
namespace {

struct Sending {
  const char* from;
  std::byte* to;
  std::size_t bytes;
};
std::deque<Sending>& on_the_way() {
  static std::deque<Sending>& all = *new std::deque<Sending>;
  return all;
}
std::uint64_t begun = 0;

}  // namespace

void LateLine::send(const char* from, char* to, std::size_t bytes) {
  ++begun;
  if (settings().dry) return;
  on_the_way().push_back({from, Arena::instance().bytes_at(to), bytes});
  if (settings().late == 0) deliver_all();
}

void LateLine::mark(Mark& sent) { sent = begun; }

void LateLine::wait(const Mark& sent) {
  std::deque<Sending>& all = on_the_way();
  for (; !all.empty() && begun - all.size() < sent; all.pop_front())
    std::memcpy(all.front().to, all.front().from, all.front().bytes);
}

void deliver_all() { LateLine::wait(std::numeric_limits<LateLine::Mark>::max()); }

}  // namespace whence::gpu::emulator
