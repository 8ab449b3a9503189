// Training on a device against the CPU, in f32, f16 and bf16, and as a recorded step against one that is not. Where
// there is no GPU, real or emulated, nothing runs and the output says so.
#include <doctest/doctest.h>
#include <cmath>

#include "examples/whence/study/task_study.h"
#include "tests/support/device.h"

using namespace whence;
using namespace whence::test;

namespace {

struct Run {
  std::vector<double> losses, weights;
  std::int64_t skipped = 0;
};

Run trained(const std::string& scheme, TrainingOptions options, double dropout = 0) {
  const auto task = tasks::make_task("flip_flop", {"--length", "16"});
  TransformerOptions model_options = task->model();
  model_options.dim = 16, model_options.layers = 2, model_options.heads = 2, model_options.scheme = scheme,
  model_options.dropout = dropout;
  Transformer model(model_options);
  options.learning_rate = 3e-3, options.warm_up = 2, options.log_every = 1, options.quiet = true;
  const TaskStudy study(*task, {.batch = 2});
  const TrainingResult result = train(job_of(study, model, options), options);
  Run run{.losses = {}, .weights = {}, .skipped = result.skipped};
  for (const LossPoint& point : result.curve) run.losses.push_back(point.loss);
  for (const Module::Parameter& parameter : model.parameters()) {
    const std::vector<double> numbers = parameter.tensor.to_vector();
    run.weights.insert(run.weights.end(), numbers.begin(), numbers.end());
  }
  return run;
}

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  REQUIRE(a.size() == b.size());
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

}  // namespace

TEST_CASE("cuda: 20 steps of flip-flop have the CPU's losses in f32, f16 and bf16, and their own bits each time") {
  if (!has_cuda()) return;
  // Gradients of another order of sums differ by some 32 roundings (f32: 2e-6). A step of Adam moves each weight by at
  // most the rate, so that the loss goes another way by rate x |g|_1 x 2e-6; with 6 600 parameters and a norm of at most
  // 1, |g|_1 <= 81. After 20 steps of rate 3e-3 that is 1e-5. It was 2e-7 on an H200.
  struct Case {
    DType precision;
    double tolerance;  // of each loss; they are 1.6 at first
  };
  for (const Case& each : {Case{DType::f32, 1e-5}, Case{DType::f16, 2e-3}, Case{DType::bf16, 1e-2}}) {
    CAPTURE(std::string(to_string(each.precision)));
    TrainingOptions options;
    options.steps = 20, options.precision = each.precision;
    const Run cpu = trained("cope(p_max=8)", options);
    options.device = Device::cuda(0);
    const Run device = trained("cope(p_max=8)", options),
              again = in_order(20, [&] { return trained("cope(p_max=8)", options); });
    REQUIRE(device.losses.size() == 20);
    const double difference = largest_difference(device.losses, cpu.losses);
    MESSAGE(std::string(to_string(each.precision))
            << ": largest difference of 20 losses " << difference << ", last loss " << cpu.losses.back());
    CHECK(difference < each.tolerance);
    CHECK(device.skipped == cpu.skipped);
    CHECK(device.losses == again.losses);
    CHECK(device.weights == again.weights);
  }
}

TEST_CASE("cuda: a recorded step has the losses of one that is not, with parts, in every precision") {
  if (!has_cuda()) return;
  for (const DType precision : {DType::f32, DType::f16, DType::bf16}) {
    CAPTURE(std::string(to_string(precision)));
    TrainingOptions options;
    options.steps = 8, options.precision = precision, options.device = Device::cuda(0), options.accumulate = 2;
    const Run plain = trained("rope", options);
    options.cuda_graph = true;
    const Run recorded = in_order(1, [&] { return trained("rope", options); });
    CHECK(largest_difference(recorded.losses, plain.losses) < 1e-5);
    CHECK(recorded.skipped == plain.skipped);
  }
}

TEST_CASE("cuda: recording a step is refused where it would repeat what must be new, and on the CPU") {
  TrainingOptions options;
  options.steps = 2, options.cuda_graph = true;
  CHECK_THROWS_WITH_AS(
      (void)trained("rope", options), doctest::Contains("--cuda-graph: given without a GPU"), InputError);
  if (!has_cuda()) return;
  options.device = Device::cuda(0);
  CHECK_THROWS_WITH_AS((void)trained("rope", options, 0.1), doctest::Contains("dropout 0 required"), InputError);
  CHECK_THROWS_WITH_AS((void)trained("randomised(rope, length=32)", options),
      doctest::Contains("draws positions at each step"), InputError);
}
