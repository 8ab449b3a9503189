#include "examples/whence/verify/comparison.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <sstream>

#include "examples/whence/cli/json.h"
#include "examples/whence/cli/numbers.h"
#include "examples/whence/cli/text.h"
#include "examples/whence/report/table.h"
#include "examples/whence/verify/probe_names.h"
#include "nn/io/files.h"
#include "tensor/error.h"
#include "tensor/raw.h"

namespace whence {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
const std::string gradient_of = "gradient.";

bool is_gradient(const std::string& name) { return name.starts_with(gradient_of); }

std::vector<std::string> names_of(const NamedTensors& tensors) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors) names.push_back(name);
  return names;
}

std::map<std::string, Tensor> by_name(const NamedTensors& tensors) { return {tensors.begin(), tensors.end()}; }

// Sorts values as recorded, or as listed. Gradients follow in the order of backward: values from last to first, then
// inputs and parameters whose values are not in the file.
NamedTensors in_order_of_pass(const SafetensorsFile& file) {
  std::map<std::string, std::int64_t> place;
  std::istringstream words(records_order(file) ? file.metadata.at(order_key) : "");
  for (std::string name; words >> name;) place.emplace(name, std::ssize(place));
  if (!records_order(file))
    for (const std::string& name : names_of(file.tensors)) place.emplace(name, std::ssize(place));
  const auto key = [&](const NamedTensors::value_type& entry) -> std::pair<int, std::int64_t> {
    const auto at = [&](const std::string& name) { return place.contains(name) ? place[name] : std::ssize(place); };
    if (!is_gradient(entry.first)) return {0, at(entry.first)};
    const std::string value = entry.first.substr(gradient_of.size());
    return place.contains(value) ? std::pair{1, -at(value)} : std::pair{2, at(entry.first)};
  };
  NamedTensors sorted = file.tensors;
  std::ranges::stable_sort(sorted, {}, key);
  return sorted;
}

Shape without_leading_ones(const Shape& shape) {
  std::vector<index_t> extents(shape.begin(), shape.end());
  extents.erase(extents.begin(), std::ranges::find_if(extents, [](index_t extent) { return extent != 1; }));
  return Shape(extents);
}

double apart(long double a, long double b) {
  if (a == b || (std::isnan(a) && std::isnan(b))) return 0;  // equal infinities too
  const auto difference = static_cast<double>(std::fabs(a - b));
  return std::isnan(difference) ? infinity : difference;
}

std::vector<long double> numbers_of(const Tensor& tensor) {
  if (tensor.dtype() != DType::i64) {
    const std::vector<double> numbers = tensor.to_vector();
    return {numbers.begin(), numbers.end()};
  }
  const Tensor whole = raw::contiguous(tensor);
  return {whole.data<std::int64_t>(), whole.data<std::int64_t>() + whole.numel()};
}

double largest_number(const Tensor& tensor) {
  double largest = 0;
  for (const double x : tensor.to_vector())
    if (std::isfinite(x)) largest = std::max(largest, std::fabs(x));
  return largest;
}

// True if other code may use this number to mask a pair.
bool hides(double x) { return !std::isfinite(x) || x <= -1e4; }

ComparedTensor compare_tensors(const Tensor& ours, const Tensor& theirs, bool hides_pairs, double largest_of_kind,
    std::optional<double> tolerance, ComparedTensor result) {
  result.shape = ours.shape(), result.their_shape = theirs.shape();
  if (!result.has_shape()) return result;
  const bool whole = !is_floating(ours.dtype()) || !is_floating(theirs.dtype());
  const double epsilon = whole ? 0 : std::max(epsilon_of(ours.dtype()), epsilon_of(theirs.dtype())),
               size = largest_number(ours);
  const double own = whole ? 0 : tolerance.value_or(std::pow(epsilon, 2.0 / 3)) * size;
  // Numbers that cancel, as in the gradient of a key's bias, are rounding errors alone.
  const double allowed = tolerance ? own : std::max(own, epsilon * largest_of_kind);
  const std::vector<long double> a = numbers_of(ours), b = numbers_of(theirs);
  const auto keys = static_cast<std::size_t>(hides_pairs ? ours.size(-1) : 1);
  for (std::size_t e = 0; e < a.size(); ++e) {
    const double difference = apart(a[e], b[e]);
    if (difference == 0) continue;
    const DifferenceAt here{position_of(static_cast<index_t>(e), ours.shape()), a[e], b[e]};
    if (hides_pairs && e % keys > e / keys % static_cast<std::size_t>(ours.size(-2))) {
      if (difference > allowed && !result.hidden && !hides(static_cast<double>(b[e]))) result.hidden = here;
      continue;
    }
    if (difference > allowed && !result.first) result.first = here;
    if (difference > result.largest) result.largest = difference, result.at = here;
  }
  if (result.largest > 0) result.share = result.largest / size, result.by_floor = !result.first && result.largest > own;
  return result;
}

