// Refusals of every command: bad usage, and missing files. The library's tests have the whole texts of the library's
// refusals; one row per command shows that they arrive.
#include <sys/stat.h>

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
  std::filesystem::create_directory_symlink("tree", "link");
  std::filesystem::create_symlink("text.txt", "link.txt");
  for (const char* file : {"text.txt", "tree/text.txt"}) write(file, text);
  write("empty.txt", "");
  write("short.txt", "abc\n\n\n\ndef");
  write("latin.txt", "one\nna\xEFve\n");
  write("broken.json", "{");
  write("lines.jsonl", "{\"text\": \"a b\"}\n");
  write("number.jsonl", "{\"text\": 3}\n");
  write("questions.jsonl", R"({"context": "a context of many bytes", "choices": ["a", "b"], "answer": 1})");
  std::filesystem::create_directory("own");
  write("own/README.md", "# Somebody's own\n");
  REQUIRE(mkfifo("pipe", 0600) == 0);
  const Tensor four = Tensor::ones({2, 2, 5, 4}), rows = Tensor::ones({2, 2, 5, 5}), table = Tensor::ones({4, 4});
  write_safetensors("in", {{{"q", four}, {"k", four}, {"v", four}, {"cotangent", four}, {"table", table}}, {}});
  write_safetensors(
      "logits", {{{"q", four}, {"k", four}, {"v", four}, {"cotangent_logits", rows}, {"table", table}}, {}});
  write_safetensors("x", {{{"x", Tensor::ones({2, 5, 8})}}, {}});
  const Tensor heads = Tensor::ones({2, 7, 4});
  write_safetensors("qkv", {{{"q", heads}, {"k", heads}, {"v", heads}}, {}});
  (void)done("train flip_flop --scheme cope --steps 4 --warm-up 1 --save-every 2 --out run" + tiny);
  (void)done(
      "train lm --data text.txt --scheme absolute --length 16 --dim 8 --layers 1 --heads 2 --batch 2 --steps 2 "
      "--warm-up 0 --evaluate-to 1 --quiet --out lm");
  std::filesystem::create_directories("lab/cope.0");
  std::filesystem::copy("run/run.json", "lab/cope.0/run.json");
  write("gone.txt", text);
  (void)done(
      "train lm --data gone.txt --scheme absolute --length 16 --dim 8 --layers 1 --heads 2 --batch 2 --steps 2 "
      "--warm-up 0 --evaluate-to 1 --quiet --out gone");
  std::filesystem::remove("gone.txt");
}

const std::string probe = "probe --out out --in in --scheme ", cope = probe + "cope(p_max=3) ",
                  edges = "look run --explain ", outside = "given; a folder outside of ";

