// generate: draws text from a trained language model and prints it token by token.
#include <unistd.h>

#include <algorithm>
#include <iostream>

#include "examples/whence/bench/ceilings.h"
#include "examples/whence/cli/command.h"
#include "examples/whence/cli/numbers.h"
#include "examples/whence/cli/progress.h"
#include "examples/whence/cli/run_main.h"
#include "examples/whence/cli/text.h"
#include "examples/whence/language/sampling.h"
#include "examples/whence/language/saved_model.h"
#include "examples/whence/machine/memory.h"
#include "examples/whence/machine/placement.h"
#include "examples/whence/run/run_files.h"
#include "nn/attention/plan.h"
#include "nn/decoding.h"
#include "nn/scheme.h"
#include "tensor/error.h"

namespace whence {
namespace {

using namespace whence::language;

struct Options {
  std::vector<std::string> runs;
  std::string prompt = "\n", executor;
  GenerationOptions generation;
  bool quiet = false;
  MachineOptions machine;
};

void declare_options(CommandLine& line, Options& options) {
  using Count = Range<std::int64_t>;
  line.names("RUN", &options.runs, "folder that `train lm` wrote: run.json, tokeniser.json, weights.safetensors");
  line.heading("Model").choice(
      "executor", &options.executor, executor_names(), {"how attention is computed; otherwise as in training"});
  line.heading("Text")
      .text("prompt", &options.prompt,
          {"beginning of the text; a line end if not given; token numbers for a run of a token file"})
      .integer("tokens", &options.generation.tokens, Count{1, 1000000000}, {"number to draw", "tokens"})
      .integer("context", &options.generation.context, Count{0, 1000000000},
          {"most that the model sees; a full context continues from its later half. 0: all of the text, or the "
           "training length if the scheme does not accept any length",
              "tokens"});
  line.heading("Drawing")
      .number("temperature", &options.generation.sampling.temperature, Range<double>{0, 1000},
          {"below 1: safer, above: wilder; 0: always the most probable token"})
      .integer("top-k", &options.generation.sampling.top_k, Count{0, 1000000000},
          {"only this many of the most probable tokens; 0: all"})
      .number("top-p", &options.generation.sampling.top_p, Range<double>{0, 1, true},
          {"only the fewest most probable tokens that reach this probability"})
      .integer("seed", &options.generation.seed, Range<std::uint64_t>{}, {"the same seed draws the same text"});
  declare_device(line.heading("Machine"), &options.machine.device);
  declare_precision(line, &options.machine.precision);
  line.flag("quiet", &options.quiet, {"print only the text, and notes on unread parts of the prompt"});
  line.example("whence generate runs/austen --prompt \"Emma was\" --temperature 0.8 --top-k 40", "256 tokens");
}

// Returns the context for --context 0: 0, no limit, if every scheme accepts any length; else the training length or, if
// less, the longest that a scheme accepts.
index_t own_context(const TransformerOptions& model) {
  index_t longest = Claims::any_length;
  for (const SchemeSpec& spec : parse_schemes(model.scheme))
    longest = std::min(longest, spec.part().make({model.dim, model.heads, model.length})->claims().longest);
  return longest == Claims::any_length ? 0 : std::min(longest, model.length);
}

void check(const CommandLine& line, const Options& options) {
  if (options.runs.size() != 1)
    throw InputError(options.runs.size(), " runs given; the folder of one run of train lm required as the first word");
  for (const char* name : {"top-k", "top-p", "seed"})
    line.refuse_unless(name, options.generation.sampling.temperature > 0, "a temperature above 0");
}

TokenIds tokens_of(const Tokeniser& tokeniser, const std::string& prompt) {
  try {
    return tokeniser.encode(prompt);
  } catch (const UnfitText& unfit) { throw InputError("--prompt: ", unfit.what()); }
}

// Requires memory for the longest text read at once and for the cache, and returns a line about it. The longest is the
// prompt or half a full context; where the cache is made anew, all tokens, while the old cache is still held.
std::string require_room(const Transformer& model, const TokenIds& prompt, const GenerationOptions& generation) {
  const auto begun = static_cast<index_t>(prompt.size()), whole = begun + generation.tokens;
  const index_t context = generation.context ? std::min(generation.context, whole) : whole,
                given = std::max(std::min(begun, context), context < whole ? context / 2 : 1);
  const Lengths anew = Decoding::made_anew_at(model);
  const bool again = anew.reached(given, context);
  const PlannedPass pass{.model = model.options(),
      .device = model.device(),
      .length = again ? std::max(given, std::min(anew.last, context)) : given,
      .cached = again ? 2 * context : context,
      .remedy = "choose a smaller --context",
      .loaded = true};
  std::string text = require_pass_memory(pass);
  if (anew.first < anew.last && again)
    text += to_text("\nnote: from ", anew.first, " tokens on each token takes a pass over all of them, as ",
        model.scheme(), " changes their rows");
  return text;
}

int run(CommandLine& line) {
  Options options;
  declare_options(line, options);
  if (line.shows_page()) return 0;
  check(line, options);
  Placement placement = placement_of(options.machine);
  install_interrupt_handler();

  const SavedModel saved = load_language_model(options.runs[0], options.executor);
  if (options.machine.device == "auto" && placement.device.is_gpu())
    if (const auto cpu =
            cpu_to_draw(saved.model->options().layers, saved.model->parameter_count(), bench::measure_read_gb_per_s()))
      placement = placement_of(options.machine, *cpu);
  place(*saved.model, placement);
  const TokenIds prompt = tokens_of(*saved.tokeniser, options.prompt);
  options.generation.stop = saved.tokeniser->end_of_text();
  options.generation.named = saved.tokeniser->named();
  if (options.generation.context == 0) options.generation.context = own_context(saved.model->options());
  if (const auto read = static_cast<std::size_t>(options.generation.context); read > 0 && prompt.size() > read)
    std::cerr << "note: --prompt: the first " << prompt.size() - read << " of its " << prompt.size()
              << " tokens are not read, as --context is " << read << '\n';
  const std::string memory = require_room(*saved.model, prompt, options.generation);
  if (!options.quiet) std::cerr << memory << '\n';

  // A token may be part of a character; a terminal gets whole characters, and none that it acts on.
  Utf8Stream characters;
  const bool to_people = isatty(STDOUT_FILENO) == 1;
  const auto show = [to_people](const std::string& text) {
    std::cout << (to_people ? terminal_text(text) : text) << std::flush;
  };
  show(characters.push(saved.tokeniser->reads_numbers() ? saved.tokeniser->decode(prompt) : options.prompt));
  const double started = steady_seconds();
  const TokenIds made = generate(*saved.model, prompt, options.generation, [&](TokenId token) {
    show(characters.push(saved.tokeniser->token(token)));
    return !interrupt_requested() && std::cout.good();
  });
  show(characters.finish() + '\n');
  if (!options.quiet) {
    const double seconds = steady_seconds() - started;
    std::cerr << saved.model->scheme() << ": " << made.size() << " tokens in " << fixed(seconds, 2) << " s, "
              << with_unit(static_cast<double>(made.size()) / std::max(seconds, 1e-9)) << " tokens/s; "
              << placement.text << '\n';
  }
  if (interrupt_requested()) throw Interrupted("stopped before all tokens were drawn");
  return 0;
}

const RegisterCommand registered{
    {"generate", Purpose::train, "draws text from a language model that `train lm` wrote", run}};

}  // namespace
}  // namespace whence
