#include "examples/whence/look/named_number.h"

#include <algorithm>

#include "examples/whence/cli/words.h"
#include "examples/whence/look/axes.h"
#include "tensor/error.h"
#include "tensor/suggest.h"

namespace whence::look {
namespace {

struct Words {
  std::string name = "logits";
  bool gradient = false;
  std::vector<std::pair<std::string, index_t>> at;
};

Words read_words(const std::string& what) {
  Words wanted;
  bool named = false;
  for (const Word& word : words_of(what, "--explain")) {
    if (word.name.empty()) {
      if (named) throw InputError("--explain: '", wanted.name, "' and '", word.value, "' given; one name required");
      named = true;
      wanted.gradient = word.value.starts_with("dLoss/d");
      wanted.name = wanted.gradient ? word.value.substr(7) : word.value;
      continue;
    }
    if (std::ranges::find(wanted.at, word.name, &std::pair<std::string, index_t>::first) != wanted.at.end())
      throw InputError("--explain: ", word.name, " given twice; once required");
    wanted.at.emplace_back(word.name, word.whole("--explain"));
  }
  return wanted;
}

index_t layer_of(const Inspection& inspection, const Words& wanted) {
  index_t layer = 0;
  for (const auto& [name, position] : wanted.at)
    if (name == "layer") layer = position;
  const index_t layers = inspection.subject().model->options().layers;
  if (layer < 0 || layer >= layers)
    throw InputError("--explain: layer=", layer, " given; 0 to ", layers - 1, " required");
  return layer;
}

const Quantity& quantity_of(const Inspection& inspection, const Words& wanted) {
  const index_t layer = layer_of(inspection, wanted);
  std::vector<std::string> known;
  for (const Quantity& quantity : inspection.quantities()) {
    if (!quantity.probe || quantity.layer != layer) continue;
    if (quantity.probe->name == wanted.name || quantity.name == wanted.name) return quantity;
    known.push_back(quantity.name);
  }
  throw InputError("--explain: '", wanted.name, "' in layer ", layer, " given; one of ", joined(known), " required");
}

// The batch is one.
std::vector<index_t> position_in(const Quantity& quantity, const Words& wanted) {
  const Axes axes(quantity);
  std::vector<index_t> at;
  std::vector<std::string> used{"layer"};
  for (std::size_t axis = 0; axis < axes.letters.size(); ++axis) {
    const char letter = axes.letters[axis];
    const std::string name = letter == 'h' ? "head" : std::string(1, letter);
    const index_t extent = axes.extents[axis];
    const auto given = std::ranges::find(wanted.at, name, &std::pair<std::string, index_t>::first);
    if (given == wanted.at.end() && extent > 1)
      throw InputError("--explain: no ", name, " given; ", wanted.name, " has axes ", quantity.probe->axes, "; ", name,
          "=0 to ", extent - 1, " required");
    at.push_back(given == wanted.at.end() ? 0 : given->second), used.push_back(name);
    if (at.back() < 0 || at.back() >= extent)
      throw InputError("--explain: ", name, "=", at.back(), " given; 0 to ", extent - 1, " required");
  }
  for (const auto& [name, position] : wanted.at)
    if (std::ranges::find(used, name) == used.end())
      throw InputError("--explain: ", name, " given; ", wanted.name, " has axes ", quantity.probe->axes, " alone");
  return at;
}

}  // namespace

NamedNumber number_named(const Inspection& inspection, const std::string& text) {
  const Words words = read_words(text);
  const Quantity& quantity = quantity_of(inspection, words);
  std::vector<index_t> at = position_in(quantity, words);
  const std::size_t element = Axes(quantity).element(at);
  return {&quantity, words.gradient, std::move(at), element};
}

}  // namespace whence::look
