// Options, the run, and what it leaves: weights, tokeniser, logs, perplexities by length.
#include "examples/whence/language/train_language.h"

#include <algorithm>
#include <cmath>
#include <iostream>

#include "examples/whence/cli/interrupt.h"
#include "examples/whence/cli/json_lines.h"
#include "examples/whence/cli/numbers.h"
#include "examples/whence/cli/progress.h"
#include "examples/whence/cli/scheme_names.h"
#include "examples/whence/cli/statistics.h"
#include "examples/whence/cli/text.h"
#include "examples/whence/cli/words.h"
#include "examples/whence/language/first_weights.h"
#include "examples/whence/language/length_evaluation.h"
#include "examples/whence/language/saved_model.h"
#include "examples/whence/look/history.h"
#include "examples/whence/machine/memory_plan.h"
#include "examples/whence/machine/placement.h"
#include "examples/whence/machine/ranks.h"
#include "examples/whence/run/run_record.h"
#include "examples/whence/run/training_operations.h"
#include "nn/io/files.h"
#include "nn/io/json.h"
#include "nn/models.h"
#include "tensor/suggest.h"

namespace whence::language {
namespace {

struct Settings {
  CorpusOptions corpus;
  CorpusWords words;
  TransformerOptions model{.dim = 256, .layers = 4, .heads = 4, .scheme = "rope"};
  TrainingOptions training{.steps = 2000, .learning_rate = 1e-3, .warm_up = 100, .decay = "cosine"};
  std::string tokeniser = "bytes", named, scheme = "rope", out = "runs/lm", from, beside, weights_of;
  std::int64_t length = 128, batch = 16, evaluate_to = 16, last = 256, evaluation_windows = 20, validation_windows = 64;
  MachineOptions machine;
  RankOptions ranks;
};

void declare_options(CommandLine& line, Settings& settings) {
  using Count = Range<std::int64_t>;
  std::vector<std::string> names;
  for (const NamedModel& model : named_models())
    if (model.options.causal) names.push_back(model.name);
  line.heading("Text");
  declare(line, settings.corpus, settings.words);
  line.text("tokeniser", &settings.tokeniser, {"bytes, or a file that `tokenize` wrote"});
  auto& model = settings.model;
  line.heading("Model")
      .choice("model", &settings.named, names,
          {"one of `models`, in place of the sizes below; vocabulary and length are the text's"})
      .text("scheme", &settings.scheme,
          {.help = "positional scheme, e.g. \"cdape(kerple, kernel=3)\"; whence schemes lists them",
              .known = scheme_names()})
      .elsewhere("list-schemes", "whence schemes lists them")
      .integer("dim", &model.dim, Count{1, 16384}, {"model dim, a multiple of --heads"})
      .integer("layers", &model.layers, Count{1, 128}, {"blocks"})
      .integer("heads", &model.heads, Count{1, 256}, {"attention heads per layer"})
      .number("dropout", &model.dropout, Range<double>{0, 1, false, true}, {"share of numbers dropped in training"})
      .choice("executor", &model.executor, executor_names(), {"how attention is computed"})
      .text("weights-of", &settings.weights_of,
          {"begin with the weights of this run, or GPT-2 or GPT-NeoX of Hugging Face's; the scheme may be another: its "
           "parameters begin as ever, those of the old one are dropped"});
  line.heading("Windows")
      .integer("length", &settings.length, Count{1, 1 << 20}, {"that the model is trained on", "tokens"})
      .integer("batch", &settings.batch, Count{1, 65536}, {"at a time; times --accumulate per step", "windows"})
      .integer(
          "validation-windows", &settings.validation_windows, Count{1, 1 << 20}, {"in each validation", "windows"});
  line.heading("Evaluation")
      .integer(
          "evaluate-to", &settings.evaluate_to, Count{1, 64}, {"perplexity at 1, 2, 4 ... so many times the length"})
      .integer("last", &settings.last, Count{1, 1 << 20}, {"of each window count", "tokens"})
      .integer("evaluation-windows", &settings.evaluation_windows, Count{1, 1 << 20}, {"at each length", "windows"})
      .text("beside", &settings.beside,
          {"folders of other runs, separated by commas, whose curves the tables and plots show too"});
  declare(line, settings.training, true);
  line.text("out", &settings.out, {"folder for checkpoints, logs and results"})
      .text("from", &settings.from, {"repeat the run of this run.json"});
  declare(line, settings.machine);
  declare(line, settings.ranks);
  line.example("whence train lm --data austen.txt --scheme 'cdape(kerple, kernel=3)' --out runs/austen",
      "bytes, windows of 128");
  line.example("whence train lm --data books.jsonl --field body --test-data emma.txt", "a document a line, and a test");
  line.example("whence train lm --data src --include '*.cpp,*.h' --exclude 'tests/*'", "a source tree");
  line.example("whence train lm --data austen.txt --weights-of runs/rope --scheme none --lr 1e-4 --out runs/drope",
      "positions dropped after training with them (DroPE)");
  line.example("whence train lm --data austen.txt --tokeniser bpe.json --length 256 --evaluate-to 8",
      "with a tokeniser of `tokenize`");
}

TransformerOptions model_of(const Settings& settings, const CommandLine& line, index_t vocabulary) {
  for (const char* size : {"dim", "layers", "heads"})
    line.refuse_unless(size, settings.named.empty(), "no --model, which has its own sizes");
  TransformerOptions model = settings.named.empty() ? settings.model : named_model(settings.named);
  if (settings.named.empty() || line.given("scheme")) model.scheme = settings.scheme;
  model.scheme = canonical_text(parse_schemes(model.scheme));
  model.vocabulary = vocabulary, model.length = settings.length, model.executor = settings.model.executor;
  if (line.given("dropout")) {
    model.dropout = settings.model.dropout;
    for (double* also : {&model.pattern_dropout, &model.hidden_dropout}) *also = *also > 0 ? settings.model.dropout : 0;
  }
  return model;
}

std::vector<std::pair<std::string, std::string>> description(
    const Settings& settings, const Corpus& corpus, const Facts& facts) {
  std::vector<std::pair<std::string, std::string>> all = corpus.description();
  all.insert(all.end(), facts.begin(), facts.end());
  all.insert(all.end(), {{"length", std::to_string(settings.length)}, {"batch", std::to_string(settings.batch)}});
  if (settings.training.validate_every > 0)
    all.emplace_back("validation-windows", std::to_string(settings.validation_windows));
  for (auto& fact : whence::description(settings.training)) all.push_back(std::move(fact));
  return all;
}

RunRecord record_of(const Settings& settings, const CommandLine& line, const Corpus& corpus, const Facts& facts) {
  RunRecord record{"train", WHENCE_VERSION, "lm", line.values(), {}, corpus.hash(), facts};
  for (const auto& [name, value] : record.options)
    if (line.given(name) && !never_recorded.contains(name)) record.given.push_back(name);
  std::erase_if(record.options, [](const auto& option) { return never_recorded.contains(option.first); });
  for (const std::string& file : settings.words.more) record.facts.emplace_back("file", file);
  return record;
}

void say_taken(const Taken& found, const std::string& folder) {
  const auto list = [](const std::vector<std::string>& names) {
    return names.empty() ? "none" : first_few(names, ", ");
  };
  std::cout << "weights: " << found.taken << " tensors of " << one_line(folder) << "; dropped: " << list(found.dropped)
            << "; new: " << list(found.fresh) << std::endl;
}

// The test's text, where there is one.
Part scored_part(const Corpus& corpus) { return corpus.size(Part::test).tokens > 0 ? Part::test : Part::validation; }

// The lengths worth a pass: 1, 2, 4, ... as long as the text has room for them.
std::vector<index_t> multiples_of(const Settings& settings, const Corpus& corpus) {
  std::vector<index_t> multiples;
  for (index_t multiple = 1; multiple <= settings.evaluate_to; multiple *= 2) {
    if (multiple > 1 && multiple * settings.length + 1 > corpus.size(scored_part(corpus)).tokens) break;
    multiples.push_back(multiple);
  }
  return multiples;
}

// Of the runs that --beside names.
std::vector<NamedScores> scores_beside(const Settings& settings) {
  std::vector<NamedScores> found;
  for (const std::string& folder : list_of(settings.beside))
    found.push_back(read_length_scores(folder + "/lengths.json"));
  return found;
}

// In words, and as fields of a result whose names begin with `prefix`.
void say(const char* part, const LanguageScore& score, const std::string& prefix, Json& record) {
  const bool words = std::isfinite(score.perplexity_per_word);  // not in a text without blanks
  const auto shown = [](double perplexity) { return perplexity < 1e6 ? fixed(perplexity, 3) : digits(perplexity); };
  std::cout << part << ": " << fixed(score.loss, 4) << " nats per token, perplexity " << shown(score.perplexity)
            << " per token, " << shown(score.perplexity_per_byte) << " per byte"
            << (words ? ", " + shown(score.perplexity_per_word) + " per word" : "") << "; "
            << fixed(score.bits_per_byte, 4) << " bits per byte, " << score.tokens << " tokens\n";
  record.add(prefix + "perplexity", score.perplexity).add(prefix + "bits_per_byte", score.bits_per_byte);
  record.add(prefix + "perplexity_per_byte", score.perplexity_per_byte);
  if (words) record.add(prefix + "perplexity_per_word", score.perplexity_per_word);
}

void evaluate(
    const Transformer& model, const Corpus& corpus, const Settings& settings, const std::vector<NamedScores>& beside) {
  const LanguageScore own =
      score(model, corpus, Part::validation, {settings.length, settings.batch}, settings.validation_windows);
  Json result{{"scheme", model.scheme()}, {"validation_loss", own.loss}};
  say("validation", own, "", result);
  const Part part = scored_part(corpus);
  if (part == Part::test) {
    const LanguageScore test = score(model, corpus, part, {settings.length, settings.batch}, corpus.size(part).tokens);
    result.add("test_loss", test.loss);
    say("test", test, "test_", result);
  }
  std::vector<NamedScores> scores{{model.scheme(), perplexity_by_length(model, corpus,
                                                       {.train_length = settings.length,
                                                           .multiples = multiples_of(settings, corpus),
                                                           .last = settings.last,
                                                           .windows = settings.evaluation_windows,
                                                           .quiet = settings.training.quiet},
                                                       part)}};
  scores.insert(scores.end(), beside.begin(), beside.end());
  std::cout << length_table(scores).text() << '\n' << delta_table(scores).text();
  write_length_files(scores, (settings.training.folder / "lengths").string());
  JsonLog log(settings.training.folder / "results.jsonl", JsonLog::Mode::fresh);
  log.append(result);
  for (const LengthScore& at : scores[0].scores) {
    Json line{{"scheme", model.scheme()}, {"length", std::int64_t{at.length}}, {"perplexity", at.perplexity},
        {"windows", std::int64_t{at.windows}}};
    for (const DeltaP& delta : at.deltas)
      if (delta.last == settings.length) line.add("delta_p", delta.value());
    log.append(line);
  }
}

void check_together(const CommandLine& line, Settings& settings) {
  take(line, settings.corpus, settings.words);
  check(settings.training);
  fit_warm_up(line, settings.training);
  line.refuse_unless("validation-windows", settings.training.validate_every > 0 || settings.corpus.validation_share > 0,
      "validation text");
  line.refuse_unless("loss-scale-growth", settings.machine.precision == "f16", "--precision f16");
}

TokeniserPointer tokeniser_of(const Settings& settings) {
  return settings.tokeniser == "bytes" ? byte_tokeniser() : load_tokeniser(settings.tokeniser);
}

void require_windows(const Corpus& corpus, const Settings& settings) {
  for (const Part part : {Part::training, Part::validation}) corpus.require_window(part, settings.length);
  if (!settings.corpus.test_files.empty()) corpus.require_window(Part::test, settings.length);
}

int train_and_evaluate(CommandLine& line, Settings& settings) {
  settings.training.folder = settings.out;
  const Placement placement = placement_of(settings.machine);
  settings.training.device = placement.device, settings.training.precision = placement.precision;
  const std::vector<NamedScores> beside = scores_beside(settings);
  install_interrupt_handler();
  const bool fitted = fit_accumulate(line, settings.training);

  const TokeniserPointer tokeniser = tokeniser_of(settings);
  const Corpus corpus(settings.corpus, *tokeniser);
  require_windows(corpus, settings);
  std::cout << corpus.summary() << std::endl;
  const TransformerOptions model_options = model_of(settings, line, tokeniser->vocabulary());
  require_memory(model_options, placement.device, 4);
  const WindowOptions windows{settings.length, settings.batch};
  const auto loss_with = [seed = settings.training.seed](Transformer& model) -> LossOf {
    return
        [&model, seed](const TrainingBatch& batch, std::int64_t part) { return lm_loss_of(model, batch, seed, part); };
  };
  const auto memory = plan_memory({.model = model_options,
                                      .device = placement.device,
                                      .precision = placement.precision,
                                      .accumulate = parts_of_a_rank(settings.training),
                                      .shared = settings.training.ranks != nullptr,
                                      .batch = lm_batch(corpus, windows, settings.training.seed, 1),
                                      .loss_of = loss_with},
      true);
  const index_t longest = settings.length * multiples_of(settings, corpus).back();
  const auto sequences_of = [](index_t length) {
    return std::max<index_t>(1, LengthOptions().tokens_at_once / length);
  };
  const auto follow = [&](PlannedPass& pass) {
    pass.length = settings.length * pass.value, pass.sequences = sequences_of(pass.length);
  };
  std::cout << "evaluation: "
            << require_pass_memory({.model = model_options,
                                       .device = placement.device,
                                       .sequences = sequences_of(longest),
                                       .length = longest,
                                       .option = "--evaluate-to",
                                       .value = longest / settings.length,
                                       .follow = follow},
                   free_memory(placement.device))
            << std::endl;
  Transformer model(model_options);
  std::cout << "model: " << model.scheme() << ", " << model.parameter_count() << " parameters, executor "
            << model.attention(0).explain() << std::endl;
  std::cout << placement.text << std::endl;

  const Facts facts = language_facts(model.options(), *tokeniser);
  TrainingJob job{.label = model.scheme(), .model = &model};
  job.batch = [&](std::int64_t part) { return lm_batch(corpus, windows, settings.training.seed, part); };
  job.loss_of = loss_with(model);
  job.not_recordable = not_recordable(model.options());
  job.sequences = settings.batch;
  job.validate = [&] {
    const LanguageScore found = score(model, corpus, Part::validation, windows, settings.validation_windows);
    return Validation{found.loss, {{"perplexity", found.perplexity}, {"bits_per_byte", found.bits_per_byte}}};
  };
  if (settings.training.look_every > 0) {
    const TrainingBatch sample = lm_batch(corpus, {settings.length, 1}, settings.training.seed, 1);
    job.look = look::looks_at(model, sample.tensors[0], sample.tensors[1]);
  }
  job.description = description(settings, corpus, facts);
  FirstWeights first;
  if (!settings.weights_of.empty() && !settings.training.resume) {  // a run that goes on has its own
    first = read_first_weights(settings.weights_of);
    job.description.emplace_back("weights-of", first.sha256);
    job.begin_with = [&] {
      say_taken(take_weights(first.tensors, model.parameters(), settings.weights_of), settings.weights_of);
    };
  }
  RunRecord record = record_of(settings, line, corpus, facts);
  record.facts.push_back(memory);
  if (!first.sha256.empty()) record.facts.emplace_back("weights-of.sha256", first.sha256);
  if (fitted) record_accumulate(record, settings.training);
  job.record = text_of(record);
  const TrainingResult trained = train(job, settings.training);
  if (!speaks(settings.training.ranks)) return 0;
  tokeniser->save((settings.training.folder / tokeniser_file).string());
  std::cout << "trained: " << trained.steps << " steps, " << time_text(trained.seconds) << " here, "
            << with_unit(trained.tokens_per_second) << " tokens/s" << skipped_text(trained) << '\n';
  evaluate(model, corpus, settings, beside);
  std::cout << "written: " << one_line(settings.out)
            << "/{weights.safetensors, tokeniser.json, run.json, metrics.jsonl, metrics.csv, results.jsonl, "
               "lengths.json, lengths*.csv, "
               "lengths*.svg}\n";
  return 0;
}

int run(CommandLine& line, Settings& settings) {
  check_together(line, settings);
  refuse_inside_text(line, settings.corpus, settings.out);
  return run_as_ranks(line, settings.ranks, settings.machine, [&](Communicator* ranks) {
    settings.training.ranks = ranks;
    return train_and_evaluate(line, settings);
  });
}

// `repeated`: with the options of a record in them.
int train_language_with(const std::vector<std::string>& arguments, bool repeated) {
  Settings settings;
  CommandLine line("whence train lm", "Trains a transformer on text and scores it beyond its training length.");
  declare_options(line, settings);
  std::vector<const char*> argv{"train lm"};
  for (const std::string& argument : arguments) argv.push_back(argument.c_str());
  if (const auto page = line.parse(static_cast<int>(argv.size()), argv.data())) {
    std::cout << *page;
    return 0;
  }
  const auto from = repeated ? std::nullopt : record_to_repeat(arguments);
  if (!from) return run(line, settings);
  RunRecord record = read_run_record(*from);
  if (record.subject != "lm") throw FileError(*from, ": a run of ", record.subject, " given; one of lm required");
  refuse_unknown_options(record, *from, line.values());
  if (settings.training.resume) record.given.emplace_back("warm-up");  // which more steps would lengthen again
  std::vector<std::string> typed, repeated_arguments = arguments_of(record, record.given, arguments);
  for (std::size_t k = 0; k < arguments.size(); ++k)  // without --from itself
    if (arguments[k] == "--from")
      ++k;
    else if (!arguments[k].starts_with("--from="))
      typed.push_back(arguments[k]);
  for (const auto& [name, value] : record.facts)
    if (name == "file" && !line.given("data")) repeated_arguments.push_back(value);
  repeated_arguments.insert(repeated_arguments.end(), typed.begin(), typed.end());
  return train_language_with(repeated_arguments, true);
}

// A command line of another program's making, read and checked.
struct Asked {
  Settings settings;
  CommandLine line{"whence train lm", "Trains a transformer on text."};

