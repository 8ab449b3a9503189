// The mapping has a board with a seat for each rank and, for each rank and each peer of it, a mailbox of two places. A
// rank writes into its own mailboxes and reads from those of its peers. Whoever changes what a rank may wait for rings
// the bell of its seat.
#include "tensor/ranks/fork.h"

#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <chrono>
#include <climits>
#include <csignal>
#include <cstring>
#include <system_error>
#include <thread>
#include <utility>

namespace whence {
namespace {

constexpr std::size_t place_bytes = 256 * 1024, places = 2;  // one is filled while the other is read

using Counter = std::atomic<std::uint32_t>;  // a word that a futex can wait for
static_assert(Counter::is_always_lock_free && sizeof(Counter) == 4);

// All zero at first, as the system gives it: all are here, nothing was sent.
struct Mailbox {
  Counter written, read;  // places, since the beginning
  std::byte place[places][place_bytes];
};
enum class Presence { here, gone, gave_up, died };
struct Seat {
  Counter bell;       // how often it rang
  Counter waits_for;  // a rank and 1; 0: for none
  std::atomic<Presence> presence;
  char why[512];  // of who gave up or died
};

class Board {
 public:
  Board(void* memory, int size) : size_(size), first_(static_cast<Shared*>(memory)) {}
  static std::size_t bytes(int size) {
    return sizeof(Shared) + static_cast<std::size_t>(size * boxes(size)) * sizeof(Mailbox);
  }

  Seat& seat(int rank) const { return first_->seats[rank]; }
  Mailbox& mailbox(int from, int to) const {
    const int which = from * boxes(size_) + std::countr_zero(static_cast<unsigned>(from ^ to));
    return reinterpret_cast<Mailbox*>(first_ + 1)[which];
  }

  void ring(int rank) const {
    Counter& bell = seat(rank).bell;
    ++bell;
    syscall(SYS_futex, &bell, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  }
  // Until the bell has rung more than `heard` times, or the time is over.
  void wait_for_bell(int rank, std::uint32_t heard, double seconds) const {
    const auto whole = static_cast<long>(seconds);
    const timespec limit{whole, static_cast<long>(1e9 * (seconds - static_cast<double>(whole)))};
    syscall(SYS_futex, &seat(rank).bell, FUTEX_WAIT, heard, &limit, nullptr, 0);
  }

  // False where it had left before.
  bool leave(int rank, Presence how, const std::string& why) const {
    Seat& own = seat(rank);
    if (own.presence != Presence::here) return false;
    own.why[why.copy(own.why, sizeof own.why - 1)] = 0;
    own.presence = how;
    for (int other = 0; other < size_; ++other) ring(other);
    return true;
  }
  // The first to ask says what went wrong; what follows from it is no news.
  bool speaks_first() const { return first_->spoken++ == 0; }

 private:
  struct Shared {
    Counter spoken;
    Seat seats[ForkedRanks::most];
  };
  static int boxes(int size) { return std::countr_zero(static_cast<unsigned>(size)); }

  int size_;
  Shared* first_;
};

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

class SharedMemory final : public Communicator {
 public:
  SharedMemory(int rank, int size, double limit, std::shared_ptr<void> memory)
      : Communicator(rank, size), limit_(limit), memory_(std::move(memory)), board_(memory_.get(), size) {}
  ~SharedMemory() override { board_.leave(rank(), Presence::gone, ""); }

  std::string name() const override { return "shared memory"; }
  void look_around() override { throw_if_lost(rank()); }
  bool give_up(const std::string& why) noexcept override {
    board_.leave(rank(), Presence::gave_up, why);
    return board_.speaks_first();
  }

 private:
  // There is nothing to wait for. The dead come first: those who miss them give up.
  void throw_if_lost(int waited_for) const {
    const auto find = [&](Presence how, const char* what) {
      for (int other = 0; other < size(); ++other)
        if (board_.seat(other).presence == how)
          throw LostRank("rank ", other, " of ", size(), what, std::string(board_.seat(other).why));
    };
    find(Presence::died, " died: ");
    find(Presence::gave_up, " gave up: ");
    if (waited_for != rank() && board_.seat(waited_for).presence == Presence::gone)
      throw LostRank("rank ", waited_for, " ended while rank ", rank(), " waited for it");
  }
  // Who waits for one that waits for a third has the third to thank.
  std::string held_up(int waited_for) const {
    int waiting = rank();
    for (int links = 0; links < size(); ++links) {
      const int next = static_cast<int>(board_.seat(waited_for).waits_for) - 1;
      if (next < 0 || next == rank()) break;
      waiting = std::exchange(waited_for, next);
    }
    return to_text("rank ", waited_for, " of ", size(), " lives and has not answered rank ", waiting);
  }

