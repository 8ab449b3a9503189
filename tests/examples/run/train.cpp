// The train program as a user meets it: lists, dumps, results; killed and resumed, or repeated from its
// record, to the same bytes.
#include <algorithm>
#include <set>

#include "examples/whence/tasks/task.h"
#include "tests/support/json.h"

using namespace whence::test;
namespace fs = std::filesystem;

namespace {

const std::string task = "train selective_copy --tokens 4 --blanks 4",
                  model = " --dim 16 --layers 1 --heads 2 --batch 4 --test-sequences 8 --quiet";

}  // namespace

TEST_CASE("train: --dump prints the task's own sequences, the same each time, for every task") {
  const Outcome ten = done(task + " --dump 10 --batch 3");
  CHECK(done(task + " --dump 10 --batch 4").out == ten.out);
  CHECK(done(task + " --dump 10 --seed 1").out != ten.out);
  auto lines = json_lines(ten.out);
  REQUIRE(lines.size() == 11);
  CHECK((lines[0].at("task") == "selective_copy" && lines[0].at("options").at("tokens") == 4));
  CHECK(lines[0].at("sets") == nlohmann::json{"training", "validation", "in distribution", "dense", "sparse"});
  const std::vector<std::string> vocabulary = lines[0].at("vocabulary");
  lines.erase(lines.begin());
  const whence::tasks::Batch batch =
      whence::tasks::make_task("selective_copy", {"--tokens", "4", "--blanks", "4"})->training_batch(0, 1, 10);
  whence::tasks::Tokens inputs, targets;
  for (const auto& line : lines) {
    for (const auto& token : line.at("tokens")) inputs.push_back(token);
    for (const auto& token : line.at("targets")) targets.push_back(token);
    const std::string text = line.at("text"), answer = vocabulary.at(line.at("targets").back().get<std::size_t>());
    CHECK_MESSAGE((text.size() == 16 && text.ends_with(" -> " + answer)), text);
    CHECK(line.at("graded") == line.at("targets"));
  }
  CHECK(inputs == batch.inputs);
  CHECK(targets == batch.targets);
  for (const whence::tasks::TaskInfo& info : whence::tasks::registered_tasks())
    CHECK_MESSAGE(json_lines(done("train " + info.name + " --dump 2 --preset mini").out).size() == 3, info.name);
}

TEST_CASE("train: --dump names answers that are no symbols of the input") {
  const Outcome walks = done("train cycle_navigation --train-to 6 --test-to 41 --dump 60 --batch 4");
  auto lines = json_lines(walks.out);
  CHECK(lines[0].at("answers") == nlohmann::json{"0", "1", "2", "3", "4"});
  std::set<std::string> seen;
  for (std::size_t k = 1; k < lines.size(); ++k) {
    const std::string text = lines[k].at("text"), answer = text.substr(text.find(" -> ") + 4);
    CHECK_MESSAGE(answer == std::to_string(lines[k].at("targets").back().get<int>()), text);
    seen.insert(answer);
  }
  CHECK(seen.size() == 5);
}

TEST_CASE("train: a laptop's sizes unless --preset paper; what is typed replaces them; --help has what people change") {
  const Scratch scratch("train-preset");
  const std::string out = scratch / "run";
  const Outcome mini = done("train flip_flop --steps 2 --dim 16 --batch 2 --test-sequences 4 --quiet --out " + out);
  const auto options = json_of(text_of(out + "/run.json")).at("options");
  CHECK(
      (options.at("length") == 64 && options.at("layers") == 2 && options.at("dim") == 16 && options.at("lr") == 1e-3));
  CHECK(has(mini.out, "laptop's (length=64"));
  CHECK_FALSE(options.contains("preset"));
  CHECK(has(done("train flip_flop --preset paper --describe").out, "[256,"));
  const std::string page = done("train flip_flop --help").out, all = done("train flip_flop --help all").out;
  CHECK((!has(page, "--clip X") && has(page, "--help all") && has(all, "--clip X")));
}

