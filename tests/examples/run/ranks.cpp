// Training by several ranks: the bits of one rank, in every precision; agreement of all; reports of errors.
#include <doctest/doctest.h>
#include <filesystem>
#include <functional>
#include <set>

#include "autograd/ops.h"
#include "examples/whence/run/shared_training.h"
#include "nn/training/training_step.h"
#include "tensor/ranks/collectives.h"
#include "tests/support/json.h"
#include "tests/support/programs.h"
#include "tests/support/rank_threads.h"
#include "tests/support/schemes.h"
#include "tests/support/tensors.h"

using namespace whence;
using namespace whence::test;
namespace fs = std::filesystem;

namespace {

// One rank has no communicator, as in a training by one process.
void run_ranks(int size, const std::function<void(Communicator*)>& work) {
  if (size == 1) return work(nullptr);
  in_threads(size, [&](Communicator& ranks) { work(&ranks); });
}

struct Taken {
  std::vector<StepOutcome> outcomes;
  std::vector<std::vector<double>> weights;
};

// Takes three steps of a small model, of `parts` parts each, by `size` ranks. Returns the state of each rank.
std::vector<Taken> taken(
    int size, std::int64_t parts, DType precision, const std::string& scheme, double loss_scale = 65536) {
  std::vector<Taken> all(static_cast<std::size_t>(size));
  run_ranks(size, [&](Communicator* ranks) {
    Transformer model(
        {.vocabulary = 11, .length = 7, .dim = 12, .layers = 2, .heads = 3, .scheme = scheme, .dropout = 0.1});
    model.initialise(3);
    MixedPrecision mixed(model, precision, {.weight_decay = 0.1}, {.initial = loss_scale});
    const MakeBatch batch = [](std::int64_t part) {  // with different numbers of targets
      const index_t sequences = 1 + part % 3;
      const Tensor tokens = Tensor::empty({sequences, 7}, DType::i64);
      const Stream random(1, "ranks", static_cast<std::uint64_t>(part));
      for (index_t i = 0; i < tokens.numel(); ++i)
        tokens.data<index_t>()[i] = random.below(static_cast<std::uint64_t>(i), 11);
      return TrainingBatch{{tokens, tokens}, tokens.numel(), tokens.numel()};
    };
    const LossOf loss_of = [&](const TrainingBatch& given, std::int64_t part) {
      const Pass pass{.training = true, .seed = 5, .step = static_cast<std::uint64_t>(part)};
      return cross_entropy_sum(model(given.tensors[0], pass), given.tensors[1]);
    };
    TrainingStep step(mixed, batch, loss_of, {.accumulate = parts, .clip = 0.5, .ranks = ranks});
    Taken& own = all[static_cast<std::size_t>(ranks ? ranks->rank() : 0)];
    for (std::int64_t n = 1; n <= 3; ++n) own.outcomes.push_back(step.take(n, 1e-2));
    for (const Module::Parameter& weight : mixed.weights()) own.weights.push_back(weight.tensor.to_vector());
  });
  return all;
}

void check_same(const Taken& found, const Taken& wanted) {
  CHECK(found.weights == wanted.weights);
  REQUIRE(found.outcomes.size() == wanted.outcomes.size());
  for (std::size_t n = 0; n < wanted.outcomes.size(); ++n) {
    CHECK(found.outcomes[n].loss == wanted.outcomes[n].loss);
    CHECK(to_text(found.outcomes[n].gradient_norm) == to_text(wanted.outcomes[n].gradient_norm));  // nan where skipped
    CHECK(found.outcomes[n].tokens == wanted.outcomes[n].tokens);
    CHECK(found.outcomes[n].skipped == wanted.outcomes[n].skipped);
  }
}

const std::string sizes = " --length 16 --dim 16 --layers 1 --heads 2 --batch 2 --accumulate 8 --save-every 5 --quiet";
const std::string cope = "train flip_flop --scheme cope --kv-heads 1 --test-sequences 8" + sizes;

}  // namespace

TEST_CASE("ranks: 1, 2, 4 and 8 of them make the same weights, losses and norms in every precision, each of them") {
  for (const auto& [precision, scheme] :
      {std::pair(DType::f32, "cope(p_max=4)"), {DType::bf16, "cdape(kerple)"}, {DType::f16, "rope"}}) {
    const Taken one = taken(1, 8, precision, scheme)[0];
    CHECK(one.outcomes[0].loss > 1);
    for (const int size : {2, 4, 8})
      for (const Taken& each : taken(size, 8, precision, scheme)) check_same(each, one);
  }
}

TEST_CASE("ranks: parts that are no power of two, and a loss scale that overflows on one of them") {
  const Taken six = taken(1, 6, DType::f32, "alibi")[0];
  for (const Taken& each : taken(2, 6, DType::f32, "alibi")) check_same(each, six);
  const Taken skips = taken(1, 4, DType::f16, "none", 16777216)[0];
  CHECK(skips.outcomes[0].skipped);
  for (const Taken& each : taken(4, 4, DType::f16, "none", 16777216)) check_same(each, skips);
  CHECK_THROWS_WITH_AS(
      taken(4, 6, DType::f32, "none"), doctest::Contains("a multiple of the ranks required"), InputError);
}

