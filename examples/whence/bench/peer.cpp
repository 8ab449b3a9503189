#include "examples/whence/bench/peer.h"

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <thread>

#include "examples/whence/cli/numbers.h"
#include "examples/whence/cli/text.h"
#include "examples/whence/cli/words.h"
#include "tensor/random.h"
#include "tensor/raw.h"
#include "tensor/suggest.h"

namespace whence::bench {
namespace {

constexpr const char* allocator_settings =  // large blocks kept instead of mapped anew, in huge pages
    "GLIBC_TUNABLES=glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=1000000000000:glibc.malloc.hugetlb=1";

// On the CPU in rows, numbers in f32.
Tensor sendable(const Tensor& tensor) {
  const DType dtype = is_floating(tensor.dtype()) ? DType::f32 : tensor.dtype();
  return raw::contiguous(raw::to_device(raw::cast(tensor.detach(), dtype), Device()));
}

}  // namespace

// Delegates, so that the destructor ends the process when something throws here.
Peer::Peer(const Settings& settings, bool tuned) : Peer() {
  python_ = settings.python;
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0)
    throw Error("peer: the system gave no socket: ", std::strerror(errno));
  const std::string workers = "OMP_NUM_THREADS=" + std::to_string(settings.threads);
  socket_ = ends[0], child_ = fork();
  if (child_ == 0) {
    // Ctrl-C reaches it too, and is not for it: this program ends it.
    signal(SIGINT, SIG_IGN);
    dup2(ends[1], 0), dup2(ends[1], 1);
    close(ends[0]), close(ends[1]);
    putenv(const_cast<char*>(workers.c_str()));
    if (tuned) putenv(const_cast<char*>(allocator_settings));
    execlp(python_.c_str(), python_.c_str(), "-c", pytorch_script, nullptr);
    _exit(127);
  }
  close(ends[1]);
  if (child_ < 0) throw Error("peer: the system started no process: ", std::strerror(errno));
  version_ = Json::read(read_line(), "PyTorch").text("version");
}

Peer::~Peer() {
  if (socket_ >= 0) close(socket_);
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
    const ssize_t done = send(socket_, next, count, MSG_NOSIGNAL);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) refuse();
    next += done, count -= static_cast<std::size_t>(done);
  }
}

