// Ranks that mpirun or srun started, over MPI; in a build with -DWHENCE_MPI=ON.
//
// Only exchange() uses MPI: each library adds in its own order, so its sums are not used. Waits poll up to a deadline,
// since MPI would wait for ever, and sleep in between, since there may be more ranks than cores. A failure inside MPI
// ends all ranks at once, because buffers in use must not be freed: first the message, then MPI_Abort, as MPI does with
// its own errors.
#include "tensor/ranks/ranks.h"

#ifdef WHENCE_MPI
#define OMPI_SKIP_MPICXX  // the C interface alone
#define MPICH_SKIP_MPICXX
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <thread>
#endif

namespace whence {

#ifndef WHENCE_MPI

std::unique_ptr<Communicator> join_mpi(Launch& launch, double) {
  throw InputError("ranks: ", launch.by, " started ", launch.size,
      " of them, and this build is without MPI; build with -DWHENCE_MPI=ON, which needs libopenmpi-dev or "
      "libmpich-dev");
}

#else

namespace {

constexpr std::size_t most_at_once = std::size_t{4} << 20;  // bytes: far below what an int can count

class Mpi final : public Communicator {
 public:
  Mpi(const Launch& launch, double limit) : Communicator(launch.rank, launch.size), limit_(limit) {}
  // After an exception all ranks end at the exit of this process, which reports what went wrong. Rank 0 reports what
  // all ranks found, and ends the others before they have waited long enough.
  ~Mpi() override {
    if (std::uncaught_exceptions() > 0) {
      if (rank() > 0) std::this_thread::sleep_for(std::chrono::seconds(3));
      ::on_exit([](int status, void*) { MPI_Abort(MPI_COMM_WORLD, status == 0 ? 1 : status); }, nullptr);
      return;
    }
    // MPI_Finalize waits for all ranks without limit, so this barrier with a limit comes first.
    MPI_Request all_are_done = MPI_REQUEST_NULL;
    MPI_Ibarrier(MPI_COMM_WORLD, &all_are_done);
    wait_for({&all_are_done, 1}, [&] { return to_text("rank ", rank(), " is done, others have not ended"); });
    MPI_Finalize();
  }

  // "MPI (Open MPI v4.1.4)", "MPI (MPICH Version: 4.0.2)"
  std::string name() const override {
    std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
    int size = 0;
    MPI_Get_library_version(text.data(), &size);
    std::string first(text.data(), std::string_view(text.data()).find_first_of(",\n"));
    std::ranges::replace(first, '\t', ' ');
    first.erase(std::ranges::unique(first, [](char a, char b) { return a == ' ' && b == ' '; }).begin(), first.end());
    return to_text("MPI (", first, ")");
  }

 private:
  void exchange_bytes(int peer, std::span<const std::byte> mine, std::span<std::byte> theirs) override {
    for (std::size_t at = 0; at < mine.size(); at += most_at_once) {
      const int size = static_cast<int>(std::min(most_at_once, mine.size() - at));
      std::array<MPI_Request, 2> both{};
      MPI_Irecv(theirs.data() + at, size, MPI_BYTE, peer, 0, MPI_COMM_WORLD, &both[0]);
      MPI_Isend(mine.data() + at, size, MPI_BYTE, peer, 0, MPI_COMM_WORLD, &both[1]);
      wait_for(both, [&] { return to_text("rank ", peer, " of ", this->size(), " has not answered rank ", rank()); });
    }
  }

  // Sleeps longer the longer it waits.
  template <class Text> void wait_for(std::span<MPI_Request> requests, const Text& otherwise) const {
    const auto began = std::chrono::steady_clock::now();
    int done = 0;
    while (MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE), done == 0) {
      const double waited = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
      if (waited > limit_) {
        std::cerr << to_text(
                         "ranks: ", otherwise(), " for ", limit_, " seconds; WHENCE_RANK_LIMIT=SECONDS allows more\n")
                  << std::flush;
        MPI_Abort(MPI_COMM_WORLD, 1);
      }
      if (waited < 200e-6)
        std::this_thread::yield();
      else
        std::this_thread::sleep_for(std::chrono::microseconds(waited < 20e-3 ? 50 : 1000));
    }
  }

  double limit_;
};

}  // namespace

std::unique_ptr<Communicator> join_mpi(Launch& launch, double limit) {
  // MPI_Init waits without limit for a missing rank, and cannot be stopped.
  const auto before = std::signal(SIGALRM, [](int) {
    constexpr std::string_view why =
        "ranks: MPI has not started within WHENCE_RANK_LIMIT seconds; did every rank start?\n";
    [[maybe_unused]] const auto written = ::write(STDERR_FILENO, why.data(), why.size());
    ::_exit(1);
  });
  ::alarm(static_cast<unsigned>(std::ceil(limit)));
  int given = 0, size = 0;
  MPI_Comm machine = MPI_COMM_NULL;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &given);
  MPI_Comm_size(MPI_COMM_WORLD, &size), MPI_Comm_rank(MPI_COMM_WORLD, &launch.rank);
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &machine);
  MPI_Comm_size(machine, &launch.local_size), MPI_Comm_rank(machine, &launch.local_rank);
  MPI_Comm_free(&machine);
  ::alarm(0), std::signal(SIGALRM, before);
  if (size != launch.size) {
    MPI_Finalize();
    throw InputError("ranks: ", launch.by, " says that there are ", launch.size,
        ", the MPI that whence was built with ", size,
        "; that library's mpirun required (or srun --mpi=pmix, --mpi=pmi2)");
  }
  return std::make_unique<Mpi>(launch, limit);
}

#endif

}  // namespace whence
