#include "examples/whence/look/history.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "examples/whence/cli/json_lines.h"
#include "examples/whence/cli/numbers.h"
#include "examples/whence/run/run_files.h"
#include "tensor/error.h"
#include "tensor/raw.h"

namespace whence::look {
namespace {

// ---- Measures

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

// Returns the share in percent of the unmasked entries, or -1 if all are masked.
template <class Counts> double share_of(const Inspection& inspection, const Quantity& quantity, const Counts& counts) {
  const std::vector<double> values = quantity.value.to_vector();
  double seen = 0, counted = 0;
  for (std::size_t e = 0; e < values.size(); ++e) {
    if (inspection.stop_of(quantity, e) == Stop::masked) continue;
    ++seen, counted += counts(values[e]);
  }
  return seen > 0 ? 100 * counted / seen : -1;
}

// "gates" for "position.gates"; "cope.gates" if the scheme is one of a sum.
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
    // A number that has reached a bound such as 7.3 may be rounded.
    if (const auto mark = mark_of(inspection.subject().model->options(), quantity))
      add(quantity, "at " + quantity.probe->mark, [&](double value) { return value >= *mark * (1 - 1e-6); });
  }
}

// ---- Records

using Curves = std::map<std::string, std::map<double, double>>;  // values by step, for each name

struct History {
  std::map<std::string, Curves> measures;    // by name of the measure
  std::map<std::string, Curves> quantities;  // for each the number of "entries", and of those with each cause
};

History read(const std::filesystem::path& file) {
  static const std::set<std::string> no_counts{"step", "layer", "quantity", "head"};
  History history;
  std::string text = read_file(file);
  text.resize(text.rfind('\n') + 1);  // drops a last line that a crash cut short
  for_each_json_line(text, file.string(), [&](const Json& record) {
    const auto step = static_cast<double>(record.whole("step", 0, std::int64_t{1} << 53));
    if (record.has("measure")) {
      history.measures[record.text("measure")][record.text("of")][step] = record.number("value");
      return;
    }
    Curves& counts = history.quantities[record.text("quantity")];
    counts["entries"][step] += 0;
    for (const auto& [name, value] : record.fields())
      if (!no_counts.contains(name)) counts[name][step] += record.number(name);
  });
  return history;
}

// Returns for each cause its percentage of the unmasked entries.
Curves shares_of(Curves counts) {
  const auto entries = counts.extract("entries").mapped();
  auto masked = counts[to_string(Stop::masked)];
  counts.erase(to_string(Stop::masked));
  for (auto& [cause, curve] : counts) {
    for (const auto& [step, all] : entries) {
      const double seen = all - masked[step];
      curve[step] = seen > 0 ? 100 * curve[step] / seen : 0;
    }
  }
  return counts;
}

report::Plot plot_of(const std::string& title, const std::string& y_label, const Curves& curves) {
  report::Plot plot{.title = title, .x_label = "step", .y_label = y_label, .curves = {}};
  for (const auto& [name, by_step] : curves) {
    report::Curve curve{.name = name, .x = {}, .y = {}};
    for (const auto& [step, value] : by_step) curve.x.push_back(step), curve.y.push_back(value);
    plot.curves.push_back(std::move(curve));
  }
  return plot;
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
  std::set<std::string> printed;
  for (const Measure& measure : measures) {
    const std::string name = measure.what + measure.where, between = line.empty() ? "" : ", ";
    const bool first = printed.insert(name).second;
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

std::vector<Json> records_of(const Inspection& inspection, std::int64_t step) {
  std::vector<Json> records;
  for (const Measure& measure : measures_of(inspection)) {
    const std::string name = measure.where.empty() ? measure.what : to_text("% of ", measure.what, ' ', measure.where);
    records.push_back({{"step", step}, {"measure", name}, {"of", measure.of}, {"value", measure.value}});
  }
  for (const Shares& shares : inspection.shares()) {
    Json record{{"step", step}, {"layer", shares.quantity->layer}, {"quantity", shares.quantity->name},
        {"head", shares.head}, {"entries", shares.count}};
    for (const auto& [stop, count] : inspection.by_stop(shares))
      if (stop != Stop::nothing) record.add(to_string(stop), count);
    records.push_back(std::move(record));
  }
  return records;
}

std::function<TrainingJob::Look(std::int64_t)> looks_at(
    const Transformer& model, const Tensor& tokens, const Tensor& targets) {
  return [&model, tokens, targets](std::int64_t step) {
    Subject subject;
    subject.model = std::make_shared<Transformer>(model.options());
    const auto from = model.parameters(), to = subject.model->parameters();
    for (std::size_t k = 0; k < from.size(); ++k)
      raw::copy_into(raw::cast(raw::to_device(from[k].tensor.detach(), {}), DType::f32), to[k].tensor);
    subject.tokens = tokens, subject.targets = targets;
    const Inspection inspection(subject, false);
    return TrainingJob::Look{records_of(inspection, step), line_of(measures_of(inspection))};
  };
}

std::vector<report::Plot> history_of(const std::filesystem::path& file) {
  std::vector<report::Plot> plots;
  std::error_code unreadable;
  if (!std::filesystem::exists(file, unreadable)) return plots;
  const History history = read(file);
  for (const auto& [measure, curves] : history.measures) {
    plots.push_back(plot_of(measure, measure, curves));
    // Layer 2 before layer 10.
    std::ranges::stable_sort(plots.back().curves, {}, [](const report::Curve& curve) { return curve.name.size(); });
  }
  for (const auto& [quantity, counts] : history.quantities)
    if (const Curves shares = shares_of(counts); !shares.empty())
      plots.push_back(plot_of(
          to_text("Gradient of ", quantity, ": why entries are zero or close to zero"), "% of entries", shares));
  return plots;
}

}  // namespace whence::look
