#include "examples/whence/lab/request.h"

#include <algorithm>

#include "examples/whence/cli/scheme_names.h"
#include "examples/whence/cli/words.h"
#include "examples/whence/study/study.h"
#include "examples/whence/tasks/chomsky.h"
#include "nn/scheme.h"
#include "tensor/error.h"

namespace whence {
namespace {

std::vector<std::string> schemes_of(const CommandLine& line, const std::string& text) {
  std::vector<std::string> schemes;
  for (const std::string& part : list_of(text)) {
    const std::string scheme = canonical_text(parse_schemes(part));
    if (std::ranges::count(schemes, scheme) > 0)
      line.refuse("schemes", to_text(scheme, " once"), "each scheme is one row");
    schemes.push_back(scheme);
  }
  return schemes;
}

// What the task's paper compares; of text, and where no paper prints figures, CoPE's first table.
std::vector<std::string> schemes_of_the_paper(const std::string& task) {
  std::vector<std::string> schemes;
  if (task != "lm")
    for (const tasks::PaperFigure& figure : tasks::make_task(task)->paper_figures(0))
      schemes.push_back(canonical_text(parse_schemes(figure.scheme)));
  return schemes.empty() ? std::vector<std::string>{"absolute", "rope", "cope"} : schemes;
}

std::vector<std::string> tasks_of(const std::vector<std::string>& names) {
  std::vector<std::string> found;
  for (const std::string& name : names) {
    if (name == "lm" && names.size() > 1)
      throw InputError("lm: given beside tasks; lm alone required: perplexities and errors do not stand in one table");
    if (name == "chomsky")
      for (const auto& problem : tasks::chomsky_problems()) found.push_back(problem.name);
    else
      found.push_back(name == "lm" ? name : tasks::find_task(name).name);
  }
  if (found.empty())
    throw InputError("no task given; the name of one required as the first word; whence tasks lists them");
  return found;
}

}  // namespace

void declare_grid_options(CommandLine& line, GridOptions& options) {
  std::vector<std::string> known{"chomsky", "lm"};
  for (const tasks::TaskInfo& info : tasks::registered_tasks()) known.push_back(info.name);
  line.names(
          "TASK...", &options.tasks, "whence tasks lists them; chomsky: all fifteen of the hierarchy; lm: text", known)
      .heading("Grid")
      .text("schemes", &options.schemes,
          {.help = "positional schemes, separated by commas; whence schemes lists them; none: those that the task's "
                   "paper compares",
              .known = scheme_names()})
      .integer("seeds", &options.seeds, Range<int>{1, 1000}, {"of each scheme: 0, 1, ..."})
      .texts("vary", &options.vary,
          {"an axis: an option of train with its values, \"variables=1,3,5\", or of a scheme, \"cope.p_max=16,64\"; "
           "several make a grid"})
      .choice("preset", &options.preset, {"mini", "paper"}, {"mini: minutes on a laptop; paper: the papers' sizes"})
      .text("set", &options.set,
          {"options of train in place of the preset's, e.g. \"steps=300 dim=32\"; a value with blanks in quotes"})
      .flag("same-tokens", &options.same_tokens,
          {"the batch follows the length: steps x batch x length is as the preset and --set have it"});
}

Settings mini_of(const std::string& task) {
  return parse_settings("preset", words_of_sizes(*find_study(task), "mini"));
}

void put_settings(GridRequest& request, const Settings& given) {
  for (const auto& [name, value] : given) {
    const bool has_axis = std::ranges::count(request.axes, name, &Axis::name) > 0;
    if (has_axis && !(request.same_tokens && name == "length"))
      throw InputError("--set: ", name, "=", value, " given; options other than ", name, " required; --vary has it");
    put_setting(request.settings, name, value);
  }
}

std::vector<GridRequest> requests_of(
    const CommandLine& line, const GridOptions& options, const std::filesystem::path& folder) {
  const std::vector<std::string> names = tasks_of(options.tasks);
  std::vector<GridRequest> requests;
  for (const std::string& task : names) {
    GridRequest& request = requests.emplace_back();
    request.task = task, request.seeds = options.seeds, request.same_tokens = options.same_tokens;
    request.folder = names.size() > 1 ? folder / task : folder;
    request.axes = parse_axes(options.vary);
    request.schemes = options.schemes.empty() ? schemes_of_the_paper(task) : schemes_of(line, options.schemes);
    if (options.preset == "mini") request.settings = mini_of(task);
    put_settings(request, parse_settings("set", options.set));
  }
  return requests;
}

}  // namespace whence
