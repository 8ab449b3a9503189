#include "examples/whence/lab/cell.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <set>

#include "examples/whence/cli/json_lines.h"
#include "examples/whence/cli/text.h"
#include "examples/whence/run/run_files.h"
#include "examples/whence/run/run_record.h"
#include "nn/io/checkpoint.h"
#include "nn/io/json.h"
#include "tensor/error.h"

namespace whence {
namespace {

namespace fs = std::filesystem;

constexpr const char *results = "results.jsonl", *metrics = "metrics.jsonl";

bool is_there(const fs::path& path) { return fs::exists(fs::symlink_status(path)); }

bool has_checkpoint(const GridCell& cell) { return find_latest((cell.folder / "checkpoints").string()).has_value(); }

// ---- Is the run that lies there the cell's?

// What differs: "--lr is 0.001 there, 0.1 here". Of options that neither side was given, defaults are not asked for; a
// batch that is cut to fit into a GPU's memory is the same batch.
std::string difference(const RunRecord& record, const Grid& grid, const GridCell& cell) {
  if (record.subject != grid.task) return to_text("a run of ", record.subject, " is there");
  Settings wanted{{"seed", std::to_string(cell.seed)}};
  std::set<std::string> names{"scheme", "seed"};
  for (const auto& [name, value] : cell.options) names.insert(name);
  for (const std::string& name : record.given)
    if (name != "accumulate") names.insert(name);
  for (const std::string& name : names) {
    const std::string* there = find_setting(record.options, name);
    const std::string* here = find_setting(name == "seed" ? wanted : cell.values, name);
    const std::string was = there ? *there : "absent", is = here ? *here : "absent";
    if (was != is && !never_recorded.contains(name)) return to_text("--", name, " is ", was, " there, ", is, " here");
  }
  return "";
}

void require_own_run(const Grid& grid, const GridCell& cell) {
  const fs::path path = cell.folder / "run.json";
  const RunRecord record = read_run_record(path);
  if (const std::string differs = difference(record, grid, cell); !differs.empty())
    throw DoesNotFit("--out: ", cell.folder.string(), " holds a run with other options: ", one_line(differs),
        "; the same options, or another folder, required");
  if (!cell.data.empty() && record.data != cell.data)
    throw DoesNotFit("--out: ", path.string(),
        " is of a run on another text of the same name; the text that it was trained on, or another folder, required");
}

// ---- Figures

// A field of a line of results, and what it is called.
constexpr std::pair<const char*, const char*> measures[] = {{"token_error_percent", "token error %"},
    {"sequence_error_percent", "sequence error %"}, {"perplexity", "perplexity"}, {"bits_per_byte", "bits per byte"},
    {"delta_p", "Delta-P"}};

double percent(const Json& line, const std::string& field) {
  const double value = line.number(field);
  if (value < 0 || value > 100) line.refuse(to_text("field '", field, "' is ", value, "; a percentage required"));
  return value;
}

// Those of the fields whose names begin with `prefix`.
GridCell::Score score_of(const Json& line, const std::string& prefix) {
  GridCell::Score score;
  for (const auto& [field, name] : measures) {
    const std::string whole = prefix + field;
    if (!line.has(whole)) continue;
    const double value = whole.ends_with("_percent") ? percent(line, whole) : line.number(whole);
    if (!std::isnan(value)) score.measures[name] = value;
  }
  return score;
}

void require_fields(const Json& line, std::initializer_list<const char*> fields) {
  for (const char* field : fields)
    if (!line.has(field)) line.refuse(to_text("no field '", field, "'; it required"));
}

bool has_score(const GridCell& cell, const std::string& set) {
  return std::ranges::count(cell.scores, set, &std::pair<std::string, GridCell::Score>::first) > 0;
}

void add_score(GridCell& cell, const Json& line, const std::string& set, GridCell::Score score) {
  if (has_score(cell, set)) line.refuse(to_text(in_quotes(set), " twice; each once required"));
  cell.scores.emplace_back(set, std::move(score));
}

void read_task_line(GridCell& cell, const Json& line) {
  const std::string& set = line.text("test_set");
  if (std::ranges::count(cell.sets, set) == 0) line.refuse(to_text("no test set ", in_quotes(set), " in this task"));
  if (!line.has("refused")) require_fields(line, {"token_error_percent", "sequence_error_percent"});
  GridCell::Score score = score_of(line, "");
  for (const auto& [name, value] : line.fields())
    if (name.starts_with("guess: "))
      if (const double guess = percent(line, name); !std::isnan(guess)) score.guesses[name.substr(7)] = guess;
  add_score(cell, line, set, std::move(score));
}

// The scores of the text first, then a line for each length, twice the one before.
void read_text_line(GridCell& cell, const Json& line, std::int64_t& length) {
  if (cell.scores.empty()) {
    require_fields(line, {"perplexity", "bits_per_byte"});
    add_score(cell, line, "validation", score_of(line, ""));
    if (auto test = score_of(line, "test_"); !test.measures.empty()) add_score(cell, line, "test", std::move(test));
    return;
  }
  const std::int64_t now = line.whole("length");
  if (now < 1 || (length > 0 && (now / 2 != length || now % 2 != 0)))
    line.refuse(to_text("length ", now, " given; ", length > 0 ? "twice the one before" : "1 or more", " required"));
  length = now;
  require_fields(line, {"perplexity"});
  add_score(cell, line, to_text("length ", now), score_of(line, ""));
}

void read_results(GridCell& cell) {
  const std::string path = (cell.folder / results).string();
  std::int64_t length = 0;
  for_each_json_line(read_file(path), path, [&](const Json& line) {
    if (cell.sets.empty())
      read_text_line(cell, line, length);
    else
      read_task_line(cell, line);
  });
  for (const std::string& set : cell.sets)
    if (!has_score(cell, set))
      throw FileError(path, ": no line of test set ", in_quotes(set), "; one of each required");
  if (cell.sets.empty() && length == 0) throw FileError(path, ": no line of a length; one required");
}

void read_curves(GridCell& cell) {
  const std::string path = (cell.folder / metrics).string();
  std::int64_t last = 0;
  for_each_json_line(read_file(path), path, [&](const Json& line) {
    const std::int64_t step = line.whole("step");
    if (step < std::max<std::int64_t>(last, 1) || step > cell.steps)
      line.refuse(to_text("step ", step, " given; ", std::max<std::int64_t>(last, 1), " to ", cell.steps, " required"));
    last = step;
    const auto add = [&](const char* name, std::vector<LossPoint>& curve) {
      if (!line.has(name)) return;
      if (const double value = line.number(name); !std::isnan(value)) curve.push_back({step, value});
    };
    add("loss", cell.curve), add("validation_score", cell.validation);
    add("validation_token_error_percent", cell.validation_error);
    if (line.has("seconds")) cell.seconds = std::max(cell.seconds, line.number("seconds"));
  });
  if (last == 0) throw FileError(path, ": no line; one at least required");
}

void clear_figures(GridCell& cell) {
  cell.curve.clear(), cell.validation.clear(), cell.validation_error.clear(), cell.scores.clear();
  cell.seconds = cell.seconds_in_all = 0;
}

}  // namespace

std::vector<std::string> train_words(const Grid& grid, const GridCell& cell) {
  std::vector<std::string> words = arguments_of(cell.options);
  words.insert(words.begin(), {"train", grid.task});
  words.insert(words.end(),
      {"--scheme", cell.scheme, "--seed", std::to_string(cell.seed), "--quiet", "--out", cell.folder.string()});
  if (is_there(cell.folder / "run.json") && has_checkpoint(cell)) words.emplace_back("--resume");
  return words;
}

bool read_if_done(const Grid& grid, GridCell& cell) {
  cell.missing = true, cell.failure = "not begun";
  if (!is_there(cell.folder / "run.json")) return false;
  require_own_run(grid, cell);
  cell.failure = "begun, and not at its end";
  if (!is_there(cell.folder / results)) return false;
  try {
    read_figures(cell);
  } catch (const InputError& damaged) {
    cell.failure = to_text("damaged: ", damaged.what());
    return false;
  }
  cell.missing = false, cell.failure.clear();
  return true;
}

void read_figures(GridCell& cell) {
  clear_figures(cell);
  try {
    read_results(cell);
    read_curves(cell);
  } catch (...) {
    clear_figures(cell);
    throw;
  }
  const std::chrono::duration<double> lasted =
      fs::last_write_time(cell.folder / results) - fs::last_write_time(cell.folder / "run.json");
  cell.seconds_in_all = std::max(cell.seconds, lasted.count());
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
