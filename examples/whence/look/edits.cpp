#include "examples/whence/look/edits.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <sstream>

#include "autograd/backward.h"
#include "autograd/inspect/capture.h"
#include "autograd/ops.h"
#include "autograd/recording.h"
#include "examples/whence/cli/numbers.h"
#include "examples/whence/cli/text.h"
#include "examples/whence/look/place.h"
#include "tensor/error.h"
#include "tensor/raw.h"

namespace whence::look {
namespace {

enum class Kind : unsigned char { set, scale, add };

struct Edit {
  std::string text;  // as the user wrote it
  NamedPlace place;
  Kind kind;
  double number;
};

Edit edit_of(const Inspection& inspection, const std::string& text) {
  const std::size_t equals = text.rfind('=');
  const auto number = parse_number<double>(equals == std::string::npos ? "" : trimmed(text.substr(equals + 1)));
  const char before = number && equals > 0 ? text[equals - 1] : ' ';
  const Kind kind = before == '*' ? Kind::scale : before == '+' ? Kind::add : Kind::set;
  const std::string place = number ? trimmed(text.substr(0, kind == Kind::set ? equals : equals - 1)) : "";
  if (place.empty())
    throw InputError("--edit: ", in_quotes(text),
        " given; NAME AXIS=PLACE AXIS=FIRST..LAST = NUMBER required, or *= or ",
        "+=, as in \"gates layer=0 head=1 = 0\"");
  return {trimmed(text), place_named(inspection, place, "--edit"), kind, *number};
}

// The edit of a quantity's values or gradient x as factor * x + offset, with one factor and one offset for each entry.
struct Linear {
  std::vector<double> factor, offset;

  [[nodiscard]] Change on(const Quantity& quantity) const {
    const auto tensor = [&](const std::vector<double>& each) {
      return Tensor::of(each, quantity.value.shape(), quantity.value.dtype());
    };
    return {quantity.path, tensor(factor), tensor(offset)};
  }
};

Linear linear_of(const Inspection& inspection, const Edit& edit) {
  const Quantity& quantity = *edit.place.quantity;
  const auto entries = static_cast<std::size_t>(quantity.value.numel());
  Linear made{std::vector<double>(entries, 1), std::vector<double>(entries)};
  const Axes axes(quantity);
  std::vector<index_t> extents;
  for (const auto& [first, last] : edit.place.ranges) extents.push_back(last - first + 1);
  const Shape meant(extents);
  for (index_t k = 0; k < numel(meant); ++k) {
    Shape at = position_of(k, meant);
    for (int axis = 0; axis < at.rank(); ++axis) at[axis] += edit.place.ranges[static_cast<std::size_t>(axis)].first;
    const std::size_t e = axes.element(at);
    if (inspection.stop_of(quantity, e) == Stop::masked) continue;
    if (edit.kind != Kind::add) made.factor[e] = edit.kind == Kind::set ? 0 : edit.number;
    if (edit.kind != Kind::scale) made.offset[e] = edit.number;
  }
  return made;
}

// Returns the new numbers minus the old ones.
Tensor edited_change(const Inspection& inspection, const Edit& edit, const Tensor& given) {
  const Linear edited = linear_of(inspection, edit);
  std::vector<double> change = given.to_vector();
  for (std::size_t e = 0; e < change.size(); ++e)
    change[e] = edited.factor[e] * change[e] + edited.offset[e] - change[e];
  return Tensor::of(change, given.shape(), given.dtype());
}

// Replaces a parameter's tensor for the lifetime of this object. The old numbers are not overwritten, so that an existing
// graph keeps them.
class EditedParameter {
 public:
  EditedParameter(const Subject& subject, const std::string& path, const Tensor& edited) {
    for (const Module::Parameter& parameter : subject.model->parameters())
      if (parameter.path == path) tensor_ = parameter.tensor, before_ = tensor_.detach();
    if (!before_.defined()) fail("edit", path, " is not a parameter of the model");
    tensor_.replace(edited);
  }
  ~EditedParameter() { tensor_.replace(before_); }
  EditedParameter(const EditedParameter&) = delete;
  EditedParameter& operator=(const EditedParameter&) = delete;

 private:
  Tensor tensor_, before_;
};

// Runs the pass with `change` added to a quantity. `capture` records everything, so that attention runs in the same form as
// in the inspection.
Subject::Pass pass_of(const Inspection& inspection, const Quantity& quantity, const Tensor& change, Capture& capture) {
  const NoGrad values_only;
  const Subject& subject = inspection.subject();
  inspection.prepare()(capture);
  if (!quantity.is_parameter) {
    capture.edit(quantity.path, [&](const Tensor& value) { return raw::add(value, change); });
    return subject.pass();
  }
  const EditedParameter edited(subject, quantity.path, raw::add(quantity.value, change));
  return subject.pass();
}

Edit value_edit_of(const Inspection& inspection, const std::string& text) {
  const Edit edit = edit_of(inspection, text);
  if (edit.place.gradient)
    throw InputError("--edit: ", in_quotes(text), ": a gradient given; a number of the pass required");
  return edit;
}

}  // namespace

EditOutcome outcome_of(const Inspection& inspection, const std::string& text) {
  if (text.find(';') == std::string::npos) return pass_with(inspection, text).outcome;
  EditOutcome all{trimmed(text), 0, 0};
  std::vector<std::string> edits;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ';');) {
    const Edit edit = value_edit_of(inspection, edits.emplace_back(part));
    const Quantity& quantity = *edit.place.quantity;
    if (quantity.gradient.defined() && all.predicted)
      *all.predicted += dot(quantity.gradient, edited_change(inspection, edit, quantity.value));
    else
      all.predicted.reset();
  }
  all.real = inspection_with(inspection, edits)->loss() - inspection.loss();
  return all;
}

