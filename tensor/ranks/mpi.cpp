// Ranks that mpirun or srun started, over MPI; in a build with -DWHENCE_MPI=ON.
//
// Only exchange() is asked of MPI: no sums, whose order is each library's own. All waiting is by polls with a deadline,
// as MPI itself waits for ever, and by sleeping between them: ranks may be more than cores.
#include "tensor/ranks/communicator.h"

#ifdef WHENCE_MPI
#define OMPI_SKIP_MPICXX  // the C interface alone
#define MPICH_SKIP_MPICXX
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>
#endif

namespace whence {

#ifndef WHENCE_MPI

bool built_with_mpi() { return false; }

std::unique_ptr<Communicator> join_mpi(const Launch&, double) {
  throw InputError(
      "ranks: MPI asked for, and this build is without it; configure with -DWHENCE_MPI=ON (needs libopenmpi-dev "
      "or libmpich-dev), or let ranks of one machine share memory");
}

#else

namespace {

constexpr int tag_of_bytes = 1, tag_of_words = 2;
constexpr std::size_t most_words = 512;
// Bytes: far below what an int can count; whoever gets it is heard of.
constexpr std::size_t most_at_once = std::size_t{4} << 20;

// Of one wait. Who waits for long sleeps for longer.
class Patience {
 public:
  explicit Patience(double limit) : limit_(limit) {}
  bool over() const {
    const double waited = std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count();
    if (waited < 200e-6)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(std::chrono::microseconds(waited < 20e-3 ? 50 : 1000));
    return waited > limit_;
  }

 private:
  double limit_;
  std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
};

// Ends the process when what it stands beside is not over within the limit; MPI's start cannot be told to stop.
class Watchdog {
 public:
  explicit Watchdog(double limit)
      : thread_([this, limit] {
          std::unique_lock lock(mutex_);
          if (over_.wait_for(lock, std::chrono::duration<double>(limit), [this] { return ended_; })) return;
          std::cerr << to_text("ranks: MPI has not started within ", limit,
                           " seconds; did every rank start? --rank-limit allows more\n")
                    << std::flush;
          std::_Exit(1);
        }) {}
  ~Watchdog() {
    {
      const std::scoped_lock lock(mutex_);
      ended_ = true;
    }
    over_.notify_all();
    thread_.join();
  }

 private:
  std::mutex mutex_;
  std::condition_variable over_;
  bool ended_ = false;
  std::thread thread_;  // last: it uses the others
};

// "Open MPI v4.1.4, package: ..." and "MPICH Version:      4.0.2\n..." become "Open MPI 4.1.4" and "MPICH 4.0.2".
std::string library() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int size = 0;
  MPI_Get_library_version(text.data(), &size);
  const std::string all(text.data(), static_cast<std::size_t>(size));
  const std::string first = all.substr(0, all.find_first_of(",\n"));
  const std::size_t number = first.find_first_of("0123456789");
  if (number == std::string::npos) return first;
  return to_text(first.substr(0, first.find_first_of(" :\t", 5)), " ", first.substr(number));
}

// At the exit of a rank that gave up, when its own message has been written. mpirun ends the others when the first has
// ended: they get a moment to say what they heard. Who did not hear may wait in MPI for ever.
void leave(int status, void* somebody_did_not_hear) {
  if (!somebody_did_not_hear) return std::this_thread::sleep_for(std::chrono::milliseconds(300));
  MPI_Abort(MPI_COMM_WORLD, status == 0 ? 1 : status);
}

class Mpi final : public Communicator {
 public:
  Mpi(const Launch& launch, double limit) : Communicator(launch.rank, launch.size), limit_(limit) {
    {
      const Watchdog watchdog(limit);
      int given = 0;
      if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &given) != MPI_SUCCESS)
        throw SystemError("ranks: MPI does not start; its own messages say why");
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    library_ = library();
    int rank = 0, size = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (rank != launch.rank || size != launch.size) {
      MPI_Finalize();
      throw InputError("ranks: ", launch.by.empty() ? "nobody" : launch.by, " says rank ", launch.rank, " of ",
          launch.size, ", ", library_, " says rank ", rank, " of ", size, "; whence was built with ", library_,
          ": start it with that library's mpirun (or srun --mpi=pmix, --mpi=pmi2), or take --communicator shared");
    }
    heard_.assign(static_cast<std::size_t>(size), false);
  }
  ~Mpi() override {
    if (std::uncaught_exceptions() > 0 && !gave_up_) give_up("it ended early; its own messages say why");
    if (gave_up_ || !all_have_come_to_the_end()) {
      ::on_exit(leave, all_know_ ? nullptr : this);
      return;
    }
    MPI_Finalize();
  }

  std::string name() const override { return to_text("MPI (", library_, ")"); }

