#include "examples/whence/bench/peer.h"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <thread>

#include "examples/whence/bench/pytorch_script.h"
#include "examples/whence/cli/interrupt.h"
#include "examples/whence/cli/statistics.h"
#include "examples/whence/cli/text.h"
#include "examples/whence/cli/words.h"
#include "tensor/error.h"
#include "tensor/raw.h"

namespace whence::bench {
namespace {

constexpr const char* allocator_settings =  // large blocks kept instead of mapped anew, in huge pages
    "GLIBC_TUNABLES=glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=1000000000000:glibc.malloc.hugetlb=1";

// f32, in rows
Tensor on_cpu(const Tensor& tensor) {
  return raw::contiguous(raw::to_device(raw::cast(tensor.detach(), DType::f32), Device()));
}

const char* dtype_name(DType dtype) { return dtype == DType::i64 ? "i64" : "f32"; }

}  // namespace

std::vector<PeerWay> chosen_ways(
    const Settings& settings, const std::string& listed, const std::vector<std::string>& known, bool on_cpu) {
  std::vector<PeerWay> ways;
  const std::vector<std::string> wanted = list_of(listed), all{"all", "eager", "compile", "sdpa", "flex"};
  for (const std::string& word : wanted)
    if (std::ranges::find(all, word) == all.end())
      throw InputError("--ways: ", in_quotes(word), " given; some of eager, compile, sdpa and flex, or all, required");
  for (const std::string& name : settings.with_peer() ? known : std::vector<std::string>{}) {
    if (listed != "all" && std::ranges::find(wanted, name) == wanted.end()) continue;
    ways.push_back({name, false});
    if (on_cpu) ways.push_back({name, true});
  }
  return ways;
}

// Delegates, so that the destructor ends the process when something throws here.
Peer::Peer(const Settings& settings, bool tuned) : Peer() {
  python_ = settings.python;
  int request[2], answer[2];
  if (pipe(request) != 0 || pipe(answer) != 0) throw Error("peer: the system gave no pipe: ", std::strerror(errno));
  const std::string workers = "OMP_NUM_THREADS=" + std::to_string(settings.threads);
  child_ = fork();
  if (child_ < 0) throw Error("peer: the system started no process: ", std::strerror(errno));
  if (child_ == 0) {
    // Ctrl-C reaches it too, and is not for it: this program ends it.
    signal(SIGINT, SIG_IGN);
    dup2(request[0], 0), dup2(answer[1], 1);
    for (const int end : {request[0], request[1], answer[0], answer[1]}) close(end);
    putenv(const_cast<char*>(workers.c_str()));
    if (tuned) putenv(const_cast<char*>(allocator_settings));
    execlp(python_.c_str(), python_.c_str(), "-c", pytorch_script, nullptr);
    _exit(127);
  }
  close(request[0]), close(answer[1]);
  to_ = request[1], from_ = answer[0];
  version_ = Json::read(read_line(), "PyTorch").text("version");
}

Peer::~Peer() {
  for (const int end : {to_, from_})
    if (end >= 0) close(end);
  if (child_ <= 0) return;
  kill(child_, SIGKILL);
  waitpid(child_, nullptr, 0);
}

void Peer::refuse() {
  int status = 0;
  waitpid(child_, &status, 0);  // it has closed its output: it has ended, or is about to
  child_ = -1;
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  if (code == 127 || code == 3) {
    throw InputError("--python: ", in_quotes(python_), " given; ",
        code == 127 ? "no such program; a Python that has torch required" : "it has no torch; one that has it required",
        "; pip install torch, or --python PATH");
  }
  throw Error("peer: PyTorch ended with ", WIFSIGNALED(status) ? "signal " : "code ",
      WIFSIGNALED(status) ? WTERMSIG(status) : code, "; is there memory enough for it?");
}

void Peer::write(const void* bytes, std::size_t count) {
  for (const char* next = static_cast<const char*>(bytes); count > 0;) {
    const ssize_t done = ::write(to_, next, count);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) refuse();
    next += done, count -= static_cast<std::size_t>(done);
  }
}

void Peer::read(void* bytes, std::size_t count) {
  for (char* next = static_cast<char*>(bytes); count > 0;) {
    pollfd ready = {from_, POLLIN, 0};
    if (poll(&ready, 1, 200) <= 0) {  // a compilation takes a minute
      stop_if_asked();
      continue;
    }
    const ssize_t done = ::read(from_, next, count);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) refuse();
    next += done, count -= static_cast<std::size_t>(done);
  }
}

std::string Peer::read_line() {
  std::string line;
  for (char c = 0; c != '\n'; line += c) read(&c, 1);
  return line;
}

