// Training byte-pair encoding. Counts of pairs are updated piece by piece, so that a merge costs only what it changes.
#include <algorithm>
#include <queue>
#include <unordered_map>

#include "examples/whence/cli/interrupt.h"
#include "examples/whence/language/bpe.h"
#include "examples/whence/language/gpt2_text.h"

namespace whence::language {
namespace {

constexpr const char* work = "training a tokeniser";

using Pair = std::uint64_t;  // pair_key: in the order of the left tokens, then of the right ones

// A piece that occurs `count` times, as tokens so far.
struct Word {
  TokenIds tokens;
  std::int64_t count;
};

// The tokens of single bytes come first, in the order of their spelling, as in GPT-2's vocabulary.
std::vector<std::string> byte_spellings() {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.push_back(spelled(std::string(1, static_cast<char>(byte))));
  std::sort(tokens.begin(), tokens.end());  // UTF-8 sorts as its code points do
  return tokens;
}

class Trainer {
 public:
  explicit Trainer(std::span<const std::string_view> texts) : spellings_(byte_spellings()) {
    for (std::size_t i = 0; i < spellings_.size(); ++i) ids_.emplace(spellings_[i], static_cast<TokenId>(i));
    read(texts);
    for (std::size_t w = 0; w < words_.size(); ++w) stop_if_interrupted(work), count(w);
    for (const auto& [pair, known] : pairs_) frequent_.push({known.count, pair});
  }

  TokeniserPointer train(index_t vocabulary) {
    while (static_cast<index_t>(spellings_.size()) < vocabulary) {
      const Candidate best = most_frequent();
      if (best.count < 2) break;
      merge(best.pair);
    }
    std::map<std::string, std::int64_t> table;
    for (std::size_t i = 0; i < spellings_.size(); ++i) table.emplace(spellings_[i], i);
    return bpe_from(table, merges_, "training");
  }

 private:
  struct Known {
    std::int64_t count = 0;
    std::vector<std::size_t> words = {};  // where it was seen; it may be gone from there
  };
  struct Candidate {
    std::int64_t count = 0;
    Pair pair = 0;
    bool operator<(const Candidate& other) const {
      return count != other.count ? count < other.count : pair > other.pair;
    }
  };

  void read(std::span<const std::string_view> texts) {
    std::unordered_map<std::string_view, std::int64_t> counts;
    for (const std::string_view text : texts) {
      for (std::size_t done = 0; done < text.size();) {
        stop_if_interrupted(work);
        const std::string_view piece = text.substr(done, first_piece(text.substr(done)));
        ++counts[piece];
        done += piece.size();
      }
    }
    for (const auto& [piece, number] : counts) {
      stop_if_interrupted(work);
      Word word{{}, number};
      for (const char c : piece) word.tokens.push_back(ids_.at(spelled({&c, 1})));
      words_.push_back(std::move(word));
    }
  }

  void count(std::size_t w) {
    const Word& word = words_[w];
    for (std::size_t i = 0; i + 1 < word.tokens.size(); ++i) {
      Known& known = pairs_[pair_key(word.tokens[i], word.tokens[i + 1])];
      known.count += word.count;
      if (known.words.empty() || known.words.back() != w) known.words.push_back(w);
    }
  }

  // Candidates are put in with the count they had; a count that has fallen since is found out here.
  Candidate most_frequent() {
    while (!frequent_.empty()) {
      Candidate best = frequent_.top();
      frequent_.pop();
      const std::int64_t now = pairs_.at(best.pair).count;
      if (now == best.count) return best;
      if (now > 0) frequent_.push({now, best.pair});
    }
    return {};
  }

  TokenId token_of(Pair pair) {
    const std::string left = spellings_[pair >> 32], right = spellings_[static_cast<std::uint32_t>(pair)];
    merges_.push_back(left + ' ' + right);
    const auto [place, fresh] = ids_.emplace(left + right, static_cast<TokenId>(spellings_.size()));
    if (fresh) spellings_.push_back(left + right);  // otherwise another pair has made the same token before
    return place->second;
  }

  void merge(Pair pair) {
    const TokenId result = token_of(pair);
    std::vector<Pair> risen;
    const std::vector<std::size_t> places = std::move(pairs_.at(pair).words);
    pairs_.at(pair).words.clear();
    for (const std::size_t w : places) {
      stop_if_interrupted(work);
      Word& word = words_[w];
      TokenIds shorter = merged(word.tokens, pair, result);
      if (shorter.size() == word.tokens.size()) continue;  // merged away since
      for (std::size_t i = 0; i + 1 < word.tokens.size(); ++i)
        pairs_.at(pair_key(word.tokens[i], word.tokens[i + 1])).count -= word.count;
      word.tokens = std::move(shorter);
      count(w);
      for (std::size_t i = 0; i + 1 < word.tokens.size(); ++i)
        if (word.tokens[i] == result || word.tokens[i + 1] == result)
          risen.push_back(pair_key(word.tokens[i], word.tokens[i + 1]));
    }
    std::sort(risen.begin(), risen.end());
    risen.erase(std::unique(risen.begin(), risen.end()), risen.end());
    for (const Pair each : risen) frequent_.push({pairs_.at(each).count, each});
  }

  static TokenIds merged(const TokenIds& tokens, Pair pair, TokenId result) {
    TokenIds shorter;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const bool here = i + 1 < tokens.size() && pair_key(tokens[i], tokens[i + 1]) == pair;
      shorter.push_back(here ? result : tokens[i]);
      i += here;
    }
    return shorter;
  }

  std::vector<std::string> spellings_, merges_;
  std::unordered_map<std::string, TokenId> ids_;
  std::vector<Word> words_;
  std::unordered_map<Pair, Known> pairs_;
  std::priority_queue<Candidate> frequent_;
};

}  // namespace

TokeniserPointer train_bpe(std::span<const std::string_view> texts, index_t vocabulary) {
  if (vocabulary < 257)
    throw InputError("bpe: a vocabulary of ", vocabulary, " given; 257 or more required, 256 being the bytes");
  return Trainer(texts).train(vocabulary);
}

}  // namespace whence::language
