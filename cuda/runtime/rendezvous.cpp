#include "cuda/runtime/rendezvous.h"

#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <system_error>
#include <thread>
#include <vector>

namespace whence {
namespace {

using Clock = std::chrono::steady_clock;

class Deadline {
 public:
  explicit Deadline(double seconds) : seconds_(seconds) {}
  void pause_or_throw(const std::string& what) const {
    if (std::chrono::duration<double>(Clock::now() - began_).count() > seconds_)
      throw LostRank(
          "ranks: ", what, " within ", seconds_, " seconds; was every rank started? --rank-limit allows more");
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }

 private:
  double seconds_;
  Clock::time_point began_ = Clock::now();
};

std::string missing(const std::vector<bool>& came) {
  std::string list;
  for (std::size_t rank = 1; rank < came.size(); ++rank)
    if (!came[rank]) list += to_text(list.empty() ? "rank " : ", ", rank);
  return to_text(list, " did not come");
}

// ---- Over a folder. Who asks writes a number that it drew, and takes an answer to that number alone: what an earlier
// start left there answers nobody.

std::string text_of(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

void write_whole(const std::string& path, std::span<const std::byte> bytes) {
  const std::string partial = to_text(path, ".", getpid(), ".partial");
  {
    std::ofstream file(partial, std::ios::binary);
    file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    file.close();
    if (!file) throw SystemError("ranks: ", partial, " cannot be written: ", std::generic_category().message(errno));
  }
  std::filesystem::rename(partial, path);
}

std::string question(const std::string& where, int rank) { return to_text(where, ".rank", rank); }

void answer_in_folder(const std::string& where, int size, double limit, std::span<const std::byte> bytes) {
  const Deadline deadline(limit);
  std::vector<bool> came(static_cast<std::size_t>(size));
  struct Answers {
    std::vector<std::string> of;  // by rank; empty: none yet
    std::vector<std::string> all;
    ~Answers() {
      for (const std::string& path : all) ::unlink(path.c_str());
    }
  } answers{std::vector<std::string>(static_cast<std::size_t>(size)), {}};
  came[0] = true;
  while (std::ranges::find(came, false) != came.end()) {
    for (std::size_t rank = 1; rank < came.size(); ++rank) {
      if (came[rank]) continue;
      const std::string asked = question(where, static_cast<int>(rank)), number = text_of(asked);
      std::string& answer = answers.of[rank];
      if (!answer.empty() && !std::filesystem::exists(answer)) {
        came[rank] = true;  // who took it has removed it
      } else if (!number.empty() && answer != to_text(asked, ".", number)) {
        answer = to_text(asked, ".", number);
        answers.all.push_back(answer);
        write_whole(answer, bytes);
      }
    }
    if (std::ranges::find(came, false) != came.end()) deadline.pause_or_throw(missing(came));
  }
}

void ask_in_folder(const std::string& where, int rank, double limit, std::span<std::byte> bytes) {
  const Deadline deadline(limit);
  std::random_device random;
  const std::string number = to_text(random(), "-", random()), asked = question(where, rank),
                    answer = to_text(asked, ".", number);
  write_whole(asked, std::as_bytes(std::span(number)));
  const struct Asked {
    const std::string& path;
    ~Asked() { ::unlink(path.c_str()); }
  } remove_it{asked};
  while (!std::filesystem::exists(answer)) deadline.pause_or_throw(to_text("rank 0 did not answer at ", where));
  const std::string text = text_of(answer);
  if (text.size() != bytes.size())
    throw InputError("ranks: ", answer, " has ", text.size(), " bytes; ", bytes.size(), " required");
  std::memcpy(bytes.data(), text.data(), text.size());
  ::unlink(asked.c_str());  // before the answer, which tells rank 0 that all is done
  ::unlink(answer.c_str());
}

// ---- Over TCP.

class Socket {
 public:
  explicit Socket(int number) : number_(number) {}
  ~Socket() {
    if (number_ >= 0) ::close(number_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  int number() const { return number_; }

  // All of it, or false: another speaks there, or it ended. A stranger has two seconds.
  bool send(std::span<const std::byte> bytes) const {
    while (!bytes.empty()) {
      const ssize_t sent = ready(POLLOUT) ? ::send(number_, bytes.data(), bytes.size(), MSG_NOSIGNAL) : -1;
      if (sent <= 0) return false;
      bytes = bytes.subspan(static_cast<std::size_t>(sent));
    }
    return true;
  }
  bool receive(std::span<std::byte> bytes) const {
    while (!bytes.empty()) {
      const ssize_t came = ready(POLLIN) ? ::recv(number_, bytes.data(), bytes.size(), 0) : -1;
      if (came <= 0) return false;
      bytes = bytes.subspan(static_cast<std::size_t>(came));
    }
    return true;
  }
  bool ready(short what, int milliseconds = 2000) const {
    pollfd one{number_, what, 0};
    return ::poll(&one, 1, milliseconds) == 1;
  }

 private:
  int number_;
};

struct Hello {
  std::array<char, 8> who{'w', 'h', 'e', 'n', 'c', 'e', 'i', 'd'};
  std::int32_t rank = 0, size = 0;
};

void listen_for_all(const std::string& where, int port, int size, double limit, std::span<const std::byte> bytes) {
  const Deadline deadline(limit);
  const Socket listener(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int yes = 1, no = 0;
  ::setsockopt(listener.number(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  ::setsockopt(listener.number(), IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
  sockaddr_in6 any{};
  any.sin6_family = AF_INET6, any.sin6_addr = in6addr_any, any.sin6_port = htons(static_cast<std::uint16_t>(port));
  if (::bind(listener.number(), reinterpret_cast<const sockaddr*>(&any), sizeof any) != 0 ||
      ::listen(listener.number(), 128) != 0)
    throw SystemError("ranks: rank 0 cannot listen at ", where, ", port ", port, ": ",
        std::generic_category().message(errno), "; --rendezvous HOST:PORT takes another");
  std::vector<bool> came(static_cast<std::size_t>(size));
  came[0] = true;
  while (std::ranges::find(came, false) != came.end()) {
    const Socket rank(::accept4(listener.number(), nullptr, nullptr, SOCK_CLOEXEC));
    if (rank.number() < 0) {
      deadline.pause_or_throw(missing(came));
      continue;
    }
    Hello hello;
    const Hello ours;
    if (!rank.receive(std::as_writable_bytes(std::span(&hello, 1))) || hello.who != ours.who) continue;
    const bool welcome =
        hello.size == size && hello.rank > 0 && hello.rank < size && !came[static_cast<std::size_t>(hello.rank)];
    const std::byte answer{welcome};
    if (rank.send({&answer, 1}) && welcome && rank.send(bytes)) came[static_cast<std::size_t>(hello.rank)] = true;
  }
}

void call_rank_0(const std::string& where, const std::string& host, int port, const Launch& launch, double limit,
    std::span<std::byte> bytes) {
  const Deadline deadline(limit);
  for (;; deadline.pause_or_throw(to_text("rank 0 did not answer at ", where, ", port ", port))) {
    addrinfo hints{}, *addresses = nullptr;
    hints.ai_socktype = SOCK_STREAM;
    if (::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &addresses) != 0) continue;
    const std::unique_ptr<addrinfo, void (*)(addrinfo*)> kept(addresses, ::freeaddrinfo);
    for (const addrinfo* address = addresses; address; address = address->ai_next) {
      const Socket rank_0(::socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      if (::connect(rank_0.number(), address->ai_addr, address->ai_addrlen) != 0 && errno != EINPROGRESS) continue;
      const Hello hello{.rank = launch.rank, .size = launch.size};
      std::byte welcome{0};
      if (!rank_0.send(std::as_bytes(std::span(&hello, 1))) || !rank_0.receive({&welcome, 1})) continue;
      if (welcome == std::byte{0})
        throw InputError("ranks: rank ", launch.rank, " of ", launch.size, " was refused at ", where,
            "; rank 0 there is of another number of ranks, or has this rank already");
      if (rank_0.receive(bytes)) return;
    }
  }
}

}  // namespace

void meet(const std::string& where, const Launch& launch, double limit, std::span<std::byte> bytes) {
  if (where.find('/') != std::string::npos) {
    if (launch.rank == 0) return answer_in_folder(where, launch.size, limit, bytes);
    return ask_in_folder(where, launch.rank, limit, bytes);
  }
  const std::size_t colon = where.rfind(':');
  int port = 0;
  const char* const end = where.data() + where.size();
  if (colon == std::string::npos || std::from_chars(where.data() + colon + 1, end, port).ptr != end || port < 1 ||
      port > 65535)
    throw InputError("ranks: rendezvous '", where.substr(0, 200),
        "' given; HOST:PORT of rank 0, or a file with its folder, as /shared/run/id, required");
  if (launch.rank == 0) return listen_for_all(where, port, launch.size, limit, bytes);
  call_rank_0(where, where.substr(0, colon), port, launch, limit, bytes);
}

}  // namespace whence
