// Golovneva et al. 2024, Contextual Position Encoding, arXiv:2405.18719.
#include "examples/whence/papers/paper_table.h"
#include "examples/whence/papers/text_presets.h"

namespace whence::papers {
namespace {

// ---- The tasks

const std::string error_note = "Test error in percent, lower is better.";

// Figure 5 reads validations. They stand in every row of flip-flop, so that all rows have the same runs.
std::vector<Preset> flip_flop_presets() {
  return {{.name = "mini",
              .lab = "mini",
              .set = "length=128 steps=1500 validate-every=100",
              .why = "Strings of 128 tokens in place of 512 and 1500 steps in place of 10000, at a learning rate of "
                     "1e-3, take minutes on two cores. With 64 tokens every scheme solves the task in some seeds, with "
                     "1000 steps RoPE learns it in some alone, and with three seeds the spread of absolute positions "
                     "hides the difference, as it does in the paper's own figures. Validations are those of "
                     "cope/figure5, whose runs these are.",
              .seeds = 5},
      {.name = "small",
          .lab = "paper",
          .set = "length=256 dim=128 steps=5000 validate-every=100",
          .why = "Half the paper's length, half its dim and half its steps, for a night; the rest is as in paper."},
      {.name = "paper",
          .lab = "paper",
          .set = "validate-every=100",
          .why = "The paper's 16 sequences are taken for the whole batch; the loss at reads, 50 steps of warm-up and "
                 "the weight decay are those of Liu et al. 2023, whose setup it says to replicate."}};
}

std::vector<Preset> counting_presets(int seeds_of_mini) {
  return {{.name = "mini",
              .lab = "mini",
              .set = "steps=1000",
              .why = "At most 32 operations and 128 tokens in place of 512 and 512, two layers of 64 in place of four "
                     "of 256, and a learning rate of 1e-3 take minutes on two cores; as many seeds as ten minutes "
                     "allow. With 3e-3 the same steps learn less.",
              .seeds = seeds_of_mini},
      {.name = "small",
          .lab = "mini",
          .set = "operations=128 block=256 dim=128 steps=6000",
          .why = "A quarter of the paper's operations, half its dim, for a night; the higher learning rate of mini "
                 "stands for more steps."},
      {.name = "paper",
          .lab = "paper",
          .set = "",
          .why = "The paper says neither model nor optimiser: both are those of the authors' code, 100 epochs of 10000 "
                 "sequences."}};
}

const std::string counting_note =
    " CoPE is that of the paper's Listing 1, with a position for each token; the authors' code divides q.e by sqrt(d) "
    "too: cope(p_max=512, z_scale=head).";
const std::string counting_cope = "cope(p_max=512)";

PaperTable flip_flop() {
  return {.name = "cope/table2-flip_flop",
      .what = "flip-flop, in and out of distribution",
      .place = "Table 2 and 7, section 5.1",
      .kind = Kind::compared,
      .note = error_note + " OOD is the sparse test set of Liu et al.; figures with s.d. are those of Table 7.",
      .grid = {.tasks = {"flip_flop"}, .schemes = "absolute,rope,cope"},
      .presets = flip_flop_presets(),
      .methods = {{"Absolute PE", "absolute"}, {"RoPE", "rope"}, {"CoPE", "cope"}},
      .columns = {{.name = "In-dist", .set = "in distribution"}, {.name = "OOD", .set = "sparse"}},
      .printed = {{"Absolute PE", "In-dist", 6.8, 6.9}, {"Absolute PE", "OOD", 21.7, 7.9},
          {"RoPE", "In-dist", 1.8, 3.1}, {"RoPE", "OOD", 20.3, 2.9}, {"CoPE", "In-dist", 0.03, 0.06},
          {"CoPE", "OOD", 4.9, 4.4}},
      .claims = {{"CoPE", "Absolute PE", "In-dist"}, {"CoPE", "RoPE", "In-dist"}, {"CoPE", "Absolute PE", "OOD"},
          {"CoPE", "RoPE", "OOD"}}};
}

PaperTable selective_copy() {
  return {.name = "cope/table2-selective_copy",
      .what = "selective copy, as trained, denser, sparser",
      .place = "Table 2 and 10, section 5.2",
      .kind = Kind::compared,
      .note =
          error_note + " It is of whole sequences: the paper's 100 % cannot be of tokens, of which a guess has some.",
      .grid = {.tasks = {"selective_copy"}, .schemes = "absolute,rope,cope(p_max=257)"},
      .presets = {{.name = "mini",
                      .lab = "mini",
                      .set = "",
                      .why = "16 tokens and 16 blanks in place of 256 and 256, 3000 steps at a learning rate of 1e-3 "
                             "in place of 100000, take minutes on two cores."},
          {.name = "small",
              .lab = "paper",
              .set = "tokens=64 blanks=64 steps=20000",
              .why = "A quarter of the paper's tokens and a fifth of its steps, for a night."},
          {.name = "paper",
              .lab = "paper",
              .set = "",
              .why = "The paper says neither learning rate nor batch: 1e-4 and 64 are those of Mamba, whose task it "
                     "is. CoPE needs a position for each of the 256 tokens."}},
      .methods = {{"Absolute PE", "absolute"}, {"RoPE", "rope"}, {"CoPE", "cope(p_max=257)"}},
      .columns = {{.name = "In-dist", .set = "in distribution"}, {.name = "OOD dense", .set = "dense"},
          {.name = "OOD sparse", .set = "sparse"}},
      .printed = {{"Absolute PE", "In-dist", 16.9, 3.7}, {"Absolute PE", "OOD dense", 25.6, 3.8},
          {"Absolute PE", "OOD sparse", 85.2, 8.4}, {"RoPE", "In-dist", 40.1, 3.5}, {"RoPE", "OOD dense", 100, 0},
          {"RoPE", "OOD sparse", 100, 0}, {"CoPE", "In-dist", 0, 0}, {"CoPE", "OOD dense", 0, 0},
          {"CoPE", "OOD sparse", 0.004, 0.006}},
      .claims = {{"CoPE", "Absolute PE", "In-dist"}, {"CoPE", "RoPE", "In-dist"}, {"CoPE", "Absolute PE", "OOD dense"},
          {"CoPE", "RoPE", "OOD dense"}, {"CoPE", "Absolute PE", "OOD sparse"}, {"CoPE", "RoPE", "OOD sparse"}}};
}

struct Errors {
  double in, out;  // of distribution
};

// A shape of Table 7, and what it prints there for each method.
struct Shape {
  std::string dim, layers, heads;
  Errors absolute, rope, cope;
};

const std::vector<Shape>& shapes() {
  static const std::vector<Shape> all{{"256", "4", "4", {6.8, 21.7}, {1.8, 20.3}, {0.03, 4.9}},
      {"256", "2", "4", {11.1, 10.6}, {5.1, 14.7}, {0, 13.2}}, {"256", "4", "2", {0.1, 18.0}, {0.02, 19.0}, {0, 3.0}},
      {"256", "2", "2", {13.9, 31.5}, {5.4, 19.8}, {0, 14.6}}, {"128", "4", "4", {5.4, 24.8}, {0.1, 8.9}, {0.2, 33.2}},
      {"128", "2", "4", {0.08, 19.9}, {0.1, 18.2}, {0.03, 22.3}},
      {"128", "4", "2", {0.07, 16.5}, {0.02, 17.3}, {0.03, 14.5}},
      {"128", "2", "2", {19.1, 28.6}, {14.4, 25.2}, {0.02, 24.5}}};
  return all;
}

// Standard deviations are of the first shape alone, the only one of several seeds.
const Errors no_deviations{std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::quiet_NaN()};

void print_shape(PaperTable& table, const Shape& shape, const std::string& in, const std::string& out) {
  const bool several_seeds = &shape == &shapes().front();
  const auto print = [&](const char* method, const Errors& means, const Errors& deviations) {
    const Errors printed = several_seeds ? deviations : no_deviations;
    table.printed.push_back({method, in, means.in, printed.in});
    table.printed.push_back({method, out, means.out, printed.out});
  };
  print("Absolute PE", shape.absolute, {6.9, 7.9});
  print("RoPE", shape.rope, {3.1, 2.9});
  print("CoPE", shape.cope, {0.06, 4.4});
}

PaperTable flip_flop_shapes() {
  std::vector<Preset> presets = flip_flop_presets();
  presets.pop_back();
  presets[0].set = "length=64 steps=1000 validate-every=100", presets[0].seeds = 3;
  presets[0].why =
      "Strings of 64 tokens in place of 512 and 1000 steps in place of 10000: 72 runs in less than ten minutes.";
  presets[1].set = "length=256 steps=5000 validate-every=100";
  presets[1].why = "Half the paper's length and half its steps, for a night; the rest is as in the paper.";
  PaperTable table{.name = "cope/table7-shapes",
      .what = "flip-flop, eight shapes of the model",
      .place = "Table 7, appendix C",
      .kind = Kind::compared,
      .note = error_note +
              " A dim of 64 stands for the paper's 256, and 32 for its 128, in every preset. At the paper's size, in "
              "days: lab flip_flop --preset paper --schemes absolute,rope,cope --vary layers=2,4 --vary heads=2,4 "
              "--vary dim=128,256. The paper says that CoPE is robust in distribution, and that out of it some shapes "
              "are not: at 128 no claim is made there.",
      .grid = {.tasks = {"flip_flop"},
          .schemes = "absolute,rope,cope",
          .vary = {"layers=2,4", "heads=2,4", "dim=32,64"}},
      .presets = std::move(presets),
      .methods = {{"Absolute PE", "absolute"}, {"RoPE", "rope"}, {"CoPE", "cope"}}};
  for (const Shape& shape : shapes()) {
    const std::string name = shape.dim + " " + shape.layers + "/" + shape.heads;
    const std::string in = name + " In-dist", out = name + " OOD";
    const std::vector<std::pair<std::string, std::string>> at{
        {"layers", shape.layers}, {"heads", shape.heads}, {"dim", shape.dim == "256" ? "64" : "32"}};
    table.columns.push_back({.name = in, .set = "in distribution", .at = at});
    table.columns.push_back({.name = out, .set = "sparse", .at = at});
    print_shape(table, shape, in, out);
    table.claims.push_back({"CoPE", "Absolute PE", in});
    if (shape.dim == "256") table.claims.push_back({"CoPE", "RoPE", out});
  }
  return table;
}

// The network takes tens of times as long as CoPE's table, as the paper says too: mini's is an eighth as wide.
const char* const narrow_network =
    " The network has 8 hidden numbers in place of 64, with which its runs would not fit into ten minutes.";

std::vector<Preset> flip_flop_presets(const std::string& mini_schemes, const std::string& other_schemes) {
  std::vector<Preset> presets = flip_flop_presets();
  for (Preset& preset : presets) preset.schemes = preset.name == "mini" ? mini_schemes : other_schemes;
  presets[0].set = "length=64 steps=1000 validate-every=100", presets[0].seeds = 3;
  presets[0].why =
      "Strings of 64 tokens in place of 512, and 1000 steps in place of 10000, at a learning rate of 1e-3.";
  presets[0].why += narrow_network;
  return presets;
}

PaperTable flip_flop_variants() {
  const std::string cheap =
      "absolute,absolute + hard_attention,cope,cope_alibi(slopes=halving),cope_alibi(slopes=halving, "
      "first=0.25),cope_alibi(slopes=halving, first=0.0625),cope_alibi(slopes=learned)";
  const std::string narrow = ",cope_mlp(width=8),cope_mlp(width=8, layers=first)",
                    networks = ",cope_mlp,cope_mlp(layers=first)";
  return {.name = "cope/table7-variants",
      .what = "flip-flop: hard attention, positions by a network, linear biases",
      .place = "Table 7, appendix C",
      .kind = Kind::compared,
      .note = error_note +
              " The paper defines neither the network nor hard attention: here a network of N hidden numbers makes the "
              "vector that q meets, and the query's largest logit takes all, with the gradient of a softmax. The paper "
              "prints N = 64. Slopes are subtracted, as ALiBi does; Eq. 10 prints a plus (sign=plus), which favours "
              "the oldest keys.",
      .grid = {.tasks = {"flip_flop"}, .schemes = cheap + networks + narrow},
      .presets = flip_flop_presets(cheap + narrow, cheap + networks),
      .methods = {{"Absolute PE", "absolute"}, {"Absolute PE + hard attn", "absolute + hard_attention"},
          {"CoPE", "cope"}, {"CoPE_MLP", "cope_mlp"}, {"CoPE_MLP, 1st layer", "cope_mlp(layers=first)"},
          {"CoPE_MLP, N = 8", "cope_mlp(width=8)"}, {"CoPE_MLP, N = 8, 1st layer", "cope_mlp(width=8, layers=first)"},
          {"CoPE_ALiBi (m[0]=1)", "cope_alibi(slopes=halving)"},
          {"CoPE_ALiBi (m[0]=1/4)", "cope_alibi(slopes=halving, first=0.25)"},
          {"CoPE_ALiBi (m[0]=1/16)", "cope_alibi(slopes=halving, first=0.0625)"},
          {"CoPE_ALiBi (m learned)", "cope_alibi(slopes=learned)"}},
      .columns = {{.name = "In-dist", .set = "in distribution"}, {.name = "OOD", .set = "sparse"}},
      .printed = {{"Absolute PE", "In-dist", 6.8, 6.9}, {"Absolute PE", "OOD", 21.7, 7.9},
          {"Absolute PE + hard attn", "In-dist", 50.7}, {"Absolute PE + hard attn", "OOD", 49.1},
          {"CoPE", "In-dist", 0.03, 0.06}, {"CoPE", "OOD", 4.9, 4.4}, {"CoPE_MLP", "In-dist", 0.03},
          {"CoPE_MLP", "OOD", 5.9}, {"CoPE_MLP, 1st layer", "In-dist", 0.9}, {"CoPE_MLP, 1st layer", "OOD", 24.3},
          {"CoPE_ALiBi (m[0]=1)", "In-dist", 0, 0}, {"CoPE_ALiBi (m[0]=1)", "OOD", 11.4, 3.4},
          {"CoPE_ALiBi (m[0]=1/4)", "In-dist", 0, 0}, {"CoPE_ALiBi (m[0]=1/4)", "OOD", 8.7, 7.6},
          {"CoPE_ALiBi (m[0]=1/16)", "In-dist", 0, 0}, {"CoPE_ALiBi (m[0]=1/16)", "OOD", 17.1, 1.5},
          {"CoPE_ALiBi (m learned)", "In-dist", 0, 0}, {"CoPE_ALiBi (m learned)", "OOD", 11.4, 4.0}},
      .claims = {{"Absolute PE", "Absolute PE + hard attn", "In-dist"},
          {"Absolute PE", "Absolute PE + hard attn", "OOD"}, {"CoPE_MLP", "CoPE_MLP, 1st layer", "In-dist"},
          {"CoPE_MLP", "CoPE_MLP, 1st layer", "OOD"}, {"CoPE", "CoPE_ALiBi (m[0]=1)", "OOD"},
          {"CoPE", "CoPE_ALiBi (m[0]=1/4)", "OOD"}, {"CoPE", "CoPE_ALiBi (m[0]=1/16)", "OOD"},
          {"CoPE", "CoPE_ALiBi (m learned)", "OOD"}}};
}

PaperTable flip_flop_over_steps() {
  PaperTable table{.name = "cope/figure5",
      .what = "flip-flop: how fast it is learned",
      .place = "Figure 5, appendix C",
      .kind = Kind::compared,
      .note =
          "Error in percent on validation sequences, lower is better; in distribution, where the paper's figure has it "
          "out of it too, every 500 of 10000 steps. It prints no numbers; its claim is that CoPE is there first, at "
          "step 2500, a quarter of the training. All validations are in the metrics of each run: lab flip_flop "
          "--preset paper --set validate-every=500 has the paper's.",
      .grid = {.tasks = {"flip_flop"}, .schemes = "absolute,rope,cope"},
      .presets = {flip_flop_presets().front()},
      .methods = {{"Absolute PE", "absolute"}, {"RoPE", "rope"}, {"CoPE", "cope"}}};
  for (const int step : {200, 400, 600, 800, 1000, 1200})
    table.columns.push_back({.name = "step " + std::to_string(step), .step = step});
  for (const char* step : {"step 400", "step 600", "step 800"})
    for (const char* other : {"Absolute PE", "RoPE"}) table.claims.push_back({"CoPE", other, step});
  return table;
}

PaperTable counting_variables() {
  return {.name = "cope/table3",
      .what = "counting with 1, 3 and 5 variables",
      .place = "Table 3 and 9, section 5.3",
      .kind = Kind::compared,
      .note = error_note + counting_note,
      .grid = {.tasks = {"counting"}, .schemes = "absolute,relative," + counting_cope, .vary = {"variables=1,3,5"}},
      .presets = counting_presets(4),
      .methods = {{"Absolute PE", "absolute"}, {"Relative PE", "relative"}, {"CoPE", counting_cope}},
      .columns = {{.name = "1 var", .set = "in distribution", .at = {{"variables", "1"}}},
          {.name = "3 var", .set = "in distribution", .at = {{"variables", "3"}}},
          {.name = "5 var", .set = "in distribution", .at = {{"variables", "5"}}}},
      .printed = {{"Absolute PE", "1 var", 5.3, 0.8}, {"Absolute PE", "3 var", 67.6, 1.5},
          {"Absolute PE", "5 var", 71.5, 1.5}, {"Relative PE", "1 var", 1.1, 0.4}, {"Relative PE", "3 var", 17.8, 7.8},
          {"Relative PE", "5 var", 22.4, 5.1}, {"CoPE", "1 var", 0, 0}, {"CoPE", "3 var", 1.2, 2.1},
          {"CoPE", "5 var", 7.4, 8.5}},
      .claims = {{"CoPE", "Relative PE", "1 var"}, {"CoPE", "Relative PE", "3 var"}, {"CoPE", "Relative PE", "5 var"},
          {"CoPE", "Absolute PE", "1 var"}, {"CoPE", "Absolute PE", "3 var"}, {"CoPE", "Absolute PE", "5 var"},
          {"Relative PE", "Absolute PE", "1 var"}, {"Relative PE", "Absolute PE", "3 var"},
          {"Relative PE", "Absolute PE", "5 var"}}};
}

PaperTable counting_pass_weight() {
  return {.name = "cope/table4",
      .what = "counting in longer and shorter contexts: the weight of pass",
      .place = "Table 4 and 9, section 5.3",
      .kind = Kind::compared,
      .note = error_note + counting_note,
      .grid = {.tasks = {"counting"},
          .schemes = "relative," + counting_cope,
          .vary = {"variables=1"}},  // runs of table 3
      .presets = counting_presets(4),
      .methods = {{"Relative PE", "relative"}, {"CoPE", counting_cope}},
      .columns = {{.name = "w_pass = 50", .set = "in distribution"}, {.name = "w_pass = 100", .set = "pass weight 100"},
          {.name = "w_pass = 10", .set = "pass weight 10"}},
      .printed = {{"Relative PE", "w_pass = 50", 1.1, 0.4}, {"Relative PE", "w_pass = 100", 8.8, 1.1},
          {"Relative PE", "w_pass = 10", 34.1, 2.5}, {"CoPE", "w_pass = 50", 0, 0}, {"CoPE", "w_pass = 100", 0, 0},
          {"CoPE", "w_pass = 10", 4.0, 4.1}},
      .claims = {{"CoPE", "Relative PE", "w_pass = 50"}, {"CoPE", "Relative PE", "w_pass = 100"},
          {"CoPE", "Relative PE", "w_pass = 10"}}};
}

PaperTable counting_training_set() {
  const auto sequences = [](const std::string& count) {
    return Column{.name = count + " sequences", .set = "in distribution", .at = {{"training-set", count}}};
  };
  return {.name = "cope/figure2",
      .what = "counting: error over the number of training sequences",
      .place = "Figure 2, section 5.3",
      .kind = Kind::compared,
      .note = error_note + " The figure prints no numbers, and its sizes cannot be read; tables 3 and 4 have 10000." +
              counting_note,
      .grid = {.tasks = {"counting"}, .schemes = "relative," + counting_cope, .vary = {"training-set=100,1000,10000"}},
      .presets = counting_presets(3),
      .methods = {{"Relative PE", "relative"}, {"CoPE", counting_cope}},
      .columns = {sequences("100"), sequences("1000"), sequences("10000")},
      .claims = {{"CoPE", "Relative PE", "100 sequences"}, {"CoPE", "Relative PE", "1000 sequences"},
          {"CoPE", "Relative PE", "10000 sequences"}}};
}

// ---- Text and code

Preset mini_text() {
  return {.name = "mini",
      .lab = "mini",
      .set = text_at_512.mini,
      .why =
          "500 steps of two layers of 64 on 512 bytes take seconds on two cores, and a learning rate of 3e-3 lets them "
          "count; the paper's lengths are 1024 on text and 4096 on code."};
}

Preset small_text() {
  return {.name = "small",
      .lab = "mini",
      .set = "dim=128 layers=4 heads=4 lr=1e-3 steps=5000 batch=4 length=1024 evaluate-to=4 evaluation-windows=20",
      .why = "The paper's length on text, with a model and steps for a night."};
}

Preset paper_text() {
  return {.name = "paper",
      .lab = "paper",
      .set =
          "model=gpt2-124m length=1024 batch=8 accumulate=8 steps=180000 lr=2.5e-4 dropout=0.1 evaluate-to=1 last=1024 "
          "evaluation-windows=200",
      .why =
          "64 windows a step, in eight parts for one card; 100 epochs of WikiText-103, about 118 million tokens of "
          "GPT-2, are 180000 steps. The paper says neither learning rate, decay nor dropout: they are usual for GPT-2. "
          "Its tokens come with --set tokeniser=FILE."};
}

std::vector<Preset> text_presets() { return {mini_text(), small_text(), paper_text()}; }

const std::string text_note =
    "Perplexity, lower is better. The paper's is of WikiText-103 by tokens of GPT-2, with 1024 of them; ours is of "
    "your text, by bytes unless --set tokeniser=FILE is given, on documents that are set aside, of the last 256 tokens "
    "of each window; a length of 512 stands for 1024.";

PaperTable wikitext() {
  return {.name = "cope/table5-wikitext",
      .what = "WikiText-103 with four schemes",
      .place = "Table 5, left; section 5.4",
      .kind = Kind::compared,
      .note = text_note +
              " Ours has a table of positions for each layer; the paper's shares one, which cope/table8 compares.",
      .grid = {.tasks = {"lm"}, .schemes = "absolute,relative,cope,cope + relative", .reads = Reads::text},
      .presets = text_presets(),
      .methods = {{"Absolute PE", "absolute"}, {"Relative PE", "relative"}, {"CoPE", "cope"},
          {"CoPE + Relative", "cope + relative"}},
      .columns = {{.name = "Test PPL", .times = 1}},
      .printed = {{"Absolute PE", "Test PPL", 24.87}, {"Relative PE", "Test PPL", 23.81}, {"CoPE", "Test PPL", 23.46},
          {"CoPE + Relative", "Test PPL", 23.23}},
      .claims = {{"Relative PE", "Absolute PE", "Test PPL"}, {"CoPE", "Absolute PE", "Test PPL"},
          {"CoPE + Relative", "Absolute PE", "Test PPL"}, {"CoPE", "Relative PE", "Test PPL"},
          {"CoPE + Relative", "Relative PE", "Test PPL"}, {"CoPE + Relative", "CoPE", "Test PPL"}}};
}

PaperTable code() {
  return {.name = "cope/table5-code",
      .what = "code with four schemes",
      .place = "Table 5, right; section 5.5",
      .kind = Kind::compared,
      .note =
          "Perplexity, lower is better. The paper's is of Llama 2's mix of code, by its 32000 tokens, with 4096 of "
          "them; ours is of your code, by bytes unless --set tokeniser=FILE is given, on files that are set aside, of "
          "the last 256 tokens of each window; a length of 512 stands for 4096. The paper does not say how CoPE and "
          "RoPE are put together: here the gates read the rotated product, and q.e does not.",
      .grid = {.tasks = {"lm"}, .schemes = "absolute,rope,cope,cope + rope", .reads = Reads::code},
      .presets = {mini_text(), small_text(),
          {.name = "paper",
              .lab = "paper",
              .set = "model=llama-20m length=4096 batch=4 accumulate=32 steps=190000 lr=5e-4 evaluate-to=1 last=4096 "
                     "evaluation-windows=200",
              .why = "The paper's 100 billion tokens in steps of half a million; it says neither the batch nor how the "
                     "rate falls. Tokens of Llama 2 come with --set tokeniser=FILE."}},
      .methods = {{"Absolute PE", "absolute"}, {"RoPE", "rope"}, {"CoPE", "cope"}, {"CoPE + RoPE", "cope + rope"}},
      .columns = {{.name = "Test PPL", .times = 1}},
      .printed = {{"Absolute PE", "Test PPL", 4.7}, {"RoPE", "Test PPL", 4.1}, {"CoPE", "Test PPL", 3.9},
          {"CoPE + RoPE", "Test PPL", 4.0}},
      .claims = {
          {"CoPE", "Absolute PE", "Test PPL"}, {"CoPE", "RoPE", "Test PPL"}, {"CoPE + RoPE", "RoPE", "Test PPL"}}};
}

PaperTable options_of_cope() {
  return {.name = "cope/table8",
      .what = "CoPE's options on text: gates, tables, p_max, linear biases",
      .place = "Table 8, appendix D",
      .kind = Kind::compared,
      .note = text_note +
              " Where p_max is more than the length, the table's end is never read. Separate keys come with a table "
              "for each layer, as one for all has no keys of a layer. That p_max of 16 does no harm, and that tables "
              "of single layers change little, are no claims of one being better: no verdict is given.",
      .grid = {.tasks = {"lm"},
          .schemes =
              "cope(table=shared),cope(table=shared, gates=values),cope(gates=separate_keys),cope,cope(table=shared, "
              "p_max=16),cope(table=shared, p_max=1024),cope_alibi",
          .reads = Reads::text},
      .presets = text_presets(),
      .methods = {{"None", "cope(table=shared)"}, {"Use val-gates", "cope(table=shared, gates=values)"},
          {"Use sep-keys", "cope(gates=separate_keys)"}, {"Layers do not share embeddings", "cope"},
          {"p_max = 16", "cope(table=shared, p_max=16)"}, {"p_max = T = 1024", "cope(table=shared, p_max=1024)"},
          {"CoPE_ALiBi", "cope_alibi"}},
      .columns = {{.name = "Test PPL", .times = 1}},
      .printed = {{"None", "Test PPL", 23.46}, {"Use val-gates", "Test PPL", 23.33},
          {"Use sep-keys", "Test PPL", 23.18}, {"Layers do not share embeddings", "Test PPL", 23.58},
          {"p_max = 16", "Test PPL", 23.22}, {"p_max = T = 1024", "Test PPL", 23.31},
          {"CoPE_ALiBi", "Test PPL", 25.09}},
      .claims = {{"Use val-gates", "None", "Test PPL"}, {"Use sep-keys", "None", "Test PPL"},
          {"None", "CoPE_ALiBi", "Test PPL"}}};
}

PaperTable longer_contexts() {
  PaperTable table{.name = "cope/figure3",
      .what = "perplexity beyond the training length",
      .place = "Figure 3, section 5.4",
      .kind = Kind::compared,
      .note = text_note +
              " In the same way 256 stands for 512. The figure prints no numbers, and where it ends cannot be read. At "
              "the paper's size, in weeks: lab lm --preset paper --schemes 'relative,relative(capped=yes),cope' --vary "
              "length=512,1024 --same-tokens --set 'model=gpt2-124m batch=8 accumulate=8 steps=180000 length=1024 "
              "data=FILE'.",
      .grid = {.tasks = {"lm"},
          .schemes = "relative,relative(capped=yes),cope",
          .vary = {"length=256,512"},
          .same_tokens = true,
          .reads = Reads::text},
      .presets = {mini_text(), small_text()},
      .methods = {{"Relative PE", "relative"}, {"Relative-capped", "relative(capped=yes)"}, {"CoPE", "cope"}}};
  for (const auto& [papers_length, length] : {std::pair{512, "256"}, std::pair{1024, "512"}}) {
    for (const int times : {1, 2, 4}) {
      const std::string name = std::to_string(papers_length * times) + " (" + std::to_string(times) +
                               "x), trained on " + std::to_string(papers_length);
      table.columns.push_back({.name = name, .times = times, .at = {{"length", length}}});
      if (times == 1) continue;
      table.claims.push_back({"CoPE", "Relative PE", name});
      table.claims.push_back({"Relative-capped", "Relative PE", name});
      table.claims.push_back({"CoPE", "Relative-capped", name});
    }
  }
  return table;
}

// A figure of what a model has learned, drawn from one that table 5 trains too.
PaperTable learned(const std::string& number, const std::string& what, const std::string& place) {
  return {.name = "cope/figure" + number,
      .what = what,
      .place = place,
      .kind = Kind::commanded,
      .note =
          "Of the first 48 tokens of your text, for all layers and heads, as larger maps are large files. The paper "
          "shows heads that it chose, of a model on WikiText-103 whose gates have keys of their own, "
          "cope(gates=separate_keys).",
      .grid = {.tasks = {"lm"}, .schemes = "cope", .reads = Reads::text},
      .presets = text_presets(),
      .commands = {"look RUN --text TEXT --length 48 --figure cope/" + number + " --out OUT/cope-" + number + ".svg"}};
}

// ---- What needs no training, and what cannot be had

PaperTable language_models() {
  return {.name = "cope/table1",
      .what = "prompts to commercial language models",
      .place = "Table 1 and 6, section 3.2 and appendix A",
      .kind = Kind::not_ours,
      .note = "questions to other people's services"};
}

PaperTable network_time() {
  return {.name = "cope/mlp-time",
      .what = "positions by a network are 30 to 50 times slower",
      .place = "appendix C",
      .kind = Kind::commanded,
      .note =
          "The paper's 30 to 50 times are of time and memory of training, against regular positional encodings. Here "
          "it is one attention of its flip-flop model, 4 heads of 64 and up to 512 tokens, without the rest of the "
          "model.",
      .commands = {"bench attention --schemes rope,cope,cope_mlp --lengths 256,512 --heads 4 --head-dim 64 --gates "
                   "initial --executors reference --repetitions 3"}};
}

PaperTable own_data() {
  return {.name = "cope/jsonl",
      .what = "tasks from a file of contexts, questions and answers",
      .place = "the authors' code",
      .kind = Kind::commanded,
      .note =
          "Built-in lines show what a file may hold, and a small grid is trained on them; with a file of your own it "
          "is lab jsonl --schemes absolute,rope,cope --set data=FILE.jsonl.",
      .commands = {"train jsonl --dump 3", "lab jsonl --schemes absolute,rope,cope --out OUT/lab"}};
}

PaperTable counting_data() {
  return {.name = "cope/counting-data",
      .what = "the generator of counting programs, cut from the left",
      .place = "the authors' code",
      .kind = Kind::commanded,
      .note =
          "The last 512 tokens of a program are kept, as in the authors' code, even where a set that is asked for is "
          "lost.",
      .commands = {"train counting --dump 3"}};
}

}  // namespace

const std::vector<PaperTable>& cope_tables() {
  static const std::vector<PaperTable> tables{language_models(), flip_flop(), selective_copy(), flip_flop_shapes(),
      flip_flop_variants(), flip_flop_over_steps(), counting_variables(), counting_pass_weight(),
      counting_training_set(), wikitext(), code(), options_of_cope(), longer_contexts(),
      learned("4", "attention by position alone, on paragraphs and sections", "Figure 4, section 5.4"),
      learned("6", "gates of the same heads on the same text", "Figure 6, appendix D"), network_time(), own_data(),
      counting_data()};
  return tables;
}

}  // namespace whence::papers
