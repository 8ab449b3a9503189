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
#include <system_error>
#include <thread>

#include "tensor/ranks/communicator.h"

namespace whence {
namespace {

constexpr int most_ranks = 64, most_peers = 6;
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
  char why[512];  // of gave_up
};
struct Board {
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
    map();
    try {
      take_seat();
      wait_for_all();
    } catch (...) {
      if (seated_) leave(Presence::gone);
      ::unlink(path_.c_str());
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

  void map() {
    file_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (file_ < 0) refuse("cannot be opened");
    // Room is taken now: a page that the system cannot give later would end the process without a word.
    if (const int error = ::posix_fallocate(file_, 0, static_cast<off_t>(bytes())); error != 0) {
      errno = error;
      ::close(file_);
      refuse(to_text("cannot have the ", bytes_text(bytes()), " that ", size(), " ranks share").c_str());
    }
    memory_ = ::mmap(nullptr, bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
    if (memory_ != MAP_FAILED) return;
    ::close(file_);
    refuse("cannot be mapped");
  }
  void unmap() {
    ::munmap(memory_, bytes());
    ::close(file_);
  }

  flock lock_of(int rank, short kind) const {
    flock lock{};
    lock.l_type = kind, lock.l_whence = SEEK_SET, lock.l_start = rank, lock.l_len = 1;
    return lock;
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

  // LostRank when one that has come is no more, or said that it cannot go on. The dead come first: those who miss them
  // give up.
  void look_around(int waited_for) const {
    for (int other = 0; other < size(); ++other)
      if (presence(other) == Presence::here && !lives(other) && presence(other) == Presence::here)
        throw LostRank("rank ", other, " of ", size(),
            " died, without a word; its messages may say why, or the system's "
            "(out of memory: dmesg)");
    for (int other = 0; other < size(); ++other)
      if (presence(other) == Presence::gave_up)
        throw LostRank("rank ", other, " gave up: ", static_cast<const char*>(board().seats[other].why));
    if (presence(waited_for) == Presence::gone)
      throw LostRank("rank ", waited_for, " ended while rank ", rank(), " waited for it");
  }

  // Until arrived(), which is asked again when `counter` changes. `last` is when the other was last heard of.
  void wait(int other, Counter& counter, const std::function<bool()>& arrived) const {
    for (int spin = 0; spin < 64; ++spin) {
      if (arrived()) return;
      std::this_thread::yield();
    }
    const double give_up_at = now() + limit_;
    for (double looked = 0; !arrived();) {
      const std::uint32_t value = counter.load();
      if (arrived()) return;
      futex_wait(counter, value, 0.05);
      if (const double at = now(); at - looked >= 0.05) {
        looked = at;
        if (arrived()) return;
        look_around(other);
        if (at > give_up_at)
          throw LostRank("rank ", other, " of ", size(), " lives and has not answered rank ", rank(), " for ", limit_,
              " seconds; --rank-limit allows more");
      }
    }
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
