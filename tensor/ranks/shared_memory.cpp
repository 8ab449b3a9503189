// Ranks of one machine. They map one file of /dev/shm, which has a board of ranks and, for each rank and each peer of
// it, a mailbox of two places. A rank writes into its own mailboxes and reads from those of its peers.
//
// Who lives holds a lock on its own byte of the file; the system takes it away however the process ends, so nobody has
// to be asked and no clock is compared. Whoever waits looks at it every so often.
#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstring>
#include <functional>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "tensor/ranks/communicator.h"

namespace whence {
namespace {

constexpr int most_ranks = 64;
constexpr int door = most_ranks;  // the byte that whoever comes locks meanwhile
constexpr std::size_t place_bytes = 256 * 1024;
constexpr std::size_t places = 2;  // one is filled while the other is read

using Counter = std::atomic<std::uint32_t>;  // a word that a futex can wait for
static_assert(Counter::is_always_lock_free && sizeof(Counter) == 4);

// All zero at first, as the system gives it: nobody has come, nothing was sent.
struct Mailbox {
  Counter written, read;  // places, since the beginning
  std::byte place[places][place_bytes];
};
enum class Presence : std::uint32_t { not_come, here, gone, gave_up };
struct Seat {
  Counter presence;
  Counter waits_for;  // a rank and 1; 0: for none
  char why[512];      // of gave_up
};
struct Board {
  Counter size;  // of whoever came first
  Seat seats[most_ranks];
};

void futex_wait(Counter& counter, std::uint32_t value, double seconds) {
  const auto nanoseconds = static_cast<long>(1e9 * seconds);
  const timespec limit{nanoseconds / 1000000000, nanoseconds % 1000000000};
  syscall(SYS_futex, &counter, FUTEX_WAIT, value, &limit, nullptr, 0);
}
void futex_wake(Counter& counter) { syscall(SYS_futex, &counter, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0); }

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Letters, digits and dashes of the identity, and who it is of.
std::string file_name(const Launch& launch) {
  std::string name = to_text("/dev/shm/whence-", geteuid(), "-");
  for (const char c : launch.identity) name += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '-';
  return name.substr(0, 200);
}

class SharedMemory final : public Communicator {
 public:
  SharedMemory(const Launch& launch, double limit)
      : Communicator(launch.rank, launch.size), limit_(limit), path_(file_name(launch)) {
    if (launch.size > most_ranks)
      throw InputError("ranks: ", launch.size, " on one machine given; at most ", most_ranks, " required");
    open();
    try {
      map();
      take_seat();
      close_door();
      wait_for_all();
    } catch (...) {
      if (memory_ && seated_) leave(Presence::gone);
      if (!others_live()) ::unlink(path_.c_str());
      unmap();
      throw;
    }
    if (rank() == 0) ::unlink(path_.c_str());  // all have it open; nothing is left behind however they end
  }
  ~SharedMemory() override {
    leave(Presence::gone);
    unmap();
  }

  std::string name() const override { return "shared memory"; }

  void look_around() override {
    if (const auto problem = lost(rank())) throw *problem;
  }

  void give_up(const std::string& why) noexcept override {
    Seat& own = board().seats[rank()];
    const std::size_t size = std::min(why.size(), sizeof own.why - 1);
    std::memcpy(own.why, why.data(), size);
    own.why[size] = 0;
    leave(Presence::gave_up);
  }

 private:
  std::size_t boxes() const { return static_cast<std::size_t>(std::bit_width(static_cast<unsigned>(size())) - 1); }
  std::size_t bytes() const { return sizeof(Board) + static_cast<std::size_t>(size()) * boxes() * sizeof(Mailbox); }
  Board& board() const { return *static_cast<Board*>(memory_); }
  Mailbox& mailbox(int from, int to) const {
    const auto which = static_cast<std::size_t>(std::countr_zero(static_cast<unsigned>(from ^ to)));
    std::byte* const first = static_cast<std::byte*>(memory_) + sizeof(Board);
    return reinterpret_cast<Mailbox*>(first)[static_cast<std::size_t>(from) * boxes() + which];
  }

