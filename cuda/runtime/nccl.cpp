// Ranks with one GPU each, over NCCL, which is loaded on demand: libnccl.so.2, or the file that WHENCE_NCCL_LIBRARY
// names.
//
// Its calls do not block (ncclConfig_t::blocking = 0): each returns "in progress", and is polled until it is done or the
// limit is over.
#include <dlfcn.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <thread>

#include "cuda/runtime/runtime.h"
#include "tensor/ranks/ranks.h"

namespace whence {
namespace {

// From nccl.h. Its own rule for ncclConfig_t: fields are only added at the end, and `version` says how many there are.
struct UniqueId {
  std::array<std::byte, 128> bytes;
};
struct Config {
  std::size_t size = sizeof(Config);
  unsigned magic = 0xcafebeef, version = 21400;  // 2.14.0, the first with non-blocking calls
  int blocking = 0;
};
using Comm = struct ncclComm*;
constexpr int success = 0, in_progress = 7;
constexpr int int8 = 0;

struct Library {
  int (*version)(int*) = nullptr;
  int (*unique_id)(UniqueId*) = nullptr;
  int (*init)(Comm*, int, UniqueId, int, Config*) = nullptr;
  int (*group_start)() = nullptr;
  int (*group_end)() = nullptr;
  int (*send)(const void*, std::size_t, int, int, Comm, CUstream_st*) = nullptr;
  int (*receive)(void*, std::size_t, int, int, Comm, CUstream_st*) = nullptr;
  int (*state)(Comm, int*) = nullptr;
  int (*finalize)(Comm) = nullptr;
  int (*destroy)(Comm) = nullptr;
  int (*abort)(Comm) = nullptr;
  const char* (*text)(int) = nullptr;
  std::string problem;  // why it could not be loaded
};

Library load() {
  Library nccl;
  const char* const named = std::getenv("WHENCE_NCCL_LIBRARY");
  if (!named && gpu::device_facts().emulated) {
    nccl.problem = "the GPU here is emulated, whose memory NCCL cannot see";
    return nccl;
  }
  const char* const file = named ? named : "libnccl.so.2";
  void* const opened = ::dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (!opened) {
    nccl.problem = to_text(::dlerror());
    return nccl;
  }
  const auto find = [&]<class Function>(Function& function, const char* name) {
    function = reinterpret_cast<Function>(::dlsym(opened, name));
    if (!function && nccl.problem.empty())
      nccl.problem = to_text(file, " has no ", name, "; NCCL 2.14 or newer required");
  };
  find(nccl.version, "ncclGetVersion"), find(nccl.unique_id, "ncclGetUniqueId");
  find(nccl.init, "ncclCommInitRankConfig"), find(nccl.finalize, "ncclCommFinalize");
  find(nccl.group_start, "ncclGroupStart"), find(nccl.group_end, "ncclGroupEnd");
  find(nccl.send, "ncclSend"), find(nccl.receive, "ncclRecv");
  find(nccl.state, "ncclCommGetAsyncError"), find(nccl.text, "ncclGetErrorString");
  find(nccl.destroy, "ncclCommDestroy"), find(nccl.abort, "ncclCommAbort");
  return nccl;
}

const Library& library() {
  static const Library& loaded = *new Library(load());
  return loaded;
}

class Nccl final : public Communicator {
 public:
  Nccl(Communicator& control, double limit)
      : Communicator(control.rank(), control.size()), limit_(limit), control_(control) {
    try {
      start();
    } catch (const std::exception&) {
      if (comm_) nccl_.abort(comm_);
      throw;
    }
  }
  ~Nccl() override {
    try {
      if (std::uncaught_exceptions() > 0) throw Error("this rank itself");
      wait_until_done("finalize", nccl_.finalize(comm_), 0);
      nccl_.destroy(comm_);
    } catch (const Error&) { nccl_.abort(comm_); }
  }

  std::string name() const override {
    int version = 0;
    nccl_.version(&version);
    const int major = version / 10000, minor = version / 100 % 100;
    return to_text("NCCL ", major, ".", minor, ".", version % 100, " and ", control_.name());
  }
  bool reaches(Device) const override { return true; }

 private:
  void start() {
    UniqueId id{};
    int problem = success;
    if (rank() == 0) problem = nccl_.unique_id(&id);
    if (problem != success) throw SystemError("ranks: ncclGetUniqueId: ", nccl_.text(problem));
    broadcast(control_, id.bytes);
    gpu::stream();  // selects the device
    Config config;
    wait_until_done("start", nccl_.init(&comm_, size(), id, rank(), &config), rank() ^ 1);
  }

  void exchange_on_device(int peer, const Tensor& mine, const Tensor& theirs) override {
    const std::size_t bytes = static_cast<std::size_t>(mine.numel()) * size_of(mine.dtype());
    if (bytes == 0) return;
    const auto require = [&](int code) {
      if (code != success && code != in_progress) throw Error("ranks: NCCL: ", nccl_.text(code));
    };
    require(nccl_.group_start());
    require(nccl_.send(gpu::address_for_libraries(mine.bytes()), bytes, int8, peer, comm_, gpu::stream()));
    require(nccl_.receive(gpu::address_for_libraries(theirs.bytes()), bytes, int8, peer, comm_, gpu::stream()));
    wait_until_done("exchange", nccl_.group_end(), peer);
  }

  void exchange_bytes(int peer, std::span<const std::byte> mine, std::span<std::byte> theirs) override {
    control_.exchange(peer, mine, theirs);
  }

  // Waits until `call` has ended on the host and on the device.
  void wait_until_done(const char* what, int call, int peer) {
    if (call != success && call != in_progress) throw Error("ranks: NCCL could not ", what, ": ", nccl_.text(call));
    const auto began = std::chrono::steady_clock::now();
    for (;;) {
      int state = success;
      const int asked = nccl_.state(comm_, &state);
      if (asked != success) state = asked;
      if (state == success && gpu::all_has_ended()) return;
      if (state != success && state != in_progress)
        throw Error("ranks: NCCL could not ", what, " with rank ", peer, ": ", nccl_.text(state));
      const double waited = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
      if (waited > limit_)
        throw Error("rank ", peer, " of ", size(), " has not answered rank ", rank(), " for ", limit_,
            " seconds; WHENCE_RANK_LIMIT=SECONDS allows more");
      if (waited < 1e-3) continue;  // an exchange between cards takes microseconds
      std::this_thread::sleep_for(std::chrono::microseconds(waited < 0.1 ? 20 : 1000));
    }
  }

  const Library& nccl_ = library();
  double limit_;
  Communicator& control_;
  Comm comm_ = nullptr;
};

}  // namespace

bool nccl_can_be_loaded() { return library().problem.empty(); }

std::unique_ptr<Communicator> join_nccl(const Launch& launch, Communicator& control, Device device, double limit) {
  const auto refuse = [](const auto&... why) { throw InputError("ranks: NCCL given, but ", why...); };
  if (!nccl_can_be_loaded())
    refuse("it cannot be loaded: ", library().problem,
        "; install libnccl2 or the package nvidia-nccl-cu13, or name the file in WHENCE_NCCL_LIBRARY");
  if (device.is_cpu()) refuse("this rank computes on the CPU; --device cuda on all ranks required");
  if (!launch.own_gpu)
    refuse("this machine has fewer GPUs than the ", launch.local_size,
        " ranks on it, while NCCL has one for each; fewer ranks required");
  return std::make_unique<Nccl>(control, limit);
}

}  // namespace whence