Peer::Answer Peer::ask(const Json& fields, const NamedTensors& tensors) {
  NamedTensors sent;
  Json::List heads;
  for (const auto& [name, tensor] : tensors) {
    sent.emplace_back(
        name, tensor.dtype() == DType::i64 ? raw::contiguous(raw::to_device(tensor, Device())) : on_cpu(tensor));
    heads.push_back({{"name", name}, {"dtype", dtype_name(tensor.dtype())},
        {"shape", std::vector<std::int64_t>(tensor.shape().begin(), tensor.shape().end())}});
  }
  Json request = fields;
  request.add("tensors", heads);
  const std::string line = request.line() + '\n';
  write(line.data(), line.size());
  for (const auto& [name, tensor] : sent)
    write(tensor.bytes(), static_cast<std::size_t>(tensor.numel()) * size_of(tensor.dtype()));
  const Json said = Json::read(read_line(), "PyTorch");
  if (said.has("failed")) throw Error("peer: PyTorch failed: ", said.text("failed"));
  Answer answer;
  for (const auto& [name, value] : said.fields())
    if (const auto number = value.as_number()) answer.figures[name] = *number;
  for (const Json& head : said.objects("tensors")) {
    Shape shape;
    for (const double extent : head.numbers("shape")) shape.push_back(static_cast<index_t>(extent));
    const Tensor tensor = Tensor::empty(shape, DType::f32);
    read(tensor.bytes(), static_cast<std::size_t>(tensor.numel()) * sizeof(float));
    answer.tensors.emplace_back(head.text("name"), tensor);
  }
  return answer;
}

void Times::add(const Repetition& one) {
  forward.push_back(one.forward), backward.push_back(one.backward), both.push_back(one.forward + one.backward);
}

double Turns::ratio() const { return median(theirs.both).value / median(ours.both).value; }

Turns in_turn(Peer& peer, int repetitions, const std::function<Repetition()>& ours, bool forward_only) {
  // Threads that wait for more work spin for a while; that is not to cost whoever is measured next.
  const auto rest = [] { std::this_thread::sleep_for(std::chrono::milliseconds(20)); };
  Turns turns;
  for (int round = 0; round < repetitions; ++round) {
    stop_if_asked();
    rest();
    turns.ours.add(ours());
    rest();
    const auto theirs = peer.ask({{"do", std::string("run")}}).figures;
    turns.theirs.add({theirs.at("forward_ms"), forward_only ? 0 : theirs.at("backward_ms")});
  }
  return turns;
}

std::string peer_version(const Settings& settings) {
  return settings.with_peer() ? "PyTorch " + Peer(settings, false).version() : "";
}

Difference largest_difference(const NamedTensors& ours, const NamedTensors& theirs) {
  struct Norms {
    std::string name;
    double apart = 0, size = 0;
  };
  std::vector<Norms> all;
  double largest_gradient = 0;
  for (const auto& [name, tensor] : ours) {
    const auto other = std::ranges::find(theirs, name, &NamedTensors::value_type::first);
    if (other == theirs.end() || !(other->second.shape() == tensor.shape()))
      throw Error("peer: no ", name, " ", tensor.shape(), " came back");
    const Tensor mine = on_cpu(tensor), yours = on_cpu(other->second);
    const float *a = mine.data<float>(), *b = yours.data<float>();
    Norms& norms = all.emplace_back(Norms{.name = name});
    for (index_t n = 0; n < mine.numel(); ++n) {
      norms.apart += (double{a[n]} - b[n]) * (double{a[n]} - b[n]);
      norms.size += double{b[n]} * b[n];
    }
    norms.apart = std::sqrt(norms.apart), norms.size = std::sqrt(norms.size);
    if (name.starts_with("gradient")) largest_gradient = std::max(largest_gradient, norms.size);
  }
  Difference largest{"", -1};
  for (const Norms& norms : all) {
    const double scale = norms.name.starts_with("gradient") ? std::max(norms.size, 0.1 * largest_gradient) : norms.size;
    const double relative = norms.apart == 0 ? 0 : norms.apart / scale;
    if (!(relative <= largest.relative)) largest = {norms.name, relative};  // not a number is larger than all
  }
  return largest;
}

void require_equal(const std::string& what, const Difference& difference, double allowed) {
  if (difference.relative <= allowed) return;  // not so when it is not a number
  throw Error(what, ": ", difference.where, " differs from ours by ", difference.relative, " of its norm; at most ",
      allowed, " is f32's; one of the two is wrong, so its time means nothing");
}

}  // namespace whence::bench
