// Zheng et al. 2024, DAPE V2: process attention score as feature map, arXiv:2410.04798. Its method is called CDAPE here.
#include "examples/papers/paper_table.h"

namespace whence::papers {
namespace {

const char* const text_note =
    "perplexity, lower is better, at so many times the training length. The paper's is of arXiv by words; ours of your "
    "text, by bytes unless --set \"tokeniser=FILE\".";

PaperTable kernels() {
  PaperTable table{.name = "dape-v2/table1",
      .what = "kernels 1, 3, 5, 7 over KERPLE",
      .place = "Table 1, training length 128, arXiv",
      .kind = Kind::grid,
      .note = text_note,
      .grid = {.task = "lm", .schemes = "kerple,cdape(kerple)", .vary = {"cdape.kernel=1,3,5,7"}},
      .presets = {{"mini", "mini", "length=64 steps=500 evaluate-to=64 evaluation-windows=5"},
          {"small", "paper", "length=128 steps=5000 evaluate-to=64"},
          {"paper", "paper", "model=neox-125m length=128 batch=32 accumulate=8 steps=50000 lr=6e-4 evaluate-to=64"}},
      .methods = {{"Kerple", "kerple"}, {"1x1", "cdape(kerple, kernel=1)"}, {"1x3", "cdape(kerple, kernel=3)"},
          {"1x5", "cdape(kerple, kernel=5)"}, {"1x7", "cdape(kerple, kernel=7)"}},
      .columns = {{.name = "128 (1x)", .times = 1}, {.name = "256 (2x)", .times = 2}, {.name = "512 (4x)", .times = 4},
          {.name = "1024 (8x)", .times = 8}, {.name = "2048 (16x)", .times = 16}, {.name = "4096 (32x)", .times = 32},
          {.name = "8192 (64x)", .times = 64}}};
  const double figures[5][7] = {{8.30, 7.10, 5.85, 6.91, 9.17, 11.48, 12.59},
      {8.21, 6.98, 5.38, 5.20, 5.33, 5.26, 4.97}, {8.15, 6.92, 5.29, 5.05, 5.11, 4.95, 4.60},
      {8.13, 6.91, 5.27, 5.04, 5.10, 4.91, 4.57}, {8.12, 6.89, 5.26, 5.02, 5.09, 4.91, 4.57}};
  for (std::size_t method = 0; method < 5; ++method)
    for (std::size_t column = 0; column < 7; ++column)
      table.printed.push_back({table.methods[method].name, table.columns[column].name, figures[method][column]});
  for (const char* column : {"128 (1x)", "2048 (16x)", "8192 (64x)"}) {
    table.claims.push_back({"1x1", "Kerple", column});
    for (const char* kernel : {"1x3", "1x5", "1x7"}) table.claims.push_back({kernel, "1x1", column});
  }
  return table;
}

PaperTable without_bias() {
  return {.name = "dape-v2/figure1",
      .what = "no positions and RoPE, each plain, with DAPE, with CDAPE",
      .place = "Figure 1, training length 512",
      .kind = Kind::grid,
      .note = "perplexity, lower is better, at so many times the training length; the figure prints no numbers.",
      .grid = {.task = "lm", .schemes = "none,dape(none),cdape(none),rope,dape(rope),cdape(rope)"},
      .presets = {{"mini", "mini", "length=64 steps=500 evaluate-to=16 evaluation-windows=5"},
          {"small", "paper", "length=256 steps=5000 evaluate-to=16"},
          {"paper", "paper", "model=neox-125m length=512 batch=32 accumulate=8 steps=50000 lr=6e-4 evaluate-to=16"}},
      .methods = {{"NoPE", "none"}, {"DAPE-NoPE", "dape(none)"}, {"CDAPE-NoPE", "cdape(none)"}, {"RoPE", "rope"},
          {"DAPE-RoPE", "dape(rope)"}, {"CDAPE-RoPE", "cdape(rope)"}},
      .columns = {{.name = "512 (1x)", .times = 1}, {.name = "1024 (2x)", .times = 2},
          {.name = "2048 (4x)", .times = 4}, {.name = "8192 (16x)", .times = 16}},
      .claims = {{"DAPE-NoPE", "NoPE", "8192 (16x)"}, {"CDAPE-NoPE", "DAPE-NoPE", "8192 (16x)"},
          {"DAPE-RoPE", "RoPE", "8192 (16x)"}, {"CDAPE-RoPE", "DAPE-RoPE", "8192 (16x)"}}};
}

std::vector<std::string> figures(int first, int last) {
  std::vector<std::string> commands;
  for (int number = first; number <= last; ++number)
    commands.push_back("whence look RUN --text FILE --figure dape-v2/" + std::to_string(number));
  return commands;
}

std::vector<std::string> lab_of_text(const std::string& schemes, const std::string& more) {
  return {"whence lab lm --schemes '" + schemes + "' --set 'data=TEXT" + more + "'"};
}

}  // namespace

const std::vector<PaperTable>& dape_v2_tables() {
  static const std::string all = "none,rope,t5,alibi,kerple,fire,dape(kerple),cdape(kerple)";
  static const std::vector<PaperTable> tables{without_bias(),
      {.name = "dape-v2/figure2",
          .what = "the same number of training tokens at every training length",
          .place = "Figure 2",
          .kind = Kind::lab,
          .commands = {"whence lab lm --schemes 'rope,dape(kerple),cdape(kerple)' --vary length=32,64,128,256 "
                       "--same-tokens --set data=TEXT"}},
      {.name = "dape-v2/figure3",
          .what = "the model of 350M parameters",
          .place = "Figure 3",
          .kind = Kind::lab,
          .commands = {"whence models --plan neox-350m --scheme 'kerple,dape(kerple),cdape(kerple)'",
              "whence lab lm --preset paper --schemes 'kerple,dape(kerple),cdape(kerple)' --set 'model=neox-350m "
              "data=TEXT'"}},
      {.name = "dape-v2/figure4",
          .what = "CDAPE over ALiBi, KERPLE and FIRE",
          .place = "Figure 4",
          .kind = Kind::lab,
          .commands = lab_of_text("alibi,cdape(alibi),kerple,cdape(kerple),fire,cdape(fire)", "")},
      {.name = "dape-v2/figure5",
          .what = "all baselines, training lengths 128 and 512",
          .place = "Figure 5, appendix C",
          .kind = Kind::lab,
          .commands = lab_of_text(all, "")},
      kernels(),
      {.name = "dape-v2/table2",
          .what = "what a longer context adds: Delta-P",
          .place = "Table 2",
          .kind = Kind::lab,
          .commands = lab_of_text("rope,alibi,kerple,dape(kerple),cdape(kerple)", "")},
      {.name = "dape-v2/table3",
          .what = "eight methods, training length 1024",
          .place = "Table 3, appendix D",
          .kind = Kind::lab,
          .commands = lab_of_text(all, " length=1024 evaluate-to=8")},
      {.name = "dape-v2/table4",
          .what = "perplexity of a model of 2.7B",
          .place = "Table 4, appendix E",
          .kind = Kind::plan,
          .commands =
              {"whence models --plan neox-2.7b --scheme 'rope,relative,alibi,kerple,dape(kerple),cdape(kerple)'"}},
      {.name = "dape-v2/table5",
          .what = "50 billion tokens, then questions with several answers",
          .place = "Table 5, appendix F",
          .kind = Kind::not_ours,
          .note = "needs other people's data, and a scorer of such questions, which is not there yet"},
      {.name = "dape-v2/figure6",
          .what = "what leaks when later keys are not blanked first",
          .place = "Figure 6, appendix G",
          .kind = Kind::lab,
          .commands = lab_of_text("cdape(kerple),cdape(kerple, tril=no)", "")},
      {.name = "dape-v2/figure7",
          .what = "CDAPE against DAPE at equal cost, by width",
          .place = "Figure 7, appendix H",
          .kind = Kind::lab,
          .commands = {"whence lab lm --schemes 'dape(kerple, width=64),cdape(kerple)' --vary cdape.width=10,21 --set "
                       "data=TEXT"}},
      {.name = "dape-v2/table7",
          .what = "the Chomsky hierarchy with convolutions",
          .place = "Table 7, appendix J",
          .kind = Kind::lab,
          .commands = {"whence lab chomsky --schemes 'alibi,kerple,fire,cdape(alibi),cdape(kerple),cdape(fire)'"}},
      {.name = "dape-v2/table8",
          .what = "milliseconds by method",
          .place = "Table 8, appendix K",
          .kind = Kind::timing,
          .commands = {"whence bench table"}},
      {.name = "dape-v2/table10",
          .what = "positions that depend on data; three seeds",
          .place = "Table 10 and 11",
          .kind = Kind::lab,
          .commands = lab_of_text("transformer_xl,cope,rope,alibi,kerple,fire,dape(kerple),cdape(kerple)", "")},
      {.name = "dape-v2/figure8-25",
          .what = "scores, biases and what the network adds, at 512, 2048, 8192",
          .place = "Figures 8 to 25, appendix P",
          .kind = Kind::figure,
          .commands = figures(8, 25)},
      {.name = "dape-v2/appendix-a",
          .what = "associative recall in one layer, by construction",
          .place = "appendix A, Proposition 3",
          .kind = Kind::construction,
          .commands = {"whence recall"}},
      {.name = "dape-v2/proposition2",
          .what = "associative recall in two plain layers, by construction",
          .place = "Proposition 2",
          .kind = Kind::construction,
          .commands = {"whence recall"}},
      {.name = "dape-v2/appendix-b",
          .what = "Delta-P as a measure",
          .place = "appendix B",
          .kind = Kind::lab,
          .commands = {"whence train lm TEXT --scheme 'cdape(kerple)'"}}};
  return tables;
}

}  // namespace whence::papers