EditedPass pass_with(const Inspection& inspection, const std::string& text) {
  const Edit edit = value_edit_of(inspection, text);
  const Quantity& quantity = *edit.place.quantity;
  const Tensor change = edited_change(inspection, edit, quantity.value);
  EditedPass made{{edit.text, {}, 0}, {}, {}};
  if (quantity.gradient.defined()) made.outcome.predicted = dot(quantity.gradient, change);
  Capture capture("*");
  const Subject::Pass pass = pass_of(inspection, quantity, change, capture);
  made.outcome.real = pass.loss.item() - inspection.loss();
  made.predictions = inspection.subject().predictions(pass.logits);
  for (const std::string& path : capture.names()) made.values.emplace(path, capture[path].value());
  return made;
}

std::shared_ptr<const void> edited_parameters(const Inspection& inspection, const std::vector<std::string>& edits) {
  std::map<std::string, Tensor> numbers;  // with the edits applied in order
  for (const std::string& text : edits) {
    const Edit edit = value_edit_of(inspection, text);
    if (!edit.place.quantity->is_parameter) continue;
    Tensor& now = numbers.try_emplace(edit.place.quantity->path, edit.place.quantity->value).first->second;
    now = raw::add(now, edited_change(inspection, edit, now));
  }
  auto edited = std::make_shared<std::vector<std::unique_ptr<EditedParameter>>>();
  for (const auto& [path, now] : numbers)
    edited->push_back(std::make_unique<EditedParameter>(inspection.subject(), path, now));
  return edited;
}

std::unique_ptr<Inspection> inspection_with(const Inspection& inspection, const std::vector<std::string>& edits) {
  const auto edited = edited_parameters(inspection, edits);
  std::vector<Change> changes;
  for (const std::string& text : edits)
    if (const Edit edit = value_edit_of(inspection, text); !edit.place.quantity->is_parameter)
      changes.push_back(linear_of(inspection, edit).on(*edit.place.quantity));
  return std::make_unique<Inspection>(inspection.subject(), true, with(inspection.prepare(), std::move(changes)));
}

Prepare with(Prepare before, std::vector<Change> changes) {
  return [before = std::move(before), changes = std::move(changes)](Capture& capture) {
    before(capture);
    for (const Change& change : changes)
      capture.edit(change.path, [change](const Tensor& value) { return value * change.factor + change.offset; });
  };
}

bool is_of_gradient(const std::string& edit) { return trimmed(edit).starts_with("dLoss/d"); }

std::vector<GradientOutcome> gradients_with(const Inspection& inspection, const std::string& text) {
  const Edit edit = edit_of(inspection, text);
  const Quantity& quantity = *edit.place.quantity;
  if (quantity.is_parameter)
    throw InputError("--edit: ", in_quotes(text),
        ": the gradient of a parameter given, on which no other gradient depends; that of a quantity of the pass "
        "required");
  Capture capture("*");
  inspection.prepare()(capture);
  capture.edit_gradient(
      quantity.path, [&](const Tensor& dy) { return raw::add(dy, edited_change(inspection, edit, dy)); });
  std::vector<Tensor> tensors;
  std::vector<GradientOutcome> all;
  for (const Module::Parameter& parameter : inspection.subject().model->parameters()) {
    if (parameter.frozen) continue;
    tensors.push_back(parameter.tensor), all.push_back({parameter.path, 0, 0});
  }
  const std::vector<Tensor> after = grad(inspection.subject().pass().loss, {}, tensors, {.allow_unused = true});
  for (std::size_t k = 0; k < all.size(); ++k) {
    if (after[k].defined()) all[k].after = std::sqrt(dot(after[k], after[k]));
    for (const Quantity& before : inspection.parameters())
      if (before.path == all[k].parameter && before.gradient.defined())
        all[k].before = std::sqrt(dot(before.gradient, before.gradient));
  }
  std::erase_if(all, [](const GradientOutcome& each) { return each.before == each.after; });
  std::ranges::stable_sort(all, std::ranges::greater{}, [](const GradientOutcome& each) {
    return std::abs(each.after - each.before) / std::max(each.before, each.after);
  });
  return all;
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
        all.push_back(outcome_of(inspection, to_text(quantity.path, " head=", head, " = ", number)));
  }
  for (const Quantity& parameter : inspection.parameters()) {
    if (parameter.path.find(".position") == std::string::npos || parameter.value.rank() != 4) continue;
    for (index_t tap = 0; tap < parameter.value.size(3) && parameter.value.size(3) > 1; ++tap)
      all.push_back(outcome_of(inspection, to_text(parameter.path, " 3=", tap, " = 0")));
  }
  std::ranges::stable_sort(all, std::ranges::greater{}, [](const EditOutcome& each) { return std::abs(each.real); });
  if (all.size() > most) all.resize(most);
  return all;
}

}  // namespace whence::look
