// look: whence did this gradient come? Shows one pass of a trained model: every named number, its gradient, the paths
// by which the gradient came, and why it is zero where it is.
#include <cmath>
#include <filesystem>
#include <iostream>

#include "examples/whence/cli/command.h"
#include "examples/whence/cli/numbers.h"
#include "examples/whence/cli/text.h"
#include "examples/whence/look/attribution.h"
#include "examples/whence/look/page.h"
#include "examples/whence/look/patch.h"
#include "examples/whence/look/place.h"
#include "examples/whence/look/tables.h"
#include "examples/whence/run/run_record.h"
#include "tensor/error.h"

namespace whence {
namespace {

struct Options {
  std::vector<std::string> runs;
  look::PageRequest page;
  std::string explain, edit, patch, task_sample = "0", dtype = "f32";
  bool causes = false, paths = false, serve = false, attribution = false, lens = false;

  [[nodiscard]] bool of_gradients() const { return causes || paths || !explain.empty() || !edit.empty(); }
  [[nodiscard]] bool of_logits() const { return attribution || lens; }
  [[nodiscard]] bool prints() const { return of_gradients() || of_logits() || !patch.empty(); }
};

using Count = Range<std::int64_t>;

void declare_subject(CommandLine& line, Options& options) {
  look::SubjectOptions& subject = options.page.subject;
  line.names(
      "RUN", &options.runs, "a run's folder (a folder of runs is listed), or a scheme such as cope: random weights");
  line.heading("Input")
      .text("text", &subject.text,
          {.help = "file that a language model reads", .initial = "the text that was set aside for validation"})
      .text("prompt", &subject.prompt, {"text that it reads, typed here; token numbers for a run of a token file"})
      .text("task-sample", &options.task_sample,
          {"number of a sequence in the task's first test set, or a set's name before it: \"sparse 3\""})
      .integer("length", &subject.length, Count{0, 1 << 20}, {"largest length; 0: as in training", "tokens"})
      .integer("step", &subject.step, Count{0, 1000000000000},
          {"the checkpoint of this step; 0: the end of training, or the last checkpoint"})
      .text("beside", &options.page.beside,
          {"other runs, commas between them: their results and their answers to the same tokens; without --checkpoints "
           "the first is shown next to this one in every map"})
      .integer("checkpoints", &options.page.checkpoints, Count{0, 1000},
          {"number of checkpoints on a slider, evenly spread, the weights before training first (train "
           "--keep-checkpoints 0 keeps all)"})
      .text("given", &subject.given,
          {"for a scheme: a safetensors file with q, k and v, each [heads, tokens, dims] (k and v may have fewer "
           "heads), the output's cotangent, and x if wanted: attention on these, in place of a model"})
      .choice("dtype", &options.dtype, {"f32", "f64"}, {"dtype of all computation"});
}

void declare_output(CommandLine& line, Options& options) {
  line.heading("Output")
      .text("out", &options.page.out, {.help = "the page to write", .initial = "RUN/look.html; of a scheme look.html"})
      .flag("serve", &options.serve,
          {"no file: serve the page to a browser of this machine, with the engine behind it, so that every number of a "
           "row can be dragged and another text typed; Ctrl-C ends it"})
      .flag("numbers", &options.page.numbers, {"also write all numbers and gradients as safetensors"})
      .flag("causes", &options.causes,
          {"print how much of each gradient is zero, and why, without what the mask hides; no page"})
      .flag("paths", &options.paths, {"print by which paths the gradients of x, q, k and v came; no page"})
      .text("explain", &options.explain,
          {"print one number worked out, e.g. \"logits layer=0 head=1 i=9 j=4\" or \"dLoss/dgates ...\"; no page"})
      .text("edit", &options.edit,
          {"change numbers in the middle of the pass, e.g. \"gates layer=0 head=1 = 0\"; several of one pass with ';' "
           "between them; prints what the gradient predicts and what the loss does; of a gradient in the backward "
           "pass, \"dLoss/dgates layer=0 head=1 *= 0\", prints the parameters' gradients; no page"})
      .flag("attribution", &options.attribution,
          {"print where the logit of the last answer came from: what the embedding, each head, each MLP and each bias "
           "adds to it, later norms kept fixed at this pass; no page"})
      .flag("lens", &options.lens,
          {"print what the model would answer after each layer: the last norm and the output applied there; no page"})
      .text("patch", &options.patch,
          {"copy numbers of another pass into this one, e.g. \"output layer=0 head=2\", and print the new loss and "
           "answer; without a layer, in each layer and head by itself; \"v layer=0 j=9 = j=5\" takes them from another "
           "place; several with ';' between them; all else that is printed is of the patched pass; no page"})
      .text("from", &options.page.from,
          {.help = "source for --patch and the page's map of patches: the number of a test sequence, another prompt, "
                   "or another run's folder",
              .initial = "on the page the next sequence with another answer"});
  line.example("whence look runs/flip_flop", "a page of one test sequence");
  line.example("whence look runs/flip_flop --serve", "the page with the engine behind it: drag any gate");
  line.example("whence look \"dape(kerple)\" --paths", "by which paths gradients come through a scheme");
  line.example("whence look runs/austen --text austen.txt --length 64 --causes", "why gradients are zero, as a table");
  line.example("whence look runs/flip_flop --explain \"dLoss/dgates layer=0 head=1 i=9 j=4\" --dtype f64",
      "one number, term by term");
  line.example("whence look runs/flip_flop --attribution --lens",
      "which heads gave the last answer, and after which layer it was there");
  line.example("whence look runs/flip_flop --patch output --from 7",
      "which head decides the answer: each one's output is replaced by another sequence's");
}

void print_edits(const look::Inspection& inspection, const std::string& text) {
  if (look::is_of_gradient(text)) {
    Table table({to_text(text, ": the gradient of"), "its norm", "with the edit"});
    for (const look::GradientOutcome& each : look::gradients_with(inspection, text))
      table.row({each.parameter, digits(each.before), digits(each.after)});
    std::cout << table.text();
    return;
  }
  const auto [edit, predicted, real] = look::outcome_of(inspection, text);
  std::cout << Table({"edit", "predicted change of the loss", "real change"})
                   .row({edit, predicted ? digits(*predicted) : "-", digits(real)})
                   .text();
  if (predicted && std::abs(real) > 100 * std::abs(*predicted))
    std::cout << "A gradient tells the change of a small step. This is a large one, from where the loss is flat.\n";
}

// Refuses options that would have no effect: some are for a page, some for a run or a scheme.
void refuse_idle_options(const CommandLine& line, const Options& options) {
  const look::SubjectOptions& subject = options.page.subject;
  const bool drawn = !look::is_folder(subject.run), page = !options.prints();
  const struct {
    std::vector<const char*> names;
    bool has_effect;
    const char* required;
  } rules[] = {{{"out"}, page && !options.serve, "a page"}, {{"serve", "beside", "checkpoints"}, page, "a page"},
      {{"numbers"}, page && !options.serve, "a page in a file"}, {{"given"}, drawn, "a scheme in place of a run"},
      {{"text", "prompt", "task-sample", "step", "checkpoints"}, !drawn, "the folder of a run"},
      {{"length"}, subject.given.empty(), "tokens; the file of --given says what is looked at"},
      {{"from"}, line.given("patch") || page, "--patch, or a page"}};
  for (const auto& rule : rules)
    for (const char* name : rule.names) line.refuse_unless(name, rule.has_effect, rule.required);
}

// Prints `head`, then what the inspection says of gradients. If --explain names a place that does not exist, it prints nothing.
void print_gradients(const look::Inspection& inspection, const Options& options, const std::string& head) {
  const std::string explained = options.explain.empty() ? "" : look::explained(inspection, options.explain);
  std::cout << head << terminal_text(explained);
  if (!options.edit.empty()) print_edits(inspection, options.edit);
  if (options.causes) std::cout << look::causes_of(inspection, true).text();
  if (options.paths) std::cout << look::paths_table(inspection).text();
}

void print_logits(const look::Forward& forward, const Options& options) {
  const look::Asked asked = look::asked_of(forward);
  if (options.attribution)
    std::cout << look::attribution_words(forward, asked)
              << look::attribution_table(look::attribution_of(forward, asked)).text();
  if (options.lens)
    std::cout << look::lens_words(forward, asked) << look::lens_table(look::lens_answers(forward, asked)).text();
}

void print_patch(const look::Subject& subject, const Options& options) {
  const look::SubjectOptions& asked = options.page.subject;
  const look::Subject other = look::PatchSource::named(options.page.from, asked).of(asked);
  const look::Inspection inspection(subject, false);
  const look::Forward source(other);
  const look::Patching patching(inspection, source);
  const bool map = look::is_map(options.patch);
  if (map && (options.of_gradients() || options.of_logits()))
    throw InputError("--patch: ", in_quotes(options.patch),
        " given, which is many passes; one required, with its layer, whose gradients, attribution or lens is printed");
  const auto outcomes =
      map ? patching.map_of(options.patch) : std::vector<look::PatchOutcome>{patching.outcome_of(options.patch)};
  const std::string head = to_text(look::title_line(subject, inspection.loss()), '\n', patching.words(),
      look::patch_table(patching.before(), outcomes).text());
  const look::Prepare patched = look::with(
      inspection.prepare(), map ? std::vector<look::Change>() : look::changes_of(inspection, source, options.patch));
  if (options.of_gradients())
    print_gradients(look::Inspection(subject, true, patched), options, head);
  else
    std::cout << head;
  if (options.of_logits()) print_logits(look::Forward(subject, patched), options);
}

void print(const look::Subject& subject, const Options& options) {
  if (options.of_gradients() || !options.patch.empty()) std::cerr << look::require_memory(subject) << '\n';
  if (!options.patch.empty()) return print_patch(subject, options);
  const auto title = [&](double loss) { return look::title_line(subject, loss) + '\n'; };
  if (options.of_gradients()) {
    const look::Inspection inspection(subject);
    print_gradients(inspection, options, title(inspection.loss()));
  }
  if (!options.of_logits()) return;
  const look::Forward forward(subject);
  if (!options.of_gradients()) std::cout << title(forward.loss);
  print_logits(forward, options);
}

// Reads "3" or "sparse 3": a number, and the name of a test set before it.
void take_sample(const std::string& text, look::SubjectOptions& subject) {
  const std::size_t space = text.rfind(' ');
  const auto number = parse_number<std::int64_t>(text.substr(space + 1));
  if (!number || *number < 0 || *number > 1000000000)
    throw InputError("--task-sample: ", in_quotes(text), " given; a number from 0 on, or SET NUMBER, required");
  subject.sample = *number;
  if (space != std::string::npos) subject.set = trimmed(text.substr(0, space));
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
  refuse_idle_options(line, options);
  take_sample(options.task_sample, page.subject);
  if (options.serve && !look::serve)
    throw InputError(
        "--serve: this program was built without cpp-httplib; apt-get install libcpp-httplib-dev, and build it again");
  if (options.serve)
    look::serve(page);
  else if (const look::Subject subject = look::subject_of(page.subject); options.prints())
    print(subject, options);
  else
    look::write_page(subject, page);
  return 0;
}

const RegisterCommand registered{
    {"look", Purpose::learn, "where each gradient of a trained model came from: a page, tables, one number", run}};

}  // namespace
}  // namespace whence
