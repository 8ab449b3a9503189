#include "examples/whence/look/measures.h"

#include <cmath>
#include <map>
#include <set>

#include "examples/whence/cli/numbers.h"
#include "tensor/error.h"

namespace whence::look {
namespace {

constexpr const char* gradient_norm = "gradient norm";
constexpr const char* no_layer = "elsewhere";

std::string layer_text(index_t layer) { return layer < 0 ? no_layer : to_text("layer ", layer); }

void add_gradient_norms(const Inspection& inspection, std::vector<Measure>& measures) {
  std::map<index_t, double> squares;
  for (const Quantity& parameter : inspection.parameters()) {
    if (!parameter.gradient.defined()) continue;
    double& sum = squares[parameter.layer];
    for (const double number : parameter.gradient.to_vector()) sum += number * number;
  }
  for (const auto& [layer, sum] : squares)
    if (layer >= 0) measures.push_back({gradient_norm, "", layer_text(layer), std::sqrt(sum)});
  if (squares.contains(-1)) measures.push_back({gradient_norm, "", no_layer, std::sqrt(squares.at(-1))});
}

// In percent of the entries that the mask does not hide; -1: it hides all.
template <class Counts> double share_of(const Inspection& inspection, const Quantity& quantity, const Counts& counts) {
  const std::vector<double> values = quantity.value.to_vector();
  double seen = 0, counted = 0;
  for (std::size_t e = 0; e < values.size(); ++e) {
    if (inspection.stop_of(quantity, e) == Stop::masked) continue;
    ++seen, counted += counts(values[e]);
  }
  return seen > 0 ? 100 * counted / seen : -1;
}

// "gates" of "position.gates"; "cope.gates" where it is one of a sum.
std::string name_in_scheme(const Quantity& quantity) { return quantity.name.substr(quantity.name.find('.') + 1); }

void add_shares(const Inspection& inspection, std::vector<Measure>& measures) {
  const auto add = [&](const Quantity& quantity, const std::string& where, const auto& counts) {
    if (const double share = share_of(inspection, quantity, counts); share >= 0)
      measures.push_back({name_in_scheme(quantity), where, layer_text(quantity.layer), share});
  };
  for (const Quantity& quantity : inspection.quantities()) {
    if (!quantity.probe || quantity.scheme.empty() || quantity.layer < 0) continue;
    if (quantity.probe->scale == ProbeInfo::Scale::unit)
      add(quantity, "at 0 or 1", [](double value) { return value <= 0.01 || value >= 0.99; });
    // A bound such as 7.3 may be rounded where it is reached.
    if (const auto mark = mark_of(inspection.subject().model->options(), quantity))
      add(quantity, "at " + quantity.probe->mark, [&](double value) { return value >= *mark * (1 - 1e-6); });
  }
}

}  // namespace

std::vector<Measure> measures_of(const Inspection& inspection) {
  std::vector<Measure> measures{{"loss", "", "this sequence", inspection.loss()}};
  add_gradient_norms(inspection, measures);
  add_shares(inspection, measures);
  return measures;
}

std::string line_of(const std::vector<Measure>& measures) {
  std::string line;
  std::set<std::string> said;
  for (const Measure& measure : measures) {
    const std::string name = measure.what + measure.where, between = line.empty() ? "" : ", ";
    const bool first = said.insert(name).second;
    if (measure.of == no_layer)
      line += to_text(between, no_layer, ' ', digits(measure.value, 3));
    else if (measure.where.empty())
      line += to_text(first ? between + measure.what : "", ' ', digits(measure.value, 3));
    else if (first) {
      double sum = 0, layers = 0;
      for (const Measure& other : measures)
        if (other.what + other.where == name) sum += other.value, ++layers;
      line += to_text(between, measure.what, ' ', fixed(sum / layers, 0), " % ", measure.where);
    }
  }
  return line;
}

}  // namespace whence::look
