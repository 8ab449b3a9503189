// A libnccl.so.2 without GPUs: the functions that cuda/runtime/nccl.cpp calls, over sockets of the machine, between
// processes whose device memory the host can read (the emulated GPU). Like NCCL without blocking: calls begin, and each
// query of a communicator's state continues them.
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <map>
#include <random>
#include <vector>

namespace {

struct UniqueId {
  char bytes[128];
};

constexpr int success = 0, system_error = 2, remote_error = 6, in_progress = 7;

struct Transfer {
  int socket;
  bool sends;
  char* bytes;
  std::size_t left;
};

sockaddr_un address_of(const UniqueId& id, int rank) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;  // its name has no file: it begins with 0
  std::snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "%.60s-%d", id.bytes, rank);
  return address;
}

}  // namespace

struct ncclComm {
  UniqueId id;
  int rank, size, listener;
  std::map<int, int> peers;  // their sockets; this rank connects to lower ranks, higher ones connect to it
  std::vector<Transfer> under_way;

  // One step of all operations in progress.
  int carry_on() {
    for (int peer = 0; peer < size; ++peer) {
      if (peer >= rank || peers.contains(peer)) continue;
      const int called = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
      const sockaddr_un address = address_of(id, peer);
      if (::connect(called, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
        ::close(called);
        return in_progress;
      }
      if (::write(called, &rank, sizeof rank) != sizeof rank) return remote_error;
      ::fcntl(called, F_SETFL, O_NONBLOCK);
      peers[peer] = called;
    }
    while (static_cast<int>(peers.size()) < size - 1) {
      const int caller = ::accept(listener, nullptr, nullptr);
      if (caller < 0) return in_progress;
      int peer = 0;
      if (::read(caller, &peer, sizeof peer) != sizeof peer) return remote_error;
      ::fcntl(caller, F_SETFL, O_NONBLOCK);
      peers[peer] = caller;
    }
    for (Transfer& transfer : under_way) {
      while (transfer.left > 0) {
        const ssize_t went = transfer.sends ? ::send(transfer.socket, transfer.bytes, transfer.left, MSG_NOSIGNAL)
                                            : ::recv(transfer.socket, transfer.bytes, transfer.left, 0);
        if (went < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
        if (went <= 0) return remote_error;
        transfer.bytes += went, transfer.left -= static_cast<std::size_t>(went);
      }
    }
    std::erase_if(under_way, [](const Transfer& transfer) { return transfer.left == 0; });
    return under_way.empty() ? success : in_progress;
  }
};

extern "C" {

int ncclGetVersion(int* version) { return *version = 22703, success; }

int ncclGetUniqueId(UniqueId* id) {
  std::random_device random;
  std::snprintf(id->bytes, sizeof id->bytes, "whence-nccl-%08x%08x", random(), random());
  return success;
}

int ncclCommInitRankConfig(ncclComm** comm, int size, UniqueId id, int rank, void*) {
  const int listener = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const sockaddr_un address = address_of(id, rank);
  if (::bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 || ::listen(listener, 64) != 0)
    return system_error;
  *comm = new ncclComm{id, rank, size, listener, {}, {}};
  return in_progress;
}

int ncclGroupStart() { return success; }
int ncclGroupEnd() { return in_progress; }

int ncclSend(const void* bytes, std::size_t count, int, int peer, ncclComm* comm, void*) {
  comm->under_way.push_back({comm->peers.at(peer), true, static_cast<char*>(const_cast<void*>(bytes)), count});
  return success;
}
int ncclRecv(void* bytes, std::size_t count, int, int peer, ncclComm* comm, void*) {
  comm->under_way.push_back({comm->peers.at(peer), false, static_cast<char*>(bytes), count});
  return success;
}

int ncclCommGetAsyncError(ncclComm* comm, int* state) { return *state = comm->carry_on(), success; }
int ncclCommFinalize(ncclComm*) { return success; }
int ncclCommAbort(ncclComm* comm) {
  for (const auto& peer : comm->peers) ::close(peer.second);
  ::close(comm->listener);
  delete comm;
  return success;
}
int ncclCommDestroy(ncclComm* comm) { return ncclCommAbort(comm); }

const char* ncclGetErrorString(int code) {
  return code == remote_error ? "remote process exited or there was a network error" : "unhandled system error";
}

}  // extern "C"
