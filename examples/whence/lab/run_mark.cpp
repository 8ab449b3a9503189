#include "examples/whence/lab/run_mark.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <span>

#include "examples/whence/cli/jsonl.h"
#include "examples/whence/cli/text.h"
#include "examples/whence/run/run_files.h"
#include "nn/io/files.h"
#include "nn/io/sha256.h"
#include "tensor/error.h"

namespace whence {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char *results = "results.jsonl", *metrics = "metrics.jsonl";
constexpr const char* seal = "SHA-256";  // of the mark without it; "SHA-256 of FILE" of a file

fs::path mark_in(const fs::path& folder) { return folder / "lab_cell.json"; }

std::string text_of(const RunMark& mark, bool sealed) {
  json page{{"arguments", mark.arguments}, {"done", mark.done}, {"code", mark.code},
      {"processor_seconds", mark.processor_seconds}};
  for (const auto& [file, hash] : mark.hashes) page[to_text(seal, " of ", file)] = hash;
  try {
    if (sealed) page[seal] = sha256(page.dump());
    return page.dump() + "\n";
  } catch (const json::exception&) { throw InputError("lab: an option that is not UTF-8 given; UTF-8 required"); }
}

// What reads as some mark, but was not written so, is damaged: every byte of the file is compared.
RunMark mark_of(const JsonlLine& line, const std::string& text) {
  RunMark mark{.arguments = line.texts("arguments"),
      .code = line.text_or_nothing("code"),  // the first marks had none, nor times
      .processor_seconds = line.has("processor_seconds") ? line.number("processor_seconds") : 0,
      .done = line.truth("done")};
  const std::string of = to_text(seal, " of ");
  for (const std::string& name : line.names())
    if (name.starts_with(of)) mark.hashes[name.substr(of.size())] = line.text(name);
  const bool sealed = line.has(seal);
  for (const std::string& name : line.names())
    if (!sealed && name != "arguments" && name != "code" && name != "processor_seconds" && name != "done")
      line.refuse(to_text("field ", in_quotes(name), " in a mark without a hash of itself; none required"));
  if (sealed &&
      (text != text_of(mark, true) || (mark.done && !(mark.hashes.contains(results) && mark.hashes.contains(metrics)))))
    line.refuse("the mark is not what its hash says");
  return mark;
}

// ---- Files

std::string sha256_of_file(const std::string& path) {
  const InputFile file(path);
  Sha256 hash;
  std::vector<std::byte> block(std::size_t{1} << 20);
  for (std::uint64_t at = 0; at < file.size(); at += block.size()) {
    const auto part = std::span(block).first(std::min<std::uint64_t>(block.size(), file.size() - at));
    file.read(at, part);
    hash.add(part);
  }
  return hash.hexadecimal();
}

void add_hashes(const fs::path& folder, const std::string& prefix, std::map<std::string, std::string>& hashes) {
  for (const std::string& name : names_in(folder.string())) {
    const fs::path path = folder / name;
    const auto kind = fs::symlink_status(path);
    if (fs::is_directory(kind))
      add_hashes(path, prefix + name + "/", hashes);
    else if (fs::is_regular_file(kind) && prefix + name != "lab_cell.json" && prefix + name != "checkpoints/lock" &&
             !name.starts_with("claim-"))
      hashes[prefix + name] = sha256_of_file(path.string());
  }
}

// ---- Figures

// A field of a line of results, and what it is called.
constexpr std::pair<const char*, const char*> measures[] = {{"token_error_percent", "token error %"},
    {"sequence_error_percent", "sequence error %"}, {"perplexity", "perplexity"}, {"bits_per_byte", "bits per byte"},
    {"delta_p", "Delta-P"}};

double percent(const JsonlLine& line, const std::string& field) {
  const double value = line.number(field);
  if (value < 0 || value > 100) line.refuse(to_text("field '", field, "' is ", value, "; a percentage required"));
  return value;
}

// Those of the fields whose names begin with `prefix`.
GridCell::Score score_of(const JsonlLine& line, const std::string& prefix) {
  GridCell::Score score;
  for (const auto& [field, name] : measures) {
    const std::string whole = prefix + field;
    if (!line.has(whole)) continue;
    const double value = whole.ends_with("_percent") ? percent(line, whole) : line.number(whole);
    if (!std::isnan(value)) score.measures[name] = value;
  }
  return score;
}

void require_fields(const JsonlLine& line, std::initializer_list<const char*> fields) {
  for (const char* field : fields)
    if (!line.has(field)) line.refuse(to_text("no field '", field, "'; it required"));
}

void add_score(GridCell& cell, const JsonlLine& line, const std::string& set, GridCell::Score score) {
  if (std::ranges::count(cell.scores, set, &std::pair<std::string, GridCell::Score>::first) > 0)
    line.refuse(to_text(in_quotes(set), " twice; each once required"));
  cell.scores.emplace_back(set, std::move(score));
}

void read_task_line(GridCell& cell, const JsonlLine& line) {
  const std::string& set = line.text("test_set");
  if (std::ranges::count(cell.sets, set) == 0) line.refuse(to_text("no test set ", in_quotes(set), " in this task"));
  if (!line.has("refused")) require_fields(line, {"token_error_percent", "sequence_error_percent"});
  GridCell::Score score = score_of(line, "");
  for (const std::string& name : line.names())
    if (name.starts_with("guess: "))
      if (const double guess = percent(line, name); !std::isnan(guess)) score.guesses[name.substr(7)] = guess;
  add_score(cell, line, set, std::move(score));
}

// The scores of the text first, then a line for each length, twice the one before.
void read_text_line(GridCell& cell, const JsonlLine& line, std::int64_t& length) {
  if (cell.scores.empty()) {
    require_fields(line, {"perplexity", "bits_per_byte"});
    add_score(cell, line, "validation", score_of(line, ""));
    if (auto test = score_of(line, "test_"); !test.measures.empty()) add_score(cell, line, "test", std::move(test));
    return;
  }
  const std::int64_t now = line.whole_number("length");
  if (now < 1 || (length > 0 && (now / 2 != length || now % 2 != 0)))
    line.refuse(to_text("length ", now, " given; ", length > 0 ? "twice the one before" : "1 or more", " required"));
  length = now;
  require_fields(line, {"perplexity"});
  add_score(cell, line, to_text("length ", now), score_of(line, ""));
}

void read_results(GridCell& cell, const std::string& path, const std::string& text) {
  std::int64_t length = 0;
  for_each_line_of_jsonl(text, path, [&](const JsonlLine& line) {
    if (cell.sets.empty())
      read_text_line(cell, line, length);
    else
      read_task_line(cell, line);
  });
  for (const std::string& set : cell.sets)
    if (std::ranges::count(cell.scores, set, &std::pair<std::string, GridCell::Score>::first) == 0)
      throw FileError(path, ": no line of test set ", in_quotes(set), "; one of each required");
  if (cell.sets.empty() && length == 0) throw FileError(path, ": no line of a length; one required");
}

void read_curves(GridCell& cell, const std::string& path, const std::string& text) {
  std::int64_t last = 0;
  for_each_line_of_jsonl(text, path, [&](const JsonlLine& line) {
    const std::int64_t step = line.whole_number("step");
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
  cell.seconds = 0;
}

}  // namespace

void write_mark(const fs::path& folder, const RunMark& mark) {
  write_file(mark_in(folder).string(), text_of(mark, true));
}

std::optional<RunMark> read_mark(const fs::path& folder) {
  const fs::path path = mark_in(folder);
  if (!fs::exists(fs::symlink_status(path))) return std::nullopt;
  const std::string text = read_file(path);
  std::optional<RunMark> mark;
  for_each_line_of_jsonl(text, path.string(), [&](const JsonlLine& line) {
    if (mark) line.refuse("a second line; one required");
    mark = mark_of(line, text);
  });
  if (!mark) throw FileError(path.string(), ": empty; the mark of a run required");
  return mark;
}

std::map<std::string, std::string> hashes_of(const fs::path& folder) {
  std::map<std::string, std::string> hashes;
  add_hashes(folder, "", hashes);
  return hashes;
}

void require_unchanged(const fs::path& folder, const std::map<std::string, std::string>& hashes) {
  for (const auto& [name, hash] : hashes) {
    const fs::path path = folder / name;
    if (!fs::exists(fs::symlink_status(path)) || sha256_of_file(path.string()) == hash) continue;
    const bool needed = name == results || name == metrics || name == "run.json";
    throw FileError(path.string(), ": is not what the run wrote: its SHA-256 is another",
        needed ? "" : "; no figure is from this file, it may be removed");
  }
}

void read_figures(GridCell& cell) {
  clear_figures(cell);
  try {
    for (const auto& [name, read] : {std::pair(results, &read_results), std::pair(metrics, &read_curves)}) {
      const std::string path = (cell.folder / name).string();
      read(cell, path, read_file(path));
    }
  } catch (...) {
    clear_figures(cell);
    throw;
  }
}

void read_curves_so_far(GridCell& cell) {
  clear_figures(cell);
  try {
    const std::string path = (cell.folder / metrics).string(), text = read_file(path);
    read_curves(cell, path, text.substr(0, text.rfind('\n') + 1));  // the last line may be half written
  } catch (const InputError&) { return; }
}

}  // namespace whence
