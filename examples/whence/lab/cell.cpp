// What the folder of a cell says: is its run this one, and done? And the figures that it left.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <set>

#include "examples/whence/cli/json.h"
#include "examples/whence/cli/json_lines.h"
#include "examples/whence/cli/text.h"
#include "examples/whence/lab/grid.h"
#include "examples/whence/run/run_files.h"
#include "examples/whence/run/run_record.h"
#include "nn/io/checkpoint.h"
#include "tensor/error.h"

namespace whence {
namespace {

namespace fs = std::filesystem;

constexpr const char *results = "results.jsonl", *metrics = "metrics.jsonl";

bool is_there(const fs::path& path) { return fs::exists(fs::symlink_status(path)); }

// ---- Is the run that lies there the cell's?

// What differs: "--lr is 0.001 there, 0.1 here". Of options that neither side was given, defaults are not asked for; a
// batch that is cut to fit into a GPU's memory is the same batch.
std::string difference(const RunRecord& record, const GridCell& cell) {
  if (record.subject != cell.task) return to_text("a run of ", record.subject, " is there");
  std::set<std::string> names{"scheme", "seed"};
  for (const auto& [name, value] : cell.options) names.insert(name);
  for (const std::string& name : record.given)
    if (name != "accumulate") names.insert(name);
  for (const std::string& name : names) {
    const std::string *there = find_setting(record.options, name), *here = find_setting(cell.values, name);
    const std::string was = there ? *there : "absent", is = here ? *here : "absent";
    if (was != is && !never_recorded.contains(name)) return to_text("--", name, " is ", was, " there, ", is, " here");
  }
  return "";
}

void require_own_run(const GridCell& cell) {
  const fs::path path = cell.folder / "run.json";
  const RunRecord record = read_run_record(path);
  if (const std::string differs = difference(record, cell); !differs.empty())
    throw DoesNotFit("--out: ", cell.folder.string(), " holds a run with other options: ", one_line(differs),
        "; the same options, or another folder, required");
  if (!cell.data.empty() && record.data != cell.data)
    throw DoesNotFit("--out: ", path.string(),
        " is of a run on another text of the same name; the text that it was trained on, or another folder, required");
}

// ---- Figures

using Score = RunFigures::Score;

// A field of a line of results, and what it is called.
constexpr std::pair<const char*, const char*> measures[] = {{"token_error_percent", "token error %"},
    {"sequence_error_percent", "sequence error %"}, {"perplexity", "perplexity"}, {"bits_per_byte", "bits per byte"},
    {"delta_p", "Delta-P"}};

double percent(const Json& line, const std::string& field) {
  const double value = line.number(field);
  if (value < 0 || value > 100) line.refuse(to_text("field '", field, "' is ", value, "; a percentage required"));
  return value;
}

void require(const Json& line, std::initializer_list<const char*> fields) {
  for (const char* field : fields)
    if (!line.has(field)) line.refuse(to_text("no field '", field, "'; it required"));
}

bool has_score(const RunFigures& figures, const std::string& set) {
  return std::ranges::count(figures.scores, set, &std::pair<std::string, Score>::first) > 0;
}

// The numbers of the fields whose names begin with `prefix`, and those of guesses.
void add_score(RunFigures& figures, const Json& line, const std::string& set, const std::string& prefix = "") {
  Score score;
  for (const auto& [field, name] : measures) {
    const std::string whole = prefix + field;
    if (!line.has(whole)) continue;
    const double value = whole.ends_with("_percent") ? percent(line, whole) : line.number(whole);
    if (!std::isnan(value)) score.measures[name] = value;
  }
  for (const auto& [name, value] : line.fields())
    if (name.starts_with("guess: "))
      if (const double guess = percent(line, name); !std::isnan(guess)) score.guesses[name.substr(7)] = guess;
  if (has_score(figures, set)) line.refuse(to_text(in_quotes(set), " twice; each once required"));
  figures.scores.emplace_back(set, std::move(score));
}

void read_task_line(RunFigures& figures, const Json& line, const std::vector<std::string>& sets) {
  const std::string& set = line.text("test_set");
  if (std::ranges::count(sets, set) == 0) line.refuse(to_text("no test set ", in_quotes(set), " in this task"));
  if (!line.has("refused")) require(line, {"token_error_percent", "sequence_error_percent"});
  add_score(figures, line, set);
}

// The scores of the text first, then a line for each length.
void read_text_line(RunFigures& figures, const Json& line) {
  if (figures.scores.empty()) {
    require(line, {"perplexity", "bits_per_byte"});
    add_score(figures, line, "validation");
    if (line.has("test_perplexity")) add_score(figures, line, "test", "test_");
  } else {
    require(line, {"perplexity"});
    add_score(figures, line, to_text("length ", line.whole("length", 1)));
  }
}

void read_results(RunFigures& figures, const GridCell& cell) {
  const std::string path = (cell.folder / results).string();
  for_each_json_line(read_file(path), path, [&](const Json& line) {
    if (cell.sets.empty())
      read_text_line(figures, line);
    else
      read_task_line(figures, line, cell.sets);
  });
  for (const std::string& set : cell.sets)
    if (!has_score(figures, set))
      throw FileError(path, ": no line of test set ", in_quotes(set), "; one of each required");
  if (cell.sets.empty() && (figures.scores.empty() || !figures.scores.back().first.starts_with("length ")))
    throw FileError(path, ": no line of a length; one required");
}

void read_curves(RunFigures& figures, const GridCell& cell) {
  const std::string path = (cell.folder / metrics).string();
  std::int64_t last = 0;
  for_each_json_line(read_file(path), path, [&](const Json& line) {
    last = line.whole("step", std::max<std::int64_t>(last, 1), cell.steps);
    const auto add = [&](const char* name, std::vector<LossPoint>& curve) {
      if (!line.has(name)) return;
      if (const double value = line.number(name); !std::isnan(value)) curve.push_back({last, value});
    };
    add("loss", figures.curve), add("validation_score", figures.validation);
    add("validation_token_error_percent", figures.validation_error);
    if (line.has("seconds")) figures.seconds = std::max(figures.seconds, line.number("seconds"));
  });
  if (last == 0) throw FileError(path, ": no line; one at least required");
}

// Reads what a run that has ended left, behind its curves. FileError naming the file, and the line where one is wrong,
// when a file is not what such a run writes; SystemError when it cannot be read.
void read_rest(RunFigures& figures, const GridCell& cell) {
  read_results(figures, cell);
  const std::chrono::duration<double> lasted =
      fs::last_write_time(cell.folder / results) - fs::last_write_time(cell.folder / "run.json");
  figures.seconds_in_all = std::max(figures.seconds, lasted.count());
}

bool has_checkpoint(const GridCell& cell) { return find_latest((cell.folder / "checkpoints").string()).has_value(); }

}  // namespace

std::vector<std::string> train_words(const GridCell& cell) {
  std::vector<std::string> words = arguments_of(cell.options);
  words.insert(words.begin(), {"train", cell.task, "--preset", "paper"});  // the cell's options are all that differs
  words.insert(words.end(),
      {"--scheme", cell.scheme, "--seed", std::to_string(cell.seed), "--quiet", "--out", cell.folder.string()});
  if (has_checkpoint(cell)) words.emplace_back("--resume");
  return words;
}

bool read_if_done(GridCell& cell) {
  cell.missing = true, cell.failure = "not begun";
  cell.figures = {}, cell.log_lost = false;
  if (!is_there(cell.folder / "run.json")) {
    if (has_checkpoint(cell))
      cell.failure = "damaged: run.json is not there";  // its checkpoint says of which run it is
    return false;
  }
  require_own_run(cell);
  cell.failure = "begun, and not at its end";
  if (!is_there(cell.folder / results)) return false;
  try {
    cell.log_lost = true;
    read_curves(cell.figures, cell);
    cell.log_lost = false;
    read_rest(cell.figures, cell);
  } catch (const InputError& damaged) {
    cell.failure = to_text("damaged: ", damaged.what());
    return false;
  }
  cell.missing = false, cell.failure.clear();
  return true;
}

LossPoint newest_loss(const GridCell& cell) {
  LossPoint newest{0, 0};
  try {
    const std::string path = (cell.folder / metrics).string(), text = read_file(path);
    const std::size_t end = text.rfind('\n');  // the last line may be half written
    if (end == std::string::npos || end == 0) return newest;
    const std::size_t begin = text.rfind('\n', end - 1) + 1;
    for_each_json_line(text.substr(begin, end - begin), path, [&](const Json& line) {
      newest.step = line.whole("step");
      newest.loss = line.has("loss") ? line.number("loss") : std::nan("");
    });
  } catch (const InputError&) { return {0, 0}; }
  return newest;
}

std::string log_of(const GridCell& cell) { return (cell.folder / "train.log").string(); }

}  // namespace whence
