#include "examples/whence/look/subject.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <functional>
#include <numeric>
#include <ranges>

#include "autograd/ops.h"
#include "examples/whence/cli/json_lines.h"
#include "examples/whence/cli/numbers.h"
#include "examples/whence/cli/text.h"
#include "examples/whence/language/corpus.h"
#include "examples/whence/language/saved_model.h"
#include "examples/whence/machine/memory.h"
#include "examples/whence/run/run_files.h"
#include "examples/whence/run/run_record.h"
#include "examples/whence/study/task_study.h"
#include "examples/whence/verify/bare_attention.h"
#include "nn/io/checkpoint.h"
#include "nn/io/files.h"
#include "tensor/error.h"
#include "tensor/raw.h"

namespace whence::look {
namespace {

namespace fs = std::filesystem;

struct Weights {
  fs::path folder;
  bool is_checkpoint;
  std::string when;  // "step 500"

  [[nodiscard]] std::string file() const { return folder / "weights.safetensors"; }
};

Weights weights_of(const SubjectOptions& options) {
  const Weights trained{options.run, false, "the end of training"};
  if (options.step == 0 && fs::exists(trained.file())) return trained;
  const std::map<std::int64_t, fs::path> checkpoints = checkpoints_of(options.run);
  if (options.step == 0 && checkpoints.empty())
    throw FileError(
        options.run, ": no weights.safetensors and no checkpoint; the folder of a run with saved weights required");
  const auto found = options.step > 0 ? checkpoints.find(options.step) : std::prev(checkpoints.end());
  if (found == checkpoints.end())
    throw InputError("--step: ", options.step, " given; the step of a checkpoint required; there are ",
        checkpoints.empty() ? "none" : joined(std::views::keys(checkpoints)));
  return {found->second, true, to_text("step ", found->first)};
}

// Loads weights. Throws FileError if they are not finite: training saves only finite weights.
void load(const Weights& weights, const Transformer& model) {
  if (weights.is_checkpoint)
    (void)load_checkpoint(weights.folder.string(), model.parameters(), nullptr);
  else
    load_weights(weights.file(), model.parameters());
  for (const Module::Parameter& parameter : model.parameters()) {
    const std::vector<double> numbers = parameter.tensor.to_vector();
    if (!std::ranges::all_of(numbers, [](double number) { return std::isfinite(number); })) {
      throw FileError(weights.file(), ": ", parameter.path,
          " holds NaN or infinity; finite numbers required; is the file damaged?");
    }
  }
}

// Returns "0.10.2" as numbers, so that versions compare correctly.
std::array<int, 3> version_of(const std::string& text) {
  std::array<int, 3> version{};
  (void)std::sscanf(text.c_str(), "%d.%d.%d", &version[0], &version[1], &version[2]);
  return version;
}

// Refuses a record of a newer version: its fields may mean something else, or this version may not know them.
RunRecord read_record(const fs::path& run) {
  const fs::path file = run / "run.json";
  RunRecord record = read_run_record(file);
  if (version_of(record.version) > version_of(WHENCE_VERSION))
    throw FileError(file.string(), ": is of version ", record.version, "; this is ", WHENCE_VERSION,
        "; a run of this version or an older one required; look with that version");
  if (record.program != "train" && record.program != "convert")
    throw FileError(run.string(), ": a run of ", record.program, " given; one of whence train or convert required");
  return record;
}

std::string command_of(const SubjectOptions& options) {
  std::vector<std::string> words{"whence", "look", options.run};
  const auto number = [](auto value) { return value > 0 ? std::to_string(value) : ""; };
  const auto add = [&](const char* option, const std::string& value) {
    if (value.starts_with("--"))
      words.push_back(to_text(option, '=', value));
    else if (!value.empty())
      words.emplace_back(option), words.push_back(value);
  };
  add("--text", options.text);
  add("--prompt", options.prompt);
  add("--task-sample", options.set.empty() ? number(options.sample) : to_text(options.set, ' ', options.sample));
  add("--given", options.given);
  add("--length", number(options.length));
  add("--step", number(options.step));
  add("--dtype", options.dtype == DType::f64 ? "f64" : "");
  return shell_command(words);
}

// Returns a token's bytes as valid UTF-8. Invalid bytes are written as <E2>.
std::string readable(std::string_view bytes) {
  std::string text;
  while (!bytes.empty()) {
    const CodePoint code = first_code_point(bytes);
    char hex[8];
    std::snprintf(hex, sizeof hex, "<%02X>", static_cast<unsigned>(code.value) & 0xFFu);
    text += code.valid ? bytes.substr(0, code.bytes) : hex;
    bytes.remove_prefix(code.bytes);
  }
  return text;
}

using Numbers = std::vector<std::int64_t>;

Tensor row_of(const Numbers& numbers) {
  return Tensor::of({numbers.begin(), numbers.end()}, {1, static_cast<index_t>(numbers.size())}, DType::i64);
}

// `text_of`: the text of an input; `answer_of`: the text of an answer.
using TextOf = std::function<std::string(std::int64_t)>;
void give_sequence(Subject& subject, const TransformerOptions& model, const Numbers& inputs, const Numbers& targets,
    const TextOf& text_of, const TextOf& answer_of) {
  const index_t outputs = model.outputs > 0 ? model.outputs : model.vocabulary;
  for (index_t answer = 0; answer < outputs; ++answer) subject.outputs.push_back(answer_of(answer));
  for (std::size_t t = 0; t < inputs.size(); ++t) {
    subject.texts.push_back(text_of(inputs[t]));
    subject.answers.push_back(
        targets[t] < 0 ? std::nullopt : std::optional(subject.outputs[static_cast<std::size_t>(targets[t])]));
  }
  subject.tokens = row_of(inputs), subject.targets = row_of(targets);
  subject.facts.emplace_back("tokens", std::to_string(inputs.size()));
}

// A run's model with the chosen weights, and its task or tokeniser, which make sequences.
struct LoadedRun {
  RunRecord record;
  std::shared_ptr<Transformer> model;
  std::string label;                     // of the weights
  RecordedTask task;                     // for a task
  language::TokeniserPointer tokeniser;  // for a language model
};

bool began_at_random(const RunRecord& record) {
  return record.option("weights-of").empty() && record.program != "convert";
}

LoadedRun load_run(const SubjectOptions& options) {
  LoadedRun run{read_record(options.run), nullptr, "step 0", {}, nullptr};
  const Weights weights = weights_of(options);
  if (language::is_of_text(run.record)) {
    require_small(language::model_of(run.record.facts, options.run + "/run.json"), options.most_parameters);
    language::SavedModel saved = language::language_model_without_weights(options.run);
    run.model = std::move(saved.model), run.tokeniser = std::move(saved.tokeniser);
  } else {
    try {
      run.task = recorded_task(run.record);
      require_small(run.task.model, options.most_parameters);
      require_room_for(run.task.model, options.run + "/run.json", weights.file());
      run.model = std::make_shared<Transformer>(run.task.model);
    } catch (const FileError&) { throw; } catch (const InputError& unfit) {
      throw FileError(options.run, "/run.json: ", unfit.what());
    }
  }
  if (options.untrained && !began_at_random(run.record))
    throw InputError(
        "step: 0 given; ", options.run, " did not begin with random weights; another step, or none, required");
  if (options.untrained)
    run.model->initialise(parse_number<std::uint64_t>(run.record.option("seed")).value_or(0));  // as train did
  else
    load(weights, *run.model), run.label = weights.when;
  run.model->to(options.dtype);
  return run;
}

Subject of_task(const SubjectOptions& options, const LoadedRun& run) {
  if (!options.text.empty() || !options.prompt.empty())
    throw InputError(options.text.empty() ? "--prompt" : "--text", ": given with a run of ", run.record.subject,
        ", which knows only its own symbols; a run of train lm required, or --task-sample");
  Subject subject = task_subject(
      run.model, *run.task.task, run.task.seed, options.sample + options.skip, options.length, options.set);
  const tasks::TaskInfo& info = tasks::find_task(run.record.subject);
  subject.asks = info.rule.empty() ? to_text(info.title, ".") : info.rule;
  return subject;
}

// Returns the text of a file. Documents of JSON lines are joined, as in training.
std::string text_in(const std::string& file, const RunRecord& record, const language::Tokeniser& tokeniser) {
  const std::string recorded = record.option("field");
  const language::TextFile read(file, recorded.empty() ? "text" : recorded);
  language::require_same_list(read, tokeniser);
  std::string text;
  for (const std::string_view document : read.documents(0)) text += document;
  return text;
}

// File in the run's folder of a playground page. The page has no room for the whole corpus.
constexpr const char* passage_file = "passage.json";

// Returns the run's own text. Throws InputError if it is no longer there.
language::Passage own_passage(const SubjectOptions& options, const RunRecord& record) {
  if (const fs::path kept = fs::path(options.run) / passage_file; fs::exists(kept)) {
    const Json passage = Json::read(read_file(kept), kept.string());
    return {passage.text("text"), passage.text("place"), passage.text("about")};
  }
  Fields fields("whence train lm");
  language::CorpusOptions corpus;
  declare(fields, corpus);
  set_recorded(fields, record);
  for (const auto& [name, value] : record.facts)
    if (name == "file") corpus.more.push_back(value);
  try {
    return language::passage_to_read(corpus, record.data);
  } catch (const InputError& gone) {
    if (options.own_text)
      throw FileError(
          options.run, ": its own text is not there: ", gone.what(), "; its training text required at that place");
    throw InputError(options.run, ": a run of train lm given, whose own text is not there: ", gone.what(),
        "; --text FILE or --prompt TEXT required");
  }
}

language::Passage passage_of(
    const SubjectOptions& options, const RunRecord& record, const language::Tokeniser& tokeniser) {
  if (!options.prompt.empty()) return {options.prompt, "--prompt", {}};
  if (!options.text.empty()) return {text_in(options.text, record, tokeniser), options.text, {}};
  return own_passage(options, record);
}

Subject of_language(const SubjectOptions& options, const LoadedRun& run) {
  if (!options.text.empty() && !options.prompt.empty())
    throw InputError("--prompt: given with --text; one of them required");
  if (options.sample != 0 || !options.set.empty())
    throw InputError("--task-sample: ", options.sample, " given with a run of train lm; --text or --prompt required");
  const auto [text, place, about] = passage_of(options, run.record, *run.tokeniser);
  const std::int64_t length = options.length > 0 ? options.length : run.model->options().length;
  language::TokenIds ids;
  const auto refuse = [&, &place = place](const std::string& problem) {
    if (!options.prompt.empty()) throw InputError(place, ": ", problem);
    throw FileError(place, ": ", problem);
  };
  try {
    (void)run.tokeniser->encode_part(text, ids);
  } catch (const language::UnfitText& unfit) { refuse(unfit.what()); }
  if (std::ssize(ids) < options.skip + 2)
    refuse(to_text(ids.size(), " tokens found; at least ", options.skip + 2, " required",
        options.skip > 0 ? to_text(": reading begins at token ", options.skip) : ""));
  const auto begin = ids.begin() + options.skip, end = begin + std::min<std::ptrdiff_t>(length, ids.end() - begin - 1);
  Subject subject;
  subject.model = run.model;
  const auto text_of = [&](std::int64_t token) {
    return readable(run.tokeniser->token(static_cast<language::TokenId>(token)));
  };
  give_sequence(subject, subject.model->options(), {begin, end}, {begin + 1, end + 1}, text_of, text_of);
  subject.asks = "This is a text. After each token the answer is the next token.";
  std::string where = options.prompt.empty() ? place : options.prompt;
  if (!about.empty()) {
    std::string before, read;  // unless the tokens do not spell the text, for example those of a token file
    for (auto id = ids.begin(); id <= end; ++id) (id < begin ? before : read) += run.tokeniser->token(*id);
    if (text.starts_with(before + read))
      where += to_text(before.empty() ? "" : to_text(" and ", before.size(), " bytes on"), ", ", read.size(), " bytes");
    where += to_text(", ", about);
  }
  subject.facts.emplace_back("text", where);
  if (!options.prompt.empty() && end + 1 != ids.end())
    subject.facts.emplace_back(
        "note", to_text(ids.end() - end - 1, " tokens at its end are not read: --length reads more"));
  return subject;
}

std::unique_ptr<Transformer> drawn_model(const SubjectOptions& options, TransformerOptions sizes) {
  require_small(sizes, options.most_parameters);
  require_memory(sizes, Device::cpu(), 1);
  auto model = std::make_unique<Transformer>(sizes);
  draw_parameters(*model, 0);
  return model;
}

// Makes one layer of attention with the scheme, on the given q, k and v.
Subject of_given(const SubjectOptions& options, const std::string& scheme) {
  Subject subject;
  subject.given = read_given(options.given, options.dtype);
  const Shape& shape = subject.given->q.shape();  // [1 h t d]
  const index_t heads = shape[1], length = shape[2], dim = heads * shape[3];
  const BareAttention bare(scheme, {dim, heads, length, 0, subject.given->k.size(1)});
  if (!bare.attends())
    throw InputError("--given: ", scheme, " adds to x only, before q, k and v; a scheme of attention required");
  if (bare.reads_x() && !subject.given->x.defined())
    throw FileError(options.given, ": no tensor x; [tokens, heads * dims] required, as ", scheme, " reads it");
  subject.model = drawn_model(options, {.vocabulary = 1,
                                           .length = length,
                                           .dim = dim,
                                           .layers = 1,
                                           .heads = heads,
                                           .kv_heads = subject.given->k.size(1),
                                           .scheme = scheme});
  for (const Module::Parameter& parameter : subject.model->parameters()) {
    if (!parameter.path.starts_with("blocks.0.attention.output.")) continue;
    const Tensor same = Tensor::zeros(parameter.tensor.shape());
    for (index_t c = 0; parameter.tensor.rank() == 2 && c < dim; ++c) same.data<float>()[c * dim + c] = 1;
    raw::copy_into(same, parameter.tensor);
  }
  subject.model->to(options.dtype);
  for (index_t t = 0; t < length; ++t) subject.texts.push_back(to_text(t, ' '));
  subject.answers.resize(subject.texts.size());
  subject.tokens = Tensor::full({1, length}, 0, DType::i64);
  subject.targets = Tensor::full({1, length}, -1, DType::i64);
  subject.title = to_text(scheme, " on ", options.given);
  subject.facts = {{"tokens", std::to_string(length)}, {"heads", std::to_string(heads)},
      {"key heads", std::to_string(subject.given->k.size(1))}, {"numbers of a head", std::to_string(shape[3])},
      {"loss", "the sum of attention's output times its cotangent"},
      {"parameters", "of the scheme alone, drawn at random"}, {"numbers", to_string(options.dtype)}};
  return subject;
}

// Makes a model wide enough to show something. Parameters are random: initial tables are zero, initial patterns flat.
Subject of_scheme(const SubjectOptions& options) {
  constexpr std::int64_t letters = 26;
  const std::int64_t length = options.length > 0 ? options.length : 16;
  std::string scheme;
  try {
    scheme = canonical_text(parse_schemes(options.run));
  } catch (const InputError& not_a_scheme) {
    if (options.run.find('/') != std::string::npos)
      throw InputError(in_quotes(options.run), ": no folder; the folder of a run, or a scheme, required");
    throw InputError(in_quotes(options.run), ": no folder, and no scheme either: ", not_a_scheme.what());
  }
  if (!options.given.empty()) return of_given(options, scheme);
  Subject subject;
  subject.model = drawn_model(
      options, {.vocabulary = letters, .length = length, .dim = 32, .layers = 2, .heads = 4, .scheme = scheme});
  const Stream random(0, "look");
  Numbers inputs, targets;
  for (std::int64_t t = 0; t < length; ++t) {
    const auto at = static_cast<std::uint64_t>(2 * (options.skip + t));
    inputs.push_back(random.below(at, letters));
    targets.push_back(random.below(at + 1, letters));
  }
  const auto text_of = [](std::int64_t letter) { return std::string(1, static_cast<char>('a' + letter)); };
  give_sequence(subject, subject.model->options(), inputs, targets, text_of, text_of);
  subject.model->to(options.dtype);
  subject.title = subject.label = scheme;
  subject.asks = "Letters and answers are drawn at random: there is nothing to learn, and the model is untrained.";
  subject.facts.emplace_back("model", "two layers, drawn at random, not trained");
  subject.facts.emplace_back("numbers", to_string(options.dtype));
  return subject;
}

Subject of_run(const SubjectOptions& options) {
  const LoadedRun run = load_run(options);
  Subject subject = run.tokeniser ? of_language(options, run) : of_task(options, run);
  subject.label = run.label;
  subject.title = to_text(run.model->scheme(), run.tokeniser ? " on text" : " on " + run.record.subject);
  subject.facts.insert(subject.facts.begin(), {{"run", options.run}, {"weights of", subject.label}});
  if (const std::string precision = run.record.option("precision"); !precision.empty() && precision != "f32")
    subject.facts.emplace_back("trained in", precision + ", shown in " + to_string(options.dtype));
  subject.facts.emplace_back("numbers", to_string(options.dtype));
  return subject;
}

}  // namespace

void require_small(const TransformerOptions& model, index_t most) {
  if (most == std::numeric_limits<index_t>::max()) return;
  if (const index_t count = planned_parameters(model); count > most)
    throw InputError(canonical_text(parse_schemes(model.scheme)), " makes a model of ", count, " parameters; ", most,
        " at most required");
}

Subject task_subject(std::shared_ptr<Transformer> model, const tasks::Task& task, std::uint64_t seed,
    std::int64_t sample, std::int64_t length, const std::string& set) {
  Subject subject;
  subject.model = std::move(model);
  const std::vector<tasks::TestSet> sets = task.test_sets();
  const auto chosen = set.empty() ? sets.begin() : std::ranges::find(sets, set, &tasks::TestSet::name);
  if (chosen == sets.end())
    throw InputError("--task-sample: ", in_quotes(set), " given; one of ", joined(sets, &tasks::TestSet::name, ", "),
        " required, and a number");
  tasks::Batch batch = task.test_batch(static_cast<std::size_t>(chosen - sets.begin()), seed, sample, 1);
  if (length > 0 && length < std::ssize(batch.inputs))
    for (Numbers* numbers : {&batch.inputs, &batch.targets}) numbers->resize(static_cast<std::size_t>(length));
  give_sequence(
      subject, task.model(), batch.inputs, batch.targets,
      [&](std::int64_t token) { return readable(task.text(token)); },
      [&](std::int64_t answer) { return readable(task.answer_text(answer)); });
  subject.facts.emplace_back("sequence", to_text(chosen->name, ", number ", sample));
  return subject;
}

bool is_folder(const std::string& run) {
  std::error_code none;
  return fs::is_directory(run, none);
}

Subject::Pass Subject::pass() const {
  if (given) return {loss_of_given(*model, *given), {}};
  const Tensor logits = (*model)(tokens);
  return {cross_entropy(logits, targets), logits};
}

std::vector<double> probabilities_at(const Tensor& logits, index_t token) {
  std::vector<double> shares = raw::select(raw::select(logits, 0, 0), 0, token).to_vector();
  const double largest = *std::ranges::max_element(shares);
  double sum = 0;
  for (double& each : shares) sum += each = std::exp(each - largest);
  for (double& each : shares) each /= sum;
  return shares;
}

Subject Subject::in_doubles() const {
  Subject twin = *this;
  twin.model = std::make_shared<Transformer>(model->options());
  twin.model->to(DType::f64);
  const std::vector<Module::Parameter> from = model->parameters(), into = twin.model->parameters();
  for (std::size_t k = 0; k < from.size(); ++k) into[k].tensor.replace(raw::cast(from[k].tensor, DType::f64));
  if (given)
    for (Tensor* each : {&twin.given->q, &twin.given->k, &twin.given->v, &twin.given->x, &twin.given->cotangent})
      if (each->defined()) *each = raw::cast(*each, DType::f64);
  return twin;
}

std::vector<std::optional<Prediction>> Subject::predictions(const Tensor& logits) const {
  std::vector<std::optional<Prediction>> all(texts.size());
  if (given) return all;
  constexpr std::size_t max_answers = 4;
  for (std::size_t t = 0; t < all.size(); ++t) {
    if (!answers[t]) continue;
    const std::vector<double> shares = probabilities_at(logits, static_cast<index_t>(t));
    std::vector<std::size_t> order(shares.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    const auto middle = order.begin() + static_cast<std::ptrdiff_t>(std::min(max_answers, order.size()));
    std::ranges::partial_sort(order, middle, std::greater{}, [&](std::size_t k) { return shares[k]; });
    const auto answer = [&](std::size_t k) { return Prediction::Answer{outputs[k], shares[k]}; };
    const Prediction::Answer wanted = answer(static_cast<std::size_t>(targets.at({0, static_cast<index_t>(t)})));
    all[t] = {-std::log(wanted.probability), wanted, {}};
    for (auto k = order.begin(); k != middle; ++k) all[t]->likeliest.push_back(answer(*k));
  }
  return all;
}

std::map<std::int64_t, std::filesystem::path> checkpoints_of(const std::string& run) {
  std::map<std::int64_t, fs::path> found;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(fs::path(run) / "checkpoints", none))
    if (const std::string name = entry.path().filename(); name.starts_with("step-") && entry.is_directory(none))
      if (const auto step = parse_number<std::int64_t>(name.substr(5))) found.emplace(*step, entry.path());
  return found;
}

bool begins_at_random(const std::string& run) { return began_at_random(read_record(run)); }

std::shared_ptr<Transformer> model_of(const SubjectOptions& options) {
  return is_folder(options.run) ? load_run(options).model : of_scheme(options).model;
}

Subject subject_of(const SubjectOptions& options) {
  Subject subject = is_folder(options.run) ? of_run(options) : of_scheme(options);
  subject.command = command_of(options);
  return subject;
}

std::map<std::string, std::string> files_of(const SubjectOptions& options) {
  std::map<std::string, std::string> files;
  const auto keep = [&](const fs::path& file, std::size_t most = std::string::npos) {
    std::string& text = files[file.string()] = read_file(file.string());
    if (text.size() <= most) return;
    const std::size_t line = text.rfind('\n', most - 1);  // a cut line would be invalid JSON
    text.resize(line == text.npos ? most : line + 1);
  };
  if (!options.given.empty()) keep(options.given);
  if (!is_folder(options.run)) return files;
  const fs::path run = options.run;
  const RunRecord record = read_record(run);
  keep(run / "run.json");
  keep(weights_of(options).file());
  if (language::is_of_text(record)) {
    keep(run / language::tokeniser_file);
    if (!options.text.empty()) keep(options.text, language::is_token_file(options.text) ? std::string::npos : 1 << 16);
    if (options.text.empty() && options.prompt.empty()) {
      language::Passage passage = own_passage(options, record);
      std::size_t end = std::min({passage.text.find('\n', 1 << 16), std::size_t{1} << 17, passage.text.size()});
      while (end > 0 && end < passage.text.size() && (static_cast<unsigned char>(passage.text[end]) & 0xC0) == 0x80)
        --end;
      passage.text.resize(end);
      files[(run / passage_file).string()] =
          Json{{"text", passage.text}, {"place", passage.place}, {"about", passage.about}}.line();
    }
  } else {
    for (const char* name : {"data", "test-data", "validation-data"})
      for (const std::string& file : path_list_of(record.option(name))) keep(file);
  }
  return files;
}

}  // namespace whence::look