  // Waits until each has heard it, or said as much itself: when this process ends, mpirun ends the others at once.
  void give_up(const std::string& why) noexcept override {
    if (gave_up_) return;
    gave_up_ = true;
    std::array<char, most_words> words{};
    const std::size_t size = std::min(why.size(), words.size());
    std::copy_n(why.data(), size, words.data());
    std::array<MPI_Request, 1024> sent;  // no memory may be left
    const int others = std::min(this->size(), static_cast<int>(sent.size()));
    for (int k = 0; k < others; ++k) {
      sent[static_cast<std::size_t>(k)] = MPI_REQUEST_NULL;
      if (k != rank() && !heard_[static_cast<std::size_t>(k)])
        MPI_Issend(words.data(), static_cast<int>(size), MPI_BYTE, k, tag_of_words, MPI_COMM_WORLD,
            &sent[static_cast<std::size_t>(k)]);
    }
    const Patience patience(waited_in_vain_ ? std::min(limit_, 2.0) : limit_);
    do {
      std::array<char, most_words> ignored;
      while (hear(ignored)) {}
      all_know_ = true;
      for (std::size_t k = 0; k < static_cast<std::size_t>(others); ++k) {
        int done = 0;
        MPI_Test(&sent[k], &done, MPI_STATUS_IGNORE);
        all_know_ = all_know_ && (done != 0 || heard_[k]);
      }
    } while (!all_know_ && !patience.over());
  }

  void look_around() override {
    std::array<char, most_words> words;
    if (const auto heard = hear(words))
      throw LostRank("rank ", heard->from, " gave up: ", std::string(words.data(), heard->size));
  }

 private:
  struct Words {
    int from;
    std::size_t size;
  };
  // What a rank said that gave up, if one did.
  std::optional<Words> hear(std::array<char, most_words>& words) {
    int there = 0;
    MPI_Status status;
    if (MPI_Iprobe(MPI_ANY_SOURCE, tag_of_words, MPI_COMM_WORLD, &there, &status) != MPI_SUCCESS || there == 0)
      return std::nullopt;
    MPI_Recv(words.data(), static_cast<int>(words.size()), MPI_BYTE, status.MPI_SOURCE, tag_of_words, MPI_COMM_WORLD,
        &status);
    int size = 0;
    MPI_Get_count(&status, MPI_BYTE, &size);
    heard_[static_cast<std::size_t>(status.MPI_SOURCE)] = true;
    return Words{status.MPI_SOURCE, static_cast<std::size_t>(size)};
  }
  static void require(int code, const char* what) {
    if (code == MPI_SUCCESS) return;
    std::array<char, MPI_MAX_ERROR_STRING> text{};
    int size = 0;
    MPI_Error_string(code, text.data(), &size);
    throw LostRank("ranks: MPI could not ", what, ": ", std::string(text.data(), static_cast<std::size_t>(size)));
  }

  void exchange_bytes(int peer, std::span<const std::byte> mine, std::span<std::byte> theirs) override {
    for (std::size_t at = 0; at < mine.size(); at += most_at_once) {
      const int size = static_cast<int>(std::min(most_at_once, mine.size() - at));
      std::array<MPI_Request, 2> both{MPI_REQUEST_NULL, MPI_REQUEST_NULL};
      try {
        require(MPI_Irecv(theirs.data() + at, size, MPI_BYTE, peer, tag_of_bytes, MPI_COMM_WORLD, &both[0]), "receive");
        require(MPI_Isend(mine.data() + at, size, MPI_BYTE, peer, tag_of_bytes, MPI_COMM_WORLD, &both[1]), "send");
        wait_for(peer, both);
      } catch (const LostRank&) {
        if (both[0] != MPI_REQUEST_NULL) MPI_Cancel(&both[0]);  // else it could still write into what the caller frees
        throw;
      }
    }
  }

  void wait_for(int peer, std::array<MPI_Request, 2>& both) {
    const Patience patience(limit_);
    for (;;) {
      int done = 0;
      require(MPI_Testall(2, both.data(), &done, MPI_STATUSES_IGNORE), "exchange");
      if (done != 0) return;
      look_around();
      if (!patience.over()) continue;
      waited_in_vain_ = true;
      throw LostRank("rank ", peer, " of ", size(), " has not answered rank ", rank(), " for ", limit_,
          " seconds; --rank-limit allows more");
    }
  }

  // MPI_Finalize waits for all, for ever: they are asked before.
  bool all_have_come_to_the_end() {
    MPI_Request barrier = MPI_REQUEST_NULL;
    if (MPI_Ibarrier(MPI_COMM_WORLD, &barrier) != MPI_SUCCESS) return false;
    const Patience patience(limit_);
    for (;;) {
      int done = 0;
      if (MPI_Test(&barrier, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) return false;
      if (done != 0) return true;
      std::array<char, most_words> words;
      if (const auto heard = hear(words)) {
        std::cerr << to_text("ranks: rank ", heard->from, " gave up: ", std::string(words.data(), heard->size), "\n");
        give_up("another gave up");
        return false;
      }
      if (patience.over()) {
        std::cerr << to_text("ranks: rank ", rank(), " is done, others have not ended for ", limit_, " seconds\n");
        return false;
      }
    }
  }

  double limit_;
  std::string library_;
  std::vector<bool> heard_;  // of each rank: it gave up, and needs no words
  bool gave_up_ = false, all_know_ = false, waited_in_vain_ = false;
};

}  // namespace

bool built_with_mpi() { return true; }

std::unique_ptr<Communicator> join_mpi(const Launch& launch, double limit) {
  int before = 0;
  MPI_Initialized(&before);
  if (before != 0) throw InputError("ranks: MPI was started in this process before; once is all that it can be");
  return std::make_unique<Mpi>(launch, limit);
}

#endif

}  // namespace whence
