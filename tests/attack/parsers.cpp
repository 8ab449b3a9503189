// The readers of files and texts on mutated bytes.
//   whence_parsers FORMAT SEEDS SEED SECONDS FOLDER    mutates; the last input is FOLDER/FORMAT.input
//   whence_parsers FORMAT FILE                         reads FILE
// Whatever the bytes are, a reader returns or throws InputError, within a second and within 200 MB.
#include <sys/resource.h>
#include <unistd.h>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <random>
#include <string>
#include <system_error>
#include <vector>

#include "examples/whence/cli/fields.h"
#include "examples/whence/cli/json.h"
#include "examples/whence/cli/json_lines.h"
#include "examples/whence/language/corpus.h"
#include "examples/whence/language/saved_model.h"
#include "examples/whence/language/tokeniser.h"
#include "examples/whence/look/subject.h"
#include "examples/whence/run/run_files.h"
#include "examples/whence/run/run_record.h"
#include "examples/whence/run/training.h"
#include "nn/io/checkpoint.h"
#include "nn/io/files.h"
#include "nn/io/safetensors.h"
#include "nn/scheme.h"
#include "tensor/error.h"

// Limits the freed memory that AddressSanitizer keeps, 256 MB by default, which is not the reader's.
extern "C" const char* __asan_default_options();
extern "C" const char* __asan_default_options() { return "quarantine_size_mb=16"; }

namespace {

using namespace whence;
namespace fs = std::filesystem;
using Bytes = std::string;

const fs::path& folder() {
  struct Made {
    fs::path path = fs::temp_directory_path() / ("whence_parsers_" + std::to_string(getpid()));
    Made() { fs::create_directories(path); }
    ~Made() {
      std::error_code kept;
      fs::remove_all(path, kept);
    }
  };
  static const Made made;
  return made.path;
}

std::string file_of(const Bytes& bytes, const std::string& name = "input") {
  const fs::path path = folder() / name;
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  return path.string();
}

void use(const language::Tokeniser& tokeniser) {
  const std::string text = tokeniser.reads_numbers() ? "0 0\n" : "the cat sat, 12 \xc3\xa9\n";
  (void)tokeniser.decode(tokeniser.encode(text));
  (void)tokeniser.hash();
}

void parse_run(const Bytes& bytes) {
  const RunRecord record = read_run_record(file_of(bytes, "run.json"));
  (void)text_of(record);
  TrainingOptions training;
  Fields fields("train");
  declare(fields, training);
  set_recorded(fields, record);
  (void)language::model_of(record.facts, "run.json");
}

void parse_jsonl(const Bytes& bytes) {
  for_each_json_line(bytes, "input.jsonl", [](const Json& line) {
    if (line.has("text")) (void)line.text("text");
    if (line.has("choices")) (void)line.texts("choices");
    if (line.has("answer")) (void)line.whole("answer");
  });
}

void parse_scheme(const Bytes& bytes) {
  const std::vector<SchemeSpec> specs = parse_schemes(bytes);
  if (canonical_text(parse_schemes(canonical_text(specs))) != canonical_text(specs))
    throw std::logic_error("the canonical text is another scheme");
}

void parse_checkpoint(const Bytes& bytes) {
  on_damage.accept = true;  // otherwise the seal would refuse nearly all inputs
  (void)read_training_state(fs::path(file_of(bytes, "weights.safetensors")).parent_path());
}

using Parse = void (*)(const Bytes&);
const std::map<std::string, Parse> formats = {
    {"safetensors", [](const Bytes& bytes) { (void)read_safetensors(file_of(bytes)); }},
    {"given", [](const Bytes& bytes) { (void)look::read_given(file_of(bytes), DType::f64); }},
    {"checkpoint", parse_checkpoint}, {"run", parse_run}, {"jsonl", parse_jsonl}, {"scheme", parse_scheme},
    {"tokeniser", [](const Bytes& bytes) { use(*language::tokeniser_from_json(bytes, "tokeniser.json")); }},
    {"documents", [](const Bytes& bytes) { (void)language::documents_of(bytes, 2); }}};

// True if the reader accepts the bytes. Errors other than InputError go on to the caller.
bool taken(const std::string& format, const Bytes& bytes) {
  try {
    formats.at(format)(bytes);
    return true;
  } catch (const InputError&) { return false; }
}

class Mutator {
 public:
  Mutator(std::vector<Bytes> seeds, std::vector<Bytes> words, std::uint64_t seed)
      : seeds_(std::move(seeds)), words_(std::move(words)), random_(seed) {}

