#include "examples/whence/look/edits.h"

#include <algorithm>
#include <cmath>
#include <sstream>
#include <tuple>

#include "autograd/backward.h"
#include "autograd/inspect/capture.h"
#include "autograd/recording.h"
#include "examples/whence/cli/numbers.h"
#include "examples/whence/cli/text.h"
#include "tensor/error.h"

namespace whence::look {
namespace {

enum class Kind : unsigned char { set, scale, add };

struct Edit {
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
  return {place_named(inspection, place, "--edit"), kind, *number};
}

// The edit of a quantity's values, or of its gradient.
Change change_of(const Inspection& inspection, const Edit& edit) {
  const double factor = edit.kind == Kind::set ? 0 : edit.kind == Kind::scale ? edit.number : 1;
  return {inspection, edit.place,
      [&](const Shape&) { return std::pair(factor, edit.kind == Kind::scale ? -0.0 : edit.number); }};
}

}  // namespace

std::vector<std::string> parts_of(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream all(text);
  for (std::string part; std::getline(all, part, ';');) parts.push_back(part);
  if (parts.empty()) parts.emplace_back();
  return parts;
}

Change::Change(const Inspection& inspection, const NamedPlace& at,
    const std::function<std::pair<double, double>(const Shape& from_first)>& change)
    : path(at.quantity->path) {
  const Quantity& quantity = *at.quantity;
  const auto entries = static_cast<std::size_t>(quantity.value.numel());
  // Unchanged numbers are x * 1 + -0, which is x bit for bit, even for -0.
  std::vector<double> factors(entries, 1), offsets(entries, -0.0);
  const Axes axes(quantity);
  const Shape meant = at.extents();
  for (index_t k = 0; k < numel(meant); ++k) {
    const Shape from_first = position_of(k, meant);
    Shape place = from_first;
    for (int axis = 0; axis < place.rank(); ++axis) place[axis] += at.ranges[static_cast<std::size_t>(axis)].first;
    const std::size_t e = axes.element(place);
    if (inspection.stop_of(quantity, e) != Stop::masked) std::tie(factors[e], offsets[e]) = change(from_first);
  }
  factor = Tensor::of(factors, quantity.value.shape(), quantity.value.dtype());
  std::ranges::transform(factors, factors.begin(), [](double by) { return by != 0; });
  read = Tensor::of(factors, quantity.value.shape(), DType::boolean);
  offset = Tensor::of(offsets, quantity.value.shape(), quantity.value.dtype());
}

Prepare with(Prepare before, std::vector<Change> changes) {
  return [before = std::move(before), changes = std::move(changes)](Capture& capture) {
    before(capture);
    for (const Change& change : changes) capture.edit(change.path, change);
  };
}

std::optional<double> predicted_change(const Inspection& inspection, const std::vector<Change>& changes) {
  const NoGrad values_only;
  double sum = 0;
  for (const Change& change : changes) {
    const Quantity& quantity = inspection.at(change.path);
    if (!quantity.gradient.defined()) return std::nullopt;
    sum += dot(quantity.gradient, change(quantity.value) - quantity.value);
  }
  return sum;
}

Edited::Edited(const Inspection& inspection, const std::vector<std::string>& edits) {
  std::vector<Change> all, of_quantities;
  std::map<std::string, Tensor> parameters;  // with the edits applied in order
  for (const std::string& text : edits) {
    const Edit edit = edit_of(inspection, text);
    if (edit.place.gradient)
      throw InputError("--edit: ", in_quotes(text), ": a gradient given; a number of the pass required");
    const Quantity& quantity = *edit.place.quantity;
    all.push_back(change_of(inspection, edit));
    if (!quantity.is_parameter) {
      of_quantities.push_back(all.back());
      continue;
    }
    const NoGrad values_only;
    Tensor& now = parameters.try_emplace(quantity.path, quantity.value).first->second;
    now = all.back()(now);
  }
  predicted = predicted_change(inspection, all);
  prepare = with(inspection.prepare(), std::move(of_quantities));
  for (const Module::Parameter& parameter : inspection.subject().model->parameters()) {
    const auto edited = parameters.find(parameter.path);
    if (edited == parameters.end()) continue;
    before_.emplace_back(parameter.tensor, parameter.tensor.detach());
    before_.back().first.replace(edited->second);
  }
}

Edited::~Edited() {
  for (auto& [tensor, before] : before_) tensor.replace(before);
}

EditedPass pass_with(const Inspection& inspection, const std::string& text) {
  const Edited edited(inspection, parts_of(text));
  const NoGrad values_only;
  Capture capture("*");  // records everything, so that attention runs in the same form as in the inspection
  edited.prepare(capture);
  const Subject::Pass pass = inspection.subject().pass();
  EditedPass made{{trimmed(text), edited.predicted, pass.loss.item() - inspection.loss()},
      inspection.subject().predictions(pass.logits), {}};
  for (const std::string& path : capture.names()) made.values.emplace(path, capture[path].value());
  return made;
}

EditOutcome outcome_of(const Inspection& inspection, const std::string& edits) {
  return pass_with(inspection, edits).outcome;
}

std::unique_ptr<Inspection> inspection_with(const Inspection& inspection, const std::vector<std::string>& edits) {
  const Edited edited(inspection, edits);
  return std::make_unique<Inspection>(inspection.subject(), true, edited.prepare);
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
  capture.edit_gradient(quantity.path, change_of(inspection, edit));
  std::vector<Tensor> tensors;
  std::vector<GradientOutcome> all;
  for (const Module::Parameter& parameter : inspection.subject().model->parameters()) {
    if (parameter.frozen) continue;
    tensors.push_back(parameter.tensor), all.push_back({parameter.path, 0, 0});
  }
  const std::vector<Tensor> after = grad(inspection.subject().pass().loss, {}, tensors, {.allow_unused = true});
  for (std::size_t k = 0; k < all.size(); ++k) {
    if (after[k].defined()) all[k].after = std::sqrt(dot(after[k], after[k]));
    if (const Tensor& before = inspection.at(all[k].parameter).gradient; before.defined())
      all[k].before = std::sqrt(dot(before, before));
  }
  std::erase_if(all, [](const GradientOutcome& each) { return each.before == each.after; });
  std::ranges::stable_sort(all, std::ranges::greater{}, [](const GradientOutcome& each) {
    return std::abs(each.after - each.before) / std::max(each.before, each.after);
  });
  return all;
}

}  // namespace whence::look
