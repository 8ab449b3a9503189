// Training by several ranks: the bits of one, in every precision; what all agree on; who is told of what goes wrong.
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "autograd/ops.h"
#include "examples/whence/run/shared_training.h"
#include "nn/training/training_step.h"
#include "tensor/ranks/collectives.h"
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

// Three steps of a small model, of `parts` parts each, by `size` ranks; what each rank has then.
std::vector<Taken> taken(
    int size, std::int64_t parts, DType precision, const std::string& scheme, double loss_scale = 65536) {
  std::vector<Taken> all(static_cast<std::size_t>(size));
  run_ranks(size, [&](Communicator* ranks) {
    Transformer model(
        {.vocabulary = 11, .length = 7, .dim = 12, .layers = 2, .heads = 3, .scheme = scheme, .dropout = 0.1});
    model.initialise(3);
    MixedPrecision mixed(model, precision, {.weight_decay = 0.1}, {.initial = loss_scale});
    const MakeBatch batch = [](std::int64_t part) {  // of different numbers of targets
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

const Arguments cope{"flip_flop", "--scheme", "cope", "--length", "16", "--dim", "16", "--layers", "1", "--heads", "2",
    "--batch", "2", "--test-sequences", "8", "--accumulate", "8", "--save-every", "5", "--quiet"};

// The processes that a program forked, by rank.
std::vector<pid_t> ranks_of(const RunningProgram& program) {
  std::istringstream children(text_of(to_text("/proc/", program.child(), "/task/", program.child(), "/children")));
  std::vector<pid_t> all;
  for (pid_t child = 0; children >> child;) all.push_back(child);
  return all;
}

std::size_t count(const std::string& text, const std::string& words) {
  std::size_t found = 0;
  for (std::size_t at = text.find(words); at != std::string::npos; at = text.find(words, at + 1)) ++found;
  return found;
}

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
  const auto train = [&](const Arguments& more) {
    return RunningProgram("train", more, scratch / "log").finish_within(60);
  };
  const std::string corpus = scratch / "text.txt";
  std::ofstream text(corpus);
  for (int i = 0; i < 600; ++i) text << "the cat number " << i << " sat on mat " << i * 7 % 13 << ".\n";
  text.close();
  const Arguments lm{"lm", "--data", corpus, "--length", "16", "--dim", "16", "--layers", "1", "--heads", "2",
      "--batch", "2", "--accumulate", "8", "--evaluate-to", "1", "--validate-every", "6", "--validation-windows", "4",
      "--save-every", "5", "--patience", "3", "--keep-best", "--quiet"};
  for (const Arguments& task : {cope, lm}) {
    const std::string one = scratch / task[0] + "-1";
    REQUIRE(train(task + Arguments{"--steps", "20", "--out", one}).code == 0);
    for (const char* processes : {"2", "4", "8"}) {
      const std::string out = scratch / task[0] + "-" + processes;
      const Outcome ended = train(task + Arguments{"--steps", "20", "--processes", processes, "--out", out});
      CHECK_MESSAGE(ended.code == 0, ended.err);
      for (const char* file : {"weights.safetensors", "results.jsonl", "checkpoints/step-000020/weights.safetensors"})
        CHECK_MESSAGE(text_of(out + "/" + file) == text_of(one + "/" + file), file);
      CHECK(log_without_times(out) == log_without_times(one));
    }
    const std::string out = scratch / task[0] + "-resumed";
    REQUIRE(train(task + Arguments{"--steps", "9", "--warm-up", "5", "--processes", "4", "--out", out}).code == 0);
    REQUIRE(train({"--resume", "--out", out, "--steps", "15", "--processes", "2"}).code == 0);
    REQUIRE(train({"--resume", "--out", out, "--steps", "20"}).code == 0);
    const std::string alone = scratch / task[0] + "-alone";
    REQUIRE(train(task + Arguments{"--steps", "9", "--warm-up", "5", "--out", alone}).code == 0);
    REQUIRE(train({"--resume", "--out", alone, "--steps", "15"}).code == 0);
    REQUIRE(train({"--resume", "--out", alone, "--steps", "20"}).code == 0);
    CHECK(text_of(out + "/weights.safetensors") == text_of(alone + "/weights.safetensors"));
  }
}

TEST_CASE("ranks: accumulate is a rank's batch each where it is left out, and recorded so") {
  const Scratch scratch("ranks-accumulate");
  const Arguments task{"flip_flop", "--length", "8", "--dim", "8", "--layers", "1", "--heads", "2", "--batch", "2",
      "--test-sequences", "4", "--steps", "3", "--quiet"};
  const std::string out = scratch / "run";
  const Outcome ended =
      RunningProgram("train", task + Arguments{"--processes", "2", "--out", out}, scratch / "log").finish_within(60);
  REQUIRE_MESSAGE(ended.code == 0, ended.err);
  CHECK(has(ended.out, "accumulate: 2, a batch for each rank"));
  const auto record = nlohmann::json::parse(text_of(out + "/run.json"));
  CHECK(record["options"]["accumulate"] == 2);
  CHECK_FALSE(record["options"].contains("processes"));
  const std::string again = scratch / "again";
  REQUIRE(
      RunningProgram("train", {"--from", out + "/run.json", "--out", again}, scratch / "log").finish_within(60).code ==
      0);
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

TEST_CASE("ranks: one dies, one hangs, Ctrl-C: all end, named once, and go on to the same bits") {
  const Scratch scratch("ranks-faults");
  const std::string out = scratch / "run", whole = scratch / "whole";
  const Arguments task = cope + Arguments{"--steps", "1000"};
  REQUIRE(RunningProgram("train", task + Arguments{"--out", whole}, scratch / "log").finish_within(120).code == 0);
  const auto two = [&](const Arguments& more, const std::function<void(const RunningProgram&, pid_t)>& meanwhile) {
    const std::string before = newest_checkpoint(out);
    const RunningProgram program(
        "train", task + more + Arguments{"--processes", "2", "--out", out, "--rank-limit", "3"}, scratch / "log");
    for (int waited = 0; waited < 2000 && newest_checkpoint(out) <= before; ++waited)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    const std::vector<pid_t> ranks = ranks_of(program);
    REQUIRE(ranks.size() == 2);
    meanwhile(program, ranks[1]);
    return program.finish_within(60);
  };
  const auto died = two({}, [](const auto&, pid_t second) { kill(second, SIGKILL); });
  CHECK(died.code == 1);
  CHECK_MESSAGE(has(died.err, "rank 1 of 2 died: it was ended by signal 9"), died.err);
  CHECK_MESSAGE(count(died.err, "rank 1") == 1, died.err);
  const auto hung = two({"--resume"}, [](const auto&, pid_t second) {
    kill(second, SIGSTOP);
    std::this_thread::sleep_for(std::chrono::milliseconds(4000));
    kill(second, SIGCONT);
  });
  CHECK(hung.code == 1);
  CHECK_MESSAGE(has(hung.err, "rank 1 of 2 lives and has not answered rank 0 for 3 seconds"), hung.err);
  const auto stopped = two({"--resume"}, [](const auto&, pid_t second) { kill(second, SIGINT); });
  CHECK(stopped.code == 130);
  CHECK_MESSAGE(count(stopped.err, "saved; go on with --resume") == 1, stopped.err);
  const auto asked = two({"--resume"}, [](const auto& program, pid_t) { program.signal(SIGUSR1); });
  CHECK(asked.code == 130);
  CHECK_MESSAGE(count(asked.err, "saved; go on with --resume") == 1, asked.err);
  CHECK(RunningProgram("train", task + Arguments{"--out", out, "--resume", "--processes", "4"}, scratch / "log")
            .finish_within(120)
            .code == 0);
  CHECK(text_of(out + "/weights.safetensors") == text_of(whole + "/weights.safetensors"));
}

TEST_CASE("ranks: killed at their start they leave nothing; a signal to stop at any moment ends all; told once") {
  const Scratch scratch("ranks-start");
  const auto shared = [] {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator("/dev/shm")) names.insert(entry.path().filename().string());
    return names;
  };
  const std::set<std::string> before = shared();
  for (int turn = 0; turn < 8; ++turn)
    for (const int fault : {SIGKILL, SIGTERM}) {
      const RunningProgram program("train",
          cope + Arguments{"--steps", "100000", "--processes", "4", "--out", scratch / to_text("run", turn, fault)},
          scratch / "log");
      std::vector<pid_t> ranks;
      for (int waited = 0; waited < 2000 && (ranks = ranks_of(program)).empty(); ++waited) usleep(1000);
      usleep(static_cast<useconds_t>(turn * 5000));
      program.signal(fault);
      const Outcome ended = program.finish_within(30);
      CHECK_MESSAGE(ended.code == (fault == SIGKILL ? 128 + SIGKILL : 130), ended.err);
      for (const pid_t rank : ranks) {
        // Orphans are gone when init has taken them over and waited for them, which it does when it comes to it.
        for (int waited = 0; waited < 10000 && kill(rank, 0) == 0; ++waited) usleep(1000);
        CHECK(kill(rank, 0) != 0);
      }
    }
  for (const std::string& name : shared()) CHECK_MESSAGE(before.contains(name), name);
}
