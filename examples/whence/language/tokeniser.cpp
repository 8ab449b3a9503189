#include "examples/whence/language/tokeniser.h"

#include <algorithm>

#include "examples/whence/cli/json.h"
#include "examples/whence/language/bpe.h"
#include "nn/io/files.h"

namespace whence::language {
namespace {

constexpr std::uint64_t largest_tokeniser = 1 << 28;  // far above any vocabulary: refuses a wrong file before parsing
constexpr std::int64_t most_tokens = 1 << 22;

}  // namespace

TokenIds Tokeniser::encode(std::string_view text) const {
  TokenIds ids;
  for (std::size_t done = 0; done < text.size();) {
    try {
      done += encode_part(text.substr(done), ids);
    } catch (const UnfitText& unfit) { throw UnfitText(done + unfit.byte, unfit.reason); }
  }
  return ids;
}

std::string Tokeniser::decode(std::span<const TokenId> ids) const {
  std::string text;
  for (std::size_t at = 0; at < ids.size(); ++at) {
    const TokenId id = ids[at];
    if (id < 0 || id >= vocabulary()) {
      throw FileError("decode: token ", id, " given at place ", at, "; 0 to ", vocabulary() - 1,
          " required; is it of another tokeniser?");
    }
    text += token(id);
  }
  return text;
}

std::string Tokeniser::hash() const { return sha256(json()); }

void Tokeniser::save(const std::string& path) const { write_file(path, json()); }

TokeniserPointer load_tokeniser(const std::string& path) {
  return tokeniser_from_json(InputFile(path).text(largest_tokeniser), path);
}

TokeniserPointer tokeniser_from_json(const std::string& text, const std::string& place) {
  const Json file = Json::read(text, place + ": no file of a tokeniser");
  if (!file.has("format") || file.text("format") != "whence tokeniser") {
    throw FileError(
        place, ": tokeniser: no file of a tokeniser; one required; GPT-2's own files: tokenize --vocab --merges");
  }
  (void)file.whole("version", 1, 1);
  const std::string& kind = file.text("kind");
  if (kind == "bytes") return byte_tokeniser();
  if (kind == "characters" || kind == "words") return list_from(kind, file.texts(kind), place);
  if (kind == "bpe")
    return bpe_from(token_numbers(file.object("vocab")), file.texts("merges"), place,
        file.has("vocabulary") ? file.whole("vocabulary", 0, most_tokens) : 0);
  throw FileError(place, ": tokeniser: kind '", kind, "' given; bytes, characters, words or bpe required");
}

std::string note_on_unknown(const Tokeniser& tokeniser, std::span<const TokenId> ids) {
  const auto unknown = tokeniser.unknown() < 0 ? 0 : std::ranges::count(ids, tokeniser.unknown());
  if (unknown == 0) return {};
  return to_text(unknown, " of ", ids.size(), " tokens are unknown text: U+FFFD is read in its place");
}

void require_same_vocabulary(const Tokeniser& tokeniser, index_t model_vocabulary) {
  if (tokeniser.vocabulary() == model_vocabulary) return;
  throw FileError("tokeniser: it has ", tokeniser.vocabulary(), " tokens and the model ", model_vocabulary,
      "; the tokeniser that the model was trained with required");
}

}  // namespace whence::language
