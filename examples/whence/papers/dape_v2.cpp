// Zheng et al. 2024, DAPE V2: process attention score as feature map, arXiv:2410.04798. Its method is called CDAPE
// here.
#include "examples/whence/papers/paper_table.h"
#include "examples/whence/papers/text_presets.h"
#include "tensor/error.h"

namespace whence::papers {
namespace {

PaperTable without_bias() {
  PaperTable table{.name = "dape-v2/figure1",
      .what = "no positions and RoPE, each plain, with DAPE, with CDAPE",
      .place = "Figure 1, sections 3.2 and 4.4",
      .kind = Kind::compared,
      .note = std::string(perplexity_note) + two_lengths_note +
              " The figure prints no numbers. By the introduction NoPE trained on 128 tokens has more than 600 at "
              "8192, and about 100 with a convolution.",
      .grid = {.tasks = {"lm"},
          .schemes = "none,dape(none),cdape(none),rope,dape(rope),cdape(rope)",
          .vary = {"length=128,256"},
          .same_tokens = true,
          .reads = Reads::text},
      .presets = text_presets(text_at_128, paper_125m("length=128 evaluate-to=16"), why_two_lengths),
      .methods = {{"NoPE", "none"}, {"DAPE-NoPE", "dape(none)"}, {"CDAPE-NoPE", "cdape(none)"}, {"RoPE", "rope"},
          {"DAPE-RoPE", "dape(rope)"}, {"CDAPE-RoPE", "cdape(rope)"}},
      .columns = of_two_lengths()};
  claim(table, "DAPE-NoPE", "NoPE", {"512: 512 (1x)", "512: 8192 (16x)"});
  claim(table, "CDAPE-NoPE", "NoPE", {"512: 512 (1x)", "512: 8192 (16x)"});
  claim(table, "CDAPE-RoPE", "RoPE", {"128: 128 (1x)", "128: 2048 (16x)", "512: 512 (1x)", "512: 8192 (16x)"});
  claim(table, "RoPE", "DAPE-RoPE", {"128: 128 (1x)", "512: 512 (1x)"});
  return table;
}

// At 512 tokens each, whatever the training length: so many times as much as that is.
PaperTable same_tokens() {
  PaperTable table{.name = "dape-v2/figure2",
      .what = "the same number of training tokens at every training length",
      .place = "Figure 2, section 4.2",
      .kind = Kind::compared,
      .note = std::string(perplexity_note) +
              " Training lengths of 32 to 256, evaluated to 512, stand for the paper's 128 to 4096, evaluated at 4096. "
              "Of Books3 it names CDAPE-Kerple trained on 128: 31.07 at 128, 23.19 at 4096; RoPE trained on 4096: "
              "38.36 at 128, 24.58 at 4096: what read few tokens at a time is better than RoPE that read the longest.",
      .grid = {.tasks = {"lm"},
          .schemes = "rope,dape(kerple),cdape(kerple)",
          .vary = {"length=32,64,128,256"},
          .same_tokens = true,
          .reads = Reads::text},
      .presets = text_presets(text_at_128, paper_125m("length=128 evaluate-to=16"),
          "Training lengths of 32 to 256 instead of 128 to 4096, as all presets have the grid's axes."),
      .columns = {{.name = "256", .set = "length 256"}, {.name = "512", .set = "length 512"}}};
  for (const char* length : {"32", "64", "128", "256"})
    for (const auto& [name, scheme] : {std::pair("RoPE", "rope"), std::pair("DAPE-Kerple", "dape(kerple)"),
             std::pair("CDAPE-Kerple", "cdape(kerple)")})
      table.methods.push_back({to_text(name, " trained on ", length), scheme, {{"length", length}}});
  claim(table, "CDAPE-Kerple trained on 32", "RoPE trained on 256", {"256", "512"});
  claim(table, "CDAPE-Kerple trained on 32", "DAPE-Kerple trained on 32", {"512"});
  claim(table, "CDAPE-Kerple trained on 256", "RoPE trained on 256", {"256", "512"});
  return table;
}

PaperTable bigger_model() {
  PaperTable table{.name = "dape-v2/figure3",
      .what = "the model of 350M parameters",
      .place = "Figure 3, section 4.3",
      .kind = Kind::compared,
      .note = std::string(perplexity_note) +
              " A bigger model stands for 350M; one training length, 128, stands for the paper's 128 and 512. Trained "
              "on 128, at 64 times as much, the paper has DAPE 4.69 and CDAPE 4.43. Section 4.3 says 128 where 512 is "
              "meant: 4.10 and 4.14 are at the training length.",
      .grid = {.tasks = {"lm"}, .schemes = "kerple,dape(kerple),cdape(kerple)", .reads = Reads::text},
      .presets = text_presets(text_bigger, paper_350m("length=512 evaluate-to=16")),
      .methods = {{"Kerple", "kerple"}, {"DAPE-Kerple", "dape(kerple)"}, {"CDAPE-Kerple", "cdape(kerple)"}},
      .columns = joined(doublings(512, 16, "512: "), {{.name = "128: 128 (1x)", .times = 1}}),
      .printed = {{"DAPE-Kerple", "512: 512 (1x)", 4.14}, {"CDAPE-Kerple", "512: 512 (1x)", 4.10},
          {"DAPE-Kerple", "512: 8192 (16x)", 3.44}, {"CDAPE-Kerple", "512: 8192 (16x)", 3.35},
          {"DAPE-Kerple", "128: 128 (1x)", 7.69}, {"CDAPE-Kerple", "128: 128 (1x)", 7.63}}};
  for (const char* other : {"Kerple", "DAPE-Kerple"})
    claim(table, "CDAPE-Kerple", other, {"512: 512 (1x)", "512: 2048 (4x)", "512: 8192 (16x)"});
  return table;
}

PaperTable over_each_bias() {
  PaperTable table{.name = "dape-v2/figure4",
      .what = "CDAPE over ALiBi, KERPLE and FIRE",
      .place = "Figure 4, section 4.4",
      .kind = Kind::compared,
      .note = std::string(perplexity_note) + two_lengths_note +
              " The figure prints no numbers; those of Kerple are of Tables 1 and 6.",
      .grid = {.tasks = {"lm"},
          .schemes = "alibi,dape(alibi),cdape(alibi),kerple,dape(kerple),cdape(kerple),fire,dape(fire),cdape(fire)",
          .vary = {"length=128,256"},
          .same_tokens = true,
          .reads = Reads::text},
      .presets = text_presets(text_at_128, paper_125m("length=128 evaluate-to=16"), why_two_lengths),
      .methods = {{"ALiBi", "alibi"}, {"DAPE-ALiBi", "dape(alibi)"}, {"CDAPE-ALiBi", "cdape(alibi)"},
          {"Kerple", "kerple"}, {"DAPE-Kerple", "dape(kerple)"}, {"CDAPE-Kerple", "cdape(kerple)"}, {"FIRE", "fire"},
          {"DAPE-FIRE", "dape(fire)"}, {"CDAPE-FIRE", "cdape(fire)"}},
      .columns = of_two_lengths()};
  table.presets.front().schemes = "alibi,dape(alibi),cdape(alibi),kerple,dape(kerple),cdape(kerple),fire,dape(fire)";
  table.presets.front().why += " CDAPE-FIRE is left out, whose runs are the longest.";
  print_row(table, "Kerple", {8.30, 7.10, 5.85, 6.91, 9.17, 4.57, 4.37, 5.09, 6.80, 9.08});
  print_row(table, "DAPE-Kerple", {8.21, 6.98, 5.38, 5.20, 5.33, 4.49, 4.20, 4.17, 3.95, 3.70});
  print_row(table, "CDAPE-Kerple", {8.15, 6.92, 5.29, 5.05, 5.11, 4.44, 4.14, 4.09, 3.87, 3.58});
  for (const char* base : {"ALiBi", "Kerple", "FIRE"})
    claim(table, std::string("CDAPE-") + base, base,
        {"128: 128 (1x)", "128: 2048 (16x)", "512: 512 (1x)", "512: 8192 (16x)"});
  return table;
}

PaperTable baselines() {
  PaperTable table{.name = "dape-v2/figure5",
      .what = "all baselines, training lengths 128 and 512",
      .place = "Figure 5, section 4.1, appendix C",
      .kind = Kind::compared,
      .note = std::string(perplexity_note) + two_lengths_note +
              " The figure prints no numbers; those of Kerple, DAPE and CDAPE are of Tables 1 and 6. Trained on 128, "
              "at 8192, section 4.1 has CoPE 29.86, DAPE-Kerple 4.97, CDAPE-Kerple 4.60 (Books3: 90.66, 25.01, 23.52); "
              "dape-v2/table1 and dape-v2/table10 have ours. Sandwich, randomised positions, CDAPE-NoPE and CDAPE-RoPE "
              "are not in the figure.",
      .grid = {.tasks = {"lm"},
          .schemes = "none,rope,t5,alibi,kerple,fire,cope,dape(kerple),cdape(kerple),sandwich,randomised(rope, "
                     "length=4096),cdape(none),cdape(rope)",
          .vary = {"length=128,256"},
          .same_tokens = true,
          .reads = Reads::text},
      .presets = text_presets(text_at_128, paper_125m("length=128 evaluate-to=16"), why_two_lengths),
      .methods = {{"NoPE", "none"}, {"RoPE", "rope"}, {"T5's bias", "t5"}, {"ALiBi", "alibi"}, {"Kerple", "kerple"},
          {"FIRE", "fire"}, {"CoPE", "cope"}, {"DAPE-Kerple", "dape(kerple)"}, {"CDAPE-Kerple", "cdape(kerple)"},
          {"Sandwich", "sandwich"}, {"Randomised RoPE", "randomised(rope, length=4096)"}, {"CDAPE-NoPE", "cdape(none)"},
          {"CDAPE-RoPE", "cdape(rope)"}},
      .columns = of_two_lengths()};
  print_row(table, "Kerple", {8.30, 7.10, 5.85, 6.91, 9.17, 4.57, 4.37, 5.09, 6.80, 9.08});
  print_row(table, "DAPE-Kerple", {8.21, 6.98, 5.38, 5.20, 5.33, 4.49, 4.20, 4.17, 3.95, 3.70});
  print_row(table, "CDAPE-Kerple", {8.15, 6.92, 5.29, 5.05, 5.11, 4.44, 4.14, 4.09, 3.87, 3.58});
  for (const char* other : {"DAPE-Kerple", "CoPE", "RoPE"})
    claim(table, "CDAPE-Kerple", other, {"128: 128 (1x)", "128: 2048 (16x)", "512: 512 (1x)", "512: 8192 (16x)"});
  return table;
}

// The runs' one training length stands for both of the paper's, as the longest is 64 times as much for one of them
// only.
PaperTable kernels() {
  PaperTable table{.name = "dape-v2/table1",
      .what = "kernels 1, 3, 5, 7 over KERPLE",
      .place = "Tables 1 and 6, section 4.6, appendix I",
      .kind = Kind::compared,
      .note = std::string(perplexity_note) +
              " One training length stands for the paper's 128 and 512. Of Books3 the paper prints, trained on 128 and "
              "at 8192, Kerple 66.23, 1x1 25.01, 1x3 23.52, 1x5 23.71, 1x7 23.57, and trained on 512, 40.94, 17.85, "
              "17.20, 17.10, 17.16: there the largest kernel is not the best.",
      .grid = {.tasks = {"lm"},
          .schemes = "kerple,cdape(kerple, kernel=1),cdape(kerple),cdape(kerple, kernel=5),cdape(kerple, kernel=7)",
          .reads = Reads::text},
      .presets = text_presets(text_far, paper_125m("length=128 evaluate-to=64")),
      .methods = {{"Kerple", "kerple"}, {"1x1", "cdape(kerple, kernel=1)"}, {"1x3", "cdape(kerple)"},
          {"1x5", "cdape(kerple, kernel=5)"}, {"1x7", "cdape(kerple, kernel=7)"}},
      .columns = joined(doublings(128, 64, "128: "), doublings(512, 16, "512: "))};
  print_row(table, "Kerple", {8.30, 7.10, 5.85, 6.91, 9.17, 11.48, 12.59, 4.57, 4.37, 5.09, 6.80, 9.08});
  print_row(table, "1x1", {8.21, 6.98, 5.38, 5.20, 5.33, 5.26, 4.97, 4.49, 4.20, 4.17, 3.95, 3.70});
  print_row(table, "1x3", {8.15, 6.92, 5.29, 5.05, 5.11, 4.95, 4.60, 4.44, 4.14, 4.09, 3.87, 3.58});
  print_row(table, "1x5", {8.13, 6.91, 5.27, 5.04, 5.10, 4.91, 4.57, 4.44, 4.14, 4.10, 3.85, 3.59});
  print_row(table, "1x7", {8.12, 6.89, 5.26, 5.02, 5.09, 4.91, 4.57, 4.43, 4.13, 4.08, 3.85, 3.57});
  claim(table, "1x1", "Kerple", {"128: 128 (1x)", "128: 2048 (16x)", "128: 8192 (64x)"});
  claim(table, "1x3", "1x1", {"128: 128 (1x)", "128: 2048 (16x)", "128: 8192 (64x)"});
  claim(table, "1x5", "1x3", {"128: 128 (1x)", "128: 8192 (64x)"});
  claim(table, "1x7", "1x3", {"128: 128 (1x)", "128: 2048 (16x)", "128: 8192 (64x)"});
  return table;
}

// Columns of Delta-P, which the training length itself has not.
std::vector<Column> beyond_training() {
  std::vector<Column> columns = doublings(512, 16);
  columns.erase(columns.begin());
  return columns;
}

const char* const delta_note =
    "Delta-P is the perplexity of the last tokens by a context of the training length less that by the whole context, "
    "higher is better: above 0 a longer context helps, at 0 it is not used, below 0 it harms. The paper's is of "
    "Books3; a training length of 128 stands for its 512. The last tokens are as many as the training length has; the "
    "paper's table says so too, while its code takes 256.";

PaperTable what_context_adds() {
  PaperTable table{.name = "dape-v2/table2",
      .what = "what a longer context adds: Delta-P",
      .place = "Table 2, appendix B",
      .kind = Kind::compared,
      .note = delta_note,
      .grid = {.tasks = {"lm"}, .schemes = "rope,alibi,kerple,dape(kerple),cdape(kerple)", .reads = Reads::text},
      .presets = text_presets(text_at_128, paper_125m("length=512 evaluate-to=16")),
      .methods = {{"RoPE", "rope"}, {"ALiBi", "alibi"}, {"Kerple", "kerple"}, {"DAPE-Kerple", "dape(kerple)"},
          {"CDAPE-Kerple", "cdape(kerple)"}},
      .columns = beyond_training(),
      .measure = "Delta-P",
      .higher_is_better = true};
  print_row(table, "RoPE", {-241.88, -392.49, -616.69, -743.08});
  print_row(table, "ALiBi", {0.05, -1.14, -1.15, -1.28});
  print_row(table, "Kerple", {0.39, -0.64, -9.26, -21.09});
  print_row(table, "DAPE-Kerple", {0.75, 1.08, 1.01, 1.53});
  print_row(table, "CDAPE-Kerple", {0.82, 1.22, 1.14, 1.78});
  for (const char* other : {"DAPE-Kerple", "Kerple", "ALiBi", "RoPE"})
    claim(table, "CDAPE-Kerple", other, {"1024 (2x)", "8192 (16x)"});
  claim(table, "DAPE-Kerple", "Kerple", {"1024 (2x)", "8192 (16x)"});
  return table;
}

PaperTable trained_on_1024() {
  PaperTable table{.name = "dape-v2/table3",
      .what = "eight methods, training length 1024",
      .place = "Table 3, appendix D",
      .kind = Kind::compared,
      .note = std::string(perplexity_note) + " A training length of 512 stands for the paper's 1024.",
      .grid = {.tasks = {"lm"},
          .schemes = "none,rope,t5,alibi,kerple,fire,dape(kerple),cdape(kerple)",
          .reads = Reads::text},
      .presets = text_presets(text_at_512, paper_125m("length=1024 evaluate-to=8")),
      .methods = {{"NoPE", "none"}, {"RoPE", "rope"}, {"T5's bias", "t5"}, {"ALiBi", "alibi"}, {"Kerple", "kerple"},
          {"FIRE", "fire"}, {"DAPE-Kerple", "dape(kerple)"}, {"CDAPE-Kerple", "cdape(kerple)"}},
      .columns = doublings(1024, 8)};
  print_row(table, "NoPE", {4.16, 42.27, 1854.73, 17167.32});
  print_row(table, "RoPE", {4.07, 86.20, 237.67, 256.12});
  print_row(table, "T5's bias", {4.03, 4.28, 13.07, 79.55});
  print_row(table, "ALiBi", {4.09, 4.53, 4.45, 4.22});
  print_row(table, "Kerple", {4.06, 4.09, 4.68, 6.951});
  print_row(table, "FIRE", {4.06, 9.21, 236.18, 440.60});
  print_row(table, "DAPE-Kerple", {3.98, 3.91, 3.68, 3.41});
  print_row(table, "CDAPE-Kerple", {3.93, 3.86, 3.61, 3.37});
  for (const Column& column : table.columns) claim(table, "CDAPE-Kerple", "DAPE-Kerple", {column.name});
  for (const char* other : {"T5's bias", "ALiBi", "Kerple", "RoPE"})
    claim(table, "CDAPE-Kerple", other, {"1024 (1x)", "8192 (8x)"});
  return table;
}

PaperTable billions() {
  return {.name = "dape-v2/table4",
      .what = "perplexity of a model of 2.7B",
      .place = "Table 4, appendix E",
      .kind = Kind::commanded,
      .note =
          "What training it takes; nothing is trained. The paper's perplexities of Books3 at 512, 1024, 2048, 4096, "
          "training length 512: RoPE 21.01 25.00 48.13 160.59; T5's bias 21.10 21.88 23.59 33.23; Kerple 21.14 22.08 "
          "23.38 27.21; DAPE-Kerple 20.52 21.01 20.23 19.67; CDAPE-Kerple 20.16 20.54 19.80 19.02.",
      .commands = {"models --plan neox-2.7b --scheme 'rope,t5,kerple,dape(kerple),cdape(kerple)' --lengths 512"}};
}

PaperTable questions() {
  return {.name = "dape-v2/table5",
      .what = "50 billion tokens, then questions with several answers",
      .place = "Table 5, appendix F",
      .kind = Kind::not_ours,
      .note =
          "What is there: `whence train lm` gives perplexity by bytes and by words, and `whence score` answers "
          "questions of several choices by log-likelihood, as a sum and per byte. What is missing is other people's "
          "data: FineWeb-Edu, Pile-10k, and the questions of ARC, BoolQ, HellaSwag, PIQA and SocialIQA. The paper's, "
          "RoPE, DAPE, CDAPE: perplexity by bytes 2.4967 2.4684 2.4473, by words 459.02 425.27 397.09; ARC-Challenge "
          "25.17 25.43 26.02; ARC-Easy 48.02 48.23 49.62; BoolQ 56.02 59.05 57.40; HellaSwag 33.15 34.35 34.52; PIQA "
          "62.30 61.48 62.35; SocialIQA 35.93 38.02 38.59."};
}

PaperTable leakage() {
  PaperTable table{.name = "dape-v2/figure6",
      .what = "what leaks when later keys are not blanked first",
      .place = "Figure 6, appendix G",
      .kind = Kind::compared,
      .note = std::string(perplexity_note) +
              " Without tril the convolution reads scores of later keys, so the next token can be read off: a lower "
              "perplexity is a leak here and not a virtue. The paper's falls to about 1, over Kerple up to 8192; it "
              "shows ALiBi and FIRE too, which leak up to 1024. It names no training length: 128 here.",
      .grid = {.tasks = {"lm"}, .schemes = "cdape(kerple),cdape(kerple, tril=no)", .reads = Reads::text},
      .presets = text_presets(text_at_128, paper_125m("length=512 evaluate-to=16")),
      .methods = {{"CDAPE-Kerple", "cdape(kerple)"}, {"without tril", "cdape(kerple, tril=no)"}},
      .columns = doublings(512, 16)};
  print_row(table, "without tril", {1, 1, 1, 1, 1});
  for (const Column& column : table.columns) claim(table, "without tril", "CDAPE-Kerple", {column.name});
  return table;
}

PaperTable equal_cost() {
  PaperTable table{.name = "dape-v2/figure7",
      .what = "CDAPE against DAPE at equal cost, by width",
      .place = "Figure 7, section 4.5, appendix H",
      .kind = Kind::compared,
      .note = std::string(perplexity_note) +
              " A kernel of three costs three times the operations, so CDAPE of width 21 costs about what DAPE of 64 "
              "does. One training length stands for the paper's 128 and 512. The operations of whole models of 125M "
              "follow, and the dim at which each costs as much as DAPE of width 64.",
      .grid = {.tasks = {"lm"},
          .schemes = "cdape(kerple, width=10),cdape(kerple, width=21),dape(kerple, width=64)",
          .reads = Reads::text},
      .presets = text_presets(text_far, paper_125m("length=128 evaluate-to=64")),
      .methods = {{"CDAPE, D = 10", "cdape(kerple, width=10)"}, {"CDAPE, D = 21", "cdape(kerple, width=21)"},
          {"DAPE, D = 64", "dape(kerple, width=64)"}},
      .columns = joined(doublings(128, 64, "128: "), doublings(512, 16, "512: ")),
      .printed = {{"CDAPE, D = 10", "128: 128 (1x)", 8.16}, {"CDAPE, D = 10", "128: 8192 (64x)", 4.74},
          {"DAPE, D = 64", "128: 128 (1x)", 8.21}, {"DAPE, D = 64", "128: 8192 (64x)", 4.87}},
      .commands = {"models --plan neox-125m --scheme 'cdape(kerple, width=10),cdape(kerple, width=21)' --cost-of "
                   "'dape(kerple, width=64)'"}};
  for (const char* narrow : {"CDAPE, D = 10", "CDAPE, D = 21"})
    claim(table, narrow, "DAPE, D = 64", {"128: 128 (1x)", "128: 1024 (8x)", "128: 8192 (64x)"});
  return table;
}

PaperTable hierarchy() {
  PaperTable table{.name = "dape-v2/table7",
      .what = "the Chomsky hierarchy with convolutions",
      .place = "Table 7, section 4.7, appendix J",
      .kind = Kind::compared,
      .note = std::string(chomsky_note) +
              " Its positions are said to be randomised, ours are not; dape/randomised has that. DAPE is its kernel of "
              "size 1, CDAPE that of 3. Better than Kerple it finds CDAPE-Kerple on 8 of 11 tasks that need positions, "
              "and CDAPE-FIRE better than FIRE on 6; of these the comparisons leave out those near a guess in both "
              "(arithmetic and equations modulo 5, compute sqrt). The mini leaves out six tasks that stay near a guess "
              "at its size, and four and FIRE that ten minutes have no room for.",
      .grid = {.tasks = all_chomsky_tasks(),
          .schemes = "rope,transformer_xl,alibi,kerple,fire,dape(alibi),dape(kerple),dape(fire),cdape(alibi),cdape("
                     "kerple),cdape(fire)"},
      .presets = chomsky_presets("alibi,kerple,dape(kerple),cdape(alibi),cdape(kerple)",
          {"even_pairs", "cycle_navigation", "stack_manipulation", "missing_duplicate"}),
      .methods = {{"RoPE", "rope"}, {"Relative", "transformer_xl"}, {"ALiBi", "alibi"}, {"Kerple", "kerple"},
          {"FIRE", "fire"}, {"DAPE-ALiBi", "dape(alibi)"}, {"DAPE-Kerple", "dape(kerple)"}, {"DAPE-FIRE", "dape(fire)"},
          {"CDAPE-ALiBi", "cdape(alibi)"}, {"CDAPE-Kerple", "cdape(kerple)"}, {"CDAPE-FIRE", "cdape(fire)"}}};
  put_chomsky_columns(table);
  claim(table, "CDAPE-Kerple", "Kerple", {"Even pairs", "Stack manipulation", "Reverse string", "Missing duplicate"});
  claim(table, "CDAPE-FIRE", "FIRE", {"Even pairs", "Reverse string", "Binary addition"});
  claim(table, "CDAPE-Kerple", "DAPE-Kerple", {"Missing duplicate"});
  claim(table, "DAPE-Kerple", "CDAPE-Kerple", {"Stack manipulation"});
  return table;
}

PaperTable time_by_method() {
  return {.name = "dape-v2/table8",
      .what = "milliseconds by method",
      .place = "Table 8, section 4.8, appendix K",
      .kind = Kind::commanded,
      .note =
          "The paper's figures stand beside ours: its are of a whole model of 350M on a GPU, ours of one attention. "
          "Compare each with ALiBi's. Of 2.7B and 6.7B the paper prints CDAPE-Kerple 451.29 and 742.10, DAPE-Kerple "
          "422.48 and 717.46, Kerple 370.32 and 661.82; their operations follow. Its claim: the bigger the model, the "
          "smaller the share of what CDAPE adds.",
      .commands = {"bench table --lengths 512",
          "models --plan neox-350m neox-2.7b neox-6.7b --scheme 'rope,t5,alibi,kerple,fire,dape(kerple),cdape(kerple)' "
          "--lengths 512"}};
}

// Both tables print methods that the other has not; the deviations of ALiBi are left out, as they are those of another
// text in DAPE's Table 5 to the last digit.
PaperTable positions_that_depend_on_data() {
  PaperTable table{.name = "dape-v2/table10",
      .what = "positions that depend on data; three seeds",
      .place = "Tables 10 and 11, appendices M and N",
      .kind = Kind::compared,
      .note = std::string(perplexity_note) +
              " These tables are of Books3. One training length stands for Table 10's 128 and Table 11's 512. The "
              "paper's deviations of ALiBi are not given: they are those of DAPE's Table 5, of another text.",
      .grid = {.tasks = {"lm"},
          .schemes = "transformer_xl,cope,rope,alibi,kerple,fire,dape(kerple),cdape(kerple)",
          .reads = Reads::text},
      .presets = text_presets(text_far, paper_125m("length=128 evaluate-to=64")),
      .methods = {{"Transformer-XL", "transformer_xl"}, {"CoPE", "cope"}, {"RoPE", "rope"}, {"ALiBi", "alibi"},
          {"Kerple", "kerple"}, {"FIRE", "fire"}, {"DAPE-Kerple", "dape(kerple)"}, {"CDAPE-Kerple", "cdape(kerple)"}},
      .columns = joined(doublings(128, 64, "128: "), doublings(512, 16, "512: "))};
  const std::size_t of_512 = 7;
  print_row(table, "Transformer-XL", {31.57, 28.49, 26.07, 26.98, 27.90, 32.76, 41.12});
  print_row(table, "CoPE", {31.61, 28.41, 25.79, 27.96, 33.80, 54.08, 90.66});
  print_row(table, "DAPE-Kerple", {31.49, 28.27, 24.93, 24.31, 23.34, 24.38, 25.01});
  print_row(table, "CDAPE-Kerple", {31.07, 27.81, 24.38, 23.57, 22.40, 23.19, 23.52});
  print_row(table, "RoPE", {19.6805, 244.6191, 369.1415, 528.3689, 616.7107}, of_512,
      {0.1552, 36.3003, 30.7471, 79.5782, 107.1226});
  print_row(table, "ALiBi", {19.9721, 19.9142, 20.3743, 19.9823, 20.7975}, of_512);
  print_row(
      table, "Kerple", {19.7681, 19.2457, 21.8713, 29.8706, 42.2081}, of_512, {0.1687, 0.1575, 1.6713, 4.5761, 5.8176});
  print_row(table, "FIRE", {19.6919, 21.4867, 107.1641, 312.2332, 499.9489}, of_512,
      {0.1237, 0.4015, 5.3597, 14.1547, 20.0708});
  print_row(table, "DAPE-Kerple", {19.2322, 18.2911, 17.5365, 17.2084, 17.7459}, of_512,
      {0.1634, 0.0315, 0.2383, 0.4791, 0.1845});
  print_row(table, "CDAPE-Kerple", {18.9193, 17.9277, 17.1339, 16.6910, 17.1153}, of_512,
      {0.1627, 0.0197, 0.2431, 0.4695, 0.2261});
  for (const char* other : {"Transformer-XL", "CoPE", "DAPE-Kerple"})
    claim(table, "CDAPE-Kerple", other, {"128: 128 (1x)", "128: 8192 (64x)"});
  claim(table, "CDAPE-Kerple", "DAPE-Kerple", {"512: 8192 (16x)"});
  for (const char* better : {"ALiBi", "Kerple", "FIRE"}) claim(table, better, "RoPE", {"512: 8192 (16x)"});
  return table;
}

PaperTable scores_and_biases() {
  PaperTable table{.name = "dape-v2/figure8-25",
      .what = "scores, biases and what the network adds, at 512, 2048, 8192",
      .place = "Figures 8 to 25, appendix P",
      .kind = Kind::commanded,
      .note = look_note,
      .grid = {.tasks = {"lm"}, .schemes = "cdape(kerple)", .reads = Reads::text},
      .presets = text_presets(text_at_128, paper_125m("length=512 evaluate-to=16"))};
  for (int figure = 8; figure <= 25; ++figure) {
    const int tokens = figure <= 10   ? 513
                       : figure <= 13 ? 1025
                       : figure <= 16 ? 2049
                       : figure <= 18 ? 4097
                       : figure <= 19 ? 6145
                       : figure <= 22 ? 8193
                                      : 16385;
    table.commands.push_back(look_command("dape-v2", figure, tokens));
  }
  return table;
}

PaperTable recall_in_one_layer() {
  return {.name = "dape-v2/appendix-a",
      .what = "associative recall in one layer, by construction",
      .place = "appendix A, Propositions 1 and 3",
      .kind = Kind::commanded,
      .note =
          "Weights that need no training, in one head of CDAPE without positions: all answers are right. Without the "
          "paper's residual too, which its proof leaves out.",
      .commands = {"recall"}};
}

PaperTable recall_in_two_layers() {
  return {.name = "dape-v2/proposition2",
      .what = "associative recall in two plain layers, by construction",
      .place = "appendix A, Proposition 2",
      .kind = Kind::commanded,
      .note =
          "Weights that need no training, in two layers of plain attention with absolute positions. As printed the "
          "answers are not always right for short sequences; less the token's own key they are.",
      .commands = {"recall"}};
}

PaperTable delta_as_a_measure() {
  PaperTable table{.name = "dape-v2/appendix-b",
      .what = "Delta-P as a measure",
      .place = "appendix B",
      .kind = Kind::compared,
      .note = std::string(delta_note) +
              " Appendix B names RoPE as what a longer context harms, ALiBi as what does not use it.",
      .grid = {.tasks = {"lm"}, .schemes = "rope,alibi,cdape(kerple)", .reads = Reads::text},
      .presets = text_presets(text_at_128, paper_125m("length=512 evaluate-to=16")),
      .methods = {{"RoPE", "rope"}, {"ALiBi", "alibi"}, {"CDAPE-Kerple", "cdape(kerple)"}},
      .columns = beyond_training(),
      .measure = "Delta-P",
      .higher_is_better = true};
  print_row(table, "RoPE", {-241.88, -392.49, -616.69, -743.08});
  print_row(table, "ALiBi", {0.05, -1.14, -1.15, -1.28});
  print_row(table, "CDAPE-Kerple", {0.82, 1.22, 1.14, 1.78});
  for (const char* column : {"1024 (2x)", "8192 (16x)"}) {
    claim(table, "ALiBi", "RoPE", {column});
    claim(table, "CDAPE-Kerple", "ALiBi", {column});
  }
  return table;
}

}  // namespace

const std::vector<PaperTable>& dape_v2_tables() {
  static const std::vector<PaperTable> tables{without_bias(), same_tokens(), bigger_model(), over_each_bias(),
      baselines(), kernels(), what_context_adds(), trained_on_1024(), billions(), questions(), leakage(), equal_cost(),
      hierarchy(), time_by_method(), positions_that_depend_on_data(), scores_and_biases(), recall_in_one_layer(),
      recall_in_two_layers(), delta_as_a_measure()};
  return tables;
}

}  // namespace whence::papers
