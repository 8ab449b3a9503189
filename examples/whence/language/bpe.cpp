#include "examples/whence/language/bpe.h"

#include <algorithm>
#include <array>
#include <queue>
#include <sstream>
#include <tuple>
#include <unordered_map>

#include "examples/whence/cli/text.h"
#include "examples/whence/language/gpt2_text.h"
#include "nn/io/files.h"

namespace whence::language {
namespace {

// Packs two tokens into one number, a key for look-ups.
constexpr std::uint64_t pair_key(TokenId left, TokenId right) {
  return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 | static_cast<std::uint32_t>(right);
}

struct Merge {
  std::int32_t rank;  // merges with a smaller rank come first
  TokenId result;
};

// Keeps tokens both as the files spell them and as bytes, because a file is written as it was read.
class Bpe final : public Tokeniser {
 public:
  Bpe(const std::map<std::string, std::int64_t>& vocabulary, std::vector<std::string> merges, const std::string& place,
      index_t rows)
      : place_(place), merge_lines_(std::move(merges)) {
    take_tokens(vocabulary);
    for (std::size_t i = 0; i < merge_lines_.size(); ++i) take_merge(i, vocabulary);
    tokens_.resize(std::max(tokens_.size(), static_cast<std::size_t>(rows)));
  }

  std::string kind() const override { return "bpe"; }
  index_t vocabulary() const override { return static_cast<index_t>(tokens_.size()); }
  index_t named() const override { return static_cast<index_t>(spellings_.size()); }
  std::string_view token(TokenId id) const override { return tokens_[static_cast<std::size_t>(id)]; }
  TokenId end_of_text() const override { return end_of_text_; }

  std::size_t encode_part(std::string_view text, TokenIds& ids) const override {
    std::size_t done = 0;
    while (done < text.size() && done < std::size_t{1} << 20) {
      const std::string_view piece = text.substr(done, first_piece(text.substr(done)));
      encode_piece(piece, ids);
      done += piece.size();
    }
    return done;
  }

  std::string json() const override {
    Json::Fields entries;
    for (std::size_t id = 0; id < spellings_.size(); ++id) entries.push_back({spellings_[id], id});
    const Json file{{"format", "whence tokeniser"}, {"version", 1}, {"kind", kind()}, {"vocabulary", vocabulary()},
        {"vocab", entries}, {"merges", merge_lines_}};
    return file.page(1) + '\n';
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    throw FileError(place_, ": tokeniser: ", why, "; GPT-2's vocab.json and merges.txt, of one model, required");
  }

  // A linked list of tokens, at first one per byte. The earliest merge is done until none is left, so a merge costs
  // only what it changes, however long the piece. Both ends hold -1, which no merge has.
  void encode_piece(std::string_view piece, TokenIds& ids) const {
    struct Link {
      TokenId token;
      std::size_t before, after;
    };
    const std::size_t end = piece.size() + 1;
    std::vector<Link> chain{{-1, 0, 1}};
    for (const char c : piece)
      chain.push_back({byte_tokens_[static_cast<unsigned char>(c)], chain.size() - 1, chain.size() + 1});
    chain.push_back({-1, end - 1, end});
    using Possible = std::tuple<std::int32_t, std::size_t, std::uint64_t>;  // rank, position, pair
    std::priority_queue<Possible, std::vector<Possible>, std::greater<>> possible;
    const auto pair_at = [&](std::size_t at) { return pair_key(chain[at].token, chain[chain[at].after].token); };
    const auto consider = [&](std::size_t at) {
      if (const auto merge = merges_.find(pair_at(at)); merge != merges_.end())
        possible.emplace(merge->second.rank, at, merge->first);
    };
    for (std::size_t at = 1; at < end; ++at) consider(at);
    while (!possible.empty()) {
      const auto [rank, at, key] = possible.top();
      possible.pop();
      if (pair_at(at) != key) continue;  // either token has gone into another merge since then
      Link& right = chain[chain[at].after];
      right.token = -1;
      chain[at].token = merges_.at(key).result;
      chain[at].after = right.after;
      chain[right.after].before = at;
      consider(at), consider(chain[at].before);
    }
    for (std::size_t at = 1; at != end; at = chain[at].after) ids.push_back(chain[at].token);
  }

