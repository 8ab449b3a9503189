// Questions and answers from a user's files, a JSON object a line:
//   {"context": "Ada is in the hall. Ben is in the attic.", "question": "Where is Ben?", "answer": "attic"}
// The model reads context, question and a mark, and then finds the answer. The loss is taken on the answer alone. The
// vocabulary holds the training file's symbols and the mark. A sequence longer than --length loses its left, and the
// notes count such lines.
#include <algorithm>
#include <bit>
#include <cctype>
#include <filesystem>
#include <map>
#include <numeric>
#include <set>

#include "examples/whence/cli/json_lines.h"
#include "examples/whence/cli/numbers.h"
#include "examples/whence/cli/text.h"
#include "examples/whence/run/run_files.h"
#include "examples/whence/tasks/task.h"
#include "nn/io/files.h"
#include "tensor/error.h"

namespace whence::tasks {
namespace {

// Example lines if no file is given.
std::string example_file() {
  const char* people[] = {"Ada", "Ben", "Cleo", "Dan", "Eve", "Finn", "Gus", "Hana"};
  const char* places[] = {"garden", "kitchen", "cellar", "attic", "hall", "street", "shed", "bath"};
  std::string lines;
  for (std::uint64_t line = 0; line < 1000; ++line) {
    Draw draw(Stream(0, "jsonl.example", line));
    const std::int64_t one = draw.below(8), other = (one + draw.between(1, 7)) % 8;
    const char *here = places[draw.below(8)], *there = places[draw.below(8)];
    const bool first = draw.below(2) == 0;
    const Json fields{
        {"context", to_text(people[one], " is in the ", here, ". ", people[other], " is in the ", there, ".")},
        {"question", to_text("Where is ", people[first ? one : other], "?")}, {"answer", first ? here : there}};
    lines += fields.line() + '\n';
  }
  return lines;
}

using Symbols = std::vector<std::string>;

// A run of letters, digits, underscores and non-ASCII bytes is a word; every other character, except a blank, is a word
// by itself.
Symbols symbols_of(std::string_view text, const std::string& kind) {
  const auto inside = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || (c & 0x80); };
  const bool words = kind == "words";
  Symbols symbols;
  while (!text.empty()) {
    std::size_t end = kind == "characters" ? first_code_point(text).bytes : 1;
    while (words && inside(text[0]) && end < text.size() && inside(text[end])) ++end;
    if (!words || !std::isspace(static_cast<unsigned char>(text[0]))) symbols.emplace_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  return symbols;
}

// Context, question and answer, one after the other.
struct Line {
  std::string place;
  Symbols symbols;
  index_t context, answer;  // number of symbols
};

struct File {
  std::string name;
  std::vector<Line> lines;
  std::string hash;
};

File file_of(const std::string& name, const std::string& text, const std::string& kind) {
  File file{name, {}, sha256(text)};
  for_each_json_line(text, name, [&](const Json& line) {
    const auto symbols = [&](const char* field) { return symbols_of(line.has(field) ? line.text(field) : "", kind); };
    const Symbols context = symbols("context"), question = symbols("question"),
                  answer = symbols_of(line.text("answer"), kind);
    if (answer.empty()) line.refuse("an empty answer given; one symbol or more required");
    if (context.empty() && question.empty())
      line.refuse("neither context nor question given; a text in one of them required");
    Line read{line.place(), context, std::ssize(context), std::ssize(answer)};
    if (kind != "words" && !context.empty() && !question.empty()) read.symbols.push_back(" ");
    for (const Symbols* part : {&question, &answer})
      read.symbols.insert(read.symbols.end(), part->begin(), part->end());
    file.lines.push_back(std::move(read));
  });
  if (file.lines.empty()) throw FileError(name, ": no line given; objects of context, question and answer required");
  return file;
}

// Sequences, and the counts of what was cut to make them fit.
struct Sequences {
  TestSet about;
  std::vector<Row> rows;
  std::int64_t cut = 0, question_cut = 0;
  index_t longest = 0;  // before cutting

