// convert: a model of Hugging Face's transformers as a run of ours, and a run of ours as theirs.
#include <algorithm>
#include <filesystem>
#include <iostream>

#include "autograd/recording.h"
#include "examples/whence/cli/command.h"
#include "examples/whence/cli/text.h"
#include "examples/whence/language/bpe.h"
#include "examples/whence/language/first_weights.h"
#include "examples/whence/language/hugging_face.h"
#include "examples/whence/language/saved_model.h"
#include "examples/whence/machine/memory_plan.h"
#include "examples/whence/run/loading.h"
#include "examples/whence/run/run_files.h"
#include "examples/whence/run/run_record.h"
#include "nn/io/checkpoint.h"
#include "nn/io/files.h"
#include "nn/io/safetensors.h"
#include "nn/io/sha256.h"
#include "tensor/error.h"

namespace whence {
namespace {

using namespace whence::language;
namespace fs = std::filesystem;

struct Options {
  std::vector<std::string> from;
  std::string out, tokeniser, tokens, logits;
  bool accept_damaged = false;
};

// GPT-2's two files where they lie beside the weights; bytes where the vocabulary is theirs.
TokeniserPointer tokeniser_for(const std::string& folder, const std::string& given, index_t vocabulary) {
  const fs::path words = fs::path(folder) / "vocab.json", merges = fs::path(folder) / "merges.txt";
  TokeniserPointer found;
  if (!given.empty())
    found = given == "bytes" ? byte_tokeniser() : load_tokeniser(given);
  else if (fs::exists(words) && fs::exists(merges))
    found = read_gpt2_files(words.string(), merges.string());
  else if (vocabulary == 256)
    found = byte_tokeniser();
  else
    throw InputError("--tokeniser: none given, and ", folder, " has no vocab.json and merges.txt; a tokeniser of ",
        vocabulary, " tokens required; whence tokenize makes files of them");
  require_same_vocabulary(*found, vocabulary);
  return found;
}

void refuse_existing(const std::string& out) {
  for (const char* name : {"run.json", "config.json", "weights.safetensors", "model.safetensors", "checkpoints"})
    if (fs::exists(fs::path(out) / name))
      throw InputError("--out: ", out, " holds a model (", name, "); another folder required");
}

// i64 [b t] under the name "tokens" -> f32 [b t v] under "logits", for others to compare theirs with; where asked for.
void write_logits(const Transformer& model, const Options& options) {
  if (options.tokens.empty()) return;
  const SafetensorsFile in = read_safetensors(options.tokens);
  const auto found = std::ranges::find(in.tensors, "tokens", &std::pair<std::string, Tensor>::first);
  if (found == in.tensors.end() || found->second.dtype() != DType::i64 || found->second.rank() != 2)
    throw FileError(options.tokens, ": no tensor \"tokens\" of i64 [batch, time]; it required");
  for (const double token : found->second.to_vector())
    if (token < 0 || token >= static_cast<double>(model.options().vocabulary))
      throw FileError(options.tokens, ": token ", token, " found; 0 to ", model.options().vocabulary - 1, " required");
  const NoGrad no_grad;
  write_safetensors(options.logits, {{{"logits", model(found->second)}}});
  std::cout << "written: " << one_line(options.logits) << '\n';
}

void from_hugging_face(const Options& options) {
  const std::string& folder = options.from[0];
  const ForeignModel theirs = read_hugging_face(folder);
  const TokeniserPointer tokeniser = tokeniser_for(folder, options.tokeniser, theirs.options.vocabulary);
  require_memory(theirs.options, Device::cpu(), 2);
  Transformer model(theirs.options);
  (void)take_weights(theirs.weights, model.parameters(), folder);
  ensure_output_folder(options.out);
  const fs::path out = options.out;
  RunRecord record{"convert", WHENCE_VERSION, "lm", {}, {}, sha256(""), language_facts(model.options(), *tokeniser)};
  tokeniser->save((out / tokeniser_file).string());
  save_weights((out / "weights.safetensors").string(), model.parameters());
  write_file((out / "run.json").string(), text_of(record));
  std::cout << "model: " << model.scheme() << ", " << model.parameter_count() << " parameters, "
            << theirs.ignored.size() << " tensors of masks and frequencies left out\nwritten: " << one_line(options.out)
            << "/{run.json, tokeniser.json, weights.safetensors}\n";
  write_logits(model, options);
}

void to_hugging_face(const Options& options) {
  const SavedModel saved = load_language_model(options.from[0], {}, options.accept_damaged);
  ensure_output_folder(options.out);
  write_hugging_face(options.out, saved.model->options(), saved.model->parameters());
  std::string files = "config.json, model.safetensors";
  if (saved.tokeniser->kind() == "bpe") {
    write_gpt2_files(*saved.tokeniser, options.out);
    files += ", vocab.json, merges.txt";
  }
  std::cout << "written: " << one_line(options.out) << "/{" << files << "}\n";
  write_logits(*saved.model, options);
}

int run(CommandLine& line) {
  Options options;
  line.names("FOLDER", &options.from, "config.json and model.safetensors of theirs, or a run of train lm")
      .heading("What is written")
      .text("out", &options.out, {"folder for the other form"})
      .text("tokeniser", &options.tokeniser,
          {"of theirs: bytes, or a file of whence tokenize; without it vocab.json and merges.txt of FOLDER"})
      .text("tokens", &options.tokens, {"safetensors file with \"tokens\", i64 [batch, time]"})
      .text("logits", &options.logits, {"file for the logits of these, to compare"});
  declare_accept_damaged(line, options.accept_damaged);
  line.example("whence convert gpt2 --out runs/gpt2", "what generate, score, look and train lm --weights-of take");
  line.example("whence convert runs/gpt2 --out back", "and for transformers' from_pretrained");
  if (line.shows_page()) return 0;
  if (options.from.size() != 1) throw InputError("FOLDER: ", options.from.size(), " given; one required");
  if (options.out.empty()) throw InputError("--out: nothing given; a folder required");
  line.refuse_unless("logits", !options.tokens.empty(), "--tokens");
  line.refuse_unless("tokens", !options.logits.empty(), "--logits");
  refuse_existing(options.out);
  const bool theirs = is_hugging_face(options.from[0]);
  line.refuse_unless("tokeniser", theirs, "a folder with config.json");
  theirs ? from_hugging_face(options) : to_hugging_face(options);
  return 0;
}

const RegisterCommand registered{
    {"convert", Purpose::train, "GPT-2 and GPT-NeoX of Hugging Face as runs, and runs as theirs", run}};

}  // namespace
}  // namespace whence
