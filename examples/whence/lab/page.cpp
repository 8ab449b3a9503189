// What a laboratory leaves: on the screen, and as files.
#include "examples/whence/cli/json.h"
#include "examples/whence/lab/findings.h"
#include "examples/whence/report/plot.h"
#include "nn/io/files.h"
#include "tensor/error.h"

namespace whence {
namespace {

constexpr std::size_t readable = 40;  // rows of differences on a screen

std::string about_the_test(const Findings& found) {
  return found.tested ? to_text("p: Welch's t-test over seeds, two-sided, where both sides have ", seeds_for_a_test,
                            " seeds or more.")
                      : to_text("No test: Welch's needs ", seeds_for_a_test, " seeds or more on both sides.");
}

Json json_of(const GridCell& cell) {
  Json options{Json::Fields()};
  for (const auto& [name, value] : cell.options) options.add(name, value);
  Json::List results;
  for (const auto& [set, score] : cell.figures.scores)
    results.push_back({{"test_set", set}, {"measures", score.measures}, {"guesses", score.guesses}});
  return {{"task", cell.task}, {"place", cell.place}, {"scheme", cell.scheme}, {"seed", cell.seed},
      {"folder", cell.folder.string()}, {"options", options}, {"sequences_per_step", cell.sequences},
      {"train_seconds", cell.figures.seconds}, {"failure", cell.failure.empty() ? Json() : Json(cell.failure)},
      {"results", results}};
}

std::string json_of(const Findings& found, const std::vector<Grid>& grids) {
  Json::List runs;
  for (const Grid& grid : grids)
    for (const GridCell& cell : grid.cells) runs.push_back(json_of(cell));
  return Json{{"version", WHENCE_VERSION}, {"axes", found.axes}, {"runs", runs}}.page(1) + '\n';
}

}  // namespace

std::string text_of(const Findings& found) {
  std::string text = found.introduction + '\n';
  for (const CrossTable& cross : found.crossed) text += cross.title + '\n' + cross.table.text() + '\n';
  text += found.scores.text() + '\n';
  const std::size_t differences = found.differences.rows().size();
  if (differences > readable) return text + to_text(differences, " differences: in differences.csv and on the page.\n");
  if (differences > 0) text += found.differences.text() + about_the_test(found) + '\n';
  return text;
}

void write_findings(const std::filesystem::path& folder, const std::string& title, const Findings& found,
    const std::vector<Grid>& grids) {
  report::Page page;
  page.title = title;
  page.introduction = found.introduction;
  std::string crossed;
  for (const CrossTable& cross : found.crossed) {
    page.tables.push_back({cross.title, "Means over seeds, and standard deviations.", cross.table});
    crossed += cross.title + '\n' + cross.table.csv() + '\n';
  }
  page.tables.push_back({"What came out",
      found.text ? "" : "The paper's figures are for its own sizes of model and task. Guesses need no model.",
      found.scores});
  page.tables.push_back({"What makes a difference?",
      "Pairs that differ in one thing. " + about_the_test(found) + " Few seeds can show large differences only.",
      found.differences, found.differences.rows().size() > readable});
  if (found.causes)
    page.tables.push_back({"Why are gradients zero?",
        "Of each quantity's entries that the mask does not hide, in percent, over all layers and heads; first seeds, "
        "on "
        "one sequence.",
        *found.causes});
  page.pictures = found.pictures;
  page.plots = found.of_tokens;
  for (const Figure& figure : found.figures) {
    page.plots.push_back(figure.plot);
    write_file((folder / (figure.name + ".svg")).string(), report::svg_file(figure.plot));
  }
  page.footnotes = {to_text("Made by whence ", WHENCE_VERSION, ".")};
  write_file((folder / "report.html").string(), report::html(page));
  write_file((folder / "lab.json").string(), json_of(found, grids));
  if (!crossed.empty()) write_file((folder / "tables.csv").string(), crossed);
  for (const auto& [name, table] : {std::pair("scores.csv", &found.numbers), {"runs.csv", &found.runs},
           {"differences.csv", &found.differences}, {"curves.csv", &found.curves}})
    write_file((folder / name).string(), table->csv());
}

}  // namespace whence
