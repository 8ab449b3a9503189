#include "examples/whence/look/edits.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <sstream>

#include "autograd/recording.h"
#include "examples/whence/cli/numbers.h"
#include "examples/whence/cli/text.h"
#include "examples/whence/look/axes.h"
#include "tensor/error.h"
#include "tensor/raw.h"
#include "tensor/suggest.h"

namespace whence::look {
namespace {

std::string trimmed(const std::string& text) {
  const std::size_t first = text.find_first_not_of(' ');
  return first == std::string::npos ? "" : text.substr(first, text.find_last_not_of(' ') + 1 - first);
}

[[noreturn]] void unreadable(const std::string& text, const std::string& what) {
  throw InputError(
      "--edit: ", in_quotes(text), " given; ", what, " required, as in \"blocks.0.attention.scores[h=1] = 0\"");
}

Edit::Part part_of(const std::string& text, const std::string& word) {
  const std::size_t equals = word.find('='), dots = word.find("..");
  if (equals == std::string::npos || trimmed(word.substr(0, equals)).empty())
    unreadable(text, "AXIS=NUMBER between the brackets");
  const auto first =
      parse_number<std::int64_t>(word.substr(equals + 1, dots == std::string::npos ? dots : dots - equals - 1));
  const auto last = dots == std::string::npos ? first : parse_number<std::int64_t>(word.substr(dots + 2));
  if (!first || !last) unreadable(text, "AXIS=NUMBER between the brackets");
  return {trimmed(word.substr(0, equals)), *first, *last};
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
  const Shape& shape = quantity.value.shape();
  std::vector<std::pair<index_t, index_t>> ranges;
  for (int axis = 0; axis < shape.rank(); ++axis) ranges.emplace_back(0, shape[axis] - 1);
  std::set<std::int64_t> given;
  for (const Edit::Part& part : edit.parts) {
    std::optional<std::int64_t> axis = parse_number<std::int64_t>(part.axis);
    if (quantity.probe && part.axis.size() == 1 && Axes(quantity).has(part.axis[0]))
      axis = static_cast<std::int64_t>(Axes(quantity).find(part.axis[0]));
    if (!axis || *axis < 0 || *axis >= shape.rank())
      throw InputError("--edit: axis ", part.axis, " given; ", edit.path, " is ", shape,
          quantity.probe ? to_text(" with axes ", quantity.probe->axes) : std::string(), "; one of these required");
    const index_t extent = shape[static_cast<int>(*axis)];
    if (part.first < 0 || part.first > part.last || part.last >= extent)
      throw InputError("--edit: ", part.axis, "=", part.first, "..", part.last, " given; places in 0 to ", extent - 1,
          " required, the lower one first");
    if (given.contains(*axis)) throw InputError("--edit: axis ", part.axis, " given twice; once required");
    given.insert(*axis);
    ranges[static_cast<std::size_t>(*axis)] = {part.first, part.last};
  }
  return ranges;
}

// New numbers minus old ones, in the quantity's shape.
Tensor change_of(const Inspection& inspection, const Quantity& quantity, const Edit& edit) {
  const auto ranges = ranges_of(quantity, edit);
  const Shape& shape = quantity.value.shape();
  std::vector<double> old = quantity.value.to_vector(), change(old.size());
  for (std::size_t e = 0; e < old.size(); ++e) {
    bool meant = inspection.reasons()[quantity.reasons[e]].stop != Stop::masked;
    auto rest = static_cast<index_t>(e);
    for (int axis = shape.rank() - 1; axis >= 0; rest /= shape[axis--]) {
      const auto [first, last] = ranges[static_cast<std::size_t>(axis)];
      meant = meant && rest % shape[axis] >= first && rest % shape[axis] <= last;
    }
    if (!meant) continue;
    change[e] = edit.change == Edit::Change::set     ? edit.number - old[e]
                : edit.change == Edit::Change::scale ? edit.number * old[e] - old[e]
                                                     : edit.number;
  }
  return Tensor::of(change, shape, quantity.value.dtype());
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

Edit edit_of(const std::string& text) {
  const std::size_t bracket = text.find('['), closed = text.find(']');
  const std::size_t after = bracket == std::string::npos ? 0 : closed;
  if (after == std::string::npos || closed < bracket) unreadable(text, "a ']' behind the '['");
  const std::size_t equals = text.find('=', after);
  if (equals == std::string::npos || equals == 0) unreadable(text, "= NUMBER, *= NUMBER or += NUMBER");
  Edit edit{.text = trimmed(text), .path = {}, .parts = {}, .change = Edit::Change::set, .number = 0};
  const char sign = text[equals - 1];
  const std::string operation = trimmed(text.substr(after == 0 ? 0 : after + 1, equals - (after == 0 ? 0 : after + 1)));
  if (after != 0 && !operation.empty() && operation != "*" && operation != "+")
    unreadable(text, "= NUMBER, *= NUMBER or += NUMBER behind the ']'");
  if (sign == '*') edit.change = Edit::Change::scale;
  if (sign == '+') edit.change = Edit::Change::add;
  const auto number = parse_number<double>(trimmed(text.substr(equals + 1)));
  if (!number) unreadable(text, "a number behind the '='");
  edit.number = *number;
  const std::size_t end = bracket != std::string::npos ? bracket : sign == '*' || sign == '+' ? equals - 1 : equals;
  edit.path = trimmed(text.substr(0, end));
  std::istringstream inside(bracket == std::string::npos ? "" : text.substr(bracket + 1, closed - bracket - 1));
  for (std::string word; std::getline(inside, word, ',');) edit.parts.push_back(part_of(text, trimmed(word)));
  return edit;
}

EditOutcome outcome_of(const Inspection& inspection, const Edit& edit) {
  const Quantity& quantity = quantity_at(inspection, edit.path);
  const Tensor change = change_of(inspection, quantity, edit);
  std::optional<double> predicted;
  if (quantity.gradient.defined()) {
    predicted = 0;
    const std::vector<double> gradient = quantity.gradient.to_vector(), step = change.to_vector();
    for (std::size_t e = 0; e < step.size(); ++e) *predicted += gradient[e] * step[e];
  }
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
    if (!quantity.probe || quantity.probe->axes != "b h i j" || !quantity.gradient.defined()) continue;
    const bool opens = quantity.probe->scale == ProbeInfo::Scale::unit && !quantity.scheme.empty();
    for (index_t head = 0; head < quantity.value.size(1); ++head)
      for (const char* change : {"= 0", "= 1"})
        if (change == std::string("= 0") || opens)
          all.push_back(outcome_of(inspection, edit_of(to_text(quantity.path, "[h=", head, "] ", change))));
  }
  for (const Quantity& parameter : inspection.parameters()) {
    if (parameter.path.find(".position") == std::string::npos || parameter.value.rank() != 4) continue;
    for (index_t tap = 0; tap < parameter.value.size(3) && parameter.value.size(3) > 1; ++tap)
      all.push_back(outcome_of(inspection, edit_of(to_text(parameter.path, "[3=", tap, "] = 0"))));
  }
  std::ranges::stable_sort(all, std::ranges::greater{}, [](const EditOutcome& each) { return std::abs(each.real); });
  if (all.size() > most) all.resize(most);
  return all;
}

}  // namespace whence::look
