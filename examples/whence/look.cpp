// look: whence did this gradient come? Shows one pass of a trained model: every named number, its gradient, the paths
// by which the gradient came, and why it is zero where it is.
#include <filesystem>
#include <iostream>
#include <sstream>

#include "examples/whence/cli/command.h"
#include "examples/whence/cli/text.h"
#include "examples/whence/look/attribution.h"
#include "examples/whence/look/explained.h"
#include "examples/whence/look/patch.h"
#include "examples/whence/look/subject.h"
#include "examples/whence/look/tables.h"
#include "examples/whence/look/write_page.h"
#include "examples/whence/playground/write_page.h"
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
  bool causes = false, paths = false, playground = false, serve = false, attribution = false, lens = false;
  std::string patch;
  int threads = whence::threads();
};

using Count = Range<std::int64_t>;

void declare_subject(CommandLine& line, Options& options) {
  look::SubjectOptions& subject = options.page.subject;
  line.names("RUN", &options.runs,
      "folder that `whence train` wrote; a folder of such folders, such as lab.py's, is listed; or a scheme: a model "
      "of it is drawn at random");
  line.heading("Input")
      .text("text", &subject.text,
          {.help = "file that a language model reads", .initial = "the text that was set aside for validation"})
      .text("prompt", &subject.prompt, {"text that it reads, typed here; token numbers for a run of a token file"})
      .integer(
          "task-sample", &subject.sample, Count{0, 1000000000}, {"number of a sequence in the task's first test set"})
      .integer("length", &subject.length, Count{0, 1 << 20}, {"largest length; 0: as in training", "tokens"})
      .integer("step", &subject.step, Count{0, 1000000000000},
          {"the checkpoint of this step; 0: the end of training, or the last checkpoint"})
      .text("beside", &options.page.beside, {"another run, or this one, to show next to it on the same tokens"})
      .integer("checkpoints", &options.page.checkpoints, Count{0, 1000},
          {"number of checkpoints on a slider, evenly spread, the weights before training first (train "
           "--keep-checkpoints 0 keeps all)"})
      .text("given", &subject.given,
          {"for a scheme: a safetensors file with q, k and v, each [heads, tokens, dims] (k and v may have fewer "
           "heads), the output's cotangent, and x if wanted: attention on these, in place of a model"})
      .integer("seed", &subject.seed, Range<std::uint64_t>{}, {"seed of the numbers drawn for a scheme"})
      .flag("bidirectional", &subject.bidirectional, {"for a scheme: every query sees every key"});
  line.elsewhere("accept-damaged", "restore the file from a copy");
  line.choice("dtype", &options.dtype, {"f32", "f64"}, {"dtype of all computation"});
}