  void take_tokens(const std::map<std::string, std::int64_t>& vocabulary) {
    spellings_.resize(vocabulary.size());
    std::vector<bool> taken(vocabulary.size());
    for (const auto& [spelling, id] : vocabulary) {
      if (id < 0 || id >= static_cast<std::int64_t>(taken.size()) || taken[static_cast<std::size_t>(id)]) {
        refuse(to_text("token '", spelling, "' has number ", id, ", where ", taken.size(),
            " tokens must have each of 0 to ", taken.size() - 1));
      }
      taken[static_cast<std::size_t>(id)] = true;
      spellings_[static_cast<std::size_t>(id)] = spelling;
    }
    // A token spelled with other characters is a special token, and its spelling is its text.
    for (const std::string& spelling : spellings_) tokens_.push_back(unspelled(spelling).value_or(spelling));
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const auto found = vocabulary.find(spelled(std::string(1, static_cast<char>(byte))));
      if (found == vocabulary.end()) refuse(to_text("no token for byte ", byte));
      byte_tokens_[byte] = static_cast<TokenId>(found->second);
    }
    if (const auto end = vocabulary.find("<|endoftext|>"); end != vocabulary.end())
      end_of_text_ = static_cast<TokenId>(end->second);
  }

  void take_merge(std::size_t number, const std::map<std::string, std::int64_t>& vocabulary) {
    const std::string& line = merge_lines_[number];
    const std::size_t blank = line.find(' ');
    if (blank == std::string::npos || blank == 0 || blank + 1 == line.size() ||
        line.find(' ', blank + 1) != std::string::npos)
      refuse(to_text("merge ", number, " is '", line, "', not two tokens"));
    const std::string left = line.substr(0, blank), right = line.substr(blank + 1);
    const auto id_of = [&](const std::string& spelling) {
      const auto found = vocabulary.find(spelling);
      if (found == vocabulary.end())
        refuse(to_text("merge ", number, " is '", line, "', and '", spelling, "' is no token"));
      return static_cast<TokenId>(found->second);
    };
    const Merge merge{static_cast<std::int32_t>(number), id_of(left + right)};
    if (const auto [there, fresh] = merges_.emplace(pair_key(id_of(left), id_of(right)), merge); !fresh)
      refuse(to_text("merge ", number, " is '", line, "', which merge ", there->second.rank, " is already"));
  }

  std::string place_;
  std::vector<std::string> spellings_, tokens_, merge_lines_;
  std::array<TokenId, 256> byte_tokens_{};
  std::unordered_map<std::uint64_t, Merge> merges_;
  TokenId end_of_text_ = -1;
};

constexpr std::uint64_t largest_file = std::uint64_t{1} << 28;

}  // namespace

std::map<std::string, std::int64_t> token_numbers(const Json& table) {
  std::map<std::string, std::int64_t> numbers;
  for (const auto& [token, value] : table.fields()) {
    const auto* number = value.as<std::int64_t>();
    if (!number)
      table.refuse(to_text(
          "token ", in_quotes(token), " has the number ", in_quotes(value.line()), "; a whole number required"));
    numbers[token] = *number;
  }
  return numbers;
}

TokeniserPointer bpe_from(const std::map<std::string, std::int64_t>& vocabulary, const std::vector<std::string>& merges,
    const std::string& place, index_t rows) {
  return std::make_unique<Bpe>(vocabulary, merges, place, rows);
}

TokeniserPointer read_gpt2_files(const std::string& vocabulary_path, const std::string& merges_path) {
  std::istringstream lines(InputFile(merges_path).text(largest_file));
  lines.exceptions(std::ios::badbit);  // out of memory: otherwise a stream stops silently
  std::vector<std::string> merges;
  for (std::string line; std::getline(lines, line);) {
    if (line.ends_with('\r')) line.pop_back();
    if (!line.empty() && !(merges.empty() && line.starts_with("#version"))) merges.push_back(line);
  }
  const Json table =
      Json::read(InputFile(vocabulary_path).text(largest_file), vocabulary_path + ": no vocab.json of GPT-2");
  return bpe_from(token_numbers(table), merges, vocabulary_path);
}

}  // namespace whence::language
