// look: whence did this gradient come? One pass of a trained model, with every named number, its gradient, the ways by
// which that came, and why it is zero where it is.
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <sstream>

#include "examples/app/command.h"
#include "examples/app/command_line.h"
#include "examples/app/progress.h"
#include "examples/app/run_files.h"
#include "examples/app/text.h"
#include "examples/look/figures.h"
#include "examples/look/history.h"
#include "examples/look/page.h"
#include "examples/look/pictures.h"
#include "examples/look/subject.h"
#include "examples/look/written.h"
#include "nn/io/files.h"
#include "tensor/error.h"
#include "tensor/parallel.h"

namespace whence {
namespace {

struct Options {
  std::vector<std::string> runs;
  look::SubjectOptions subject;
  std::string beside, out, explain, read, edit, figure, at, dtype = "f32";
  std::int64_t beside_step = 0, checkpoints = 0;
  std::int64_t edits = 0;
  bool causes = false, ways = false, numbers = false, pictures = false, json = false;
  int threads = whence::threads();
};

void declare_options(CommandLine& line, Options& options) {
  using Count = Range<std::int64_t>;
  line.names("RUN", &options.runs, "folder that `whence train` wrote, or a scheme: a model of it is drawn at random");
  line.heading("What is looked at")
      .text("text", &options.subject.text, {"file that a language model reads"})
      .integer(
          "task-sample", &options.subject.sample, Count{0, 1000000000}, {"which sequence of the task's first test set"})
      .integer("length", &options.subject.length, Count{0, 1 << 20}, {"at most; 0: as many as in training", "tokens"})
      .integer("step", &options.subject.step, Count{0, 1000000000000},
          {"the checkpoint of this step; 0: the end of training, or the last checkpoint"})
      .text("beside", &options.beside, {"another run, or this one, to be shown beside it on the same tokens"})
      .integer("beside-step", &options.beside_step, Count{0, 1000000000000}, {"as --step, of --beside"})
      .integer("checkpoints", &options.checkpoints, Count{0, 1000},
          {"of this run, as many and evenly spread, to go through by a slider (train --keep-checkpoints 0 keeps all)"})
      .text("given", &options.subject.given,
          {"of a scheme: a file of safetensors with q, k and v, each [heads, tokens, dims], and if wanted "
           "cotangent, of the output, and x: attention on these, in place of a model"})
      .integer("seed", &options.subject.seed, Range<std::uint64_t>{}, {"of what is drawn for a scheme"})
      .flag("bidirectional", &options.subject.bidirectional, {"of a scheme: every query sees every key"})
      .choice("dtype", &options.dtype, {"f32", "f64"}, {"that all is computed in"});
  line.heading("What is made of it")
      .text("out", &options.out,
          {.help = "the page or the figure to write", .initial = "RUN/look.html; of a scheme look.html"})
      .text("at", &options.at,
          {"of a text too long for every number: where single numbers are shown, e.g. \"i=4100 j=4050\"; several with "
           "';' between them"})
      .flag("numbers", &options.numbers, {"write beside it all numbers as safetensors, causes and ways as CSV"})
      .flag("pictures", &options.pictures, {"write beside it all that is on it as SVG files, for papers and slides"})
      .text("figure", &options.figure,
          {"draw a figure of a paper from this run, as SVG: cope/4, dape/1, ...; list: which there are; no page"})
      .flag("causes", &options.causes, {"print how much of each gradient is zero, and why; no page"})
      .flag("ways", &options.ways, {"print by which ways the gradients of x, q, k and v came; no page"})
      .text("explain", &options.explain,
          {"print one number worked out, e.g. \"logits layer=0 head=1 i=9 j=4\" or \"dLoss/dgates ...\"; no page"})
      .flag("json", &options.json, {"with --explain: the same as JSON, and nothing else"})
      .text("read", &options.read,
          {"print the text, each token marked by what one query makes of it, e.g. \"pattern layer=0 head=1 i=40\" or "
           "\"dLoss/dgates ...\"; no page"})
      .text("edit", &options.edit,
          {"change numbers in the middle of the pass, e.g. \"blocks.0.attention.position.gates[h=1] = 0\"; several "
           "with "
           "';' between them; prints what the gradient predicts and what the loss does; no page"})
      .integer("edits", &options.edits, Count{0, 10000}, {"of the strongest edits of heads and taps, on the page"})
      .integer("threads", &options.threads, Range<int>{1, 1024}, {"of the CPU"});
  line.example("whence look runs/flip_flop", "a page of one test sequence");
  line.example("whence look runs/austen --text austen.txt --figure dape/7", "a figure of the paper, of this run");
  line.example("whence look \"dape(kerple)\" --ways", "by which ways gradients come through a scheme");
  line.example("whence look runs/austen --text austen.txt --length 64 --causes", "why gradients are zero, as a table");
  line.example("whence look runs/flip_flop --explain \"dLoss/dgates layer=0 head=1 i=9 j=4\" --dtype f64",
      "one number, term by term");
}

// Beside the page: look.html -> look.causes.csv
std::string beside(const std::filesystem::path& page, const std::string& ending) {
  return (page.parent_path() / (page.stem().string() + ending)).string();
}

// The run of --beside, if any. Two texts would not fit one map.
std::optional<look::Subject> subject_beside(const look::Subject& subject, const Options& options) {
  if (options.beside.empty()) return std::nullopt;
  look::SubjectOptions other = options.subject;
  other.run = options.beside, other.step = options.beside_step;
  look::Subject beside = look::subject_of(other);
  if (beside.texts != subject.texts)
    throw InputError("--beside: ", options.beside,
        " reads other tokens; a run on the same ones required (same task and ", "length, or same tokeniser)");
  return beside;
}

// RUN/ENDING, or ENDING here for a scheme; or --out.
std::filesystem::path file_to_write(const Options& options, const std::string& ending) {
  if (!options.out.empty()) return options.out;
  return look::is_folder(options.subject.run) ? std::filesystem::path(options.subject.run) / ending
                                              : std::filesystem::path(ending);
}

void write(const std::string& file, const std::string& text) {
  write_file(file, text);
  std::cout << "written: " << file << std::endl;
}

void write(const std::string& file, const SafetensorsFile& tensors) {
  write_safetensors(file, tensors);
  std::cout << "written: " << file << std::endl;
}

// The steps of --checkpoints: the first, the last, and those between them evenly.
std::vector<std::int64_t> chosen_steps(const Options& options) {
  const std::vector<std::int64_t> all = look::checkpoints_of(options.subject.run);
  if (all.empty()) throw InputError("--checkpoints: ", options.subject.run, " has none; a run that has saved required");
  const auto most = static_cast<std::size_t>(options.checkpoints);
  if (all.size() <= most) return all;
  std::vector<std::int64_t> steps;
  for (std::size_t k = 0; k < most; ++k)
    steps.push_back(all[most == 1 ? all.size() - 1 : k * (all.size() - 1) / (most - 1)]);
  return steps;
}

// The data of what the page shows beside this, which are made and let go one by one.
std::vector<std::string> data_beside(const look::Subject& subject, const Options& options) {
  std::vector<std::string> all;
  if (const auto other = subject_beside(subject, options))
    all.push_back(look::json_of(look::Inspection(*other, false)));
  if (options.checkpoints == 0) return all;
  for (const std::int64_t step : chosen_steps(options)) {
    look::SubjectOptions then = options.subject;
    then.step = step;
    const look::Subject checkpoint = look::subject_of(then);
    all.push_back(look::checkpoint_json_of(look::Inspection(checkpoint, false)));
  }
  return all;
}

void write_figure(const Options& options) {
  const std::string svg = look::figure_svg(options.figure, options.subject);
  const std::string file =
      file_to_write(options, to_text("look.", look::figure_file_name(options.figure), ".svg")).string();
  write(file, svg);
}

void write_pictures(const look::Inspection& inspection, const std::vector<look::EditOutcome>& edits,
    const std::filesystem::path& folder) {
  std::error_code refused;  // then the first file says what is wrong
  std::filesystem::create_directory(folder, refused);
  std::size_t count = 0;
  look::make_pictures(inspection, edits, [&](const std::string& name, const std::string& svg) {
    write_file((folder / name).string(), svg);
    ++count;
  });
  std::cout << "written: " << folder.string() << ", " << count << " pictures" << std::endl;
}

void write_page(const look::Inspection& inspection, const Options& options) {
  const std::filesystem::path page = file_to_write(options, "look.html");
  const std::size_t others = options.checkpoints > 0 ? chosen_steps(options).size() : options.beside.empty() ? 0 : 1;
  look::require_small_page(inspection, others);
  const auto history = look::history_of(std::filesystem::path(options.subject.run) / look::history_file);
  const std::vector<std::string> beside_it = data_beside(inspection.subject(), options);
  if (options.numbers) {
    write(beside(page, ".safetensors"), look::tensors_of(inspection));
    write(beside(page, ".causes.csv"), look::causes_of(inspection).csv());
    write(beside(page, ".ways.csv"), look::ways_table(inspection).csv());
  }
  const auto edits = look::strongest_edits(inspection, static_cast<std::size_t>(options.edits));
  if (!edits.empty()) std::cout << look::edits_table(edits).text();
  if (options.pictures) write_pictures(inspection, edits, beside(page, ".pictures"));
  write(page.string(), look::page_of(inspection, {history, edits, beside_it}));
}

// "i=4100 j=4050; i=9 j=2"
std::vector<std::pair<index_t, index_t>> places_of(const std::string& texts, index_t tokens) {
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
    const index_t i = number(query, "i=");
    places.emplace_back(i, number(key, "j="));
  }
  return places;
}

// The page of a text whose single numbers would not fit one; false: they do.
bool write_overview(const look::Subject& subject, const Options& options) {
  constexpr index_t always_fits = 64;  // tokens
  if (subject.tokens.numel() <= always_fits) return false;
  const look::Rows rows(subject);
  if (look::bytes_of_all(rows) <= static_cast<double>(look::most_bytes)) return false;
  for (const auto& [name, given] : {std::pair{"--beside", !options.beside.empty()}, {"--edits", options.edits > 0},
           {"--checkpoints", options.checkpoints > 0}, {"--pictures", options.pictures}})
    if (given)
      throw InputError(name, ": given with ", subject.tokens.numel(),
          " tokens, of which a page has no room for every number; fewer required: --length");
  const auto places = places_of(options.at, subject.tokens.numel());
  const auto history = look::history_of(std::filesystem::path(options.subject.run) / look::history_file);
  Progress progress("look", 100, 0, ProgressStyle::for_standard_error(false), std::cerr);
  const look::Overview overview = look::overview_of(rows, places, 0.97 * static_cast<double>(look::most_bytes),
      [&](double share) { progress.update(static_cast<std::int64_t>(100 * share), 0, {}); });
  progress.update(100, 0, {});
  progress.finish();
  const std::filesystem::path page = file_to_write(options, "look.html");
  if (options.numbers) write(beside(page, ".safetensors"), look::tensors_of(overview));
  std::cout << subject.title << ", loss " << rows.loss() << "; " << subject.tokens.numel() << " tokens as pools of "
            << overview.cell << " by " << overview.cell << " pairs, " << overview.windows.size()
            << " windows of single numbers\n";
  write(page.string(), look::page_of(overview, rows, history));
  return true;
}

void print_edits(const look::Inspection& inspection, const std::string& texts) {
  std::vector<look::EditOutcome> outcomes;
  std::istringstream all(texts);
  for (std::string text; std::getline(all, text, ';');)
    outcomes.push_back(look::outcome_of(inspection, look::edit_of(text)));
  std::cout << look::edits_table(outcomes).text();
}

int run(int argc, char** argv) {
  Options options;
  CommandLine line(
      "whence look", "Shows whence each gradient of a trained model came: values, gradients, ways, and why zero.");
  declare_options(line, options);
  if (line.shows_page(argc, argv)) return 0;
  if (options.figure == "list") {
    std::cout << look::figures_list();
    return 0;
  }
  if (options.runs.size() != 1)
    throw InputError(options.runs.size(), " runs given; one folder that `whence train` wrote, or one scheme, required");
  options.subject.run = options.runs[0];
  options.subject.dtype = options.dtype == "f64" ? DType::f64 : DType::f32;
  const bool figure = !options.figure.empty();
  const bool prints = figure || options.causes || options.ways || !options.explain.empty() || !options.read.empty() ||
                      !options.edit.empty();
  for (const char* name : {"causes", "ways", "explain", "read", "edit"})
    line.refuse_unless(name, !figure, "no --figure");
  line.refuse_unless("out", !prints || figure, "a page or a figure");
  for (const char* name : {"numbers", "pictures", "edits", "beside", "checkpoints", "at"})
    line.refuse_unless(name, !prints, "a page");
  const bool drawn = !look::is_folder(options.subject.run);
  for (const char* name : {"given", "seed", "bidirectional"})
    line.refuse_unless(name, drawn, "a scheme in place of a run");
  for (const char* name : {"text", "task-sample", "step", "checkpoints"})
    line.refuse_unless(name, !drawn, "the folder of a run");
  line.refuse_unless("length", options.subject.given.empty(), "tokens that are not given");
  line.refuse_unless("beside-step", !options.beside.empty(), "--beside");
  line.refuse_unless("json", !options.explain.empty(), "--explain");
  if (options.checkpoints > 0 && !options.beside.empty())
    throw InputError("--checkpoints: given with --beside; one of them required, as one slider serves both");
  set_threads(options.threads);
  if (figure) {
    write_figure(options);
    return 0;
  }
  const look::Subject subject = look::subject_of(options.subject);
  if (!prints && write_overview(subject, options)) return 0;
  if (!options.at.empty())
    throw InputError("--at: given with ", subject.tokens.numel(),
        " tokens, of which the page has every number; a longer text required");
  const look::Inspection inspection(subject);
  if (options.json) {
    std::cout << look::explained_json(inspection, options.explain) << '\n';
    return 0;
  }
  std::cout << subject.title << ", loss " << inspection.loss();
  for (const auto& [name, value] : subject.facts) std::cout << "; " << name << ' ' << value;
  std::cout << '\n';
  if (!options.explain.empty()) std::cout << look::explained(inspection, options.explain);
  if (!options.read.empty())
    std::cout << look::text_read(inspection, options.read, look::TextStyle::for_standard_output());
  if (!options.edit.empty()) print_edits(inspection, options.edit);
  if (options.causes) std::cout << look::causes_of(inspection).text();
  if (options.ways) std::cout << look::ways_table(inspection).text();
  if (!prints) write_page(inspection, options);
  return 0;
}

const RegisterCommand registered{{"look", Purpose::learn,
    "whence each gradient of a trained model came: a page, tables, one number worked out", run}};

}  // namespace
}  // namespace whence