  Bytes next() {
    Bytes bytes = one_of(seeds_);
    for (std::size_t k = 1 + below(below(8) + 1); k > 0; --k) change(bytes);
    bytes.resize(std::min<std::size_t>(bytes.size(), 1 << 16));
    return bytes;
  }

 private:
  std::size_t below(std::size_t end) { return end == 0 ? 0 : random_() % end; }
  const Bytes& one_of(const std::vector<Bytes>& all) { return all[below(all.size())]; }

  void change(Bytes& bytes) {
    const std::size_t at = below(bytes.size() + 1), length = std::min(below(below(64) + 1) + 1, bytes.size() - at);
    switch (below(9)) {
      case 0:
        if (at < bytes.size()) bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(8)));
        break;
      case 1:
        if (at < bytes.size()) bytes[at] = static_cast<char>(below(256));
        break;
      case 2: bytes.resize(at); break;
      case 3: bytes.erase(at, length); break;
      case 4: bytes.insert(at, bytes.substr(at, length)); break;
      case 5: bytes.insert(at, one_of(words_)); break;
      case 6: bytes.replace(at, length, one_of(words_)); break;
      case 7: {
        const Bytes& other = one_of(seeds_);
        bytes = bytes.substr(0, at) + other.substr(below(other.size() + 1));
        break;
      }
      default: {  // repeats a part, for depth
        const Bytes part = below(2) != 0U ? one_of(words_) : bytes.substr(at, length);
        Bytes many;
        for (std::size_t k = below(4000); k > 0 && many.size() < 60000; --k) many += part;
        bytes.insert(at, many);
      }
    }
  }

  std::vector<Bytes> seeds_, words_;
  std::mt19937_64 random_;
};

// Returns the words of the seeds, and some that readers stumble on.
std::vector<Bytes> words_of(const std::vector<Bytes>& seeds) {
  std::vector<Bytes> words = {"-1", "\"", "[[", "{}", Bytes(1, '\0'), "\n\n\n", "9223372036854775808", "1e400", "nan",
      "\xff", "\\u0000", "\\ud800"};
  for (const Bytes& seed : seeds)
    for (std::size_t at = 0, end = 0; at < std::min<std::size_t>(seed.size(), 4096); at = end) {
      end = std::min(seed.find_first_of(" ,:[]{}()\n", at + 1), seed.size());
      words.push_back(seed.substr(at, end - at));
    }
  return words;
}

long peak_kilobytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

int mutate(const std::string& format, Mutator mutator, double seconds, const fs::path& input) {
  const double end = now() + seconds;
  double slowest = 0;
  long count = 0, taken_count = 0;
  const long before = peak_kilobytes();
  const auto failed = [&](const std::string& what) {
    std::cerr << format << ": " << what << "; the input is " << input.string() << '\n';
    return 1;
  };
  for (double began = now(); began < end; began = now()) {
    const Bytes bytes = mutator.next();
    std::ofstream(input, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    const double start = now();
    try {
      taken_count += taken(format, bytes) ? 1 : 0;
    } catch (const std::exception& foreign) { return failed("it threw " + std::string(foreign.what())); }
    const double took = now() - start;
    slowest = std::max(slowest, took);
    ++count;
    if (took > 1) return failed(std::to_string(took) + " s");
    if (peak_kilobytes() - before > 200 * 1024)
      return failed(std::to_string((peak_kilobytes() - before) / 1024) + " MiB");
  }
  std::cout << count << " inputs, " << taken_count << " taken, slowest " << slowest << " s, "
            << (peak_kilobytes() - before) / 1024 << " MiB\n";
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  if ((count != 3 && count != 6) || !formats.contains(arguments[1])) {
    std::cerr << "whence_parsers: FORMAT SEEDS SEED SECONDS FOLDER, or FORMAT FILE, required; FORMAT is one of";
    for (const auto& known : formats) std::cerr << ' ' << known.first;
    std::cerr << '\n';
    return 2;
  }
  if (count == 3) {
    std::cout << (taken(arguments[1], whence::read_file(arguments[2])) ? "taken\n" : "refused\n");
    return 0;
  }
  std::vector<Bytes> seeds = {Bytes()};
  for (const auto& entry : fs::directory_iterator(arguments[2])) seeds.push_back(whence::read_file(entry.path()));
  Mutator mutator(seeds, words_of(seeds), std::strtoull(arguments[3], nullptr, 16));
  return mutate(arguments[1], std::move(mutator), std::atof(arguments[4]),
      fs::path(arguments[5]) / (std::string(arguments[1]) + ".input"));
}
