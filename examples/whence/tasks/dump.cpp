#include "examples/whence/tasks/dump.h"

#include <algorithm>
#include <iostream>

#include "examples/whence/cli/json.h"
#include "examples/whence/cli/numbers.h"
#include "tensor/error.h"

namespace whence::tasks {
namespace {

// Shows the model's input, and then the answers that it has to find.
std::string text_of(const Task& task, const Row& row) {
  std::string text, answers;
  const bool causal = task.model().causal;
  for (std::size_t i = 0; i < row.inputs.size(); ++i) {
    const std::int64_t answer = row.graded[i];
    text += task.text(row.inputs[i]);
    const bool shown = causal && i + 1 < row.inputs.size() && row.inputs[i + 1] == answer;  // the next input
    if (answer != no_target && !shown) answers += task.answer_text(answer);
  }
  return answers.empty() ? text : text + " -> " + answers;
}

Json line_about(const std::string& name, const Task& task, const std::string& set, const std::vector<std::string>& sets,
    std::uint64_t seed) {
  Json options{Json::Fields()};
  for (const auto& [option, value] : task.description()) {
    const auto number = parse_number<double>(value);
    const auto whole = parse_number<std::int64_t>(value);
    options.add(option, whole ? Json(*whole) : number ? Json(*number) : Json(value));
  }
  const TransformerOptions model = task.model();
  std::vector<std::string> vocabulary, answers;
  for (index_t token = 0; token < model.vocabulary; ++token) vocabulary.push_back(task.text(token));
  for (index_t token = 0; token < model.outputs; ++token) answers.push_back(task.answer_text(token));
  Json about{
      {"task", name}, {"seed", seed}, {"set", set}, {"sets", sets}, {"options", options}, {"vocabulary", vocabulary}};
  if (!answers.empty()) about.add("answers", answers);
  return about;
}

Json line_of(const Task& task, const Row& row, std::int64_t number) {
  return {{"sequence", number}, {"tokens", row.inputs}, {"targets", row.targets}, {"graded", row.graded},
      {"text", text_of(task, row)}};
}

}  // namespace

void dump(
    const std::string& name, const Task& task, const DumpOptions& options, std::uint64_t seed, index_t batch_size) {
  const std::vector<TestSet> tests = task.test_sets();
  std::vector<std::string> sets{"training", "validation"};
  for (const TestSet& set : tests) sets.push_back(set.name);
  const auto set = static_cast<std::size_t>(std::ranges::find(sets, options.set) - sets.begin());
  if (set == sets.size()) throw InputError("--dump-set: ", options.set, " given; one of ", joined(sets), " required");
  std::cout << line_about(name, task, options.set, sets, seed).line() << '\n';
  const std::int64_t there = set == 0   ? no_end
                             : set == 1 ? task.validation_sequences()
                                        : tests[set - 2].sequences,
                     end = std::min(options.count, there);
  std::int64_t written = 0;
  for (std::int64_t step = 1; written < end; ++step) {
    const Batch batch = set == 0   ? task.training_batch(seed, step, batch_size)
                        : set == 1 ? task.validation_batch(seed, written, batch_size)
                                   : task.test_batch(set - 2, seed, written, batch_size);
    for (index_t row = 0; row < batch.sequences && written < end; ++row, ++written)
      std::cout << line_of(task, batch.row(row), written).line() << '\n';
  }
}

}  // namespace whence::tasks
