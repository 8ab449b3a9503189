// Golovneva et al. 2024, Contextual Position Encoding, arXiv:2405.18719.
#include "examples/papers/paper_table.h"

namespace whence::papers {
namespace {

const char* const lower = "test error in percent, lower is better";

PaperTable flip_flop() {
  return {.name = "cope/table2-flip_flop",
      .what = "flip-flop, in and out of distribution",
      .place = "Table 2 and 7, section 5.1",
      .kind = Kind::grid,
      .note = lower,
      .grid = {.task = "flip_flop", .schemes = "absolute,rope,cope"},
      .presets = {{"mini", "mini", ""}, {"small", "paper", "length=256 dim=128 steps=5000"}, {"paper", "paper", ""}},
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
      .kind = Kind::grid,
      .note = lower,
      .grid = {.task = "selective_copy", .schemes = "absolute,rope,cope"},
      .presets = {{"mini", "mini", ""}, {"small", "paper", "tokens=64 blanks=64 steps=20000"}, {"paper", "paper", ""}},
      .methods = {{"Absolute PE", "absolute"}, {"RoPE", "rope"}, {"CoPE", "cope"}},
      .columns = {{.name = "In-dist", .set = "in distribution"}, {.name = "OOD dense", .set = "dense"},
          {.name = "OOD sparse", .set = "sparse"}},
      .printed = {{"Absolute PE", "In-dist", 16.9, 3.7}, {"Absolute PE", "OOD dense", 25.6, 3.8},
          {"Absolute PE", "OOD sparse", 85.2, 8.4}, {"RoPE", "In-dist", 40.1, 3.5}, {"RoPE", "OOD dense", 100, 0},
          {"RoPE", "OOD sparse", 100, 0}, {"CoPE", "In-dist", 0, 0}, {"CoPE", "OOD dense", 0, 0},
          {"CoPE", "OOD sparse", 0.004, 0.006}},
      .claims = {{"CoPE", "Absolute PE", "In-dist"}, {"CoPE", "RoPE", "In-dist"}, {"CoPE", "Absolute PE", "OOD dense"},
          {"CoPE", "RoPE", "OOD dense"}, {"CoPE", "Absolute PE", "OOD sparse"}, {"CoPE", "RoPE", "OOD sparse"}}};
}

PaperTable counting_variables() {
  const auto at = [](const char* variables) { return std::pair<std::string, std::string>("variables", variables); };
  return {.name = "cope/table3",
      .what = "counting with 1, 3 and 5 variables",
      .place = "Table 3 and 9, section 5.3",
      .kind = Kind::grid,
      .note = lower,
      .grid = {.task = "counting", .schemes = "absolute,relative,cope", .vary = {"variables=1,3,5"}},
      .presets = {{"mini", "mini", "steps=1000"}, {"small", "mini", "operations=128 block=256 dim=128 steps=6000"},
          {"paper", "paper", ""}},
      .methods = {{"Absolute PE", "absolute"}, {"Relative PE", "relative"}, {"CoPE", "cope"}},
      .columns = {{.name = "1 var", .set = "in distribution", .at = at("1")},
          {.name = "3 var", .set = "in distribution", .at = at("3")},
          {.name = "5 var", .set = "in distribution", .at = at("5")}},
      .printed = {{"Absolute PE", "1 var", 5.3, 0.8}, {"Absolute PE", "3 var", 67.6, 1.5},
          {"Absolute PE", "5 var", 71.5, 1.5}, {"Relative PE", "1 var", 1.1, 0.4}, {"Relative PE", "3 var", 17.8, 7.8},
          {"Relative PE", "5 var", 22.4, 5.1}, {"CoPE", "1 var", 0, 0}, {"CoPE", "3 var", 1.2, 2.1},
          {"CoPE", "5 var", 7.4, 8.5}},
      .claims = {{"CoPE", "Relative PE", "1 var"}, {"CoPE", "Relative PE", "3 var"}, {"CoPE", "Relative PE", "5 var"},
          {"Relative PE", "Absolute PE", "1 var"}, {"Relative PE", "Absolute PE", "3 var"},
          {"Relative PE", "Absolute PE", "5 var"}}};
}

PaperTable counting_pass_weight() {
  return {.name = "cope/table4",
      .what = "counting in longer and shorter contexts: the weight of pass",
      .place = "Table 4 and 9, section 5.3",
      .kind = Kind::grid,
      .note = lower,
      .grid = {.task = "counting", .schemes = "relative,cope"},
      .presets = {{"mini", "mini", ""}, {"small", "mini", "operations=128 block=256 dim=128 steps=6000"},
          {"paper", "paper", ""}},
      .methods = {{"Relative PE", "relative"}, {"CoPE", "cope"}},
      .columns = {{.name = "w_pass = 50", .set = "in distribution"}, {.name = "w_pass = 100", .set = "pass weight 100"},
          {.name = "w_pass = 10", .set = "pass weight 10"}},
      .printed = {{"Relative PE", "w_pass = 50", 1.1, 0.4}, {"Relative PE", "w_pass = 100", 8.8, 1.1},
          {"Relative PE", "w_pass = 10", 34.1, 2.5}, {"CoPE", "w_pass = 50", 0, 0}, {"CoPE", "w_pass = 100", 0, 0},
          {"CoPE", "w_pass = 10", 4.0, 4.1}},
      .claims = {{"CoPE", "Relative PE", "w_pass = 50"}, {"CoPE", "Relative PE", "w_pass = 100"},
          {"CoPE", "Relative PE", "w_pass = 10"}}};
}

PaperTable options_of_cope() {
  return {.name = "cope/table8",
      .what = "CoPE's options on text: gates, tables, p_max, linear biases",
      .place = "Table 8, appendix D",
      .kind = Kind::grid,
      .note =
          "perplexity, lower is better. The paper's is of WikiText-103 by words of GPT-2, with 1024 tokens; ours of "
          "your "
          "text, by bytes unless --set \"tokeniser=FILE\", on what is set aside of it. Where p_max is more than the "
          "length, the table's end is never read. Separate keys come with a table for each layer, as one for all has "
          "no keys of a layer.",
      .grid = {.task = "lm",
          .schemes = "cope(table=shared),cope(table=shared, gates=values),cope(gates=separate_keys),cope,"
                     "cope(table=shared, p_max=16),cope(table=shared, p_max=1024),cope_alibi"},
      .presets = {{"mini", "mini", "length=128 steps=300 evaluate-to=1"},
          {"small", "paper", "length=256 steps=5000 evaluate-to=1"},
          {"paper", "paper", "model=gpt2-124m length=1024 batch=64 evaluate-to=1"}},
      .methods = {{"None", "cope(table=shared)"}, {"Use val-gates", "cope(table=shared, gates=values)"},
          {"Use sep-keys", "cope(gates=separate_keys)"}, {"Layers do not share embeddings", "cope"},
          {"p_max = 16", "cope(table=shared, p_max=16)"}, {"p_max = 1024", "cope(table=shared, p_max=1024)"},
          {"CoPE_ALiBi", "cope_alibi"}},
      .columns = {{.name = "Test PPL", .times = 1}},
      .printed = {{"None", "Test PPL", 23.46}, {"Use val-gates", "Test PPL", 23.33},
          {"Use sep-keys", "Test PPL", 23.18}, {"Layers do not share embeddings", "Test PPL", 23.58},
          {"p_max = 16", "Test PPL", 23.22}, {"p_max = 1024", "Test PPL", 23.31}, {"CoPE_ALiBi", "Test PPL", 25.09}},
      .claims = {{"Use val-gates", "None", "Test PPL"}, {"Use sep-keys", "None", "Test PPL"},
          {"None", "CoPE_ALiBi", "Test PPL"}}};
}

}  // namespace

const std::vector<PaperTable>& cope_tables() {
  static const std::vector<PaperTable> tables{{.name = "cope/table1",
                                                  .what = "prompts to commercial language models",
                                                  .place = "Table 1 and 6",
                                                  .kind = Kind::not_ours,
                                                  .note = "questions to other people's services"},
      flip_flop(), selective_copy(),
      {.name = "cope/table7-shapes",
          .what = "flip-flop, eight shapes of the model",
          .place = "Table 7",
          .kind = Kind::lab,
          .commands = {"whence lab flip_flop --schemes absolute,rope,cope --vary layers=2,4 --vary heads=2,4 --vary "
                       "dim=32,64",
              "whence lab flip_flop --schemes absolute,rope,cope --vary layers=2,4 --vary heads=2,4 --vary dim=128,256 "
              "--preset paper"}},
      {.name = "cope/table7-variants",
          .what = "flip-flop: hard attention, gates by a network, linear biases",
          .place = "Table 7",
          .kind = Kind::lab,
          .commands = {"whence lab flip_flop --schemes 'cope,absolute + hard_attention,cope_mlp,cope_mlp(layers=first),"
                       "cope_alibi'"}},
      {.name = "cope/figure5",
          .what = "flip-flop: error every 500 steps",
          .place = "Figure 5",
          .kind = Kind::lab,
          .commands = {"whence lab flip_flop --schemes absolute,rope,cope --set validate-every=100",
              "whence lab flip_flop --schemes absolute,rope,cope --preset paper --set validate-every=500"}},
      counting_variables(), counting_pass_weight(),
      {.name = "cope/figure2",
          .what = "counting: error over the number of training sequences",
          .place = "Figure 2",
          .kind = Kind::lab,
          .commands = {"whence lab counting --schemes relative,cope --vary training-set=100,1000,10000"}},
      {.name = "cope/table5-wikitext",
          .what = "WikiText-103 with four schemes",
          .place = "Table 5, left",
          .kind = Kind::lab,
          .commands = {"whence lab lm --schemes 'absolute,relative,cope,cope + relative' --set data=TEXT"}},
      {.name = "cope/table5-code",
          .what = "code with four schemes",
          .place = "Table 5, right",
          .kind = Kind::lab,
          .commands = {"whence lab lm --schemes 'absolute,rope,cope,cope + rope' --set data=CODE"}},
      options_of_cope(),
      {.name = "cope/figure3",
          .what = "perplexity beyond the training length",
          .place = "Figure 3",
          .kind = Kind::lab,
          .commands = {"whence lab lm --schemes 'relative,relative(capped=yes),cope' --set data=TEXT"}},
      {.name = "cope/figure4",
          .what = "attention by position alone, on paragraphs and sections",
          .place = "Figure 4",
          .kind = Kind::figure,
          .commands = {"whence look RUN --text FILE --figure cope/4"}},
      {.name = "cope/figure6",
          .what = "gates of the same heads on the same text",
          .place = "Figure 6",
          .kind = Kind::figure,
          .commands = {"whence look RUN --text FILE --figure cope/6"}},
      {.name = "cope/mlp-time",
          .what = "positions by a network are 30 to 50 times slower",
          .place = "appendix C",
          .kind = Kind::timing,
          .commands = {"whence bench attention --schemes cope,cope_mlp"}},
      {.name = "cope/jsonl",
          .what = "tasks from a file of contexts, questions and answers",
          .place = "the authors' code",
          .kind = Kind::lab,
          .commands = {"whence lab jsonl --schemes absolute,rope,cope --set data=FILE.jsonl"}},
      {.name = "cope/counting-data",
          .what = "the generator of counting programs, cut from the left",
          .place = "the authors' code",
          .kind = Kind::lab,
          .commands = {"whence train counting --dump 10"}}};
  return tables;
}

}  // namespace whence::papers
