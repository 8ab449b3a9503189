#include "examples/whence/look/files.h"

#include <filesystem>
#include <iostream>
#include <optional>
#include <sstream>

#include "examples/whence/cli/progress.h"
#include "examples/whence/cli/text.h"
#include "examples/whence/look/figures.h"
#include "examples/whence/look/history.h"
#include "examples/whence/look/page.h"
#include "examples/whence/look/pictures.h"
#include "examples/whence/look/written.h"
#include "nn/io/files.h"
#include "tensor/error.h"

namespace whence::look {
namespace {

// Beside the page: look.html -> look.causes.csv
std::string beside(const std::filesystem::path& page, const std::string& ending) {
  return (page.parent_path() / (page.stem().string() + ending)).string();
}

// The run of --beside, if any. Two texts would not fit one map.
std::optional<Subject> subject_beside(const Subject& subject, const Files& files) {
  if (files.beside.empty()) return std::nullopt;
  SubjectOptions other = files.subject;
  other.run = files.beside, other.step = files.beside_step;
  Subject beside = subject_of(other);
  if (beside.texts != subject.texts)
    throw DoesNotFit("--beside: ", files.beside, " reads other tokens; a run on the same ones required (same task and ",
        "length, or same tokeniser)");
  return beside;
}

// RUN/ENDING, or ENDING here for a scheme; or --out.
std::filesystem::path file_to_write(const Files& files, const std::string& ending) {
  if (!files.out.empty()) return files.out;
  return is_folder(files.subject.run) ? std::filesystem::path(files.subject.run) / ending
                                      : std::filesystem::path(ending);
}

void write(const std::string& file, const std::string& text) {
  write_file(file, text);
  std::cout << "written: " << one_line(file) << std::endl;
}

void write(const std::string& file, const SafetensorsFile& tensors) {
  write_safetensors(file, tensors);
  std::cout << "written: " << one_line(file) << std::endl;
}

// The steps of --checkpoints: the first, the last, and those between them evenly.
std::vector<std::int64_t> chosen_steps(const Files& files) {
  const std::vector<std::int64_t> all = checkpoints_of(files.subject.run);
  if (all.empty()) throw FileError("--checkpoints: ", files.subject.run, " has none; a run that has saved required");
  const auto most = static_cast<std::size_t>(files.checkpoints);
  if (all.size() < 2)
    throw InputError("--checkpoints: ", files.subject.run, " has one, of step ", all[0],
        "; two or more required; train with a smaller --save-every, and --keep-checkpoints 0 to keep all");
  if (all.size() <= most) return all;
  std::vector<std::int64_t> steps;
  for (std::size_t k = 0; k < most; ++k)
    steps.push_back(all[most == 1 ? all.size() - 1 : k * (all.size() - 1) / (most - 1)]);
  return steps;
}

// The data of what the page shows beside this, which are made and let go one by one.
std::vector<std::string> data_beside(
    const Subject& subject, const std::vector<std::int64_t>& steps, const Files& files) {
  std::vector<std::string> all;
  if (const auto other = subject_beside(subject, files)) all.push_back(json_of(Inspection(*other, false)));
  for (const std::int64_t step : steps) {
    SubjectOptions then = files.subject;
    then.step = step;
    const Subject checkpoint = subject_of(then);
    all.push_back(checkpoint_json_of(Inspection(checkpoint, false)));
  }
  return all;
}

void write_pictures(
    const Inspection& inspection, const std::vector<EditOutcome>& edits, const std::filesystem::path& folder) {
  std::error_code refused;  // then the first file says what is wrong
  std::filesystem::create_directory(folder, refused);
  std::size_t count = 0;
  make_pictures(inspection, edits, [&](const std::string& name, const std::string& svg) {
    write_file((folder / name).string(), svg);
    ++count;
  });
  std::cout << "written: " << one_line(folder.string()) << ", " << count << " pictures" << std::endl;
}

void write_inspection(const Inspection& inspection, const Files& files) {
  const std::filesystem::path page = file_to_write(files, "look.html");
  const std::vector<std::int64_t> steps = files.checkpoints > 0 ? chosen_steps(files) : std::vector<std::int64_t>();
  require_small_page(inspection, files.beside.empty() ? steps.size() : 1);
  const auto history = history_of(std::filesystem::path(files.subject.run) / history_file);
  const auto edits = strongest_edits(inspection, static_cast<std::size_t>(files.edits));
  // Made before anything is written: it may still be too large.
  const std::string html = page_of(inspection, {history, edits, data_beside(inspection.subject(), steps, files)});
  if (files.numbers) {
    write(beside(page, ".safetensors"), tensors_of(inspection));
    write(beside(page, ".causes.csv"), causes_of(inspection).csv());
    write(beside(page, ".ways.csv"), ways_table(inspection).csv());
  }
  if (!edits.empty()) std::cout << edits_table(edits).text();
  if (files.pictures) write_pictures(inspection, edits, beside(page, ".pictures"));
  write(page.string(), html);
}

// "i=4100 j=4050; i=9 j=2"
std::vector<std::pair<index_t, index_t>> places_of(const std::string& texts, index_t tokens, bool causal) {
  std::vector<std::pair<index_t, index_t>> places;
  std::istringstream all(texts);
  for (std::string text; std::getline(all, text, ';');) {
    std::istringstream words(text);
    std::string query, key, more;
    words >> query >> key;
    const auto number = [&](const std::string& word, const char* name) {
      const auto found = word.starts_with(name) ? parse_number<std::int64_t>(word.substr(2)) : std::nullopt;
      if (!found || *found < 0 || *found >= tokens || words >> more)
        throw InputError("--at: '", text, "' given; \"i=QUERY j=KEY\" required, both from 0 to ", tokens - 1);
      return *found;
    };
    const index_t i = number(query, "i="), j = number(key, "j=");
    if (causal && j > i)
      throw InputError("--at: '", text, "' given; the mask hides key ", j, " from query ", i, "; j up to i required");
    places.emplace_back(i, j);
  }
  return places;
}

// The page of a text whose single numbers would not fit one; false: they do.
bool write_overview(const Subject& subject, const Files& files) {
  if (!Rows::take(subject)) return false;
  const Rows rows(subject);
  if (bytes_of_all(rows) <= static_cast<double>(most_bytes)) return false;
  for (const auto& [name, given] : {std::pair{"--beside", !files.beside.empty()}, {"--edits", files.edits > 0},
           {"--checkpoints", files.checkpoints > 0}, {"--pictures", files.pictures}})
    if (given)
      throw InputError(name, ": given with ", subject.tokens.numel(),
          " tokens, of which a page has no room for every number; fewer required: --length");
  const auto places = places_of(files.at, subject.tokens.numel(), subject.model->options().causal);
  const auto history = history_of(std::filesystem::path(files.subject.run) / history_file);
  Progress progress("look", 100, 0, ProgressStyle::for_standard_error(false), std::cerr);
  const Overview overview = overview_of(rows, places, 0.97 * static_cast<double>(most_bytes),
      [&](double share) { progress.update(static_cast<std::int64_t>(100 * share), 0, {}); });
  progress.update(100, 0, {});
  progress.finish();
  const std::filesystem::path page = file_to_write(files, "look.html");
  const std::string html = page_of(overview, rows, history);
  if (files.numbers) write(beside(page, ".safetensors"), tensors_of(overview));
  std::cout << title_line(subject, rows.loss()) << "; as pools of " << overview.cell << " by " << overview.cell
            << " pairs, " << overview.windows.size() << " windows of single numbers\n";
  write(page.string(), html);
  return true;
}

}  // namespace

std::string title_line(const Subject& subject, double loss) {
  std::string line = to_text(subject.title, ", loss ", loss);
  for (const auto& [name, value] : subject.facts) line += to_text("; ", name, ' ', value);
  return line;
}

void write_page(const Subject& subject, const Files& files) {
  if (write_overview(subject, files)) return;
  if (!files.at.empty())
    throw InputError("--at: given with ", subject.tokens.numel(),
        " tokens, of which the page has every number; a longer text required");
  std::cerr << require_memory(subject) << '\n';
  const Inspection inspection(subject);
  std::cout << title_line(subject, inspection.loss()) << '\n';
  write_inspection(inspection, files);
}

void write_figure(const Files& files) {
  const std::string svg = figure_svg(files.figure, files.subject);
  const std::string file = file_to_write(files, to_text("look.", figure_file_name(files.figure), ".svg")).string();
  write(file, svg);
}

}  // namespace whence::look
