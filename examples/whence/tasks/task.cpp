#include "examples/whence/tasks/task.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tensor/error.h"
#include "tensor/raw.h"

namespace whence::tasks {
namespace {

std::vector<TaskInfo>& registry() {  // unchecked: registration runs before main, where nothing could catch an error
  static std::vector<TaskInfo> all;
  return all;
}

Tensor matrix(const Tokens& tokens, index_t rows, index_t columns) {
  return Tensor::of({tokens.begin(), tokens.end()}, {rows, columns}, DType::i64);
}

double percent(std::int64_t part, std::int64_t whole) {
  if (whole == 0) return std::numeric_limits<double>::quiet_NaN();
  return 100.0 * static_cast<double>(part) / static_cast<double>(whole);
}

// Returns -1 if any value is nan: comparisons with nan are false, so the search alone would name some token.
std::int64_t most_probable_of(const double* row, index_t width) {
  if (std::any_of(row, row + width, [](double value) { return std::isnan(value); })) return -1;
  return std::max_element(row, row + width) - row;
}

}  // namespace

Tokens Draw::symbols(index_t count, std::int64_t kinds) {
  Tokens symbols(static_cast<std::size_t>(count));
  for (std::int64_t& symbol : symbols) symbol = below(kinds);
  return symbols;
}

Tensor Batch::input_tensor() const { return matrix(inputs, sequences, positions); }
Tensor Batch::target_tensor() const { return matrix(targets, sequences, positions); }
std::int64_t Batch::counted() const {
  return static_cast<std::int64_t>(targets.size()) - std::count(targets.begin(), targets.end(), no_target);
}

Row Batch::row(index_t number) const {
  const auto part = [&](const Tokens& all) {
    return Tokens(all.begin() + number * positions, all.begin() + (number + 1) * positions);
  };
  return {part(inputs), part(targets), part(graded)};
}

Batch batch_of(const std::vector<Row>& rows) {
  std::size_t longest = 0;
  for (const Row& row : rows) longest = std::max(longest, row.inputs.size());
  Batch batch{.sequences = static_cast<index_t>(rows.size()), .positions = static_cast<index_t>(longest)};
  const auto append = [longest](Tokens& all, const Tokens& some, std::int64_t rest) {
    all.insert(all.end(), some.begin(), some.end());
    all.insert(all.end(), longest - some.size(), rest);
  };
  for (const Row& row : rows) {
    append(batch.inputs, row.inputs, 0);
    append(batch.targets, row.targets, no_target);
    append(batch.graded, row.graded, no_target);
  }
  return batch;
}

void Errors::add(const Batch& batch, const Tokens& predicted) {
  if (predicted.size() != batch.graded.size()) {
    throw Error(
        "errors: ", predicted.size(), " predictions given; ", batch.graded.size(), " required, one per position");
  }
  std::size_t i = 0;
  for (index_t row = 0; row < batch.sequences; ++row) {
    std::int64_t wrong = 0, seen = 0;
    for (const std::size_t end = i + static_cast<std::size_t>(batch.positions); i < end; ++i) {
      seen += batch.graded[i] != no_target;
      wrong += batch.graded[i] != no_target && predicted[i] != batch.graded[i];
    }
    tokens += seen, wrong_tokens += wrong;
    if (seen == 0) continue;
    ++sequences, wrong_sequences += wrong > 0;
    graded_by_sequence.push_back(seen), wrong_by_sequence.push_back(wrong);
  }
}

double Errors::token_percent() const { return percent(wrong_tokens, tokens); }
double Errors::sequence_percent() const { return percent(wrong_sequences, sequences); }

Tokens Guess::predict(const Batch& batch) const {
  Tokens all;
  for (index_t row = 0; row < batch.sequences; ++row)
    for (const std::int64_t answer : answers(batch.row(row))) all.push_back(answer);
  return all;
}

Batch Task::validation_batch(std::uint64_t seed, std::int64_t first, index_t sequences) const {
  constexpr std::uint64_t validation_seed = 0x76616C6964617465ull;
  return test_batch(0, seed ^ validation_seed, first, sequences);
}

Batch DrawnTask::training_batch(std::uint64_t seed, std::int64_t step, index_t sequences) const {
  return batch(training_, seed, (step - 1) * sequences, sequences);
}

std::vector<TestSet> DrawnTask::test_sets() const {
  std::vector<TestSet> sets;
  for (const DrawnSet& set : tests_) sets.push_back(set.about);
  return sets;
}

Batch DrawnTask::test_batch(std::size_t set, std::uint64_t seed, std::int64_t first, index_t sequences) const {
  return batch(tests_.at(set), seed, first, sequences);
}

Batch DrawnTask::batch(const DrawnSet& set, std::uint64_t seed, std::int64_t first, index_t sequences) const {
  std::vector<Row> rows;
  for (std::int64_t number = first; number < first + sequences; ++number)
    rows.push_back(row(set, Stream(seed, set.purpose, static_cast<std::uint64_t>(number))));
  return batch_of(rows);
}

Tokens most_probable(const Tensor& logits) {
  const Tensor x = raw::contiguous(raw::cast(raw::to_device(logits, Device::cpu()), DType::f64));
  const index_t width = x.size(-1), rows = x.numel() / width;
  Tokens tokens;
  tokens.reserve(static_cast<std::size_t>(rows));
  for (index_t row = 0; row < rows; ++row) tokens.push_back(most_probable_of(x.data<double>() + row * width, width));
  return tokens;
}

RegisterTask::RegisterTask(TaskInfo info) { registry().push_back(std::move(info)); }

const std::vector<TaskInfo>& registered_tasks() {
  static const std::vector<TaskInfo> checked = [] {
    std::vector<TaskInfo> tasks = registry();
    std::ranges::sort(tasks, {}, &TaskInfo::name);
    const auto same = [](const TaskInfo& one, const TaskInfo& other) { return one.name == other.name; };
    if (const auto twice = std::adjacent_find(tasks.begin(), tasks.end(), same); twice != tasks.end())
      throw Error("task '", twice->name, "': registered twice; one task per name required; rename one");
    if (const auto bare = std::ranges::find(tasks, "", &TaskInfo::mini); bare != tasks.end())
      throw Error("task '", bare->name, "': no mini given; sizes that fit a laptop required");
    return tasks;
  }();
  return checked;
}

const TaskInfo& find_task(const std::string& name) {
  std::vector<std::string> names;
  for (const TaskInfo& info : registered_tasks()) {
    if (info.name == name) return info;
    names.push_back(info.name);
  }
  refuse_name("task", name, names);
}

std::unique_ptr<Task> make_task(const std::string& name, const std::vector<std::string>& options) {
  const TaskInfo& info = find_task(name);
  CommandLine line(name, info.title);
  const auto make = info.declare(line);
  if (line.parse(options))
    throw Error("task '", name, "': --help or --version given among its options; options of the task alone required");
  return make(line);
}

}  // namespace whence::tasks
