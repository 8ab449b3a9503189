// Refusals of every command: bad usage, and missing files. Tests of the functions that refuse have the texts.
#include "nn/io/safetensors.h"
#include "tensor/device/device_runtime.h"
#include "tensor/kernels.h"
#include "tests/examples/cli/refused.h"

using namespace whence;
using namespace whence::test;

namespace {

// Options of a run that is planned quickly.
const std::string tiny = " --length 16 --dim 8 --layers 1 --heads 2 --batch 2 --test-sequences 2 --quiet";

void prepare() {
  std::string text;
  for (int line = 0; line < 900; ++line)
    text += "the cat number " + std::to_string(line) + (line % 10 ? " sat\n" : " sat\n\n\n\n");
  std::filesystem::create_directories("tree");
  for (const char* file : {"text.txt", "tree/text.txt"}) write_file(file, text);
  write_file("empty.txt", "");
  write_file("short.txt", "abc\n\n\n\ndef");
  write_file("broken.json", "{");
  write_file("lines.jsonl", "{\"text\": \"a b\"}\n");
  const Tensor four = Tensor::ones({2, 2, 5, 4}), rows = Tensor::ones({2, 2, 5, 5}), table = Tensor::ones({4, 4});
  write_safetensors("in", {{{"q", four}, {"k", four}, {"v", four}, {"cotangent", four}, {"table", table}}, {}});
  write_safetensors(
      "logits", {{{"q", four}, {"k", four}, {"v", four}, {"cotangent_logits", rows}, {"table", table}}, {}});
  const Tensor heads = Tensor::ones({2, 7, 4});
  write_safetensors("qkv", {{{"q", heads}, {"k", heads}, {"v", heads}}, {}});
  (void)done("train flip_flop --scheme cope --steps 4 --warm-up 1 --save-every 2 --out run" + tiny);
  (void)done(
      "train lm --data text.txt --scheme absolute --length 16 --dim 8 --layers 1 --heads 2 --batch 2 --steps 2 "
      "--warm-up 0 --evaluate-to 1 --quiet --out lm");
  std::filesystem::create_directories("lab/cope.0");
  std::filesystem::copy("run/run.json", "lab/cope.0/run.json");
  write_file("gone.txt", text);
  (void)done(
      "train lm --data gone.txt --scheme absolute --length 16 --dim 8 --layers 1 --heads 2 --batch 2 --steps 2 "
      "--warm-up 0 --evaluate-to 1 --quiet --out gone");
  std::filesystem::remove("gone.txt");
}

const std::string probe = "probe --out out --in in --scheme ", cope = probe + "cope(p_max=3) ",
                  edges = "look run --explain ";

const std::vector<Refusal> rows{
    {"trian", 2, "command: 'trian'"},
    {"bench", 2, "0 benches given"},
    {"schemes coep", 2, "'coep': 'coep'"},
    {"tasks flop_flop", 2, "task: 'flop_flop'"},
    {"train", 2, "no task"},
    {"train flip_flop --heads 3", 2, "--heads: 3 given"},
    {"train flip_flop --scheme rope --dim 12 --heads 4", 2, "rope: width 3"},
    {"train even_pairs --train-to 6 --test-from 8 --test-to 16 --scheme absolute --dim 8 --heads 2 --batch 2", 2,
        "test sets:"},
    {"train flip_flop --dim 16384 --layers 64", 5, "dim 16384, 206G"},
    {"train flip_flop --out /proc/nowhere" + tiny, 4, "/proc/nowhere: output"},
    {"train flip_flop --resume --out none" + tiny, 2, "--resume: no"},
    {"look lab --causes", 2, "lab: a"},
    {"train --resume run --preset paper", 2, "--preset: paper"},
    {"compare run run", 2, "two runs"},
    {"train counting --resume --out run", 2, "flip_flop, counting"},
    {"train flip_flop --out run" + tiny, 2, "--out: run"},
    {"train --resume --out run --accumulate 2", 7, "was 1, is 2"},
    {"train --resume --out run --length 18", 7, "--resume: run/checkpoints/step-000004"},
    {"train --resume --out run --steps 3", 2, "at least 4"},
    {"train flip_flop --weights-of run --out other --scheme cope --activation relu" + tiny, 2, "--weights-of: run"},
    {"train lm --weights-of lm --out other --data text.txt --scheme rope --dim 8 --layers 1 --length 16 --heads 4", 2,
        "\"2\", the model \"4\""},
    {"train lm", 2, "--data: nothing"},
    {"train lm --data none.txt", 4, "none.txt: cannot"},
    {"train lm --data empty.txt", 3, "empty file"},
    {"train lm --data short.txt", 3, "7 tokens given; 129"},
    {"train lm --data text.txt --tokeniser broken.json", 3, "broken.json: no"},
    {"train lm --data text.txt --model gpt2-124m --dim 16", 2, "--dim: 16 given"},
    {"train lm --data lines.jsonl text.txt --blank-lines 2 --field text --tokeniser none.json", 4, "none.json:"},
    {"train lm --data tree --out tree/runs/a", 2, "--out: tree/runs/a"},
    {"train lm --data text.txt --test-data tree --out tree/run", 2, "--out: tree/run"},
    {"look lm --out /dev/full", 4, "/dev/full: cannot"},
    {cope + "--sizes length=8", 2, "--sizes: length=8"},
    {cope + "--bidirectional", 2, "--bidirectional: given"},
    {"probe --scheme cope(p_max=3) --in logits --out out --executor strips", 2, "executor strips"},
    {"probe --scheme cope(p_max=3) --in in --out ./in", 2, "--out: ./in"},
    {"probe --scheme none --in none --out out", 4, "none: cannot"},
    {"gradcheck", 2, "no name"},
    {"gradcheck lerp", 2, "'lerp' given"},
    {"gradcheck all --against-cpu --quiet", 2, "CPU; --device"},
    {"bench attention --executors fast", 2, "--executors: 'fast'"},
    {"look " + std::string(300, 'a'), 2, ", and no"},
    {"look ./nowhere", 2, "no folder"},
    {"look run --text run", 2, "--text: given"},
    {"look gone", 2, "directory; --text"},
    {"look run --causes --out out", 2, "--out: out"},
    {edges + "'gates i=1'", 2, "of 0 to 1"},
    {"look cope --checkpoints 2", 2, "--checkpoints:"},
    {"look cope --given qkv --length 3", 2, "--length: 3 given"},
};

}  // namespace

TEST_CASE("refusals: bad usage is one line with the option and what was given, and nothing is written") {
  const Workplace here("refusals");
  prepare();
  for (const Refusal& row : rows) check_refused(row);
}

TEST_CASE("refusals: a GPU that cannot be used is refused with its cause by every command that runs a model") {
  const std::string& cause = cuda_facts().refusal;
  REQUIRE(!cause.empty());  // this program has no GPU, not even an emulated one
  const Workplace here("refusals-gpu");
  write_file("text.txt", "a text");
  for (const char* line : {"bench attention", "bench decode", "bench ops", "bench step", "conformance rope",
           "generate run", "gradcheck softmax", "train flip_flop", "train lm --data text.txt"})
    check_refused({std::string(line) + " --device cuda", 2, cause});
}