  [[noreturn]] void refuse(const char* what) const {
    throw SystemError("ranks: ", path_, " ", what, ": ", std::generic_category().message(errno));
  }

  // The file behind the path, with its door locked: one at a time looks who is there.
  void open() {
    for (const double give_up_at = now() + limit_;;) {
      file_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
      if (file_ < 0) refuse("cannot be opened");
      flock lock = lock_of(door, F_WRLCK);
      while (::fcntl(file_, F_OFD_SETLK, &lock) != 0 && now() < give_up_at)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      struct stat opened {
      }, named{};
      if (::fstat(file_, &opened) == 0 && ::stat(path_.c_str(), &named) == 0 && opened.st_ino == named.st_ino) return;
      ::close(file_);  // it lost its name meanwhile
      if (now() >= give_up_at) throw LostRank("ranks: ", path_, " is not to be had for ", limit_, " seconds");
    }
  }
  void close_door() const {
    flock lock = lock_of(door, F_UNLCK);
    ::fcntl(file_, F_OFD_SETLK, &lock);
  }

  void map() {
    // What an earlier start left behind, all of whose ranks were killed, begins again from zeros.
    if (!others_live() && ::ftruncate(file_, 0) != 0) refuse("cannot be emptied");
    // Room is taken now: a page that the system cannot give later would end the process without a word.
    int error = EINTR;
    while (error == EINTR) error = ::posix_fallocate(file_, 0, static_cast<off_t>(bytes()));
    if (error != 0) {
      errno = error;
      refuse(to_text("cannot have the ", bytes_text(bytes()), " that ", size(), " ranks share").c_str());
    }
    void* const mapped = ::mmap(nullptr, bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
    if (mapped == MAP_FAILED) refuse("cannot be mapped");
    memory_ = mapped;
  }
  void unmap() {
    if (memory_) ::munmap(memory_, bytes());
    ::close(file_);
  }

  flock lock_of(int rank, short kind) const {
    flock lock{};
    lock.l_type = kind, lock.l_whence = SEEK_SET, lock.l_start = rank, lock.l_len = 1;
    return lock;
  }
  bool others_live() const {
    flock lock = lock_of(0, F_WRLCK);
    lock.l_len = most_ranks;
    return ::fcntl(file_, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
  }
  bool lives(int rank) const {
    if (rank == this->rank()) return true;
    flock lock = lock_of(rank, F_WRLCK);
    return ::fcntl(file_, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
  }

  void take_seat() {
    flock lock = lock_of(rank(), F_WRLCK);
    if (::fcntl(file_, F_OFD_SETLK, &lock) != 0)
      throw InputError("ranks: two processes say that they are rank ", rank(), " of ", size(), " of ", path_,
          "; each rank once required");
    seated_ = true;
    std::uint32_t others = 0;
    if (!board().size.compare_exchange_strong(others, static_cast<std::uint32_t>(size())) &&
        others != static_cast<std::uint32_t>(size()))
      throw InputError("ranks: rank ", rank(), " of ", size(), " given, others here are of ", others,
          "; the same number for all required");
    board().seats[rank()].presence.store(static_cast<std::uint32_t>(Presence::here));
    futex_wake(board().seats[rank()].presence);
  }

  void leave(Presence how) noexcept {
    Counter& own = board().seats[rank()].presence;
    std::uint32_t here = static_cast<std::uint32_t>(Presence::here);
    own.compare_exchange_strong(here, static_cast<std::uint32_t>(how));
    futex_wake(own);
    for (int distance = 1; distance < size(); distance *= 2) futex_wake(mailbox(rank(), rank() ^ distance).written);
  }

  Presence presence(int rank) const { return static_cast<Presence>(board().seats[rank].presence.load()); }

  // Why there is nothing to wait for: one that has come is no more, or said that it cannot go on. The dead come first:
  // those who miss them give up.
  std::optional<LostRank> lost(int waited_for) const {
    for (int other = 0; other < size(); ++other)
      if (presence(other) == Presence::here && !lives(other) && presence(other) == Presence::here)
        return LostRank("rank ", other, " of ", size(),
            " died, without a word; its messages may say why, or the system's "
            "(out of memory: dmesg)");
    for (int other = 0; other < size(); ++other)
      if (presence(other) == Presence::gave_up)
        return LostRank("rank ", other, " gave up: ", static_cast<const char*>(board().seats[other].why));
    if (presence(waited_for) == Presence::gone)
      return LostRank("rank ", waited_for, " ended while rank ", rank(), " waited for it");
    return std::nullopt;
  }
  // Who waits for one that waits for a third has the third to thank.
  std::string held_up(int waited_for) const {
    int waiting = rank();
    for (int links = 0; links < size(); ++links) {
      const auto next = static_cast<int>(board().seats[waited_for].waits_for.load()) - 1;
      if (next < 0 || next == rank()) break;
      waiting = std::exchange(waited_for, next);
    }
    return to_text("rank ", waited_for, " of ", size(), " lives and has not answered rank ", waiting);
  }

  // Until arrived(), which is asked again when `counter` changes.
  void wait(int other, Counter& counter, const std::function<bool()>& arrived) const {
    for (int spin = 0; spin < 64; ++spin) {
      if (arrived()) return;
      std::this_thread::yield();
    }
    Counter& mine = board().seats[rank()].waits_for;
    mine.store(static_cast<std::uint32_t>(other + 1));
    const double give_up_at = now() + limit_;
    for (double looked = 0; !arrived();) {
      const std::uint32_t value = counter.load();
      if (arrived()) break;
      futex_wait(counter, value, 0.05);
      if (const double at = now(); at - looked >= 0.05) {
        looked = at;
        const auto problem = lost(other);
        if (arrived()) break;  // the last that it did before it ended
        if (problem) throw *problem;
        if (at > give_up_at) throw LostRank(held_up(other), " for ", limit_, " seconds; --rank-limit allows more");
      }
    }
    mine.store(0);
  }

  void wait_for_all() const {
    for (int other = 0; other < size(); ++other) {
      if (other == rank()) continue;
      const double began = now();
      try {
        wait(other, board().seats[other].presence, [&] { return presence(other) != Presence::not_come; });
      } catch (const LostRank&) {
        if (presence(other) != Presence::not_come || now() - began < limit_) throw;
        throw LostRank("rank ", other, " of ", size(), " has not come within ", limit_,
            " seconds; was it started? "
            "--rank-limit allows more");
      }
    }
  }

  void exchange_bytes(int peer, std::span<const std::byte> mine, std::span<std::byte> theirs) override {
    Mailbox &out = mailbox(rank(), peer), &in = mailbox(peer, rank());
    std::size_t sent = 0, received = 0;
    while (sent < mine.size() || received < theirs.size()) {
      // As much as there is room for, and then what has come.
      while (sent < mine.size() && out.written.load() - out.read.load() < places) {
        const std::uint32_t turn = out.written.load();
        const std::size_t size = std::min(place_bytes, mine.size() - sent);
        std::memcpy(out.place[turn % places], mine.data() + sent, size);
        sent += size;
        out.written.store(turn + 1);
        futex_wake(out.written);
      }
      if (received == theirs.size()) {
        if (sent < mine.size()) wait(peer, out.read, [&] { return out.written.load() - out.read.load() < places; });
        continue;
      }
      const std::uint32_t turn = in.read.load();
      wait(peer, in.written, [&] { return in.written.load() != turn; });
      const std::size_t size = std::min(place_bytes, theirs.size() - received);
      std::memcpy(theirs.data() + received, in.place[turn % places], size);
      received += size;
      in.read.store(turn + 1);
      futex_wake(in.read);
    }
  }

  double limit_;
  std::string path_;
  int file_ = -1;
  void* memory_ = nullptr;
  bool seated_ = false;
};

}  // namespace

std::unique_ptr<Communicator> join_shared_memory(const Launch& launch, double limit) {
  return std::make_unique<SharedMemory>(launch, limit);
}

}  // namespace whence
