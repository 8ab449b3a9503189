// look: whence did this gradient come? One pass of a trained model, with every named number, its gradient, the paths by
// which that came, and why it is zero where it is.
#include <filesystem>
#include <iostream>
#include <sstream>

#include "examples/whence/cli/command.h"
#include "examples/whence/cli/text.h"
#include "examples/whence/look/explained.h"
#include "examples/whence/look/subject.h"
#include "examples/whence/look/tables.h"
#include "examples/whence/look/write_page.h"
#include "examples/whence/playground/write_page.h"
#include "examples/whence/run/loading.h"
#include "examples/whence/run/run_files.h"
#include "examples/whence/run/run_record.h"
#include "nn/io/files.h"
#include "tensor/cpu/threads.h"
#include "tensor/error.h"

namespace whence {
namespace {

struct Options {
  std::vector<std::string> runs;
  look::PageRequest page;
  std::string explain, edit, dtype = "f32";
  bool causes = false, paths = false, playground = false;
  int threads = whence::threads();
};

using Count = Range<std::int64_t>;

void declare_subject(CommandLine& line, Options& options) {
  look::SubjectOptions& subject = options.page.subject;
  line.names("RUN", &options.runs,
      "folder that `whence train` wrote; a folder of such folders, as of lab.py, is listed; or a scheme: a model of it "
      "is drawn "
      "at random");
  line.heading("What is looked at")
      .text("text", &subject.text,
          {.help = "file that a language model reads",
              .initial = "a document that was set aside for validation, from its first line of prose: one of three "
                         "words or more that begin with a small letter, in a paragraph with a whole sentence"})
      .text("prompt", &subject.prompt, {"what it reads, typed here"})
      .integer("task-sample", &subject.sample, Count{0, 1000000000}, {"which sequence of the task's first test set"})
      .integer("length", &subject.length, Count{0, 1 << 20}, {"at most; 0: as many as in training", "tokens"})
      .integer("step", &subject.step, Count{0, 1000000000000},
          {"the checkpoint of this step; 0: the end of training, or the last checkpoint"})
      .text("beside", &options.page.beside, {"another run, or this one, to be shown beside it on the same tokens"})
      .integer("checkpoints", &options.page.checkpoints, Count{0, 1000},
          {"how many checkpoints to show on a slider, evenly spread, the weights before training first (train "
           "--keep-checkpoints 0 keeps all)"})
      .text("given", &subject.given,
          {"of a scheme: a file of safetensors with q, k and v, each [heads, tokens, dims], k and v of fewer heads if "
           "wanted, "
           "cotangent, of the output, and x if wanted: attention on these, in place of a model"})
      .integer("seed", &subject.seed, Range<std::uint64_t>{}, {"of what is drawn for a scheme"})
      .flag("bidirectional", &subject.bidirectional, {"of a scheme: every query sees every key"});
  declare_accept_damaged(line, subject.accept_damaged);
  line.choice("dtype", &options.dtype, {"f32", "f64"}, {"that all is computed in"});
}

void declare_output(CommandLine& line, Options& options) {
  line.heading("What is made of it")
      .text("out", &options.page.out, {.help = "the page to write", .initial = "RUN/look.html; of a scheme look.html"})
      .flag("playground", &options.playground,
          {"write RUN/playground.html, the page of `whence playground` with this run in it: the engine computes "
           "whatever "
           "is edited"})
      .text("at", &options.page.at,
          {"of a text too long for every number: where single numbers are shown, e.g. \"i=4100 j=4050\"; several with "
           "';' between them"})
      .flag("numbers", &options.page.numbers, {"write beside it all numbers as safetensors, causes and paths as CSV"})
      .flag("causes", &options.causes,
          {"print how much of each gradient is zero, and why, without what the mask hides; no page"})
      .flag("paths", &options.paths, {"print by which paths the gradients of x, q, k and v came; no page"})
      .text("explain", &options.explain,
          {"print one number worked out, e.g. \"logits layer=0 head=1 i=9 j=4\" or \"dLoss/dgates ...\"; no page"})
      .text("edit", &options.edit,
          {"change numbers in the middle of the pass, e.g. \"gates layer=0 head=1 = 0\"; several "
           "with ';' between them; prints what the gradient predicts and what the loss does; of a gradient on its way "
           "back, "
           "\"dLoss/dgates layer=0 head=1 *= 0\", the parameters' gradients; no page"})
      .integer("edits", &options.page.edits, Count{0, 10000}, {"of the strongest edits of heads and taps, on the page"})
      .integer("threads", &options.threads, Range<int>{1, 1024}, {"of the CPU"});
  line.example("whence look runs/flip_flop", "a page of one test sequence");
  line.example("whence look \"dape(kerple)\" --paths", "by which paths gradients come through a scheme");
  line.example("whence look runs/austen --text austen.txt --length 64 --causes", "why gradients are zero, as a table");
  line.example("whence look runs/flip_flop --explain \"dLoss/dgates layer=0 head=1 i=9 j=4\" --dtype f64",
      "one number, term by term");
}

void print_edits(const look::Inspection& inspection, const std::string& texts) {
  std::vector<look::EditOutcome> outcomes;
  std::istringstream all(texts);
  for (std::string text; std::getline(all, text, ';');)
    if (look::is_of_gradient(text))
      std::cout << look::gradients_table(text, look::gradients_with(inspection, text)).text();
    else
      outcomes.push_back(look::outcome_of(inspection, text));
  if (!outcomes.empty()) std::cout << look::edits_table(outcomes).text();
  if (look::far_from_straight(outcomes))
    std::cout << "A gradient tells the change of a small step. These are large ones, from where the loss is flat.\n";
}

// Refuses options that would do nothing: some options are of a page, some of a run or a scheme.
void refuse_idle_options(const CommandLine& line, const look::PageRequest& page, bool prints, bool playground) {
  const bool drawn = !look::is_folder(page.subject.run);
  const struct {
    std::vector<const char*> names;
    bool has_effect;
    const char* required;
  } rules[] = {{{"causes", "paths", "explain", "edit"}, !playground,
                   "a pass that is shown whole; the playground is asked itself"},
      {{"out"}, !prints, "a page"},
      {{"numbers", "edits", "beside", "checkpoints", "at"}, !prints && !playground, "a page"},
      {{"given", "seed", "bidirectional"}, drawn, "a scheme in place of a run"},
      {{"text", "prompt", "task-sample", "step", "checkpoints", "accept-damaged"}, !drawn, "the folder of a run"},
      {{"length"}, page.subject.given.empty(), "tokens; the file of --given says what is looked at"},
      {{"beside"}, page.checkpoints == 0, "the slider, which --checkpoints takes"}};
  for (const auto& rule : rules)
    for (const char* name : rule.names) line.refuse_unless(name, rule.has_effect, rule.required);
}

void write_playground(const look::PageRequest& page) {
  const std::string file = file_to_write(page, "playground.html").string();
  ensure_output_file(file);
  std::cerr << look::require_memory(look::subject_of(page.subject)) << '\n';
  write_file(file, playground::page_with("", &page.subject));
  std::cout << "written: " << one_line(file) << '\n';
}

void print(const look::Subject& subject, const Options& options) {
  std::cerr << look::require_memory(subject) << '\n';
  const look::Inspection inspection(subject);
  const std::string explained = options.explain.empty() ? "" : look::explained(inspection, options.explain);
  std::cout << look::title_line(subject, inspection.loss()) << '\n' << terminal_text(explained);
  if (!options.edit.empty()) print_edits(inspection, options.edit);
  if (options.causes) std::cout << look::causes_in_short(inspection).text();
  if (options.paths) std::cout << look::paths_table(inspection).text();
}

// Of a folder with runs below it, as lab.py leaves them: the command that looks at each; false: `folder` is none.
bool lists_runs(const std::string& folder) {
  std::error_code none;
  if (!look::is_folder(folder) || std::filesystem::exists(std::filesystem::path(folder) / "run.json", none))
    return false;
  const std::vector<std::string> runs = runs_below(folder);
  if (runs.empty()) return false;
  std::cout << one_line(folder) << ": " << runs.size() << (runs.size() == 1 ? " run" : " runs")
            << "; to look at one:\n";
  for (const std::string& run : runs) std::cout << "  " << one_line(shell_command({"whence", "look", run})) << '\n';
  return true;
}

int run(CommandLine& line) {
  Options options;
  look::PageRequest& page = options.page;
  declare_subject(line, options);
  declare_output(line, options);
  if (line.shows_page()) return 0;
  if (options.runs.size() != 1)
    throw InputError(options.runs.size(), " runs given; one folder that `whence train` wrote, or one scheme, required");
  if (line.words().size() == 1 && lists_runs(options.runs[0])) return 0;
  page.subject.run = options.runs[0];
  page.subject.dtype = options.dtype == "f64" ? DType::f64 : DType::f32;
  const bool prints = options.causes || options.paths || !options.explain.empty() || !options.edit.empty();
  refuse_idle_options(line, page, prints, options.playground);
  set_threads(options.threads);
  if (options.playground)
    write_playground(page);
  else if (const look::Subject subject = look::subject_of(page.subject); prints)
    print(subject, options);
  else
    look::write_page(subject, page);
  return 0;
}

const RegisterCommand registered{
    {"look", Purpose::learn, "where each gradient of a trained model came from: a page, tables, one number", run}};

}  // namespace
}  // namespace whence