void declare_output(CommandLine& line, Options& options) {
  line.heading("Output")
      .text("out", &options.page.out, {.help = "the page to write", .initial = "RUN/look.html; of a scheme look.html"})
      .flag("playground", &options.playground,
          {"write RUN/playground.html, the page of `whence playground` with this run in it: the engine computes "
           "whatever "
           "is edited"})
      .flag("serve", &options.serve,
          {"no file: serve the page to a browser of this machine, with the engine behind it, so that every number of a "
           "row can be dragged and another text typed; Ctrl-C ends it"})
      .elsewhere("at", "--length cuts a text that is too long for a page")
      .flag("numbers", &options.page.numbers, {"also write all numbers as safetensors, causes and paths as CSV"})
      .flag("causes", &options.causes,
          {"print how much of each gradient is zero, and why, without what the mask hides; no page"})
      .flag("paths", &options.paths, {"print by which paths the gradients of x, q, k and v came; no page"})
      .text("explain", &options.explain,
          {"print one number worked out, e.g. \"logits layer=0 head=1 i=9 j=4\" or \"dLoss/dgates ...\"; no page"})
      .text("edit", &options.edit,
          {"change numbers in the middle of the pass, e.g. \"gates layer=0 head=1 = 0\"; several "
           "with ';' between them; prints what the gradient predicts and what the loss does; for a gradient in the "
           "backward pass, \"dLoss/dgates layer=0 head=1 *= 0\", prints the parameters' gradients; no page"})
      .flag("attribution", &options.attribution,
          {"print where the logit of an answer came from: what the embedding, each head, each MLP and each bias adds "
           "to it, "
           "later norms kept fixed at this pass; no page"})
      .flag("lens", &options.lens,
          {"print what the model would answer after each layer: the last norm and the output applied there; no page"})
      .text("patch", &options.patch,
          {"replace numbers of this pass by another's, e.g. \"output layer=0 head=2\", and print the new loss and "
           "answer; without a layer, in each layer and head by itself; \"v layer=0 j=9 = j=5\" takes them from another "
           "place; several with ';' between them; all else that is printed is of the patched pass; no page"})
      .integer("from-sample", &options.page.patched_from.sample, Range<std::int64_t>{-1, 1000000000},
          {.help = "for --patch and the page's map of patches: the task's test sequence that the numbers come from",
              .initial = "this one"})
      .text("from-prompt", &options.page.patched_from.prompt, {"likewise: the text that the language model reads"})
      .text("from", &options.page.patched_from.run,
          {.help = "likewise: the run that the numbers come from", .initial = "RUN"})
      .integer("token", &options.page.token, Range<std::int64_t>{-1, 1 << 20},
          {.help = "for --attribution, --lens and patches: position of the answer", .initial = "the last answer's"})
      .text("answer", &options.page.answer, {.help = "likewise: the answer", .initial = "the wanted one"})
      .integer("edits", &options.page.edits, Count{0, 10000},
          {"number of the strongest edits of heads and taps on the page"})
      .integer("threads", &options.threads, Range<int>{1, 1024}, {"CPU threads"});
  line.example("whence look runs/flip_flop", "a page of one test sequence");
  line.example("whence look runs/flip_flop --serve", "the page with the engine behind it: drag any gate");
  line.example("whence look \"dape(kerple)\" --paths", "by which paths gradients come through a scheme");
  line.example("whence look runs/austen --text austen.txt --length 64 --causes", "why gradients are zero, as a table");
  line.example("whence look runs/flip_flop --explain \"dLoss/dgates layer=0 head=1 i=9 j=4\" --dtype f64",
      "one number, term by term");
  line.example("whence look runs/flip_flop --attribution --lens",
      "which heads gave the last answer, and after which layer it was there");
  line.example("whence look runs/flip_flop --patch output --from-sample 7",
      "which head decides the answer: each one's output is replaced by another sequence's");
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
  if (outcomes.size() > 1) std::cout << "Each edit is made by itself.\n";
  if (look::far_from_straight(outcomes))
    std::cout << "A gradient tells the change of a small step. These are large ones, from where the loss is flat.\n";
}

