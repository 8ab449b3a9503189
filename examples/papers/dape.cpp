// Zheng et al. 2024, Data-Adaptive Positional Encoding, arXiv:2405.14722; its first version calls it CAPE.
#include "examples/papers/paper_table.h"

namespace whence::papers {
namespace {

const char* const text_note =
    "perplexity, lower is better, at so many times the training length. The paper's is of arXiv by words; ours of your "
    "text, by bytes unless --set \"tokeniser=FILE\".";
const char* const mini = "length=64 steps=500 evaluate-to=64 evaluation-windows=5";
const char* const small = "length=128 steps=5000 evaluate-to=64";
const char* const paper = "model=neox-125m length=128 batch=32 accumulate=8 steps=50000 lr=6e-4 evaluate-to=64";

PaperTable forms_of_f() {
  return {.name = "dape/figure5",
      .what = "three forms of f over KERPLE",
      .place = "Figure 5, section 4.3; training length 128",
      .kind = Kind::grid,
      .note = text_note,
      .grid = {.task = "lm",
          .schemes = "kerple,dape(kerple, form=add_residual),dape(kerple, form=concat),dape(kerple)"},
      .presets = {{"mini", "mini", mini}, {"small", "paper", small}, {"paper", "paper", paper}},
      .methods = {{"Kerple", "kerple"}, {"Add_Residual", "dape(kerple, form=add_residual)"},
          {"Concat", "dape(kerple, form=concat)"}, {"Concat_Residual", "dape(kerple)"}},
      .columns = {{.name = "128 (1x)", .times = 1}, {.name = "2048 (16x)", .times = 16},
          {.name = "8192 (64x)", .times = 64}},
      .printed = {{"Kerple", "8192 (64x)", 31.93}, {"Add_Residual", "8192 (64x)", 5.17}, {"Concat", "8192 (64x)", 5.03},
          {"Concat_Residual", "8192 (64x)", 5.00}},
      .claims = {{"Add_Residual", "Kerple", "8192 (64x)"}, {"Concat", "Kerple", "8192 (64x)"},
          {"Concat_Residual", "Kerple", "8192 (64x)"}, {"Concat", "Add_Residual", "8192 (64x)"},
          {"Concat_Residual", "Add_Residual", "8192 (64x)"}}};
}

PaperTable widths() {
  PaperTable table{.name = "dape/figure6",
      .what = "the width of the network over ALiBi: 4, 16, 32, 64",
      .place = "Figure 6, section 4.4, appendix C; training length 128",
      .kind = Kind::grid,
      .note = text_note,
      .grid = {.task = "lm", .schemes = "alibi,dape(alibi)", .vary = {"dape.width=4,16,32,64"}},
      .presets = {{"mini", "mini", mini}, {"small", "paper", small}, {"paper", "paper", paper}},
      .methods = {{"ALiBi", "alibi"}, {"D = 4", "dape(alibi, width=4)"}, {"D = 16", "dape(alibi, width=16)"},
          {"D = 32", "dape(alibi, width=32)"}, {"D = 64", "dape(alibi, width=64)"}},
      .columns = {{.name = "128 (1x)", .times = 1}, {.name = "2048 (16x)", .times = 16},
          {.name = "8192 (64x)", .times = 64}},
      .printed = {{"ALiBi", "128 (1x)", 8.31}, {"ALiBi", "8192 (64x)", 5.85}, {"D = 4", "128 (1x)", 8.25},
          {"D = 4", "8192 (64x)", 5.67}}};
  for (const char* width : {"D = 4", "D = 16", "D = 32", "D = 64"})
    for (const Column& column : table.columns) table.claims.push_back({width, "ALiBi", column.name});
  return table;
}

std::vector<std::string> figures(int first, int last) {
  std::vector<std::string> commands;
  for (int number = first; number <= last; ++number)
    commands.push_back("whence look RUN --text FILE --figure dape/" + std::to_string(number));
  return commands;
}

std::vector<std::string> lab_of_text(const std::string& schemes, const std::string& more) {
  return {"whence lab lm --schemes '" + schemes + "' --set 'data=TEXT" + more + "'"};
}

}  // namespace

const std::vector<PaperTable>& dape_tables() {
  static const std::string all = "rope,t5,alibi,dape(alibi),kerple,dape(kerple),fire,dape(fire)";
  static const std::vector<PaperTable> tables{{.name = "dape/figure1",
                                                  .what = "the learned bias of the last query against all keys",
                                                  .place = "Figure 1",
                                                  .kind = Kind::figure,
                                                  .commands = figures(1, 1)},
      {.name = "dape/figure7-21",
          .what = "scores, biases and what the network adds, of two examples at 512, 2048, 8192",
          .place = "Figures 7 to 21, appendix I",
          .kind = Kind::figure,
          .commands = figures(7, 21)},
      {.name = "dape/figure2",
          .what = "all baselines, training lengths 128 and 512",
          .place = "Figure 2",
          .kind = Kind::lab,
          .commands = lab_of_text(all, "")},
      {.name = "dape/figure3",
          .what = "all baselines, training length 1024",
          .place = "Figure 3",
          .kind = Kind::lab,
          .commands = lab_of_text(all, " length=1024 evaluate-to=8")},
      {.name = "dape/figure4",
          .what = "the model of 350M parameters",
          .place = "Figure 4",
          .kind = Kind::lab,
          .commands = {"whence models --plan neox-350m --scheme 'alibi,kerple,dape(alibi),dape(kerple)'",
              "whence lab lm --preset paper --schemes 'alibi,kerple,dape(alibi),dape(kerple)' --set 'model=neox-350m "
              "data=TEXT'"}},
      forms_of_f(), widths(),
      {.name = "dape/table7",
          .what = "what f reads: nothing, the bias, scores and bias",
          .place = "Table 7, appendix G",
          .kind = Kind::lab,
          .commands = lab_of_text("kerple,dape(kerple, form=f_of_bias),dape(kerple)", "")},
      {.name = "dape/cape-table1",
          .what = "milliseconds forward and backward, and memory, of eleven methods",
          .place = "first version, Table 1",
          .kind = Kind::timing,
          .commands = {"whence bench table"}},
      {.name = "dape/table1",
          .what = "milliseconds of models of 350M, 2.7B and 6.7B",
          .place = "Table 1; DAPE V2, Table 8",
          .kind = Kind::plan,
          .commands = {"whence models --plan neox-350m neox-2.7b neox-6.7b --scheme "
                       "'rope,t5,alibi,kerple,fire,dape(kerple),cdape(kerple)'",
              "whence bench table"}},
      {.name = "dape/table2",
          .what = "the Chomsky hierarchy, longer than trained on",
          .place = "Table 2",
          .kind = Kind::lab,
          .commands = {"whence lab chomsky --schemes 'absolute,sinusoidal,rope,alibi,kerple,fire,dape(alibi),"
                       "dape(kerple),dape(fire)'"}},
      {.name = "dape/table3",
          .what = "the models' sizes",
          .place = "Table 3, appendix B",
          .kind = Kind::plan,
          .commands = {"whence models --plan neox-125m neox-350m neox-2.7b neox-6.7b"}},
      {.name = "dape/table5",
          .what = "eight methods over three seeds",
          .place = "Table 5",
          .kind = Kind::lab,
          .commands = lab_of_text(all, "")},
      {.name = "dape/table6",
          .what = "positions that depend on data, Transformer-XL, CoPE and DAPE",
          .place = "Table 6",
          .kind = Kind::lab,
          .commands = lab_of_text("transformer_xl,cope,dape(kerple)", "")},
      {.name = "dape/table8",
          .what = "perplexity of models of 2.7B and 6.7B",
          .place = "Table 8 and 9, appendix H",
          .kind = Kind::plan,
          .commands = {"whence models --plan neox-2.7b neox-6.7b --scheme 'rope,relative,alibi,kerple,dape(kerple)'"}},
      {.name = "dape/protocol",
          .what = "perplexity of the last 256 tokens while lengths double",
          .place = "section 4",
          .kind = Kind::lab,
          .commands = lab_of_text("dape(kerple)", " last=256")},
      {.name = "dape/randomised",
          .what = "randomised positions under every method of the Chomsky hierarchy",
          .place = "Table 2, appendix D",
          .kind = Kind::lab,
          .commands = {"whence lab chomsky --schemes 'randomised(rope, length=256),kerple,dape(kerple)'"}}};
  return tables;
}

}  // namespace whence::papers