TEST_CASE("train: prints every test set beside guesses, and writes results, logs and its record") {
  const Scratch scratch("train-results");
  const std::string out = scratch / "run";
  const Outcome outcome = done(task + model + " --steps 6 --validate-every 3 --log-every 2 --out " + out);
  says(outcome.out, {"memory: ", "model: cope(p_max=5)", "dense", "average of 3", "best validation"});
  const auto results = json_lines(text_of(out + "/results.jsonl"));
  REQUIRE(results.size() == 3);
  CHECK((results[2].at("test_set") == "sparse" && results[2].at("sequences") == 8));
  CHECK(results[2].contains("guess: the last symbol seen"));
  const std::string log = text_of(out + "/metrics.jsonl");
  CHECK((count(log, "\"loss\"") == 3 && count(log, "\"validation_token_error_percent\"") == 2));
  const auto record = json_of(text_of(out + "/run.json"));
  CHECK((record.at("subject") == "selective_copy" && record.at("options").at("tokens") == 4));
}

TEST_CASE("train: a run goes on with --recompute-layers, to the same bits on the CPU") {
  const Scratch scratch("train-recompute");
  const std::string out = scratch / "run";
  (void)done(task + model +
             " --steps 4 --save-every 2 --keep-checkpoints 0 --accumulate 3 --dropout 0.1 --precision f16 --device cpu "
             "--scheme 'cope + t5' --out " +
             out);
  const std::string log = log_without_times(out), weights = text_of(out + "/weights.safetensors");
  fs::remove_all(out + "/checkpoints/step-000004");
  (void)done("train --resume --recompute-layers --quiet --out " + out);
  CHECK(log_without_times(out) == log);
  CHECK(text_of(out + "/weights.safetensors") == weights);
}

TEST_CASE("train: test lengths that the model refuses are named and have no figures") {
  const Scratch scratch("train-lengths");
  const std::string out = scratch / "run";
  const Outcome outcome = done(
      "train even_pairs --train-to 6 --test-from 8 --test-to 40 --test-every 8 --steps 2 --scheme "
      "randomised(rope,length=20) --out " +
      out + model);
  CHECK_MESSAGE(has(outcome.out, "3 of 5 test"), outcome.out);
  const auto results = json_lines(text_of(out + "/results.jsonl"));
  REQUIRE(results.size() == 5);
  CHECK((results[0].at("token_error_percent").is_number() && !results[4].contains("token_error_percent")));
  CHECK(has(results[4].at("refused").get<std::string>(), "20"));
}

TEST_CASE("train: killed after any step and resumed, its log is that of an undisturbed run") {
  const Scratch scratch("train-log");
  const std::string whole = scratch / "whole", out = scratch / "out";
  for (const std::string more : {"", " --precision f16"}) {
    (void)done(
        task + model + more +
        " --steps 12 --save-every 1 --keep-checkpoints 0 --log-every 5 --accumulate 2 --validate-every 4 --out " +
        whole);
    CHECK(json_lines(text_of(whole + "/metrics.jsonl")).size() == 6);
    for (int kept = 1; kept < 12; kept += more.empty() ? 1 : 3) {
      CAPTURE(kept);
      fs::copy(whole, out, fs::copy_options::recursive);
      for (int step = kept + 1; step <= 12; ++step)
        fs::remove_all(out + "/checkpoints/step-0000" + (step < 10 ? "0" : "") + std::to_string(step));
      std::ofstream(out + "/metrics.jsonl", std::ios::app) << "{\"step\":1";  // torn
      (void)done("train --resume --save-every 12 --quiet --out " + out);
      CHECK(log_without_times(out) == log_without_times(whole));
      CHECK(text_of(out + "/weights.safetensors") == text_of(whole + "/weights.safetensors"));
      fs::remove_all(out);
    }
    fs::remove_all(whole);
  }
}

TEST_CASE("train: a loss or gradient that is not finite, and a loss scale at its least, end it with 6") {
  const Scratch scratch("train-not-finite");
  for (const std::string options : {" --lr 10 --weight-decay 10", " --lr 10 --weight-decay 10 --check-finite",
           " --precision f16 --lr 2", " --precision f16 --lr 0.3 --weight-decay 0"}) {
    const Outcome outcome = ran(task + model + options + " --steps 2000 --save-every 5 --out " + scratch / "run");
    CHECK_MESSAGE(outcome.code == 6, outcome.err);
    const bool named = options.ends_with("--check-finite");  // the op
    CHECK_MESSAGE(has(outcome.err, named ? "; finite numbers required; input 0 is " : "finite"), outcome.err);
    CHECK_MESSAGE((outcome.err.starts_with("whence train: ") && count(outcome.err, "\n") == 1), outcome.err);
    CHECK_FALSE(fs::exists(scratch / "run/weights.safetensors"));
    CHECK_FALSE(newest_checkpoint(scratch / "run").empty());  // from before it
    fs::remove_all(scratch / "run");
  }
}