  void add(const Line& line, const Symbols& vocabulary, std::int64_t length) {
    Tokens tokens;
    for (const std::string& symbol : line.symbols) {
      const auto found = std::ranges::lower_bound(vocabulary, symbol);
      if (found == vocabulary.end() || *found != symbol)
        throw FileError(line.place, ": symbol ", in_quotes(symbol), " given; one that the training file has required");
      tokens.push_back(1 + (found - vocabulary.begin()));
    }
    tokens.insert(tokens.end() - line.answer, 0);
    const index_t read = std::ssize(tokens) - 1;
    if (length > 0 && line.answer > length)
      throw FileError(
          line.place, ": an answer of ", line.answer, " symbols given; at most --length ", length, " required");
    const index_t left = length > 0 ? std::max<index_t>(0, read - length) : 0;
    longest = std::max(longest, read);
    cut += left > 0, question_cut += left > line.context;
    Row row{{tokens.begin() + left, tokens.end() - 1}, {tokens.begin() + left + 1, tokens.end()}, {}};
    std::fill(row.targets.begin(), row.targets.end() - line.answer, no_target);
    row.graded = row.targets;
    rows.push_back(std::move(row));
    about.sequences = std::ssize(rows);
  }
};

// Returns number `at` of a random order of 0 ... count - 1 without making the order: a Feistel network over a power of
// 4, applied again while its result is out of range.
std::uint64_t place_in_order(const Stream& stream, std::uint64_t at, std::uint64_t count) {
  const int half = std::max(1, (static_cast<int>(std::bit_width(count - 1)) + 1) / 2);
  const std::uint64_t mask = (std::uint64_t{1} << half) - 1;
  do {
    std::uint64_t left = at >> half, right = at & mask;
    for (std::uint64_t round = 0; round < 6; ++round) {
      left ^= stream.bits(round << 32 | right) & mask;
      std::swap(left, right);
    }
    at = left << half | right;
  } while (at >= count);
  return at;
}

class JsonlTask final : public Task {
 public:
  struct Options {
    std::string data, test_data, validation_data, symbols = "words";
    std::int64_t length = 0;
    double set_aside = 0.1;
  };
  static void declare(Fields& line, Options& options) {
    line.text("data", &options.data, {"JSON lines of context, question and answer to train on"})
        .text("test-data", &options.test_data,
            {"files of the same form for tests, separated by commas; a name may contain commas"})
        .text("validation-data", &options.validation_data, {"a file of the same form for validation"})
        .number("set-aside", &options.set_aside, Range<double>{0, 0.5, true, true},
            {"share of --data that replaces each of these two files if it is not given"})
        .choice("symbols", &options.symbols, {"words", "characters", "bytes"}, {"units that a text is cut into"})
        .integer("length", &options.length, Range<std::int64_t>{0, 1 << 20},
            {"most that is read; the left is cut off, with a note; 0: everything", "symbols"});
  }

  JsonlTask(Options& options, const Fields& line) : options_(with_whole_paths(options, line)) {
    const File file = read(options.data);
    std::set<std::string> symbols;
    for (const Line& each : file.lines) symbols.insert(each.symbols.begin(), each.symbols.end());
    vocabulary_ = {symbols.begin(), symbols.end()};
    std::string hashes = file.hash;
    const auto add_file = [&](const std::string& path, Sequences& set) {
      const File other = read(path);
      hashes += '\n' + other.hash;
      set.about = {name_of(path), "the lines of " + path};
      for (const Line& each : other.lines) set.add(each, vocabulary_, options.length);
    };
    set_some_aside(file);
    if (!options.validation_data.empty()) add_file(options.validation_data, validation_);
    for (const std::string& path : path_list_of(options.test_data)) {
      const auto named_so = [&](const Sequences& other) { return other.about.name == name_of(path); };
      const bool again = std::ranges::any_of(tests_, named_so);
      add_file(path, tests_.emplace_back());
      if (again) tests_.back().about.name = path;
    }
    hash_ = sha256(hashes);
  }