// Maps our names to theirs: by options.names, also for gradients; other names are the same on both sides.
std::map<std::string, std::string> their_names(
    const std::string& called, const NamedTensors& ours, const NamedTensors& theirs, const ComparisonOptions& options) {
  std::map<std::string, std::string> found;
  const auto put = [&](const std::string& name, const std::string& their_name) {
    if (const auto [entry, is_new] = found.emplace(name, their_name); !is_new)
      throw FileError(called, ": tensors ", in_quotes(entry->second), " and ", in_quotes(their_name), " are both ",
          in_quotes(name), "; one of them required; leave the other out of the map, or name it otherwise");
  };
  const auto theirs_named = by_name(theirs), ours_named = by_name(ours);
  for (const auto& [their_name, name] : options.names) {
    if (!theirs_named.contains(their_name) && !theirs_named.contains(gradient_of + their_name))
      throw FileError(called, ": no tensor ", in_quotes(their_name),
          ", which the map of names has; there: ", joined(names_of(theirs)));
    if (!ours_named.contains(name) && !ours_named.contains(gradient_of + name)) {
      const auto nearest = nearest_name(name, names_of(ours));
      throw FileError("map of names: ", in_quotes(their_name), " is ", in_quotes(name),
          ", and no tensor has that name; ",
          nearest ? "did you mean '" + *nearest + "'?" : "there: " + joined(names_of(ours)));
    }
  }
  for (const auto& [their_name, tensor] : theirs) {
    const bool of_gradient = is_gradient(their_name) && !options.names.contains(their_name);
    const auto named = options.names.find(of_gradient ? their_name.substr(gradient_of.size()) : their_name);
    put(named == options.names.end() ? their_name : (of_gradient ? gradient_of : "") + named->second, their_name);
  }
  return found;
}

std::string list_of_names(const std::string& only_in, const std::vector<std::string>& names) {
  if (names.empty()) return {};
  const std::string list = names.size() > 24 ? first_few(names, ", ") : joined(names);
  return terminal_text(joined(wrapped(to_text("only in ", only_in, ": ", list), 118), {}, "\n")) + '\n';
}

// Returns a predicate on names: true if a causal mask hides pairs of the tensor.
std::function<bool(const std::string&)> hidden_pairs(const Metadata& metadata) {
  const auto causal = metadata.find("causal"), scheme = metadata.find("scheme");
  if (causal == metadata.end() || scheme == metadata.end() || causal->second != "true")
    return [](const std::string&) { return false; };
  std::vector<SchemeSpec> specs;
  try {
    specs = parse_schemes(scheme->second);
  } catch (const InputError&) {}  // another program's file: use attention's own names
  return [specs](const std::string& name) { return is_of_pairs(specs, name); };
}

Json number(long double x) {
  const bool whole = x == std::trunc(x) && std::fabs(x) < 0x1p63L;
  return whole ? Json(static_cast<std::int64_t>(x)) : Json(static_cast<double>(x));
}

Json difference_json(const std::optional<DifferenceAt>& difference) {
  if (!difference) return {};
  return Json{{"at", std::vector<index_t>(difference->at.begin(), difference->at.end())},
      {"ours", number(difference->ours)}, {"theirs", number(difference->theirs)}};
}

}  // namespace

void record_order(SafetensorsFile& file) { file.metadata[order_key] = joined(names_of(file.tensors), {}, " "); }

bool records_order(const SafetensorsFile& file) { return file.metadata.contains(order_key); }

bool ComparedTensor::has_shape() const { return without_leading_ones(shape) == without_leading_ones(their_shape); }

const ComparedTensor* Comparison::first() const {
  const auto found = std::ranges::find_if(tensors, &ComparedTensor::differs);
  return found == tensors.end() ? nullptr : &*found;
}

std::string Comparison::headline() const {
  const auto called = [&](const ComparedTensor& each) {
    return each.name == each.their_name ? each.name : to_text(each.name, " (theirs: ", each.their_name, ")");
  };
  const auto numbers = [&](const DifferenceAt& place) {
    const auto shown = [](long double x) {
      const Json value = number(x);
      return value.as<std::int64_t>() ? value.line() : digits(static_cast<double>(x), 6);
    };
    return to_text("at ", place.at, ": ", shown(place.ours), " in ", ours, ", ", shown(place.theirs), " in ", theirs);
  };
  const ComparedTensor* differs = first();
  if (!differs) {
    std::vector<std::string> floored;
    for (const ComparedTensor& each : tensors)
      if (each.by_floor) floored.push_back(called(each));
    const auto worst =
        std::ranges::max_element(tensors, {}, [](const auto& each) { return each.by_floor ? 0 : each.share; });
    std::string text = worst->by_floor || worst->largest == 0 ? "No difference in " : "No difference but rounding in ";
    text +=
        to_text(tensors.size() - floored.size(), floored.empty() ? "" : to_text(" of ", tensors.size()), " tensors");
    if (!worst->by_floor && worst->largest > 0)
      text +=
          to_text("; the largest is that of ", called(*worst), ", ", digits(worst->share, 2), " of its largest number");
    return text + (floored.empty() ? "."
                                   : to_text(". Allowed by the floor alone, epsilon of the largest value or gradient "
                                             "of all tensors: ",
                                         first_few(floored, ", "), "."));
  }
  std::string text = to_text("The first that differs is ", called(*differs), ", ");
  text += differs->first
              ? numbers(*differs->first)
              : to_text("whose shape is ", differs->shape, " in ", ours, ", ", differs->their_shape, " in ", theirs);
  text += to_text(
      ". ", std::ranges::count_if(tensors, &ComparedTensor::differs), " of ", tensors.size(), " tensors differ.");
  const auto hidden = std::find_if(tensors.begin(), tensors.begin() + (differs - tensors.data()),
      [](const ComparedTensor& each) { return each.hidden.has_value(); });
  if (&*hidden != differs)
    text += to_text("\nBefore it, ", called(*hidden), " differs at pairs that the mask hides, first ",
        numbers(*hidden->hidden), ".");
  return text;
}

