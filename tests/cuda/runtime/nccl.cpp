// Ranks with a GPU each, whose numbers go from card to card: NCCL's part is played by tests/cuda/runtime/nccl_stand_in/stand_in.cpp, between
// processes that each emulate a GPU. Nothing here has met a real NCCL.
#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "cuda/runtime/rendezvous.h"
#include "tensor/ranks/communicator.h"
#include "tests/support/programs.h"
#include "tests/support/tensors.h"

using namespace whence;
using namespace whence::test;
namespace fs = std::filesystem;

namespace {

// One rank of a start, as torchrun would begin it; `launcher` are its variables.
class Rank {
 public:
  Rank(int rank, const std::string& launcher, const std::vector<std::string>& more)
      : program_((set(rank, launcher), arguments(more)), program_with_gpu()) {}
  RunningProgram& program() { return program_; }

 private:
  static void set(int rank, const std::string& address) {
    ::setenv("WHENCE_NCCL_LIBRARY", WHENCE_NCCL_STAND_IN, 1);
    ::setenv("RANK", std::to_string(rank).c_str(), 1), ::setenv("WORLD_SIZE", "2", 1);
    // Each believes that it is alone on its machine: nothing but NCCL and the rendezvous is between them.
    ::setenv("LOCAL_RANK", "0", 1), ::setenv("LOCAL_WORLD_SIZE", "1", 1);
    if (address.empty())
      ::unsetenv("MASTER_ADDR"), ::unsetenv("MASTER_PORT");
    else
      ::setenv("MASTER_ADDR", "127.0.0.1", 1), ::setenv("MASTER_PORT", address.c_str(), 1);
  }
  static std::vector<std::string> arguments(const std::vector<std::string>& more) {
    std::vector<std::string> all{"train", "flip_flop", "--scheme", "rope", "--accumulate", "2", "--batch", "1",
        "--length", "8", "--dim", "8", "--heads", "1", "--layers", "1", "--threads", "1", "--device", "cuda",
        "--communicator", "nccl"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  RunningProgram program_;
};

struct NoLauncher {
  ~NoLauncher() {
    for (const char* name :
        {"WHENCE_NCCL_LIBRARY", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"})
      ::unsetenv(name);
  }
};

// One that the system says is free.
std::string free_port() {
  const int door = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET, address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  REQUIRE(::bind(door, reinterpret_cast<sockaddr*>(&address), size) == 0);
  REQUIRE(::getsockname(door, reinterpret_cast<sockaddr*>(&address), &size) == 0);
  ::close(door);
  return std::to_string(ntohs(address.sin_port));
}

}  // namespace

TEST_CASE("ranks over NCCL's stand-in: the weights of ranks whose sums go over the CPU; the id over TCP and a file") {
  const Scratch scratch("nccl");
  const NoLauncher afterwards;
  const auto weights = [&](const std::string& out) { return text_of(scratch / out + "/weights.safetensors"); };
  {
    const std::vector<std::string> same{"--steps", "2", "--out", scratch / "tcp", "--rank-limit", "20"};
    const std::string port = free_port();
    Rank first(0, port, same);
    Rank second(1, port, same);
    const Outcome a = first.program().finish_within(100), b = second.program().finish_within(100);
    REQUIRE_MESSAGE(a.code == 0, a.err, b.err);
    CHECK(a.out.find("over NCCL 2.27.3") != std::string::npos);
    CHECK(b.code == 0);
  }
  {
    std::ofstream(scratch / "id.rank1") << "of an earlier start";
    const std::vector<std::string> same{
        "--steps", "2", "--out", scratch / "file", "--rendezvous", scratch / "id", "--rank-limit", "20"};
    Rank second(1, "", same);
    Rank first(0, "", same);
    const Outcome a = first.program().finish_within(100), b = second.program().finish_within(100);
    REQUIRE_MESSAGE(a.code == 0, a.err, b.err);
    CHECK(b.code == 0);
    for (const auto& entry : fs::directory_iterator(scratch.folder))
      CHECK_MESSAGE(entry.path().filename().string().substr(0, 3) != "id.", entry.path().string());
  }
  const Outcome shared = [&] {
    { const NoLauncher gone; }
    return RunningProgram({"train", "flip_flop", "--scheme", "rope", "--accumulate", "2", "--batch", "1", "--length",
                              "8", "--dim", "8", "--heads", "1", "--layers", "1", "--threads", "1", "--device", "cuda",
                              "--steps", "2", "--out", scratch / "alone"},
        program_with_gpu())
        .finish_within(100);
  }();
  REQUIRE_MESSAGE(shared.code == 0, shared.err);
  CHECK(!weights("alone").empty());
  CHECK(weights("tcp") == weights("alone"));
  CHECK(weights("file") == weights("alone"));
}

TEST_CASE("ranks over NCCL's stand-in: a peer that dies ends the other, and one that hangs does at the limit") {
  const Scratch scratch("nccl-dies");
  const NoLauncher afterwards;
  for (const int fault : {SIGKILL, SIGSTOP}) {
    const std::vector<std::string> same{"--steps", "100000", "--out", scratch / to_text("out", fault), "--rendezvous",
        scratch / "id", "--rank-limit", "3"};
    Rank first(0, "", same);
    Rank second(1, "", same);
    for (int waited = 0; waited < 600 && !fs::exists(scratch / to_text("out", fault, "/metrics.jsonl")); ++waited)
      usleep(100000);
    sleep(1);
    second.program().signal(fault);
    const Outcome a = first.program().finish_within(60);
    second.program().signal(SIGKILL);
    second.program().finish();
    CHECK(a.code == 1);
    CHECK_MESSAGE(a.err.find("rank 1") != std::string::npos, a.err);
  }
}

TEST_CASE("rendezvous: who does not come is named at the limit; a place that cannot be is refused") {
  std::array<std::byte, 128> bytes{};
  const Scratch scratch("rendezvous");
  const Launch first{.rank = 0, .size = 2}, second{.rank = 1, .size = 2};
  const std::string port = "127.0.0.1:" + free_port();
  for (const std::string& where : {port, scratch / "id"}) {
    CHECK(error_text([&] { meet(where, first, 0.2, bytes); }).find("rank 1 did not come") != std::string::npos);
    CHECK(error_text([&] { meet(where, second, 0.2, bytes); }).find("rank 0 did not answer") != std::string::npos);
  }
  CHECK(error_text([&] { meet("somewhere", first, 1, bytes); }).find("HOST:PORT") != std::string::npos);
  CHECK(
      error_text([&] { meet("/no/such/folder/id", second, 1, bytes); }).find("cannot be written") != std::string::npos);
  // Rank 0 comes late, and a process of another start calls first.
  std::array<std::byte, 128> given{}, got{};
  given[5] = std::byte{7};
  std::thread late([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    meet(port, first, 20, given);
  });
  CHECK(error_text([&] { meet(port, {.rank = 1, .size = 4}, 20, bytes); }).find("refused") != std::string::npos);
  meet(port, second, 20, got);
  late.join();
  CHECK(got == given);
}