TEST_CASE("ranks: the order of a step's parts is a tree of halves, not a row") {
  // 2^25 + 1 - 2^25 + 1 in f32: from left to right 1, by halves 0. A single weight whose gradients are these.
  struct One final : Module {
    Tensor w = param("w", {1}, Init::zeros());
  } model;
  model.initialise(0);
  MixedPrecision precision(model, DType::f32, {});
  const float gradients[] = {33554432, 1, -33554432, 1};
  const LossOf loss_of = [&](const TrainingBatch&, std::int64_t part) {
    return sum(model.w * Tensor::full({1}, gradients[(part - 1) % 4]));
  };
  TrainingStep step(precision,
      [](std::int64_t) {
        return TrainingBatch{{}, 1, 1};
      },
      loss_of, {.accumulate = 4, .clip = 1e30});
  CHECK(step.take(1, 0).gradient_norm == 0);
}

TEST_CASE("ranks: train by 1, 2, 4 and 8 processes writes the same weights, log and scores; resumed by other numbers") {
  const Scratch scratch("ranks-train");
  std::ofstream text(scratch / "text.txt");
  for (int i = 0; i < 600; ++i) text << "the cat number " << i << " sat on mat " << i * 7 % 13 << ".\n";
  text.close();
  const std::string lm = "train lm --data " + scratch / "text.txt" + sizes +
                         " --evaluate-to 1 --validate-every 6 --validation-windows 4 --patience 3 --keep-best";
  for (const std::string& task : {cope, lm}) {
    const std::string name = words(task)[1], one = scratch / name + "-1";
    (void)done(task + " --steps 20 --out " + one);
    for (const char* processes : {"2", "4", "8"}) {
      const std::string out = scratch / name + "-" + processes;
      (void)done(task + " --steps 20 --processes " + processes + " --out " + out);
      for (const char* file : {"weights.safetensors", "results.jsonl", "checkpoints/step-000020/weights.safetensors"})
        CHECK_MESSAGE(text_of(out + "/" + file) == text_of(one + "/" + file), file);
      CHECK(log_without_times(out) == log_without_times(one));
    }
    std::set<std::string> ends;
    for (const auto& [first, second] : {std::pair(" --processes 4", " --processes 2"), {"", ""}}) {
      const std::string out = scratch / name + "-resumed" + first;
      (void)done(task + " --steps 9 --warm-up 5 --out '" + out + "'" + first);
      (void)done("train --resume --steps 15 --out '" + out + "'" + second);
      (void)done("train --resume --steps 20 --out '" + out + "'");
      ends.insert(text_of(out + "/weights.safetensors"));
    }
    CHECK(ends.size() == 1);
  }
}

TEST_CASE("ranks: the batch of a step is shared where accumulate is left out, and recorded so") {
  const Scratch scratch("ranks-accumulate");
  const std::string task =
      "train flip_flop --length 8 --dim 8 --layers 1 --heads 2 --batch 4 --test-sequences 4 --steps 3 --quiet";
  const std::string out = scratch / "run", again = scratch / "again";
  CHECK(has(done(task + " --processes 2 --out " + out).out,
      "batch: 4 of a step, shared by the ranks: --batch 2 --accumulate 2"));
  const auto record = json_of(text_of(out + "/run.json"));
  CHECK((record["options"]["batch"] == 2 && record["options"]["accumulate"] == 2));
  CHECK_FALSE(record["options"].contains("processes"));
  (void)done("train --from " + out + "/run.json --out " + again);
  CHECK(text_of(again + "/weights.safetensors") == text_of(out + "/weights.safetensors"));
}

TEST_CASE("ranks: one with other options, or other data, is named on all, and nothing is trained") {
  std::vector<std::string> said(2);
  in_threads(2, [&](Communicator& ranks) {
    const bool other = ranks.rank() == 1;
    said[other ? 1 : 0] = error_text([&] {
      require_same_on_all(ranks, {{"data", "a"}, {"lr", other ? "0.5" : "0.0003"}});
    });
  });
  for (const std::string& text : said)
    CHECK_MESSAGE(has(text, "rank 0 and rank 1 have lr \"0.0003\" and \"0.5\""), text);
}

TEST_CASE(
    "ranks: killed at their start they leave nothing; a signal to stop at any moment ends all, with one message") {
  const Scratch scratch("ranks-start");
  const auto shared = [] {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator("/dev/shm"))
      if (has(entry.path().filename(), "whence")) names.insert(entry.path().filename());  // others may have more
    return names;
  };
  const std::set<std::string> before = shared();
  for (int turn = 0; turn < 8; ++turn)
    for (const int fault : {SIGKILL, SIGTERM}) {
      RunningProgram program(cope + " --steps 100000 --processes 4 --out " + scratch / to_text("run", turn, fault));
      REQUIRE(soon([&] { return !program.children().empty(); }));
      usleep(static_cast<useconds_t>(turn * 5000));
      const std::vector<pid_t> ranks = program.children();
      program.signal(fault);
      const Outcome ended = program.finish_within(30);
      CHECK_MESSAGE(ended.code == (fault == SIGKILL ? 128 + SIGKILL : 130), ended.err);
      // Orphans are gone after init has adopted them and waited for them, at a time of its choice.
      for (const pid_t rank : ranks) CHECK(soon([&] { return is_gone(rank); }));
    }
  for (const std::string& name : shared()) CHECK_MESSAGE(before.contains(name), name);
}