std::string Comparison::text() const {
  Table table(
      {"tensor", "theirs", "shape", "largest difference", "share", "at", "not allowed from", "masked from", "result"});
  const auto at = [](const std::optional<DifferenceAt>& place) { return place ? to_text(place->at) : "-"; };
  for (const ComparedTensor& each : tensors) {
    const bool none = each.largest == 0;
    table.row({each.name, each.name == each.their_name ? "-" : each.their_name,
        each.has_shape() ? to_text(each.shape) : to_text(each.shape, " / ", each.their_shape),
        each.has_shape() ? digits(each.largest, 3) : "-", none ? "-" : digits(each.share, 2),
        none ? "-" : to_text(each.at.at), at(each.first), at(each.hidden),
        each.differs()  ? "DIFFERS"
        : each.by_floor ? "ok by the floor"
                        : "ok"});
  }
  return to_text(terminal_text(headline()), '\n', table.without_dashes().text(), list_of_names(ours, only_ours),
      list_of_names(theirs, only_theirs));
}

std::string Comparison::json() const {
  std::string lines;
  for (const ComparedTensor& each : tensors) {
    const auto shape = [](const Shape& of) { return std::vector<index_t>(of.begin(), of.end()); };
    Json line{{"name", each.name}, {"theirs", each.their_name}, {"shape", shape(each.shape)},
        {"shape of theirs", shape(each.their_shape)}, {"differs", each.differs()}};
    line.add("largest", each.largest).add("share", each.share).add("by floor", each.by_floor);
    line.add("largest at", each.largest > 0 ? difference_json(each.at) : Json());
    line.add("first", difference_json(each.first)).add("first hidden", difference_json(each.hidden));
    lines += line.line() + '\n';
  }
  const ComparedTensor* differs = first();
  return lines +
         Json{{"differs", differs != nullptr}, {"first", differs ? Json(differs->name) : Json()},
             {"headline", headline()}, {"compared", static_cast<std::int64_t>(tensors.size())},
             {"only ours", only_ours}, {"only theirs", only_theirs}}
             .line() +
         '\n';
}

Comparison compared(const std::string& ours_called, const SafetensorsFile& ours, const std::string& theirs_called,
    const SafetensorsFile& theirs, const ComparisonOptions& options) {
  const std::map<std::string, std::string> theirs_by_ours =
      their_names(theirs_called, ours.tensors, theirs.tensors, options);
  Comparison result{ours_called, theirs_called, {}, {}, {}};
  double largest_value = 0, largest_gradient = 0;
  const NamedTensors ordered = in_order_of_pass(ours);
  const auto ours_named = by_name(ours.tensors), theirs_named = by_name(theirs.tensors);
  const auto hides_pairs = hidden_pairs(ours.metadata);
  for (const auto& [name, tensor] : ordered)
    if (theirs_by_ours.contains(name) && is_floating(tensor.dtype())) {
      double& largest = is_gradient(name) ? largest_gradient : largest_value;
      largest = std::max(largest, largest_number(tensor));
    }
  for (const auto& [name, tensor] : ordered) {
    const auto their_name = theirs_by_ours.find(name);
    if (their_name == theirs_by_ours.end()) {
      result.only_ours.push_back(name);
      continue;
    }
    const bool pairs = tensor.rank() >= 2 && tensor.size(-1) == tensor.size(-2) && hides_pairs(name);
    result.tensors.push_back(compare_tensors(tensor, theirs_named.at(their_name->second), pairs,
        is_gradient(name) ? largest_gradient : largest_value, options.tolerance,
        {.name = name, .their_name = their_name->second}));
  }
  for (const auto& [name, their_name] : theirs_by_ours)
    if (!ours_named.contains(name)) result.only_theirs.push_back(their_name);
  if (result.tensors.empty())
    throw FileError(theirs_called, ": no tensor has a name of ", ours_called,
        "; there: ", joined(names_of(theirs.tensors)), "; one of ", first_few(names_of(ordered), ", "),
        " required, or a map of names, {\"their name\": \"our name\"}");
  return result;
}

}  // namespace whence
