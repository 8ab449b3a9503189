// What the tables of DAPE and DAPE V2 share: models of text and of the Chomsky hierarchy at three sizes, the names of
// columns, and the accuracies that both papers print. Tables with equal options train once, so the options of the minis
// stand here alone.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "examples/whence/papers/paper_table.h"

namespace whence::papers {

inline constexpr const char* perplexity_note =
    "Perplexity, lower is better. The paper's is of arXiv unless a row says otherwise, by tokens of GPT-2; ours is of "
    "your text, by bytes unless --set \"tokeniser=FILE\". Compare the order, not the figures.";

inline constexpr const char* two_lengths_note =
    " Training lengths of 128 and 256 stand for the paper's 128 and 512; \"512: 8192 (16x)\" is 16 times what was "
    "trained on, in the paper and here.";

inline constexpr const char* why_two_lengths =
    "Training lengths of 128 and 256 instead of 128 and 512, as all presets have the grid's axes; at 256 the batch is "
    "halved, where the paper's is the same.";

// A model of text that stands for one of the papers'.
struct TextModel {
  const char* mini;
  const char* small;
  const char* why;  // of both
};

inline constexpr TextModel text_at_128{
    "dim=64 layers=2 heads=4 lr=3e-3 steps=500 batch=16 length=128 evaluate-to=16 evaluation-windows=10",
    "dim=128 layers=4 heads=4 lr=1e-3 steps=5000 batch=16 length=128 evaluate-to=16 evaluation-windows=10",
    "Stands for 125M parameters. "};

inline constexpr TextModel text_at_512{
    "dim=64 layers=2 heads=4 lr=3e-3 steps=500 batch=4 length=512 evaluate-to=8 evaluation-windows=10",
    "dim=128 layers=4 heads=4 lr=1e-3 steps=5000 batch=4 length=512 evaluate-to=8 evaluation-windows=10",
    "Stands for 125M parameters; the length stands for the paper's 1024. "};

// 64 times the training length is 4096 tokens in the mini and 8192, as in the papers, in the others.
inline constexpr TextModel text_far{
    "dim=64 layers=2 heads=4 lr=3e-3 steps=500 batch=32 length=64 evaluate-to=64 evaluation-windows=5",
    "dim=128 layers=4 heads=4 lr=1e-3 steps=5000 batch=16 length=128 evaluate-to=64 evaluation-windows=5",
    "Stands for 125M parameters; five windows, as the longest cost most of the time. "};

inline constexpr TextModel text_bigger{
    "dim=96 layers=3 heads=4 lr=3e-3 steps=500 batch=16 length=128 evaluate-to=16 evaluation-windows=10",
    "dim=256 layers=6 heads=8 lr=1e-3 steps=5000 batch=16 length=128 evaluate-to=16 evaluation-windows=10",
    "Stands for 350M parameters: half as much again of the dim and the layers of what stands for 125M. "};

// `more`: the length of training and what is evaluated, as in "length=512 evaluate-to=16".
inline std::string paper_125m(const std::string& more) {
  return "model=neox-125m batch=32 accumulate=8 steps=50000 warm-up=500 lr=6e-4 final-lr=6e-5 beta2=0.95 " + more;
}

inline std::string paper_350m(const std::string& more) {
  return "model=neox-350m batch=32 accumulate=8 steps=50000 warm-up=500 lr=3e-4 final-lr=3e-5 beta2=0.95 " + more;
}

inline std::vector<Preset> text_presets(
    const TextModel& model, const std::string& paper, const std::string& why_paper = "") {
  return {{.name = "mini",
              .lab = "mini",
              .set = model.mini,
              .why = std::string(model.why) + "lr=3e-3 is above the paper's, as 500 steps are few."},
      {.name = "small",
          .lab = "paper",
          .set = model.small,
          .why = std::string(model.why) + "5000 steps of a model that two cores train in a night."},
      {.name = "paper",
          .lab = "paper",
          .set = paper,
          .why = "The paper's options; warm-up and final-lr as in the authors' configuration of 125M (350M: a tenth of "
                 "lr likewise). f32 in place of f16. " +
                 why_paper}};
}

// Columns at 1, 2, 4 ... `most` times the length that the paper trained on, as in "512 (1x)". Where `length` is an
// axis: its value, and `prefix` stands before the names.
inline std::vector<Column> doublings(
    int trained_on, int most, const std::string& prefix = "", const std::string& length = "") {
  std::vector<Column> columns;
  for (int times = 1; times <= most; times *= 2) {
    Column column{
        .name = prefix + std::to_string(trained_on * times) + " (" + std::to_string(times) + "x)", .times = times};
    if (!length.empty()) column.at = {{"length", length}};
    columns.push_back(column);
  }
  return columns;
}

inline std::vector<Column> joined(std::vector<Column> columns, const std::vector<Column>& more) {
  columns.insert(columns.end(), more.begin(), more.end());
  return columns;
}

// Of the paper's training lengths 128 and 512, up to 16 times.
inline std::vector<Column> of_two_lengths() {
  return joined(doublings(128, 16, "128: ", "128"), doublings(512, 16, "512: ", "256"));
}

// A row of the paper's table, from column `first` on.
inline void print_row(PaperTable& table, const std::string& method, const std::vector<double>& means,
    std::size_t first = 0, const std::vector<double>& deviations = {}) {
  for (std::size_t k = 0; k < means.size(); ++k) {
    Printed printed{.method = method, .column = table.columns.at(first + k).name, .mean = means[k]};
    if (k < deviations.size()) printed.deviation = deviations[k];
    table.printed.push_back(printed);
  }
}

inline void claim(
    PaperTable& table, const std::string& better, const std::string& worse, const std::vector<std::string>& columns) {
  for (const std::string& column : columns) table.claims.push_back({better, worse, column});
}

// `tokens`: what the figure needs, as `look --figure list` has it.
inline std::string look_command(const std::string& paper, int figure, int tokens) {
  const std::string number = std::to_string(figure);
  return "look RUN --text TEXT --figure " + paper + "/" + number + " --length " + std::to_string(tokens) +
         " --out OUT/" + paper + "-" + number + ".svg";
}

inline constexpr const char* look_note =
    "The paper's model has 12 layers and is trained on 512 tokens; figures of a part of the layers draw those that the "
    "model has, so of two layers some figures are alike. Scores, bias and what the network adds are drawn over the "
    "keys of one query.";

struct ChomskyTask {
  const char* task;
  const char* name;  // as the papers have it
  // Learned, sin / cos, RoPE, Relative, ALiBi, Kerple, FIRE; DAPE-ALiBi, -Kerple, -FIRE; CDAPE-ALiBi, -Kerple, -FIRE.
  std::array<double, 13> accuracies;
};

inline constexpr std::array<const char*, 13> chomsky_methods{"Learned", "sin / cos", "RoPE", "Relative", "ALiBi",
    "Kerple", "FIRE", "DAPE-ALiBi", "DAPE-Kerple", "DAPE-FIRE", "CDAPE-ALiBi", "CDAPE-Kerple", "CDAPE-FIRE"};

// DAPE, Table 2, and DAPE V2, Table 7.
// clang-format off
inline constexpr std::array<ChomskyTask, 14> chomsky_tasks{{
    {"even_pairs", "Even pairs",
        {50.04, 91.27, 99.98, 96.60, 73.52, 57.50, 73.86, 99.99, 99.58, 100, 99.99, 100, 100}},
    {"modular_arithmetic", "Modular arithmetic (simple)",
        {19.95, 20.39, 21.35, 20.84, 20.02, 21.79, 21.09, 23.58, 24.47, 24.46, 21.48, 23.90, 23.43}},
    {"parity_check", "Parity check",
        {50.14, 50.52, 50.05, 50.09, 50.09, 50.07, 50.97, 50.30, 50.07, 50.04, 50.13, 52.51, 50.11}},
    {"cycle_navigation", "Cycle navigation",
        {24.97, 25.37, 27.63, 26.95, 24.64, 29.47, 28.41, 22.99, 34.53, 27.54, 24.43, 24.32, 24.34}},
    {"stack_manipulation", "Stack manipulation",
        {59.92, 65.92, 61.49, 64.73, 66.42, 66.93, 69.33, 68.18, 72.04, 70.90, 58.90, 68.18, 60.90}},
    {"reverse_string", "Reverse string",
        {52.76, 67.28, 65.23, 65.59, 71.09, 71.54, 65.89, 73.37, 70.74, 76.40, 56.61, 81.84, 70.11}},
    {"modular_arithmetic_brackets", "Modular arithmetic",
        {31.00, 30.70, 31.25, 31.74, 30.56, 24.79, 30.92, 31.34, 32.37, 31.50, 29.46, 26.13, 27.00}},
    {"solve_equation", "Solve equation",
        {20.00, 19.97, 21.85, 22.93, 19.92, 21.15, 22.06, 20.03, 22.49, 22.42, 20.26, 23.95, 23.62}},
    {"duplicate_string", "Duplicate string",
        {52.77, 65.44, 64.97, 67.66, 65.13, 66.72, 69.03, 70.84, 72.95, 72.71, 52.96, 57.03, 66.01}},
    {"missing_duplicate", "Missing duplicate",
        {50.38, 49.78, 63.37, 72.34, 74.21, 79.06, 79.27, 83.41, 87.57, 89.17, 59.33, 99.65, 74.83}},
    {"odds_first", "Odds first",
        {52.77, 58.61, 61.00, 61.57, 59.88, 62.59, 63.28, 63.78, 67.08, 66.34, 57.35, 56.87, 56.57}},
    {"binary_addition", "Binary addition",
        {54.63, 55.78, 55.59, 56.96, 54.72, 56.35, 55.70, 59.71, 60.88, 56.62, 57.49, 55.32, 57.86}},
    {"compute_sqrt", "Compute sqrt",
        {50.47, 51.11, 51.88, 51.63, 50.63, 51.11, 50.80, 51.64, 51.33, 52.46, 52.08, 51.76, 51.93}},
    {"bucket_sort", "Bucket sort",
        {98.32, 98.92, 98.12, 99.31, 98.45, 99.38, 99.57, 99.38, 98.81, 99.37, 96.61, 99.06, 98.56}}}};
// clang-format on

// The papers print accuracy to a hundredth, whence measures error.
inline double error_of(double accuracy) { return std::round((100 - accuracy) * 100) / 100; }

inline std::vector<std::string> all_chomsky_tasks() {
  std::vector<std::string> names;
  for (const ChomskyTask& task : chomsky_tasks) names.emplace_back(task.task);
  return names;
}

// A column for each of the table's tasks, and what the papers print there for its methods.
inline void put_chomsky_columns(PaperTable& table) {
  for (const ChomskyTask& task : chomsky_tasks) {
    if (std::ranges::count(table.grid.tasks, task.task) == 0) continue;
    table.columns.push_back({.name = task.name, .task = task.task, .set = "average"});
    for (std::size_t k = 0; k < chomsky_methods.size(); ++k)
      if (std::ranges::count(table.methods, chomsky_methods[k], &Method::name) > 0)
        table.printed.push_back(
            {.method = chomsky_methods[k], .column = task.name, .mean = error_of(task.accuracies[k])});
  }
}

// `schemes` and `tasks` are the mini's, in place of the grid's; empty: the grid's.
inline std::vector<Preset> chomsky_presets(
    const std::string& mini_schemes, const std::vector<std::string>& mini_tasks) {
  return {
      {.name = "mini",
          .lab = "mini",
          .set = "steps=2000 lr=1e-3 dropout=0 test-to=60 test-every=8",
          .why = "Trained on lengths of 1 to 20, tested on 21 to 60. 2000 steps, as 500 leave most tasks at a guess; "
                 "without dropout, and with a rate above the paper's 3e-4, with which so few steps learn nothing.",
          .schemes = mini_schemes,
          .tasks = mini_tasks},
      {.name = "small",
          .lab = "mini",
          .set = "steps=10000 lr=1e-3 dropout=0 test-to=100 test-every=8",
          .why = "Trained on lengths of 1 to 20, tested on 21 to 100, that two cores need no more than a night."},
      {.name = "paper",
          .lab = "paper",
          .set = "",
          .why = "The tasks' own defaults are the paper's. Its network has a width of 64, here 32 as in its language "
                 "models, so that all sizes train the same schemes."}};
}

inline constexpr const char* chomsky_note =
    "Error in percent over all lengths tested, lower is better; the paper prints accuracy, of which 100 less is given. "
    "It trains on lengths to 40 with 200 000 steps and tests 41 to 500.";

}  // namespace whence::papers
