#include "examples/whence/bench/attention_core.h"

#include <algorithm>
#include <cmath>

#include "autograd/backward.h"
#include "examples/whence/cli/words.h"
#include "nn/io/json.h"
#include "tensor/device/allocator.h"
#include "tensor/device/backend.h"
#include "tensor/device/device_runtime.h"
#include "tensor/error.h"
#include "tensor/kernels.h"
#include "tensor/parallel.h"
#include "tensor/raw.h"
#include "tensor/suggest.h"

namespace whence::bench {
namespace {

constexpr double mib = 1 << 20;

// As before training, except that numbers which begin at zero are drawn, so that every gradient tells something.
void draw_parameters(Module& root) {
  root.initialise(1);
  for (const Module::Parameter& parameter : root.parameters())
    if (parameter.init.kind == Init::Kind::constant && parameter.init.first == 0)
      raw::copy_into(Tensor::normal(parameter.tensor.shape(), 0, 0.1, Stream(1, parameter.path)), parameter.tensor);
}

// q.k / sqrt(d) gets the mean -4: one number of every query and key is +-c, c c = 4 sqrt(d).
void make_sparse(const AttendInputs& inputs) {
  const double c = 2 * std::pow(static_cast<double>(inputs.query.size(-1)), 0.25);
  for (const auto& [tensor, value] : {std::pair(inputs.query, c), std::pair(inputs.key, -c)}) {
    const index_t dim = tensor.size(-1);
    for (index_t n = 0; n < tensor.numel(); n += dim) tensor.data<float>()[n] = static_cast<float>(value);
  }
}

double bytes_of(const Tensor& tensor) {
  return static_cast<double>(tensor.numel()) * static_cast<double>(size_of(tensor.dtype()));
}

}  // namespace

bool has_gates(const std::string& scheme) { return scheme.find("cope") != std::string::npos; }

AttentionCore::AttentionCore(const CoreCase& what, Device device)
    : what_(what), device_(device), scheme_(what.scheme, {what.heads * what.head_dim, what.heads, what.length}) {
  if (!scheme_.attends())
    throw InputError("scheme: ", what.scheme, " given; one that takes part in attention required, which it does not");
  scheme_.root().to(DType::f32);
  draw_parameters(scheme_.root());
  scheme_.root().to(what.dtype);
  scheme_.root().to(device);
  inputs_ = random_inputs(scheme_, what.batch, what.length, 0, DType::f32);
  inputs_.sequence = Sequence::run(what.length, what.causal).on(device);
  if (what.gates == Gates::sparse) make_sparse(inputs_);
  for (const auto& [name, operand] : named_operands(inputs_))
    if (operand->defined()) *operand = raw::to_device(raw::cast(*operand, what.dtype), device);
  for (const Named& leaf : leaves_of(scheme_, inputs_)) leaves_.emplace_back(leaf.name, leaf.tensor);
  cotangent_ = random_cotangent(inputs_, 0);
  count_operations();
}

void AttentionCore::count_operations() {
  const auto length = static_cast<double>(what_.length);
  const double positions =  // pairs of one head
      static_cast<double>(what_.batch) * (what_.causal ? length * (length + 1) / 2 : length * length);
  const double pairs = positions * static_cast<double>(what_.heads), dim = static_cast<double>(what_.head_dim);
  double mix = 0;  // of one position, all heads
  for (const auto& [name, tensor] : leaves_) {
    if (!("." + name).ends_with(".hidden.weight") && !("." + name).ends_with(".output.weight")) continue;
    const bool of_bias = name.ends_with("hidden.weight") && tensor.size(1) == 2 * what_.heads;
    mix += 2 * static_cast<double>(tensor.numel()) / (of_bias ? 2 : 1);
  }
  forward_operations_ = 4 * dim * pairs + mix * positions;
  backward_operations_ = 10 * dim * pairs + 3 * mix * positions;
}

std::string AttentionCore::refusal(const Executor& executor) const { return executor.refusal(scheme_.stages()); }

const Executor& AttentionCore::executor(const std::string& name) const {
  return executor_for(wanted_executor(name, scheme_.stages()), inputs_, scheme_.stages());
}

// The device is waited for before each reading of the clock.
CoreRun AttentionCore::run(const Executor& executor, bool with_backward) {
  results_.clear();
  std::vector<Tensor> leaves;
  for (const auto& [name, leaf] : leaves_) leaves.push_back(leaf);
  Allocator& allocator = memory_of(device_);
  const auto live = [&] { return static_cast<double>(allocator.statistics().live); };
  const auto peak = [&] { return static_cast<double>(allocator.statistics().peak); };
  CoreRun found;
  synchronise(device_);
  allocator.reset_peak();
  const double held = live(), start = steady_seconds();
  const Tensor output = executor.attend(inputs_, scheme_.stages());
  synchronise(device_);
  const double middle = steady_seconds(), operands = held + bytes_of(output);
  found.kept = (live() - operands) / mib, found.peak = (peak() - operands) / mib;
  std::vector<Tensor> gradients;
  if (with_backward) {
    gradients = grad(output, cotangent_, leaves, {.allow_unused = true});
    synchronise(device_);
    found.backward = (steady_seconds() - middle) * 1e3;
    found.peak = std::max(found.peak, (peak() - operands - 3 * bytes_of(inputs_.query)) / mib);
  }
  found.forward = (middle - start) * 1e3;
  results_.emplace_back("output", output.detach());
  for (std::size_t k = 0; k < gradients.size(); ++k)
    if (gradients[k].defined()) results_.emplace_back("gradient of " + leaves_[k].first, gradients[k]);
  return found;
}

NamedTensors AttentionCore::given() const {
  NamedTensors tensors = leaves_;
  tensors.emplace_back("cotangent", cotangent_);
  return tensors;
}

std::vector<const Executor*> chosen_executors(const std::string& list) {
  std::vector<const Executor*> chosen;
  if (list == "all") return executors();
  for (const std::string& word : list_of(list)) {
    const auto all = executors();
    const auto found = std::find_if(all.begin(), all.end(), [&](const Executor* each) { return each->name() == word; });
    if (found == all.end())
      throw InputError("--executors: '", word, "' given; ", joined(executors(), &Executor::name), " or all required");
    chosen.push_back(*found);
  }
  return chosen;
}

Json record_of(const CoreCase& what, const std::string& engine, Device device) {
  return {{"scheme", what.scheme}, {"gates", std::string(what.gates == Gates::sparse ? "sparse" : "initial")},
      {"executor", engine}, {"length", what.length}, {"heads", what.heads}, {"head_dim", what.head_dim},
      {"batch", what.batch}, {"device", to_string(device)}, {"dtype", std::string("f32")},
      {"threads", std::int64_t{threads()}}};
}

std::vector<std::string> peer_ways_of(const std::string& scheme) {
  if (scheme == "none" || scheme == "alibi" || scheme == "kerple") return {"eager", "compile", "sdpa", "flex"};
  const bool listed = scheme == "cope" || scheme == "dape(alibi)" || scheme == "dape(kerple)" ||
                      scheme == "cdape(alibi)" || scheme == "cdape(kerple)";
  return listed ? std::vector<std::string>{"eager", "compile"} : std::vector<std::string>{};
}

Json peer_request(const CoreCase& what, const std::string& way, Device device) {
  return {{"do", std::string("prepare")}, {"bench", std::string("attention")}, {"scheme", what.scheme}, {"way", way},
      {"device", std::string(device.is_cpu() ? "cpu" : "cuda")}};
}

}  // namespace whence::bench