  explicit Asked(const std::vector<std::string>& arguments) {
    declare_options(line, settings);
    std::vector<const char*> argv{"train lm"};
    for (const std::string& argument : arguments) argv.push_back(argument.c_str());
    (void)line.parse(static_cast<int>(argv.size()), argv.data());
    check_together(line, settings);
  }
};

}  // namespace

std::vector<std::pair<std::string, std::string>> checked_options(const std::vector<std::string>& arguments) {
  Asked asked(arguments);
  TransformerOptions model = model_of(asked.settings, asked.line, 256);
  model.layers = 1;  // as good as all of them to see whether sizes and scheme go together
  (void)Transformer(model);
  return asked.line.values();
}

double operations_per_sequence(const std::vector<std::string>& arguments) {
  const Asked asked(arguments);
  const TransformerOptions model = model_of(asked.settings, asked.line, tokeniser_of(asked.settings)->vocabulary());
  return training_operations(model, asked.settings.length).sum() * static_cast<double>(asked.settings.length);
}

std::string check_text(const std::vector<std::string>& arguments) {
  const Asked asked(arguments);
  refuse_inside_text(asked.line, asked.settings.corpus, asked.settings.out);
  const Corpus corpus(asked.settings.corpus, *tokeniser_of(asked.settings));
  require_windows(corpus, asked.settings);
  return corpus.hash();
}

int train_language(const std::vector<std::string>& arguments) { return train_language_with(arguments, false); }

}  // namespace whence::language