// Refuses options that would have no effect: some are for a page, some for a run or a scheme.
void refuse_idle_options(
    const CommandLine& line, const look::PageRequest& page, bool prints, bool playground, bool serves) {
  const bool drawn = !look::is_folder(page.subject.run);
  const struct {
    std::vector<const char*> names;
    bool has_effect;
    const char* required;
  } rules[] = {{{"causes", "paths", "explain", "edit", "attribution", "lens", "patch"}, !playground,
                   "a pass that is shown whole; the playground answers by itself"},
      {{"out"}, !prints && !serves, "a page"}, {{"serve"}, !prints && !playground, "a page"},
      {{"numbers"}, !serves, "files"},
      {{"numbers", "edits", "beside", "checkpoints"}, !prints && !playground, "a page"},
      {{"given", "seed", "bidirectional"}, drawn, "a scheme in place of a run"},
      {{"text", "prompt", "task-sample", "step", "checkpoints"}, !drawn, "the folder of a run"},
      {{"length"}, page.subject.given.empty(), "tokens; the file of --given says what is looked at"},
      {{"beside"}, page.checkpoints == 0, "the slider, which --checkpoints takes"},
      {{"from-sample", "from-prompt"}, !drawn, "the folder of a run"},
      {{"from-sample", "from-prompt", "from"}, line.given("patch") || (!prints && !playground), "--patch, or a page"},
      {{"token", "answer"},
          line.given("patch") || line.given("attribution") || line.given("lens") || (!prints && !playground),
          "--attribution, --lens, --patch, or a page"}};
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

// Prints `head`, then what the inspection says of gradients. If --explain names a place that does not exist, it prints nothing.
void print_gradients(const look::Inspection& inspection, const Options& options, const std::string& head) {
  const std::string explained = options.explain.empty() ? "" : look::explained(inspection, options.explain);
  std::cout << head << terminal_text(explained);
  if (!options.edit.empty()) print_edits(inspection, options.edit);
  if (options.causes) std::cout << look::causes_in_short(inspection).text();
  if (options.paths) std::cout << look::paths_table(inspection).text();
}

void print_logits(const look::Forward& forward, const Options& options) {
  const look::Asked asked = look::asked_of(forward, options.page.token, options.page.answer);
  if (options.attribution)
    std::cout << look::attribution_words(forward, asked)
              << look::attribution_table(look::attribution_of(forward, asked)).text();
  if (options.lens)
    std::cout << look::lens_words(forward, asked) << look::lens_table(look::lens_answers(forward, asked)).text();
}

void print_patch(const look::Subject& subject, const Options& options, bool of_gradients, bool of_logits) {
  const look::Subject other = options.page.patched_from.of(options.page.subject);
  const look::Inspection inspection(subject, false);
  const look::Forward source(other);
  const look::Patching patching(inspection, source, options.page.token, options.page.answer);
  const bool map = look::is_map(options.patch);
  if (map && (of_gradients || of_logits))
    throw InputError("--patch: ", in_quotes(options.patch),
        " given, which is many passes; one required, with its layer, whose gradients, attribution or lens is printed");
  const auto outcomes =
      map ? patching.map_of(options.patch) : std::vector<look::PatchOutcome>{patching.outcome_of(options.patch)};
  const std::string head = to_text(look::title_line(subject, inspection.loss()), '\n', patching.words(),
      look::patch_table(patching.before(), outcomes).text());
  const look::Prepare patched = look::with(
      inspection.prepare(), map ? std::vector<look::Change>() : look::changes_of(inspection, source, options.patch));
  if (of_gradients)
    print_gradients(look::Inspection(subject, true, patched), options, head);
  else
    std::cout << head;
  if (of_logits) print_logits(look::Forward(subject, patched), options);
}

void print(const look::Subject& subject, const Options& options) {
  const bool of_gradients = options.causes || options.paths || !options.explain.empty() || !options.edit.empty();
  const bool of_logits = options.attribution || options.lens, patches = !options.patch.empty();
  if (of_gradients || patches) std::cerr << look::require_memory(subject) << '\n';
  if (patches) return print_patch(subject, options, of_gradients, of_logits);
  const auto title = [&](double loss) { return look::title_line(subject, loss) + '\n'; };
  if (of_gradients) {
    const look::Inspection inspection(subject);
    print_gradients(inspection, options, title(inspection.loss()));
  }
  if (!of_logits) return;
  const look::Forward forward(subject);
  if (!of_gradients) std::cout << title(forward.loss);
  print_logits(forward, options);
}

// Prints a command for each run below a folder, such as lab.py's. Returns false if the folder has none.
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
  const bool prints = options.causes || options.paths || !options.explain.empty() || !options.edit.empty() ||
                      options.attribution || options.lens || !options.patch.empty();
  refuse_idle_options(line, page, prints, options.playground, options.serve);
  set_threads(options.threads);
  if (options.serve && !look::serve)
    throw InputError(
        "--serve: this program was built without cpp-httplib; apt-get install libcpp-httplib-dev, and build it again");
  if (options.serve)
    look::serve(page);
  else if (options.playground)
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
