#include "examples/whence/look/edits.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "autograd/recording.h"
#include "examples/whence/cli/numbers.h"
#include "examples/whence/cli/text.h"
#include "examples/whence/cli/words.h"
#include "tensor/error.h"
#include "tensor/raw.h"
#include "tensor/suggest.h"

namespace whence::look {
namespace {

struct Edit {
  struct Part {
    std::string axis;
    index_t first, last;
  };
  enum class Change : unsigned char { set, scale, add };

  std::string text;  // as it was given
  std::string path;  // of a quantity or a parameter
  std::vector<Part> parts;
  Change change;
  double number;
};

[[noreturn]] void unreadable(const std::string& text) {
  throw InputError("--edit: ", in_quotes(text), " given; PATH[AXIS=PLACE, AXIS=FIRST..LAST] = NUMBER required, the ",
      "brackets if wanted, or *= or +=, as in \"blocks.0.attention.scores[h=1] = 0\"");
}

Edit::Part part_of(const std::string& text, const std::string& word) {
  const std::size_t equals = std::min(word.find('='), word.size()), dots = word.find("..", equals);
  const std::string axis = trimmed(word.substr(0, equals));
  if (axis.empty() || equals == word.size()) unreadable(text);
  const auto first = parse_number<index_t>(word.substr(equals + 1, dots - equals - 1));
  const auto last = dots == std::string::npos ? first : parse_number<index_t>(word.substr(dots + 2));
  if (!first || !last) unreadable(text);
  return {axis, *first, *last};
}

Edit edit_of(const std::string& text) {
  const std::size_t equals = text.rfind('=');
  const auto number = parse_number<double>(equals == std::string::npos ? "" : trimmed(text.substr(equals + 1)));
  if (!number || equals == 0) unreadable(text);
  Edit edit{.text = trimmed(text), .path = {}, .parts = {}, .change = Edit::Change::set, .number = *number};
  if (text[equals - 1] == '*') edit.change = Edit::Change::scale;
  if (text[equals - 1] == '+') edit.change = Edit::Change::add;
  const std::string place = trimmed(text.substr(0, edit.change == Edit::Change::set ? equals : equals - 1));
  const std::size_t bracket = std::min(place.find('['), place.size());
  const bool brackets = bracket < place.size();
  edit.path = trimmed(place.substr(0, bracket));
  if (edit.path.empty() || edit.path.find_first_of("]= ") != std::string::npos || (brackets && place.back() != ']'))
    unreadable(text);
  if (brackets)
    for (const std::string& word : list_of(place.substr(bracket + 1, place.size() - bracket - 2)))
      edit.parts.push_back(part_of(text, word));
  return edit;
}

const Quantity& quantity_at(const Inspection& inspection, const std::string& path) {
  std::vector<std::string> known;
  for (const std::vector<Quantity>* all : {&inspection.quantities(), &inspection.parameters()}) {
    for (const Quantity& quantity : *all) {
      if (quantity.path == path) return quantity;
      if (quantity.probe) known.push_back(quantity.path);
    }
  }
  throw InputError("--edit: '", path, "' given; a parameter, or one of ", joined(known), " required");
}

// For each axis of the quantity the first and the last place that the edit means.
std::vector<std::pair<index_t, index_t>> ranges_of(const Quantity& quantity, const Edit& edit) {
  const Axes axes(quantity);
  std::vector<std::pair<index_t, index_t>> ranges;
  for (const index_t extent : axes.shape) ranges.emplace_back(0, extent - 1);
  std::set<int> given;
  for (const Edit::Part& part : edit.parts) {
    const int lettered = part.axis.size() == 1 ? axes.find(part.axis[0]) : -1;
    const int axis = lettered >= 0 ? lettered : parse_number<int>(part.axis).value_or(-1);
    if (axis < 0 || axis >= axes.shape.rank())
      throw InputError("--edit: axis ", part.axis, " given; ", edit.path, " is ", axes.shape,
          quantity.probe ? to_text(" with axes ", quantity.probe->axes) : "", "; one of these required");
    if (part.first < 0 || part.first > part.last || part.last >= axes.shape[axis])
      throw InputError("--edit: ", part.axis, "=", part.first, "..", part.last, " given; places in 0 to ",
          axes.shape[axis] - 1, " required, the lower one first");
    if (!given.insert(axis).second) throw InputError("--edit: axis ", part.axis, " given twice; once required");
    ranges[static_cast<std::size_t>(axis)] = {part.first, part.last};
  }
  return ranges;
}

// New numbers minus old ones, in the quantity's shape.
Tensor change_of(const Inspection& inspection, const Quantity& quantity, const Edit& edit) {
  const Axes axes(quantity);
  const auto ranges = ranges_of(quantity, edit);
  const auto is_meant = [&](std::size_t e) {
    return inspection.stop_of(quantity, e) != Stop::masked &&
           std::ranges::equal(axes.position(e), ranges,
               [](index_t at, const auto& range) { return range.first <= at && at <= range.second; });
  };
  std::vector<double> old = quantity.value.to_vector(), change(old.size());
  for (std::size_t e = 0; e < old.size(); ++e) {
    if (!is_meant(e)) continue;
    change[e] = edit.change == Edit::Change::set     ? edit.number - old[e]
                : edit.change == Edit::Change::scale ? edit.number * old[e] - old[e]
                                                     : edit.number;
  }
  return Tensor::of(change, quantity.value.shape(), quantity.value.dtype());
}

double loss_with(const Subject& subject, const Quantity& quantity, const Tensor& change) {
  const NoGrad values_only;
  Capture capture("*");  // so that attention is computed as it was when it was looked at
  if (!quantity.is_parameter) {
    capture.edit(quantity.path, [&](const Tensor& value) { return raw::add(value, change); });
    return subject.loss().item();
  }
  for (const Module::Parameter& parameter : subject.model->parameters()) {
    if (parameter.path != quantity.path) continue;
    // Other numbers under the same name: nothing is written over, and the graph keeps those that it saw.
    const Tensor before = parameter.tensor.detach();
    parameter.tensor.replace(raw::add(before, change));
    const double loss = subject.loss().item();
    parameter.tensor.replace(before);
    return loss;
  }
  fail("edit", quantity.path, " is no parameter of the model");
}

}  // namespace

EditOutcome outcome_of(const Inspection& inspection, const std::string& text) {
  const Edit edit = edit_of(text);
  const Quantity& quantity = quantity_at(inspection, edit.path);
  const Tensor change = change_of(inspection, quantity, edit);
  std::optional<double> predicted;
  if (quantity.gradient.defined()) predicted = dot(quantity.gradient, change);
  return {edit.text, predicted, loss_with(inspection.subject(), quantity, change) - inspection.loss()};
}

bool far_from_straight(const std::vector<EditOutcome>& edits) {
  return std::ranges::any_of(edits,
      [](const EditOutcome& edit) { return edit.predicted && std::abs(edit.real) > 100 * std::abs(*edit.predicted); });
}

std::vector<EditOutcome> strongest_edits(const Inspection& inspection, std::size_t most) {
  std::vector<EditOutcome> all;
  if (most == 0) return all;
  for (const Quantity& quantity : inspection.quantities()) {
    if (!quantity.has_pairs() || !quantity.gradient.defined()) continue;
    const bool opens = quantity.probe->scale == ProbeInfo::Scale::unit && !quantity.scheme.empty();
    for (index_t head = 0; head < quantity.value.size(1); ++head)
      for (int number = 0; number <= (opens ? 1 : 0); ++number)
        all.push_back(outcome_of(inspection, to_text(quantity.path, "[h=", head, "] = ", number)));
  }
  for (const Quantity& parameter : inspection.parameters()) {
    if (parameter.path.find(".position") == std::string::npos || parameter.value.rank() != 4) continue;
    for (index_t tap = 0; tap < parameter.value.size(3) && parameter.value.size(3) > 1; ++tap)
      all.push_back(outcome_of(inspection, to_text(parameter.path, "[3=", tap, "] = 0")));
  }
  std::ranges::stable_sort(all, std::ranges::greater{}, [](const EditOutcome& each) { return std::abs(each.real); });
  if (all.size() > most) all.resize(most);
  return all;
}

}  // namespace whence::look
