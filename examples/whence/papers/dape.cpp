// Zheng et al. 2024, Data-Adaptive Positional Encoding, arXiv:2405.14722; its first version calls it CAPE.
#include "examples/whence/papers/paper_table.h"
#include "examples/whence/papers/text_presets.h"
#include "tensor/error.h"

namespace whence::papers {
namespace {

// A figure of learned quantities: a model that other tables train too, then a picture of it for each of the paper's.
PaperTable learned(PaperTable table) {
  table.kind = Kind::commanded;
  table.note = look_note;
  table.grid = {.tasks = {"lm"}, .schemes = "dape(kerple)", .reads = Reads::text};
  table.presets = text_presets(text_at_128, paper_125m("length=512 evaluate-to=16"));
  return table;
}

PaperTable bias_of_last_query() {
  return learned({.name = "dape/figure1",
      .what = "the learned bias of the last query against all keys",
      .place = "Figure 1, section 4.6",
      .kind = Kind::commanded,
      .commands = {look_command("dape", 1, 8193)}});
}

PaperTable scores_and_biases() {
  PaperTable table = learned({.name = "dape/figure7-21",
      .what = "scores, biases and what the network adds, of two examples at 512, 2048, 8192",
      .place = "Figures 7 to 21, appendix I",
      .kind = Kind::commanded});
  for (int figure = 7; figure <= 21; ++figure) {
    const int tokens = figure <= 9    ? 513
                       : figure <= 11 ? 1025
                       : figure <= 14 ? 2049
                       : figure <= 16 ? 4097
                       : figure <= 19 ? 8193
                                      : 16385;
    table.commands.push_back(look_command("dape", figure, tokens));
  }
  return table;
}

PaperTable baselines() {
  PaperTable table{.name = "dape/figure2",
      .what = "all baselines, training lengths 128 and 512",
      .place = "Figure 2, section 4.1",
      .kind = Kind::compared,
      .note = std::string(perplexity_note) + two_lengths_note +
              " The figure prints no numbers; these are of sections 4.1 and 4.2. Of 64 times the training length "
              "(Kerple 31.93, DAPE-Kerple 5.00) dape/figure5 has ours. The paper's YaRN is left out: it stretches a "
              "model that is trained. Randomised positions are drawn from 4096, which the longest run has; the paper's "
              "four times the training length would be too few.",
      .grid = {.tasks = {"lm"},
          .schemes = "none,rope,randomised(rope, length=4096),t5,alibi,dape(alibi),kerple,dape(kerple),fire,dape(fire)",
          .vary = {"length=128,256"},
          .same_tokens = true,
          .reads = Reads::text},
      .presets = text_presets(text_at_128, paper_125m("length=128 evaluate-to=16"), why_two_lengths),
      .methods = {{"NoPE", "none"}, {"RoPE", "rope"}, {"Randomized RoPE", "randomised(rope, length=4096)"},
          {"T5's bias", "t5"}, {"ALiBi", "alibi"}, {"DAPE-ALiBi", "dape(alibi)"}, {"Kerple", "kerple"},
          {"DAPE-Kerple", "dape(kerple)"}, {"FIRE", "fire"}, {"DAPE-FIRE", "dape(fire)"}},
      .columns = of_two_lengths(),
      .printed = {{"ALiBi", "512: 8192 (16x)", 4.54}, {"DAPE-ALiBi", "512: 8192 (16x)", 3.82},
          {"DAPE-FIRE", "512: 8192 (16x)", 5.71}}};
  for (const char* base : {"ALiBi", "Kerple", "FIRE"})
    claim(table, std::string("DAPE-") + base, base,
        {"128: 128 (1x)", "128: 2048 (16x)", "512: 512 (1x)", "512: 8192 (16x)"});
  return table;
}

PaperTable trained_on_1024() {
  PaperTable table{.name = "dape/figure3",
      .what = "all baselines, training length 1024",
      .place = "Figure 3, section 4.1",
      .kind = Kind::compared,
      .note = std::string(perplexity_note) + " A training length of 512 stands for the paper's 1024.",
      .grid = {.tasks = {"lm"},
          .schemes = "rope,t5,alibi,dape(alibi),kerple,dape(kerple),fire,dape(fire)",
          .reads = Reads::text},
      .presets = text_presets(text_at_512, paper_125m("length=1024 evaluate-to=8")),
      .methods = {{"RoPE", "rope"}, {"T5's bias", "t5"}, {"ALiBi", "alibi"}, {"DAPE-ALiBi", "dape(alibi)"},
          {"Kerple", "kerple"}, {"DAPE-Kerple", "dape(kerple)"}, {"FIRE", "fire"}, {"DAPE-FIRE", "dape(fire)"}},
      .columns = doublings(1024, 8),
      .printed = {{"DAPE-Kerple", "2048 (2x)", 3.91}, {"DAPE-FIRE", "2048 (2x)", 3.93},
          {"DAPE-FIRE", "8192 (8x)", 3.91}, {"ALiBi", "8192 (8x)", 4.28}},
      .claims = {{"DAPE-FIRE", "ALiBi", "8192 (8x)"}}};
  table.presets.front().schemes = "rope,t5,alibi,dape(alibi),kerple,dape(kerple),fire";
  table.presets.front().why += " DAPE-FIRE is left out, whose runs are the longest.";
  for (const char* base : {"ALiBi", "Kerple", "FIRE"})
    claim(table, std::string("DAPE-") + base, base, {"1024 (1x)", "2048 (2x)", "8192 (8x)"});
  return table;
}

PaperTable bigger_model() {
  PaperTable table{.name = "dape/figure4",
      .what = "the model of 350M parameters",
      .place = "Figure 4, section 4.2",
      .kind = Kind::compared,
      .note = std::string(perplexity_note) +
              " A bigger model stands for 350M, a training length of 128 for the paper's 512. Its curves of a training "
              "length of 128 print no numbers. FIRE is not in the mini.",
      .grid = {.tasks = {"lm"},
          .schemes = "alibi,dape(alibi),kerple,dape(kerple),fire,dape(fire)",
          .reads = Reads::text},
      .presets = text_presets(text_bigger, paper_350m("length=512 evaluate-to=16")),
      .methods = {{"ALiBi", "alibi"}, {"DAPE-ALiBi", "dape(alibi)"}, {"Kerple", "kerple"},
          {"DAPE-Kerple", "dape(kerple)"}, {"FIRE", "fire"}, {"DAPE-FIRE", "dape(fire)"}},
      .columns = doublings(512, 16),
      .printed = {{"ALiBi", "8192 (16x)", 4.21}, {"DAPE-ALiBi", "8192 (16x)", 3.57}, {"Kerple", "8192 (16x)", 22.76},
          {"DAPE-Kerple", "8192 (16x)", 3.43}}};
  table.presets.front().schemes = "alibi,dape(alibi),kerple,dape(kerple)";
  for (const char* base : {"ALiBi", "Kerple"})
    claim(table, std::string("DAPE-") + base, base, {"512 (1x)", "2048 (4x)", "8192 (16x)"});
  claim(table, "DAPE-FIRE", "ALiBi", {"512 (1x)", "1024 (2x)", "2048 (4x)"});
  return table;
}

PaperTable forms_of_f() {
  PaperTable table{.name = "dape/figure5",
      .what = "three forms of f over KERPLE",
      .place = "Figure 5, sections 4.1 and 4.3",
      .kind = Kind::compared,
      .note = std::string(perplexity_note) +
              " One training length stands for the paper's 128 and 512. Of Kerple's 31.93 DAPE V2 prints 12.59.",
      .grid = {.tasks = {"lm"},
          .schemes = "kerple,dape(kerple, form=add_residual),dape(kerple, form=concat),dape(kerple)",
          .reads = Reads::text},
      .presets = text_presets(text_far, paper_125m("length=128 evaluate-to=64")),
      .methods = {{"Kerple", "kerple"}, {"Add_Residual", "dape(kerple, form=add_residual)"},
          {"Concat", "dape(kerple, form=concat)"}, {"Concat_Residual", "dape(kerple)"}},
      .columns = joined(doublings(128, 64, "128: "), {{.name = "512: 8192 (16x)", .times = 16}}),
      .printed = {{"Kerple", "128: 8192 (64x)", 31.93}, {"Add_Residual", "128: 8192 (64x)", 5.17},
          {"Concat", "128: 8192 (64x)", 5.03}, {"Concat_Residual", "128: 8192 (64x)", 5.00},
          {"Add_Residual", "512: 8192 (16x)", 3.75}, {"Concat", "512: 8192 (16x)", 3.69},
          {"Concat_Residual", "512: 8192 (16x)", 3.70}}};
  for (const char* form : {"Add_Residual", "Concat", "Concat_Residual"})
    claim(table, form, "Kerple", {"128: 128 (1x)", "128: 8192 (64x)"});
  for (const char* form : {"Concat", "Concat_Residual"})
    claim(table, form, "Add_Residual", {"128: 8192 (64x)", "512: 8192 (16x)"});
  return table;
}

PaperTable widths() {
  PaperTable table{.name = "dape/figure6",
      .what = "the width of the network over ALiBi: 4, 16, 32, 64",
      .place = "Figure 6, section 4.4, appendix C",
      .kind = Kind::compared,
      .note = std::string(perplexity_note) + " Of the paper's two training lengths this is 128.",
      .grid = {.tasks = {"lm"},
          .schemes = "alibi,dape(alibi, width=4),dape(alibi, width=16),dape(alibi),dape(alibi, width=64)",
          .reads = Reads::text},
      .presets = text_presets(text_far, paper_125m("length=128 evaluate-to=64")),
      .methods = {{"ALiBi", "alibi"}, {"D = 4", "dape(alibi, width=4)"}, {"D = 16", "dape(alibi, width=16)"},
          {"D = 32", "dape(alibi)"}, {"D = 64", "dape(alibi, width=64)"}},
      .columns = doublings(128, 64),
      .printed = {{"ALiBi", "128 (1x)", 8.31}, {"ALiBi", "8192 (64x)", 5.85}, {"D = 4", "128 (1x)", 8.25},
          {"D = 4", "8192 (64x)", 5.67}}};
  for (const char* width : {"D = 4", "D = 16", "D = 32", "D = 64"})
    claim(table, width, "ALiBi", {"128 (1x)", "2048 (16x)", "8192 (64x)"});
  return table;
}

PaperTable what_f_reads() {
  PaperTable table{.name = "dape/table7",
      .what = "what f reads: nothing, the bias, scores and bias",
      .place = "Table 7, appendix G",
      .kind = Kind::compared,
      .note = std::string(perplexity_note) + " This table is of Books3. A training length of 128 stands for its 512.",
      .grid = {.tasks = {"lm"}, .schemes = "kerple,dape(kerple, form=f_of_bias),dape(kerple)", .reads = Reads::text},
      .presets = text_presets(text_at_128, paper_125m("length=512 evaluate-to=16")),
      .methods = {{"S + B", "kerple"}, {"S + B + f(B)", "dape(kerple, form=f_of_bias)"},
          {"S + B + f(S, B)", "dape(kerple)"}},
      .columns = doublings(512, 16)};
  print_row(table, "S + B", {19.68, 19.06, 20.44, 28.34, 39.31});
  print_row(table, "S + B + f(B)", {19.64, 18.83, 18.49, 20.62, 23.49});
  print_row(table, "S + B + f(S, B)", {19.22, 18.22, 17.15, 17.63, 17.88});
  for (const Column& column : table.columns) {
    claim(table, "S + B + f(S, B)", "S + B + f(B)", {column.name});
    claim(table, "S + B + f(B)", "S + B", {column.name});
  }
  return table;
}

PaperTable time_of_first_version() {
  return {.name = "dape/cape-table1",
      .what = "milliseconds forward and backward, and memory, of eleven methods",
      .place = "first version, Table 1",
      .kind = Kind::commanded,
      .note =
          "The paper's figures stand beside ours. Its are of a whole model on a GPU in batches of 32; ours of one "
          "attention of 12 heads, one sequence. Compare each with ALiBi's.",
      .commands = {"bench table"}};
}

PaperTable time_of_big_models() {
  return {.name = "dape/table1",
      .what = "milliseconds of models of 350M, 2.7B and 6.7B",
      .place = "Table 1, section 4.5; DAPE V2, Table 8",
      .kind = Kind::commanded,
      .note =
          "Models of this size are not timed here: operations and bytes of a step stand for their time, and one "
          "attention is measured. The paper's, in milliseconds at 350M, 2.7B, 6.7B: RoPE 210.01 472.63 635.57; T5's "
          "bias 355.16 537.62 808.85; ALiBi 172.60 325.95 596.77; Kerple 189.91 370.32 661.82; FIRE 248.13 432.63 "
          "797.68; DAPE-Kerple 224.22 422.48 717.46. Its claim: what DAPE adds to Kerple is a smaller share of a "
          "bigger model.",
      .commands = {
          "models --plan neox-350m neox-2.7b neox-6.7b --scheme 'rope,t5,alibi,kerple,fire,dape(kerple)' --lengths 512",
          "bench table --lengths 512"}};
}

PaperTable hierarchy() {
  PaperTable table{.name = "dape/table2",
      .what = "the Chomsky hierarchy, longer than trained on",
      .place = "Table 2, section 4.7, appendix D",
      .kind = Kind::compared,
      .note = std::string(chomsky_note) +
              " Its positions are randomised, ours are only where a table of positions would end (Learned); "
              "dape/randomised has the others. Comparisons are those of tasks that need positions (not parity check, "
              "cycle navigation, bucket sort) and where the paper's methods are not all near a guess (not the three of "
              "arithmetic and equations modulo 5, nor compute sqrt). Reverse string is not claimed over Kerple, which "
              "is better there. The mini leaves out six tasks that stay near a guess at its size, and FIRE, whose runs "
              "are long.",
      .grid = {.tasks = all_chomsky_tasks(),
          .schemes = "randomised(absolute),sinusoidal(layout=concat),rope,transformer_xl,alibi,kerple,fire,dape(alibi),"
                     "dape(kerple),dape(fire)"},
      .presets = chomsky_presets("rope,alibi,kerple,dape(alibi),dape(kerple)",
          {"even_pairs", "cycle_navigation", "stack_manipulation", "reverse_string", "missing_duplicate", "odds_first",
              "duplicate_string", "bucket_sort"}),
      .methods = {{"Learned", "randomised(absolute)"}, {"sin / cos", "sinusoidal(layout=concat)"}, {"RoPE", "rope"},
          {"Relative", "transformer_xl"}, {"ALiBi", "alibi"}, {"Kerple", "kerple"}, {"FIRE", "fire"},
          {"DAPE-ALiBi", "dape(alibi)"}, {"DAPE-Kerple", "dape(kerple)"}, {"DAPE-FIRE", "dape(fire)"}}};
  put_chomsky_columns(table);
  for (const char* base : {"ALiBi", "Kerple", "FIRE"})
    claim(table, std::string("DAPE-") + base, base,
        {"Even pairs", "Stack manipulation", "Duplicate string", "Missing duplicate", "Odds first", "Binary addition"});
  for (const char* base : {"ALiBi", "FIRE"}) claim(table, std::string("DAPE-") + base, base, {"Reverse string"});
  return table;
}

// Not the paper's: what its tasks need before anything is learned, and where its own figures are a guess's.
PaperTable budgets() {
  PaperTable table{.name = "dape/table2-budgets",
      .what = "the Chomsky hierarchy: steps until a task leaves the guess",
      .place = "beside Table 2",
      .kind = Kind::compared,
      .note = std::string(chomsky_note) +
              " No table of the paper: one scheme, one seed, more and more steps, each a training of its own. Where "
              "the paper's figure, behind the stroke, is near the best guess too, its 200 000 steps of a model of five "
              "layers and dim 256 have not learned the task beyond the lengths of training either.",
      .grid = {.tasks = all_chomsky_tasks(), .schemes = "dape(kerple)", .vary = {"steps=250,1000,4000,8000"}},
      .presets = {{.name = "mini",
                      .lab = "mini",
                      .set = "lr=1e-3 dropout=0 test-to=60 test-every=8",
                      .why = "As dape/table2, besides the steps.",
                      .seeds = 1},
          {.name = "small",
              .lab = "mini",
              .set = "dim=256 layers=5 heads=8 batch=64 lr=3e-4 dropout=0 test-to=60 test-every=8",
              .why = "The paper's model at shorter lengths.",
              .seeds = 1}}};
  table.grid.tasks.emplace_back("binary_multiplication");
  for (const char* steps : {"250", "1000", "4000", "8000"})
    table.methods.push_back({to_text(steps, " steps"), "dape(kerple)", {{"steps", steps}}});
  for (const ChomskyTask& task : chomsky_tasks) {
    table.columns.push_back({.name = task.name, .task = task.task, .set = "average"});
    table.printed.push_back(
        {.method = table.methods.back().name, .column = task.name, .mean = error_of(task.accuracies[8])});
  }
  table.columns.push_back({.name = "Binary multiplication", .task = "binary_multiplication", .set = "average"});
  return table;
}

PaperTable sizes_of_models() {
  return {.name = "dape/table3",
      .what = "the models' sizes",
      .place = "Table 3, appendix B",
      .kind = Kind::commanded,
      .note =
          "The paper's: 125M has 12 layers, 12 heads and dim 768, 350M 24 layers, 16 heads and dim 1024; both train on "
          "512 tokens, 32 x 8 sequences, 50 000 steps of Adam with betas 0.9 and 0.95, lr 6e-4 and 3e-4, float16.",
      .commands = {"models", "models --plan neox-125m neox-350m --lengths 512 --batch 32"}};
}

PaperTable three_seeds() {
  PaperTable table{.name = "dape/table5",
      .what = "eight methods over three seeds",
      .place = "Table 5, appendix E",
      .kind = Kind::compared,
      .note = std::string(perplexity_note) + " A training length of 256 stands for the paper's 512.",
      .grid = {.tasks = {"lm"},
          .schemes = "rope,t5,alibi,dape(alibi),kerple,dape(kerple),fire,dape(fire)",
          .vary = {"length=256"},
          .same_tokens = true,
          .reads = Reads::text},
      .presets = text_presets(text_at_128, paper_125m("length=128 evaluate-to=16"),
          "Trains on 256 tokens instead of 512, as all presets have the grid's axes; the batch is halved with it."),
      .methods = {{"RoPE", "rope"}, {"T5's bias", "t5"}, {"ALiBi", "alibi"}, {"DAPE-ALiBi", "dape(alibi)"},
          {"Kerple", "kerple"}, {"DAPE-Kerple", "dape(kerple)"}, {"FIRE", "fire"}, {"DAPE-FIRE", "dape(fire)"}},
      .columns = doublings(512, 16, "", "256")};
  print_row(
      table, "RoPE", {4.5755, 45.1974, 134.1615, 222.3333, 265.4545}, 0, {0.0216, 12.2241, 21.8522, 22.5955, 20.3862});
  print_row(table, "T5's bias", {4.5547, 4.3730, 12.1017, 163.9289, 595.0829}, 0,
      {0.0204, 0.0747, 6.5327, 136.8294, 306.3671});
  print_row(table, "ALiBi", {4.6146, 4.5475, 4.8693, 5.0278, 4.7679}, 0, {0.0278, 0.0990, 0.1246, 0.1845, 0.2196});
  print_row(table, "DAPE-ALiBi", {4.5262, 4.1921, 4.1068, 4.1315, 4.0013}, 0, {0.0270, 0.0653, 0.0885, 0.0617, 0.2708});
  print_row(table, "Kerple", {4.5817, 4.3504, 5.4438, 8.7511, 13.3524}, 0, {0.0252, 0.0526, 0.3187, 1.1066, 2.4109});
  print_row(
      table, "DAPE-Kerple", {4.5123, 4.1716, 4.0505, 4.0033, 3.8642}, 0, {0.0251, 0.0637, 0.0973, 0.0333, 0.2342});
  print_row(
      table, "FIRE", {4.5741, 4.6953, 30.1164, 165.5394, 308.6173}, 0, {0.0227, 0.1125, 4.4317, 41.2065, 78.4652});
  print_row(table, "DAPE-FIRE", {4.4879, 4.1990, 4.2826, 4.7983, 6.1623}, 0, {0.0206, 0.0619, 0.0709, 0.1701, 0.9226});
  for (const char* base : {"ALiBi", "Kerple", "FIRE"})
    claim(table, std::string("DAPE-") + base, base, {"512 (1x)", "2048 (4x)", "8192 (16x)"});
  claim(table, "DAPE-Kerple", "RoPE", {"512 (1x)", "8192 (16x)"});
  claim(table, "DAPE-Kerple", "T5's bias", {"8192 (16x)"});
  return table;
}

PaperTable positions_that_depend_on_data() {
  PaperTable table{.name = "dape/table6",
      .what = "positions that depend on data, Transformer-XL, CoPE and DAPE",
      .place = "Table 6, appendix F",
      .kind = Kind::compared,
      .note = std::string(perplexity_note) + " This table is of Books3.",
      .grid = {.tasks = {"lm"}, .schemes = "transformer_xl,cope,dape(kerple)", .reads = Reads::text},
      .presets = text_presets(text_far, paper_125m("length=128 evaluate-to=64")),
      .methods = {{"Transformer-XL", "transformer_xl"}, {"CoPE", "cope"}, {"DAPE-Kerple", "dape(kerple)"}},
      .columns = doublings(128, 64)};
  print_row(table, "Transformer-XL", {31.57, 28.49, 26.07, 26.98, 27.90, 32.76, 41.12});
  print_row(table, "CoPE", {31.61, 28.41, 25.79, 27.96, 33.80, 54.08, 90.66});
  print_row(table, "DAPE-Kerple", {31.49, 28.27, 24.93, 24.31, 23.34, 24.38, 25.01});
  claim(table, "Transformer-XL", "CoPE", {"2048 (16x)", "4096 (32x)", "8192 (64x)"});
  for (const char* other : {"Transformer-XL", "CoPE"})
    claim(table, "DAPE-Kerple", other, {"512 (4x)", "2048 (16x)", "8192 (64x)"});
  return table;
}

PaperTable billions() {
  return {.name = "dape/table8",
      .what = "perplexity of models of 2.7B and 6.7B",
      .place = "Table 8 and 9, appendix H",
      .kind = Kind::commanded,
      .note =
          "What training them takes; nothing is trained. The paper's perplexities at 512, 1024, 2048, 4096, training "
          "length 512; 2.7B: RoPE 21.01 25.00 48.13 160.59; RPE (T5's bias, as DAPE V2 shows) 21.10 21.88 23.59 33.23; "
          "ALiBi 21.23 22.17 22.91 23.22; Kerple 21.14 22.08 23.38 27.21; DAPE-Kerple 20.52 21.01 20.23 19.57. 6.7B to "
          "2048: RoPE 20.86 22.27 28.01; RPE 20.79 21.60 22.32; ALiBi 20.79 21.63 22.45; Kerple 20.71 21.57 22.07; "
          "DAPE-Kerple 20.09 20.54 19.83.",
      .commands = {"models --plan neox-2.7b neox-6.7b --scheme 'rope,t5,alibi,kerple,dape(kerple)' --lengths 512"}};
}

PaperTable protocol() {
  PaperTable table{.name = "dape/protocol",
      .what = "perplexity of the last 256 tokens while lengths double",
      .place = "section 4",
      .kind = Kind::compared,
      .note = std::string(perplexity_note) +
              " How all of the papers' perplexities are measured: the model reads a whole window, and its last 256 "
              "tokens count (all, where there are fewer). Kerple and DAPE-Kerple show it; a training length of 128.",
      .grid = {.tasks = {"lm"}, .schemes = "kerple,dape(kerple)", .reads = Reads::text},
      .presets = text_presets(text_at_128, paper_125m("length=128 evaluate-to=16")),
      .methods = {{"Kerple", "kerple"}, {"DAPE-Kerple", "dape(kerple)"}},
      .columns = doublings(128, 16)};
  for (const Column& column : table.columns) claim(table, "DAPE-Kerple", "Kerple", {column.name});
  return table;
}

PaperTable randomised_positions() {
  PaperTable table{.name = "dape/randomised",
      .what = "randomised positions under every method of the Chomsky hierarchy",
      .place = "Table 2, appendix D",
      .kind = Kind::compared,
      .note = std::string(chomsky_note) +
              " Positions are drawn from 2048, as the paper's. The methods \"in order\" are dape/table2's and not the "
              "paper's, which does not say that its DAPE is randomised: all are here.",
      .grid = {.tasks = {"even_pairs", "reverse_string", "missing_duplicate"},
          .schemes = "randomised(absolute),randomised(sinusoidal(layout=concat)),randomised(rope),randomised("
                     "transformer_xl),randomised(alibi),randomised(kerple),randomised(fire),randomised(dape(alibi)),"
                     "randomised(dape(kerple)),randomised(dape(fire)),rope,kerple,dape(kerple)"},
      .presets =
          chomsky_presets("randomised(rope),randomised(kerple),randomised(dape(kerple)),rope,kerple,dape(kerple)", {}),
      .methods = {{"Learned", "randomised(absolute)"}, {"sin / cos", "randomised(sinusoidal(layout=concat))"},
          {"RoPE", "randomised(rope)"}, {"Relative", "randomised(transformer_xl)"}, {"ALiBi", "randomised(alibi)"},
          {"Kerple", "randomised(kerple)"}, {"FIRE", "randomised(fire)"}, {"DAPE-ALiBi", "randomised(dape(alibi))"},
          {"DAPE-Kerple", "randomised(dape(kerple))"}, {"DAPE-FIRE", "randomised(dape(fire))"},
          {"RoPE in order", "rope"}, {"Kerple in order", "kerple"}, {"DAPE-Kerple in order", "dape(kerple)"}}};
  put_chomsky_columns(table);
  claim(table, "DAPE-Kerple", "Kerple", {"Even pairs", "Missing duplicate"});
  for (const char* base : {"ALiBi", "FIRE"})
    claim(table, std::string("DAPE-") + base, base, {"Even pairs", "Reverse string", "Missing duplicate"});
  return table;
}

}  // namespace

const std::vector<PaperTable>& dape_tables() {
  static const std::vector<PaperTable> tables{bias_of_last_query(), scores_and_biases(), baselines(), trained_on_1024(),
      bigger_model(), forms_of_f(), widths(), what_f_reads(), time_of_first_version(), time_of_big_models(),
      hierarchy(), budgets(), sizes_of_models(), three_seeds(), positions_that_depend_on_data(), billions(), protocol(),
      randomised_positions()};
  return tables;
}

}  // namespace whence::papers