void Peer::read(void* bytes, std::size_t count) {
  for (char* next = static_cast<char*>(bytes); count > 0;) {
    pollfd ready = {socket_, POLLIN, 0};
    if (poll(&ready, 1, 200) <= 0) {  // a compilation takes a minute
      stop_if_asked();
      continue;
    }
    const ssize_t done = ::read(socket_, next, count);
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
  std::vector<Tensor> sent;
  Json::List heads;
  for (const auto& [name, tensor] : tensors) {
    sent.push_back(sendable(tensor));
    heads.push_back({{"name", name}, {"dtype", to_string(sent.back().dtype())},
        {"shape", std::vector<std::int64_t>(tensor.shape().begin(), tensor.shape().end())}});
  }
  Json request = fields;
  request.add("tensors", heads);
  const std::string line = request.line() + '\n';
  write(line.data(), line.size());
  for (const Tensor& tensor : sent)
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

Tensor named(const NamedTensors& tensors, const std::string& name) {
  const auto found = std::ranges::find(tensors, name, &NamedTensors::value_type::first);
  return found == tensors.end() ? Tensor() : found->second;
}

Norms norms_of(const Tensor& ours, const Tensor& theirs) {
  const std::vector<double> a = ours.to_vector(), b = theirs.to_vector();
  Norms squares;
  for (std::size_t n = 0; n < a.size(); ++n)
    squares.apart += (a[n] - b[n]) * (a[n] - b[n]), squares.size += b[n] * b[n];
  return {std::sqrt(squares.apart), std::sqrt(squares.size)};
}

Difference largest_difference(const NamedTensors& ours, const NamedTensors& theirs) {
  std::vector<std::pair<std::string, Norms>> all;
  double largest_gradient = 0;
  for (const auto& [name, tensor] : ours) {
    const Tensor other = named(theirs, name);
    if (!other.defined() || !(other.shape() == tensor.shape()))
      throw Error("peer: no ", name, " ", tensor.shape(), " came back");
    const Norms norms = all.emplace_back(name, norms_of(tensor, other)).second;
    if (name.starts_with("gradient")) largest_gradient = std::max(largest_gradient, norms.size);
  }
  Difference largest{"", -1};
  for (const auto& [name, norms] : all) {
    const double scale = name.starts_with("gradient") ? std::max(norms.size, 0.1 * largest_gradient) : norms.size;
    const double relative = norms.apart == 0 ? 0 : norms.apart / scale;
    if (!(relative <= largest.relative)) largest = {name, relative};  // not a number is larger than all
  }
  return largest;
}

void require_equal(const std::string& what, const Difference& difference, double allowed) {
  if (difference.relative <= allowed) return;  // not so when it is not a number
  throw Unequal(what, ": ", difference.where, " differs from ours by ", difference.relative, " of its norm; at most ",
      allowed, " is rounding; one of the two is wrong, so its time means nothing");
}

std::vector<PeerWay> chosen_ways(const Settings& settings, const std::vector<std::string>& known, bool on_cpu) {
  const std::vector<std::string> wanted = settings.ways == "all" ? settings.known_ways : list_of(settings.ways);
  for (const std::string& word : wanted)
    if (std::ranges::find(settings.known_ways, word) == settings.known_ways.end())
      throw InputError(
          "--ways: ", in_quotes(word), " given; some of ", joined(settings.known_ways), ", or all, required");
  std::vector<PeerWay> ways;
  if (!settings.with_peer()) return ways;
  for (const std::string& name : known) {
    if (std::ranges::find(wanted, name) == wanted.end()) continue;
    ways.push_back({name, false});
    if (on_cpu) ways.push_back({name, true});
  }
  return ways;
}

std::map<std::string, double> prepare(Peer& peer, const PeerWay& way, const Comparison& what, Device device) {
  Json request = what.request;
  request.add("do", "prepare").add("way", way.way).add("device", device.is_cpu() ? "cpu" : "cuda");
  return peer.ask(request, what.given).figures;
}

Compared compare(Bench& bench, const PeerWay& way, const Comparison& what) {
  bench.begin(what.name + ", " + way.text());
  Peer& peer = bench.peer(way.tuned);
  const double peak_mib = prepare(peer, way, what, bench.device())["peak_mib"];
  Compared found{.theirs = {}, .difference = std::nan(""), .peak_mib = peak_mib};
  if (!what.results.empty()) {
    const Difference difference = largest_difference(what.results, peer.ask({{"do", "results"}}).tensors);
    require_equal(what.name + ", " + way.text(), difference, what.allowed);
    found.difference = difference.relative;
  }
  // Threads that wait for more work spin for a while; that is not to cost whoever is measured next.
  const auto rest = [] { std::this_thread::sleep_for(std::chrono::milliseconds(20)); };
  Times ours;
  for (int round = 0; round < bench.settings().repetitions; ++round) {
    stop_if_asked();
    rest();
    const Repetition mine = what.ours();
    ours.add(mine);
    rest();
    const auto theirs = peer.ask({{"do", "run"}}).figures;
    found.theirs.add({theirs.at("forward_ms"), std::isnan(mine.backward) ? mine.backward : theirs.at("backward_ms")});
  }
  found.ratio = median(found.theirs.both).value / median(ours.both).value;
  return found;
}

Row row_of(const Compared& found) {
  return Row()
      .add("ratio", found.ratio, "theirs / ours", fixed(found.ratio, 2))
      .add("difference", found.difference, "apart", digits(found.difference, 2));
}

void draw_zeros(const Module& model, double deviation) {
  for (const Module::Parameter& parameter : model.parameters())
    if (parameter.init.kind == Init::Kind::constant && parameter.init.first == 0)
      raw::copy_into(
          Tensor::normal(parameter.tensor.shape(), 0, deviation, Stream(1, parameter.path)), parameter.tensor);
}

}  // namespace whence::bench
