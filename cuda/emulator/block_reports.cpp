// Texts of errors between the threads of a block.
#include <map>

#include "cuda/emulator/block_run.h"

namespace whence::gpu::emulator {
namespace {

const char* text_of(Meeting meeting) {
  const char* const names[] = {"nothing", "sync()", "sync_warp()", "shuffle", "shuffle_xor", "shuffle_up", "mma",
      "ldmatrix", "ldmatrix_trans", "movmatrix", "stmatrix_trans"};
  return names[static_cast<std::size_t>(meeting)];
}

}  // namespace

void stop(const Site& at, const std::string& message) {
  throw Error(error_at_call_site(running.facts ? running.facts->kernel : "emulator",
      to_text(whence::to_string(at), ": thread ", running.thread, " of block ", running.block, ": ", message)));
}

void BlockRun::mixed(const Place& other, const Place& own) {
  stop(own.at, to_text("meets ", text_of(own.meeting), ", thread ", other.thread, " waits in ", text_of(other.meeting),
                   " at ", whence::to_string(other.at),
                   own.meeting >= Meeting::sync_warp ? "; all lanes of a warp are required in the same one"
                                                     : "; all threads of the block are required in the same one"));
}

// For a block in which no thread can go on: "64 threads, of which the first is 0, wait in sync() at x.cu:12; 64
// threads, of which the first is 64, have ended; ..."
std::string BlockRun::who_waits() const {
  struct Group {
    int count = 0, first = 0;
  };
  std::map<std::string, Group> groups;
  for (std::size_t thread = 0; thread < tasks_.size(); ++thread) {
    const Task& task = tasks_[thread];
    const Place& place = task.place;
    const std::string what = task.state == State::ended
                                 ? "ended without it"
                                 : to_text("wait in ", text_of(place.meeting), " at ", whence::to_string(place.at));
    Group& group = groups[what];
    if (group.count++ == 0) group.first = static_cast<int>(thread);
  }
  std::string text = "a barrier that part of the block never reaches: ";
  for (const auto& [what, group] : groups)
    text += to_text(
        "thread ", group.first, group.count > 1 ? to_text(" and ", group.count - 1, " others ") : " ", what, "; ");
  return text + "all threads that a barrier is for are required to reach it";
}

}  // namespace whence::gpu::emulator