  TransformerOptions model() const override {
    index_t longest = std::max(training_.longest, validation_.longest);
    for (const Sequences& set : tests_) longest = std::max(longest, set.longest);
    return {.vocabulary = std::ssize(vocabulary_) + 1,
        .length = options_.length > 0 ? std::min(longest, options_.length) : longest,
        .dim = 128,
        .layers = 2,
        .heads = 4,
        .scheme = "cope"};
  }
  // Each epoch has its own order.
  Batch training_batch(std::uint64_t seed, std::int64_t step, index_t sequences) const override {
    std::vector<Row> rows;
    const std::uint64_t count = training_.rows.size(), first = static_cast<std::uint64_t>((step - 1) * sequences);
    for (std::uint64_t k = first; k < first + static_cast<std::uint64_t>(sequences); ++k) {
      const Stream stream(seed, "jsonl.training", k / count);
      rows.push_back(training_.rows[place_in_order(stream, k % count, count)]);
    }
    return batch_of(rows);
  }
  std::vector<TestSet> test_sets() const override {
    std::vector<TestSet> sets;
    for (const Sequences& set : tests_) sets.push_back(set.about);
    return sets;
  }
  Batch test_batch(std::size_t set, std::uint64_t, std::int64_t first, index_t sequences) const override {
    return batch(tests_.at(set), first, sequences);
  }
  Batch validation_batch(std::uint64_t, std::int64_t first, index_t sequences) const override {
    return batch(validation_, first, sequences);
  }
  std::int64_t validation_sequences() const override { return validation_.about.sequences; }
  std::string hash_of_files() const override { return hash_; }

  std::vector<Guess> guesses() const override {
    std::map<Tokens, std::int64_t> answers;
    for (const Row& row : training_.rows)
      ++answers[Tokens(std::ranges::find_if(row.targets, [](auto token) { return token >= 0; }), row.targets.end())];
    const auto most = [](const auto& one, const auto& other) { return one.second < other.second; };
    const Tokens& answer = std::ranges::max_element(answers, most)->first;
    return {{"the most frequent answer", [answer](const Row& row) {
               Tokens guessed;
               std::size_t found = 0;
               for (const std::int64_t wanted : row.graded) {
                 guessed.push_back(answer[std::min(found, answer.size() - 1)]);
                 found += wanted != no_target;
               }
               return guessed;
             }}};
  }
  std::string metric() const override { return "sequence error %"; }
  std::string text(std::int64_t token) const override {
    const bool words = options_.symbols == "words";
    if (token == 0) return words ? "| " : "|";
    const std::string& symbol = vocabulary_.at(static_cast<std::size_t>(token - 1));
    if (options_.symbols == "bytes" && (symbol[0] & 0x80)) return one_line(symbol);
    return words ? symbol + ' ' : symbol;
  }
  // test_sequences exceeds any file: all of a test file is tested.
  Recipe recipe() const override {
    return {.steps = 2000, .batch = 32, .learning_rate = 1e-3, .weight_decay = 0.1, .test_sequences = 10000000};
  }

  std::vector<std::string> notes(std::uint64_t) const override {
    std::vector<std::string> notes;
    if (options_.data.empty())
      notes.emplace_back("no --data given: these are the built-in lines, which show what a file may hold");
    notes.insert(notes.end(), set_aside_.begin(), set_aside_.end());
    note_cuts(notes, training_), note_cuts(notes, validation_);
    for (const Sequences& set : tests_) note_cuts(notes, set);
    const auto whole = [](const Row& row) { return std::pair(row.inputs, row.targets); };
    std::set<std::pair<Tokens, Tokens>> known;
    for (const Row& row : training_.rows) known.insert(whole(row));
    for (const Sequences& set : tests_) {
      const auto again = std::ranges::count_if(set.rows, [&](const Row& row) { return known.contains(whole(row)); });
      if (again > 0)
        notes.push_back(
            to_text(again, " of ", set.rows.size(), " sequences for tests (", set.about.name, ") are also trained on"));
    }
    return notes;
  }
  std::vector<std::pair<std::string, std::string>> description() const override {
    return {{"task", "jsonl"}, {"symbols", options_.symbols}, {"length", std::to_string(options_.length)},
        {"set-aside", exact(options_.set_aside)}, {"lines", std::to_string(training_.rows.size())},
        {"cut", std::to_string(training_.cut)}};
  }