  template <class Arrived> void wait(int other, const Arrived& arrived) const {
    for (int spin = 0; spin < 64; ++spin) {
      if (arrived()) return;
      std::this_thread::yield();
    }
    Seat& own = board_.seat(rank());
    own.waits_for = static_cast<std::uint32_t>(other + 1);
    for (const double give_up_at = now() + limit_;;) {
      const std::uint32_t heard = own.bell;
      const bool left = board_.seat(other).presence != Presence::here;  // asked before its last words
      if (arrived()) break;
      throw_if_lost(left ? other : rank());
      const double seconds = give_up_at - now();
      if (seconds <= 0) throw LostRank(held_up(other), " for ", limit_, " seconds; --rank-limit allows more");
      board_.wait_for_bell(rank(), heard, seconds);
    }
    own.waits_for = 0;
  }

  void exchange_bytes(int peer, std::span<const std::byte> mine, std::span<std::byte> theirs) override {
    Mailbox &out = board_.mailbox(rank(), peer), &in = board_.mailbox(peer, rank());
    const auto has_room = [&] { return out.written - out.read < places; };
    std::size_t sent = 0, received = 0;
    while (sent < mine.size() || received < theirs.size()) {
      // As much as there is room for, and then what has come.
      while (sent < mine.size() && has_room()) {
        const std::size_t size = std::min(place_bytes, mine.size() - sent);
        std::memcpy(out.place[out.written % places], mine.data() + sent, size);
        sent += size, ++out.written;
        board_.ring(peer);
      }
      if (received == theirs.size()) {
        if (sent < mine.size()) wait(peer, has_room);
        continue;
      }
      wait(peer, [&] { return in.written != in.read; });
      const std::size_t size = std::min(place_bytes, theirs.size() - received);
      std::memcpy(theirs.data() + received, in.place[in.read % places], size);
      received += size, ++in.read;
      board_.ring(peer);
    }
  }

  double limit_;
  std::shared_ptr<void> memory_;
  Board board_;
};

}  // namespace

ForkedRanks::ForkedRanks(int count, double limit) : count_(count), limit_(limit) {
  const std::size_t bytes = Board::bytes(count);
  void* const mapped = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED)
    throw SystemError("ranks: the ", bytes_text(bytes), " that ", count,
        " of them share are not to be had: ", std::generic_category().message(errno));
  memory_ = std::shared_ptr<void>(mapped, [bytes](void* memory) { ::munmap(memory, bytes); });
}

ForkedRanks::~ForkedRanks() {
  signal(SIGKILL);
  for (const pid_t process : processes_)
    while (process > 0 && ::waitpid(process, nullptr, 0) < 0 && errno == EINTR) continue;
}

std::unique_ptr<Communicator> ForkedRanks::seat(int rank) const {
  return std::make_unique<SharedMemory>(rank, count_, limit_, memory_);
}

std::unique_ptr<Communicator> ForkedRanks::fork() {
  const pid_t parent = ::getpid();
  for (int rank = 0; rank < count_; ++rank) {
    const pid_t child = ::fork();
    if (child < 0)
      throw SystemError("ranks: rank ", rank, " could not be started: ", std::generic_category().message(errno));
    if (child > 0) {
      processes_.push_back(child);
      continue;
    }
    processes_.clear();  // which are its siblings
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1);
    ::setpgid(0, 0);
    return seat(rank);
  }
  return nullptr;
}

std::optional<ForkedRanks::Ended> ForkedRanks::ended() {
  for (int rank = 0; rank < count_; ++rank) {
    pid_t& process = processes_[static_cast<std::size_t>(rank)];
    int status = 0;
    if (process == 0 || ::waitpid(process, &status, WNOHANG) <= 0) continue;
    process = 0;
    std::string died = WIFSIGNALED(status)
                           ? to_text("it was ended by signal ", WTERMSIG(status), " (out of memory? dmesg says so)")
                           : to_text("exit code ", WEXITSTATUS(status), ", without a word to the others");
    const Board board(memory_.get(), count_);
    if (!board.leave(rank, Presence::died, died) && !WIFSIGNALED(status)) died.clear();
    if (!died.empty()) (void)board.speaks_first();
    return Ended{rank, status, died};
  }
  return std::nullopt;
}

bool ForkedRanks::running() const {
  return std::ranges::any_of(processes_, [](pid_t process) { return process > 0; });
}
void ForkedRanks::signal(int number) const {
  for (const pid_t process : processes_)
    if (process > 0) ::kill(process, number);
}

}  // namespace whence