const std::vector<Refusal> rows{
    {"trian", 2, "whence: \"trian\" given; a command required; did you mean 'train'?\n"},
    {"bench atention", 2,
        "WHAT: 'atention' given; one of attention, step, ops, decode required; did you mean 'attention'?\n"},
    {"bench", 2, "0 benches given; one of attention, step, ops, decode required\n"},
    {"bench decode --prompt 8", 2, "--prompt: given; no option of whence bench; --lengths says "},
    {"bench errors", 2, "errors: given; whence conformance compares executors, "},
    {"bench ops --lengths 8", 2, "--lengths: 8 given; it has no effect beside bench ops; leave it out\n"},
    {"schemes coep", 2, "scheme 'coep': 'coep' is no scheme; did you mean 'cope'?\n"},
    {"tasks flop_flop", 2,
        "task 'flop_flop': no task of that name; one of those that `whence tasks` lists required; did you mean "
        "'flip_flop'?\n"},
    {"completion fish", 2, "whence: \"completion\" given; a command required; whence no longer writes completions; "},
    {"precision", 2, "whence: \"precision\" given; a command required; nn/README.md, "},
    {"models gpt2-124 ", 2, "...did you mean 'gpt2-124m'?\n"},
    {"models --lengths 128", 2, "--lengths: 128 given; it has no effect without --plan; "},
    {"train", 2, "no task given; the name of one required as the first word; whence tasks lists them\n"},
    {"train --list", 2, "--list: given; no option of whence train; whence tasks lists the tasks\n"},
    {"train selctive_copy", 2,
        "task 'selctive_copy': no task of that name, and no such file or folder; one of them required; did you mean "
        "'selective_copy'?\n"},
    {"train flip_flop --heads 3", 2, "--heads: 3 given; a divisor of --dim required; "},
    {"train flip_flop --scheme rope --dim 12 --heads 4", 2, "rope: width 3 for heads of 3 dims; an even width"},
    {"train flip_flop --keep-best", 2, "--keep-best: given; no option of whence train flip_flop; metrics.jsonl has "},
    {"train flip_flop --final-lr 1", 2, "--final-lr: 1 given; at most --lr, 0.001, required; "},
    {"train even_pairs --train-to 6 --test-from 8 --test-to 16 --scheme absolute --dim 8 --heads 2 --batch 2", 2,
        "test sets: every one is refused by absolute: "},
    {"train flip_flop --dim 16384 --layers 64", 5,
        "memory: a model of 64 layers of dim 16384, 206G parameters asked for, which takes at least 3 TiB; at "
        "most "},
    {"train flip_flop --out /proc/nowhere" + tiny, 4, "/proc/nowhere: output folder: No such file or directory; "},
    {"train flip_flop --rank-limit 5", 2,
        "--rank-limit: given; no option of whence train flip_flop; WHENCE_RANK_LIMIT="},
    {"train --from run/run.json", 2, "--from: given; no option of whence train; the options of a run.json "},
    {"train flip_flop --resume --out none" + tiny, 2, "--resume: no checkpoint in none; "},
    {"look cope --at 3", 2, "--at: given; no option of whence look; "},
    {"look cope --length 700", 2, "a page of 700 tokens would hold "},
    {"look lab --causes", 2, "lab: a folder of runs given; one of them required: lab/cope.0\n"},
    {"train --resume none", 2, "--resume: no run.json in none; "},
    {"train --resume", 2, "--resume: no run given; its folder required"},
    {"train --resume run --preset paper", 2, "--preset: paper given; it has no effect beside a run.json of another "},
    {"compare run run", 2, "...two runs given; a run and a file required"},
    {"train counting --resume --out run", 2, "run/run.json: is a run of flip_flop, counting given; "},
    {"train flip_flop --out run" + tiny, 2, "--out: run holds a run (run/checkpoints/step-000004); "},
    {"train --resume --out run --accumulate 2", 7,
        "--resume: run/checkpoints/step-000004 is of another run: --accumulate was 1, is 2; "},
    {"train --resume --out run --length 18", 7, "--resume: run/checkpoints/step-000004 is of another run: --data was "},
    {"train --resume --out run --steps 3", 2, "...at least 4 required"},
    {"train flip_flop --weights-of run --out other --scheme cope --activation relu" + tiny, 2,
        "--weights-of: run has activation \"gelu\", the model \"relu\"; the same required\n"},
    {"train lm --weights-of lm --out other --data text.txt --scheme rope --dim 8 --layers 1 --length 16 --heads 4", 2,
        "--weights-of: lm has heads \"2\", the model \"4\"; the same required\n"},
    {"train --resume run --weights-of lm", 2,
        "--weights-of: lm given; it has no effect beside --resume; leave it out\n"},
    {"train lm", 2, "--data: nothing given; a text file required; "},
    {"train lm --data none.txt", 4, "none.txt: cannot read: No such file or directory\n"},
    {"train lm --data empty.txt", 3, "empty.txt: an empty file given; "},
    {"train lm --data short.txt", 3, "training text: 7 tokens given; 129 required for a window of 128"},
    {"train lm --data number.jsonl", 3, "number.jsonl: line 1: field 'text' is a whole number; a text required\n"},
    {"train lm --data text.txt --tokeniser broken.json", 3, "broken.json: no file of a tokeniser: "},
    {"train lm --data text.txt --model gpt2-124m --dim 16", 2,
        "--dim: 16 given; it has no effect beside --model, which has its sizes; leave it out\n"},
    {"train lm --data text.txt --include *.cpp", 2,
        "--include: *.cpp given; it has no effect without a folder of text; "},
    {"train lm --data lines.jsonl --blank-lines 2", 2,
        "--blank-lines: 2 given; it has no effect without a file other than JSON lines"},
    {"train lm --data lines.jsonl text.txt --blank-lines 2 --field text --tokeniser none.json", 4, "none.json: "},
    {"train lm --data tree --out tree/runs/a", 2,
        "--out: tree/runs/a " + outside + "tree required; all files below it are read"},
    {"train lm --data tree --out link/run", 2, "--out: link/run " + outside},
    {"train lm --data text.txt --test-data tree --out tree/run", 2,
        "--out: tree/run " + outside + "tree required; all files below it are read"},
    {"train lm --data tree/text.txt --out tree/run --tokeniser none.json", 4, "none.json: "},
    {"train lm --data tree --out tree2 --tokeniser none.json", 4, "none.json: "},
    {"generate", 2, "0 runs given; the folder of one run of train lm required"},
    {"generate lm --temperature 0 --seed 1", 2, "--seed: 1 given; it has no effect without a temperature above 0"},
    {"generate lm --greedy", 2, "...--temperature 0 takes the most probable token"},
    {"sharpness run", 2,
        "whence: \"sharpness\" given; a command required; Run.hessian() of `import whence` does this now\n"},
    {"look lm --out /dev/full", 4, "/dev/full: cannot write: "},
    // commands that are scripts now
    {"lab flip_flop", 2, "whence: \"lab\" given; a command required; examples/experiments/lab.py does this now\n"},
    {"convert gpt2 --out x", 2,
        "whence: \"convert\" given; a command required; examples/experiments/convert.py does this now\n"},
    {cope + "--sizes length=8", 2, "--sizes: length=8 given; it has no effect without --describe; leave it out\n"},
    {"probe --describe none --sizes width=8", 2, "--sizes: 'width' given; batch, head-dim, heads, kv-heads, length "},
    {"probe --describe none --length 8", 2, "...--sizes \"heads=4 kv-heads=2 "},
    {cope + "--bidirectional", 2, "--bidirectional: given with cope(p_max=3); a causal mask is required"},
    {cope + "--init 3", 2, "--init: given; the file has every parameter, so that it has no effect; leave it out\n"},
    {"probe --scheme cope(p_max=3) --in logits --out out --executor strips", 2,
        "cotangent_logits: a tensor given with executor strips, which never holds the logits; "},
    {"probe --scheme cope(p_max=3) --in in --out ./in", 2,
        "--out: ./in given; another file than the one that is read required; "},
    {"probe --scheme sinusoidal --in x --out out --scale 2", 2, "--scale: 2 given; it has no effect without "},
    {"probe --scheme none", 2, "--in: nothing given; some text required; "},
    {"probe --scheme none --in none --out out", 4, "none: cannot read: "},
    {"gradcheck", 2, "no name given; an op, a scheme or all required; "},
    {"gradcheck lerp", 2, "'lerp' given; an op, a scheme or all required; did you mean 'lerp_at'?\n"},
    {"gradcheck softmax --length 8", 2, "--length: 8 given; it has no effect without a scheme among the names; "},
    {"gradcheck softmax all", 2, "all: given with other names; "},
    {"gradcheck all --against-cpu --quiet", 2, "--against-cpu: given with the CPU; --device cuda required\n"},
    {"bench attention --executors fast", 2, "--executors: 'fast' given; reference, strips, tiled or all required\n"},
    {"bench step --device cpu --cuda-graph", 2, "--cuda-graph: true given; it has no effect without a GPU; "},
    {"look", 2, "0 runs given; "},
    {"look nowhere", 2, "\"nowhere\": no folder, and no scheme either: "},
    {"look " + std::string(300, 'a'), 2, "..., and no scheme either: "},
    {"look ./nowhere", 2, "...no folder; the folder of a run, or a scheme, required"},
    {"look run --step 3", 2, "--step: 3 given; the step of a checkpoint required; there are 2, 4\n"},
    {"look run --text run", 2, "--text: given with a run of flip_flop, "},
    {"look run --causes --prompt abc", 2,
        "--prompt: given with a run of flip_flop, which knows only its own symbols; "},
    {"look gone", 2,
        "gone: a run of train lm given, whose own text is not there: gone.txt: cannot read: No such file or directory; "
        "--text FILE"},
    {"look lm --text text.txt --prompt abc", 2, "--prompt: given with --text; one of them required"},
    {"look run --causes --out out", 2, "--out: out given; it has no effect without "},
    {edges + "'gates i=1'", 2,
        "--explain: no head given, or several; one of 0 to 1 required, as position.gates has it\n"},
    {edges + "'gates head=0 i=99 j=0'", 2, "--explain: i=99 given; 0 to 14 required, or FIRST..LAST of these\n"},
    {"look cope --checkpoints 2", 2, "--checkpoints: "},
    {"look cope --causes --numbers", 2, "...--numbers"},
    {"look cope --playground", 2, "...whence playground RUN writes that page"},
    {"look alibi --length 100000 --causes", 5, "memory: a pass over 100000 tokens that keeps all asked for, "},
    {"look cope --given qkv --length 3", 2, "--length: 3 given; it has no effect without tokens; "},
    {"look forgetting --given qkv", 3, "qkv: no tensor x"},
    {"look sinusoidal --given qkv", 2, "...adds to x only"},
};

}  // namespace

TEST_CASE("refusals: bad usage is one line that says what was given and what is required, and nothing is written") {
  const Workplace here("refusals");
  prepare();
  for (const Refusal& row : rows) check_refused(row);
}

TEST_CASE("refusals: a GPU that cannot be used is refused with its cause by every command that runs a model") {
  const std::string& cause = cuda_facts().refusal;
  if (cause.empty()) return;  // there is a GPU, real or emulated
  const Workplace here("refusals-gpu");
  write("text.txt", "a text");
  for (const char* line : {"bench attention", "bench decode", "bench ops", "bench step", "conformance rope",
           "generate run", "gradcheck softmax", "train flip_flop", "train lm --data text.txt"})
    check_refused({std::string(line) + " --device cuda", 2, "...device: cuda given; no GPU can be used: " + cause});
}