 private:
  static std::string name_of(const std::string& path) { return std::filesystem::path(path).filename().string(); }
  static std::string whole(const std::string& path) {
    return path.empty() ? path : std::filesystem::absolute(path).lexically_normal().string();
  }
  // Makes paths absolute, so that a run's record works in any folder.
  static const Options& with_whole_paths(Options& options, const Fields& line) {
    line.refuse_unless("set-aside", options.test_data.empty() || options.validation_data.empty(),
        "beside --test-data and --validation-data, which are all of the test and the validation");
    std::string tests;
    for (const std::string& path : path_list_of(options.test_data)) {
      if (path.empty())
        throw InputError("--test-data: ", in_quotes(options.test_data), " given; files between commas required");
      tests += (tests.empty() ? "" : ",") + whole(path);
    }
    options.test_data = tests;
    options.data = whole(options.data), options.validation_data = whole(options.validation_data);
    return options;
  }
  File read(const std::string& path) const {
    return path.empty() ? file_of("built-in lines", example_file(), options_.symbols)
                        : file_of(path, read_file(path), options_.symbols);
  }
  // Sets lines aside for tests and validation without a file; the other lines are for training. The choice does not
  // depend on a run's seed, so that runs compare.
  void set_some_aside(const File& file) {
    const std::size_t lines = file.lines.size(),
                      each = std::max<std::size_t>(
                          1, static_cast<std::size_t>(options_.set_aside * static_cast<double>(lines))),
                      all = each * (options_.test_data.empty() + options_.validation_data.empty());
    if (all >= lines)
      throw FileError(file.name, ": ", lines, " lines given, of which ", all,
          " are to be set aside for tests or validation; more lines required, or --test-data and --validation-data");
    std::vector<std::size_t> order(lines);
    std::iota(order.begin(), order.end(), std::size_t{0});
    const Stream stream(0, "jsonl.set_aside");
    for (std::size_t k = 0; k < all; ++k)
      std::swap(order[k], order[k + stream.below(k, static_cast<std::uint32_t>(lines - k))]);
    std::sort(order.begin() + static_cast<std::ptrdiff_t>(all), order.end());
    std::size_t next = 0;
    const auto take = [&](Sequences& set, const TestSet& about, std::size_t count) {
      set.about = about;
      for (const std::size_t end = next + count; next < end; ++next)
        set.add(file.lines[order[next]], vocabulary_, options_.length);
    };
    for (const char* purpose : {"tests", "validation"}) {
      const bool tests = purpose[0] == 't';
      if (!(tests ? options_.test_data : options_.validation_data).empty()) continue;
      take(tests ? tests_.emplace_back() : validation_, {"set aside", purpose}, each);
      set_aside_.push_back(to_text(each, " of ", lines, " lines are set aside for ", purpose));
    }
    take(training_, {name_of(file.name), ""}, lines - next);
  }

  void note_cuts(std::vector<std::string>& notes, const Sequences& set) const {
    if (set.cut == 0) return;
    notes.push_back(
        to_text(set.cut, " of ", set.rows.size(), " sequences of ", set.about.name, " are longer than --length ",
            options_.length, ", up to ", set.longest, " symbols: the left of each is not read",
            set.question_cut > 0 ? to_text(", in ", set.question_cut, " of them part of the question") : ""));
  }

  static Batch batch(const Sequences& set, std::int64_t first, index_t sequences) {
    const auto size = static_cast<std::int64_t>(set.rows.size());
    if (first >= size)
      throw InputError(
          set.about.name, ": sequence ", first, " requested; 0 to ", size - 1, " required: there are ", size);
    return batch_of({set.rows.begin() + first, set.rows.begin() + std::min<std::int64_t>(size, first + sequences)});
  }

  Options options_;
  Symbols vocabulary_;  // sorted: symbol k has number k + 1; 0 is the mark between a question and its answer
  Sequences training_, validation_;
  std::vector<Sequences> tests_;
  std::vector<std::string> set_aside_;  // notes
  std::string hash_;
};

const RegisterTask registered{{.name = "jsonl",
    .title = "answers to the questions in a file of your own",
    .paper = "none: your own data",
    .declare = declared<JsonlTask>,
    .mini = "dim=64 layers=2 heads=4 steps=300"}};

}  // namespace
}  // namespace whence::tasks
