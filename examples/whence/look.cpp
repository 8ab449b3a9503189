// look: whence did this gradient come? One pass of a trained model, with every named number, its gradient, the ways by
// which that came, and why it is zero where it is.
#include <iostream>
#include <sstream>

#include "examples/whence/cli/command.h"
#include "examples/whence/cli/command_line.h"
#include "examples/whence/look/figures.h"
#include "examples/whence/look/files.h"
#include "examples/whence/look/subject.h"
#include "examples/whence/look/written.h"
#include "examples/whence/run/loading.h"
#include "tensor/error.h"
#include "tensor/parallel.h"

namespace whence {
namespace {

struct Options {
  std::vector<std::string> runs;
  look::Files files;
  std::string explain, read, edit, dtype = "f32";
  bool causes = false, ways = false, json = false;
  int threads = whence::threads();
};

void declare_options(CommandLine& line, Options& options) {
  using Count = Range<std::int64_t>;
  line.names("RUN", &options.runs, "folder that `whence train` wrote, or a scheme: a model of it is drawn at random");
  line.heading("What is looked at")
      .text("text", &options.files.subject.text, {"file that a language model reads"})
      .integer("task-sample", &options.files.subject.sample, Count{0, 1000000000},
          {"which sequence of the task's first test set"})
      .integer(
          "length", &options.files.subject.length, Count{0, 1 << 20}, {"at most; 0: as many as in training", "tokens"})
      .integer("step", &options.files.subject.step, Count{0, 1000000000000},
          {"the checkpoint of this step; 0: the end of training, or the last checkpoint"})
      .text("beside", &options.files.beside, {"another run, or this one, to be shown beside it on the same tokens"})
      .integer("beside-step", &options.files.beside_step, Count{0, 1000000000000}, {"as --step, of --beside"})
      .integer("checkpoints", &options.files.checkpoints, Count{0, 1000},
          {"of this run, as many and evenly spread, to go through by a slider (train --keep-checkpoints 0 keeps all)"})
      .text("given", &options.files.subject.given,
          {"of a scheme: a file of safetensors with q, k and v, each [heads, tokens, dims], and if wanted "
           "cotangent, of the output, and x: attention on these, in place of a model"})
      .integer("seed", &options.files.subject.seed, Range<std::uint64_t>{}, {"of what is drawn for a scheme"})
      .flag("bidirectional", &options.files.subject.bidirectional, {"of a scheme: every query sees every key"});
  declare_accept_damaged(line, options.files.subject.accept_damaged);
  line.choice("dtype", &options.dtype, {"f32", "f64"}, {"that all is computed in"});
  line.heading("What is made of it")
      .text("out", &options.files.out,
          {.help = "the page or the figure to write", .initial = "RUN/look.html; of a scheme look.html"})
      .text("at", &options.files.at,
          {"of a text too long for every number: where single numbers are shown, e.g. \"i=4100 j=4050\"; several with "
           "';' between them"})
      .flag("numbers", &options.files.numbers, {"write beside it all numbers as safetensors, causes and ways as CSV"})
      .flag("pictures", &options.files.pictures,
          {"write beside it all that is on it as SVG files, for papers and slides"})
      .text("figure", &options.files.figure,
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
      .integer(
          "edits", &options.files.edits, Count{0, 10000}, {"of the strongest edits of heads and taps, on the page"})
      .integer("threads", &options.threads, Range<int>{1, 1024}, {"of the CPU"});
  line.example("whence look runs/flip_flop", "a page of one test sequence");
  line.example("whence look runs/austen --text austen.txt --figure dape/7", "a figure of the paper, of this run");
  line.example("whence look \"dape(kerple)\" --ways", "by which ways gradients come through a scheme");
  line.example("whence look runs/austen --text austen.txt --length 64 --causes", "why gradients are zero, as a table");
  line.example("whence look runs/flip_flop --explain \"dLoss/dgates layer=0 head=1 i=9 j=4\" --dtype f64",
      "one number, term by term");
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
  if (options.files.figure == "list") {
    std::cout << look::figures_list();
    return 0;
  }
  if (options.runs.size() != 1)
    throw InputError(options.runs.size(), " runs given; one folder that `whence train` wrote, or one scheme, required");
  options.files.subject.run = options.runs[0];
  options.files.subject.dtype = options.dtype == "f64" ? DType::f64 : DType::f32;
  const bool figure = !options.files.figure.empty();
  const bool prints = figure || options.causes || options.ways || !options.explain.empty() || !options.read.empty() ||
                      !options.edit.empty();
  for (const char* name : {"causes", "ways", "explain", "read", "edit"})
    line.refuse_unless(name, !figure, "no --figure");
  line.refuse_unless("out", !prints || figure, "a page or a figure");
  for (const char* name : {"numbers", "pictures", "edits", "beside", "checkpoints", "at"})
    line.refuse_unless(name, !prints, "a page");
  const bool drawn = !look::is_folder(options.files.subject.run);
  for (const char* name : {"given", "seed", "bidirectional"})
    line.refuse_unless(name, drawn, "a scheme in place of a run");
  for (const char* name : {"text", "task-sample", "step", "checkpoints", "accept-damaged"})
    line.refuse_unless(name, !drawn, "the folder of a run");
  for (const char* name : {"length", "figure"})
    line.refuse_unless(name, options.files.subject.given.empty(), "no --given, whose file says what is looked at");
  line.refuse_unless("beside-step", !options.files.beside.empty(), "--beside");
  line.refuse_unless("json", !options.explain.empty(), "--explain");
  for (const char* name : {"causes", "ways", "read", "edit"}) line.refuse_unless(name, !options.json, "no --json");
  if (options.files.checkpoints > 0 && !options.files.beside.empty())
    throw InputError("--checkpoints: given with --beside; one of them required, as one slider serves both");
  set_threads(options.threads);
  if (figure) {
    look::write_figure(options.files);
    return 0;
  }
  const look::Subject subject = look::subject_of(options.files.subject);
  if (!prints) {
    look::write_page(subject, options.files);
    return 0;
  }
  std::cerr << look::require_memory(subject) << '\n';
  const look::Inspection inspection(subject);
  if (options.json) {
    std::cout << look::explained_json(inspection, options.explain) << '\n';
    return 0;
  }
  const std::string explained = options.explain.empty() ? "" : look::explained(inspection, options.explain);
  std::cout << look::title_line(subject, inspection.loss()) << '\n' << explained;
  if (!options.read.empty())
    std::cout << look::text_read(inspection, options.read, look::TextStyle::for_standard_output());
  if (!options.edit.empty()) print_edits(inspection, options.edit);
  if (options.causes) std::cout << look::causes_of(inspection).text();
  if (options.ways) std::cout << look::ways_table(inspection).text();
  return 0;
}

const RegisterCommand registered{{"look", Purpose::learn,
    "whence each gradient of a trained model came: a page, tables, one number worked out", run}};

}  // namespace
}  // namespace whence
