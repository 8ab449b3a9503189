// The mapping has a board and, for each rank and each of its peers, a mailbox of two slots. A rank writes into its own
// mailboxes and reads its peers'. A rank that changes what another may wait for rings the bell of that rank's seat.
#include "tensor/ranks/fork.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <system_error>
#include <thread>
#include <utility>

#include "tensor/cpu/system.h"

namespace whence {
namespace {

constexpr std::size_t place_bytes = 256 * 1024, places = 2;  // one is filled while the other is read

struct Mailbox {
  std::atomic<std::uint32_t> written, read;  // slots, since the beginning
  std::byte place[places][place_bytes];
};

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

}  // namespace

// All zero at first: the system clears new pages.
struct ForkedRanks::Board {
  int size;
  std::atomic<bool> claimed, lost;
  char why[512];  // when `lost`: the first rank that died or gave up, and how; later losses follow from it
  struct Seat {
    SharedWord bell;                       // counts its rings
    std::atomic<std::uint32_t> waits_for;  // a rank plus 1; 0: none
  } seats[most];

  static std::size_t bytes(int size) {
    return sizeof(Board) + sizeof(Mailbox) * static_cast<std::size_t>(size * boxes(size));
  }
  static int boxes(int size) { return std::countr_zero(static_cast<unsigned>(size)); }
  Mailbox& mailbox(int from, int to) {
    return reinterpret_cast<Mailbox*>(this + 1)[from * boxes(size) + boxes(from ^ to)];
  }

  void ring(int rank) {
    ++seats[rank].bell;
    wake(seats[rank].bell);
  }
  // True for the first caller only. Takes no memory.
  bool lose(int rank, const char* how, const char* reason) noexcept {
    if (claimed.exchange(true)) return false;
    std::snprintf(why, sizeof why, "rank %d of %d %s%s", rank, size, how, reason);
    lost = true;
    for (int other = 0; other < size; ++other) ring(other);
    return true;
  }
};

class ForkedRanks::SharedMemory final : public Communicator {
 public:
  SharedMemory(int rank, double limit, std::shared_ptr<Board> board)
      : Communicator(rank, board->size), limit_(limit), board_(std::move(board)) {}

  std::string name() const override { return "shared memory"; }
  void look_around() override {
    if (board_->lost) throw LostRank(std::string(board_->why));
  }
  bool give_up(const std::string& why) noexcept override { return board_->lose(rank(), "gave up: ", why.c_str()); }

 private:
  // Follows the chain of waits, so that the error names the rank that all are waiting for.
  std::string held_up(int waited_for) const {
    int waiting = rank();
    for (int links = 0; links < size(); ++links) {
      const int next = static_cast<int>(board_->seats[waited_for].waits_for) - 1;
      if (next < 0 || next == rank()) break;
      waiting = std::exchange(waited_for, next);
    }
    return to_text("rank ", waited_for, " of ", size(), " is alive and has not answered rank ", waiting);
  }

  template <class Arrived> void wait(int other, const Arrived& arrived) {
    for (int spin = 0; spin < 64; ++spin) {
      if (arrived()) return;
      std::this_thread::yield();
    }
    auto& [bell, waits_for] = board_->seats[rank()];
    waits_for = static_cast<std::uint32_t>(other + 1);
    for (const double began = now();;) {
      const std::uint32_t heard = bell;
      if (arrived()) break;
      look_around();
      const double left = limit_ - (now() - began);
      if (left <= 0) throw LostRank(held_up(other), " for ", limit_, " seconds; --rank-limit allows more");
      sleep_unless_changed(bell, heard, left);
    }
    waits_for = 0;
  }

  void exchange_bytes(int peer, std::span<const std::byte> mine, std::span<std::byte> theirs) override {
    Mailbox &out = board_->mailbox(rank(), peer), &in = board_->mailbox(peer, rank());
    const auto has_room = [&] { return out.written - out.read < places; };
    const auto has_come = [&] { return in.written != in.read; };
    while (!mine.empty() || !theirs.empty()) {
      // Send until the mailbox is full, then receive what has come.
      while (!mine.empty() && has_room()) {
        const std::size_t size = std::min(place_bytes, mine.size());
        std::memcpy(out.place[out.written % places], mine.data(), size);
        mine = mine.subspan(size), ++out.written;
        board_->ring(peer);
      }
      if (theirs.empty()) {
        if (!mine.empty()) wait(peer, has_room);
        continue;
      }
      wait(peer, has_come);
      const std::size_t size = std::min(place_bytes, theirs.size());
      std::memcpy(theirs.data(), in.place[in.read % places], size);
      theirs = theirs.subspan(size), ++in.read;
      board_->ring(peer);
    }
  }

  double limit_;
  std::shared_ptr<Board> board_;
};

ForkedRanks::ForkedRanks(int count, double limit) : limit_(limit) {
  const std::size_t bytes = Board::bytes(count);
  void* const mapped = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED)
    throw SystemError("ranks: ", bytes_text(bytes), " of shared memory for ", count,
        " ranks could not be allocated: ", std::generic_category().message(errno));
  board_ = std::shared_ptr<Board>(static_cast<Board*>(mapped), [bytes](Board* board) { ::munmap(board, bytes); });
  board_->size = count;
}

ForkedRanks::~ForkedRanks() {
  signal(SIGKILL);
  for (const pid_t process : processes_)
    while (process > 0 && ::waitpid(process, nullptr, 0) < 0 && errno == EINTR) continue;
}

std::unique_ptr<Communicator> ForkedRanks::seat(int rank) const {
  return std::make_unique<SharedMemory>(rank, limit_, board_);
}

std::unique_ptr<Communicator> ForkedRanks::fork() {
  const pid_t parent = ::getpid();
  for (int rank = 0; rank < board_->size; ++rank) {
    const pid_t child = ::fork();
    if (child < 0)
      throw SystemError("ranks: rank ", rank, " could not be started: ", std::generic_category().message(errno));
    if (child == 0) {
      processes_.clear();  // these are its siblings
      die_with_parent();
      if (::getppid() != parent) ::_exit(1);
      ::setpgid(0, 0);
      return seat(rank);
    }
    processes_.push_back(child);
  }
  return nullptr;
}

std::optional<ForkedRanks::Ended> ForkedRanks::ended() {
  for (int rank = 0; rank < static_cast<int>(processes_.size()); ++rank) {
    pid_t& process = processes_[static_cast<std::size_t>(rank)];
    int status = 0;
    if (process == 0 || ::waitpid(process, &status, WNOHANG) <= 0) continue;
    process = 0;
    if (status == 0) return Ended{rank, 0, {}};
    const std::string how = WIFSIGNALED(status) ? to_text("died: it was ended by signal ", WTERMSIG(status),
                                                      "; dmesg tells if memory ran out")
                                                : to_text("ended with exit code ", WEXITSTATUS(status));
    const bool news = board_->lose(rank, how.c_str(), "") || WIFSIGNALED(status);
    return Ended{rank, status, news ? to_text("rank ", rank, " of ", board_->size, " ", how) : ""};
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
