// Ranks with a GPU each, whose numbers go from card to card: NCCL's part is played by nccl_stand_in/stand_in.cpp, between
// processes that each emulate a GPU. Nothing here has met a real NCCL.
#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <sys/socket.h>
#include <unistd.h>
#include <array>
#include <chrono>
#include <cstdlib>
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

const std::string training =
    "train flip_flop --scheme rope --accumulate 2 --batch 1 --length 8 --dim 8 --heads 1 --layers 1 --threads 1 "
    "--device "
    "cuda ";

// One rank of a start, as torchrun would begin it at a port of this machine; none: no launcher says where.
RunningProgram begin(int rank, const std::string& port, const std::string& more) {
  ::setenv("WHENCE_NCCL_LIBRARY", WHENCE_NCCL_STAND_IN, 1);
  ::setenv("RANK", std::to_string(rank).c_str(), 1), ::setenv("WORLD_SIZE", "2", 1);
  // Each believes that it is alone on its machine: nothing but NCCL and the rendezvous is between them.
  ::setenv("LOCAL_RANK", "0", 1), ::setenv("LOCAL_WORLD_SIZE", "1", 1);
  ::unsetenv("MASTER_ADDR"), ::unsetenv("MASTER_PORT");
  if (!port.empty()) ::setenv("MASTER_ADDR", "127.0.0.1", 1), ::setenv("MASTER_PORT", port.c_str(), 1);
  return RunningProgram(words(training + "--communicator nccl " + more), program_with_gpu());
}

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
  std::ofstream(scratch / "id.rank1") << "of an earlier start";
  const auto weights = [&](const std::string& out) { return text_of(scratch / out + "/weights.safetensors"); };
  for (const std::string way : {"tcp", "file"}) {
    CAPTURE(way);
    const NoLauncher afterwards;
    const std::string port = way == "tcp" ? free_port() : "",
                      place = port.empty() ? "--rendezvous " + scratch / "id " : "",
                      line = "--steps 2 --rank-limit 20 --out " + scratch / (way + " ") + place;
    RunningProgram second = begin(1, port, line), first = begin(0, port, line);
    const Outcome a = first.finish_within(100), b = second.finish_within(100);
    REQUIRE_MESSAGE(a.code == 0, a.err, b.err);
    CHECK(a.out.find("over NCCL 2.27.3") != std::string::npos);
    CHECK(b.code == 0);
  }
  for (const auto& entry : fs::directory_iterator(scratch.folder))
    CHECK_MESSAGE(entry.path().filename().string().substr(0, 3) != "id.", entry.path().string());
  const Outcome shared =
      RunningProgram(words(training + "--steps 2 --out " + scratch / "alone"), program_with_gpu()).finish_within(100);
  REQUIRE_MESSAGE(shared.code == 0, shared.err);
  CHECK(!weights("alone").empty());
  CHECK(weights("tcp") == weights("alone"));
  CHECK(weights("file") == weights("alone"));
}

TEST_CASE("ranks over NCCL's stand-in: a peer that dies ends the other, and one that hangs does at the limit") {
  const Scratch scratch("nccl-dies");
  const NoLauncher afterwards;
  for (const int fault : {SIGKILL, SIGSTOP}) {
    const std::string out = scratch / to_text("out", fault),
                      line = "--steps 100000 --log-every 1 --rank-limit 3 --rendezvous " + scratch / "id --out " + out;
    RunningProgram first = begin(0, "", line), second = begin(1, "", line);
    REQUIRE(soon([&] { return !text_of(out + "/metrics.jsonl").empty(); }));  // a step has been logged
    second.signal(fault);
    const Outcome a = first.finish_within(60);
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
