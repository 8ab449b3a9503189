// tasks: lists what can be trained on: each task's tests, guesses, the paper's model, and sizes for a laptop.
#include <iostream>

#include "examples/whence/cli/command.h"
#include "examples/whence/report/table.h"
#include "examples/whence/study/study.h"
#include "examples/whence/tasks/task.h"

namespace whence {
namespace {

void print_all(const std::vector<tasks::TaskInfo>& infos) {
  Table table({"task", "what it is", "for a laptop", "paper"});
  for (const tasks::TaskInfo& info : infos) table.row({info.name, info.title, "mini", info.paper});
  const auto text = text_study_options();
  table.row({text->name(), text->title(), "mini", "DAPE, DAPE V2: Zheng et al. 2024"});
  std::cout << table.text() << "whence tasks NAME shows one, whence train NAME --help its options\n";
}

void print_one(const tasks::TaskInfo& info) {
  const auto task = tasks::make_task(info.name);
  const TransformerOptions model = task->model();
  const tasks::Recipe recipe = task->recipe();
  std::cout << info.name << ": " << info.title << " (" << info.paper << ")\n"
            << info.rule << (info.rule.empty() ? "" : "\n") << "model: dim " << model.dim << ", " << model.layers
            << " layers, " << model.heads << " heads, " << (model.causal ? "causal" : "bidirectional") << "; "
            << recipe.steps << " steps of " << recipe.batch << " sequences, learning rate " << recipe.learning_rate
            << "\nfor a laptop: " << info.mini;
  std::cout << "\nguesses without a model:";
  for (const tasks::Guess& guess : task->guesses()) std::cout << " '" << guess.name << '\'';
  std::cout << '\n';
  Table table({"test set", "what it is"});
  const std::vector<tasks::TestSet> sets = task->test_sets();
  for (std::size_t set = 0; set < sets.size(); ++set) {
    // The screen shows at most a dozen rows.
    if (set * 12 % sets.size() < 12) table.row({sets[set].name, sets[set].description});
  }
  std::cout << table.text();
}

int run(CommandLine& line) {
  const std::vector<tasks::TaskInfo>& infos = tasks::registered_tasks();
  std::vector<std::string> names;
  const auto text = text_study_options();
  line.names("[TASK...]", &names, "tests, guesses and the paper's model of these")
      .example("whence tasks flip_flop", "one task");
  if (line.shows_page()) return 0;
  if (names.empty()) print_all(infos);
  for (const std::string& name : names)
    if (name == text->name())
      std::cout << name << ": " << text->title() << "; whence train lm --help shows its options and examples\n";
    else
      print_one(tasks::find_task(name));
  return 0;
}

const RegisterCommand registered{{"tasks", Purpose::learn, "the tasks: tests, guesses, the papers' models", run}};

}  // namespace
}  // namespace whence
