#include "examples/whence/look/wanted.h"

#include <algorithm>
#include <sstream>

#include "examples/whence/cli/text.h"
#include "tensor/error.h"
#include "tensor/suggest.h"

namespace whence::look {
namespace {

struct Words {
  std::string name = "logits";
  bool gradient = false;
  std::vector<std::pair<std::string, index_t>> at;
};

Words words_of(const std::string& what, const std::string& option) {
  Words wanted;
  std::istringstream words(what);
  bool named = false;
  for (std::string word; words >> word;) {
    const std::size_t equals = word.find('=');
    if (equals == std::string::npos) {
      if (named) throw InputError(option, ": '", wanted.name, "' and '", word, "' given; one name required");
      named = true;
      wanted.gradient = word.starts_with("dLoss/d");
      wanted.name = wanted.gradient ? word.substr(7) : word;
      continue;
    }
    const auto number = parse_number<std::int64_t>(word.substr(equals + 1));
    if (!number) throw InputError(option, ": '", word, "' given; a name and a whole number required, such as head=3");
    const std::string name = word.substr(0, equals);
    if (std::ranges::find(wanted.at, name, &std::pair<std::string, index_t>::first) != wanted.at.end())
      throw InputError(option, ": ", name, " given twice; once required");
    wanted.at.emplace_back(name, *number);
  }
  return wanted;
}

index_t layer_of(const Inspection& inspection, const Words& wanted, const std::string& option) {
  index_t layer = 0;
  for (const auto& [name, position] : wanted.at)
    if (name == "layer") layer = position;
  const index_t layers = inspection.subject().model->options().layers;
  if (layer < 0 || layer >= layers)
    throw InputError(option, ": layer=", layer, " given; 0 to ", layers - 1, " required");
  return layer;
}

const Quantity& quantity_of(const Inspection& inspection, const Words& wanted, const std::string& option) {
  const index_t layer = layer_of(inspection, wanted, option);
  std::vector<std::string> known;
  for (const Quantity& quantity : inspection.quantities()) {
    if (!quantity.probe || quantity.layer != layer) continue;
    if (quantity.probe->name == wanted.name || quantity.name == wanted.name) return quantity;
    known.push_back(quantity.name);
  }
  throw InputError(option, ": '", wanted.name, "' in layer ", layer, " given; one of ", joined(known), " required");
}

// The position in axes such as "b h i j" that `wanted` names, without the axis of which all are meant; the batch is
// one.
Shape position_in(const Quantity& quantity, const Words& wanted, const std::string& option, char without = '\0') {
  std::vector<index_t> at;
  std::vector<std::string> used{"layer"};
  for (std::size_t axis = 0; axis < quantity.probe->axes.size(); axis += 2) {
    const char letter = quantity.probe->axes[axis];
    const std::string name = letter == 'h' ? "head" : std::string(1, letter);
    const index_t extent = quantity.value.size(static_cast<int>(axis / 2));
    const auto given = std::ranges::find(wanted.at, name, &std::pair<std::string, index_t>::first);
    if (letter == without && given != wanted.at.end())
      throw InputError(option, ": ", name, " given; all of them are meant; leave it out");
    if (given == wanted.at.end() && extent > 1 && letter != without)
      throw InputError(option, ": no ", name, " given; ", wanted.name, " has axes ", quantity.probe->axes, "; ", name,
          "=0 to ", extent - 1, " required");
    const index_t position = given == wanted.at.end() ? 0 : given->second;
    if (position < 0 || position >= extent)
      throw InputError(option, ": ", name, "=", position, " given; 0 to ", extent - 1, " required");
    at.push_back(position), used.push_back(name);
  }
  for (const auto& [name, position] : wanted.at)
    if (std::ranges::find(used, name) == used.end())
      throw InputError(option, ": ", name, " given; ", wanted.name, " has axes ", quantity.probe->axes, " alone");
  return Shape(at);
}

}  // namespace

Wanted wanted_of(const Inspection& inspection, const std::string& what, const std::string& option) {
  const Words words = words_of(what, option);
  const Quantity& quantity = quantity_of(inspection, words, option);
  return {&quantity, words.gradient, position_in(quantity, words, option)};
}

Wanted wanted_row_of(const Inspection& inspection, const std::string& what, const std::string& option) {
  const Words words = words_of(what, option);
  const Quantity& quantity = quantity_of(inspection, words, option);
  const std::string& axes = quantity.probe->axes;
  if (axes.find('i') == std::string::npos || axes.find('j') == std::string::npos)
    throw InputError(option, ": ", words.name, " given, which has axes ", axes,
        "; a quantity of pairs required, with i and j, such as pattern");
  return {&quantity, words.gradient, position_in(quantity, words, option, 'j')};
}

std::size_t element_at(const Shape& at, const Shape& shape) {
  index_t element = 0;
  for (int axis = 0; axis < at.rank(); ++axis) element = element * shape[axis] + at[axis];
  return static_cast<std::size_t>(element);
}

}  // namespace whence::look
