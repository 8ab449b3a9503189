#include "examples/whence/look/history.h"

#include <algorithm>
#include <limits>
#include <map>

#include "examples/whence/cli/json_lines.h"
#include "examples/whence/cli/numbers.h"
#include "examples/whence/look/measures.h"
#include "examples/whence/run/run_files.h"
#include "tensor/error.h"
#include "tensor/raw.h"

namespace whence::look {
namespace {

// Of one quantity: by step, how many entries there are and how many each reason takes.
struct Counts {
  double entries = 0, masked = 0;
  std::map<std::string, double> by_reason;
};
// Of one measure: by what it is of, the value at each step.
using Values = std::map<std::string, std::map<double, double>>;

struct History {
  std::map<std::string, Values> measures;
  std::map<std::string, std::map<double, Counts>> quantities;
};

History read(const std::filesystem::path& file) {
  History history;
  std::string text = read_file(file);
  text.resize(text.rfind('\n') == std::string::npos ? 0 : text.rfind('\n') + 1);  // a line that a crash cut short
  for_each_json_line(text, file.string(), [&](const Json& record) {
    const auto step = static_cast<double>(record.whole("step", 0, std::int64_t{1} << 53));
    if (record.has("measure")) {
      history.measures[record.text("measure")][record.text("of")][step] = record.number("value");
      return;
    }
    Counts& counts = history.quantities[record.text("quantity")][step];
    for (const auto& [name, value] : record.fields()) {
      if (name == "step" || name == "layer" || name == "quantity" || name == "head") continue;
      double& sum = name == "entries"                 ? counts.entries
                    : name == to_string(Stop::masked) ? counts.masked
                                                      : counts.by_reason[name];
      sum += record.number(name);
    }
  });
  return history;
}

report::Plot plot_of(const std::string& measure, const Values& values) {
  report::Plot plot{.title = measure, .x_label = "step", .y_label = measure, .curves = {}};
  for (const auto& [of, by_step] : values) {
    report::Curve curve{.name = of, .x = {}, .y = {}};
    for (const auto& [step, value] : by_step) curve.x.push_back(step), curve.y.push_back(value);
    plot.curves.push_back(std::move(curve));
  }
  // Layer 2 before layer 10.
  std::ranges::stable_sort(plot.curves, {}, [](const report::Curve& curve) { return curve.name.size(); });
  return plot;
}

report::Plot plot_of(const std::string& quantity, const std::map<double, Counts>& by_step) {
  report::Plot plot{.title = to_text("Gradient of ", quantity, ": why entries are zero or next to it"),
      .x_label = "step",
      .y_label = "% of entries",
      .curves = {}};
  std::map<std::string, report::Curve> curves;
  for (const auto& [step, counts] : by_step)
    for (const auto& [reason, count] : counts.by_reason) curves[reason].name = reason;
  for (auto& [reason, curve] : curves) {
    for (const auto& [step, counts] : by_step) {
      const auto found = counts.by_reason.find(reason);
      const double seen = counts.entries - counts.masked;
      curve.x.push_back(step);
      curve.y.push_back(found == counts.by_reason.end() || seen <= 0 ? 0 : 100 * found->second / seen);
    }
    plot.curves.push_back(std::move(curve));
  }
  return plot;
}

}  // namespace

std::vector<Json> records_of(const Inspection& inspection, std::int64_t step) {
  std::vector<Json> records;
  for (const Measure& measure : measures_of(inspection)) {
    const std::string name = measure.where.empty() ? measure.what : to_text("% of ", measure.what, ' ', measure.where);
    records.push_back({{"step", step}, {"measure", name}, {"of", measure.of}, {"value", measure.value}});
  }
  for (const Shares& shares : inspection.shares()) {
    Json record{{"step", step}, {"layer", std::int64_t{shares.quantity->layer}}, {"quantity", shares.quantity->name},
        {"head", std::int64_t{shares.head}}};
    std::map<Stop, std::int64_t> by_stop;
    std::int64_t entries = 0;
    for (std::size_t code = 0; code < shares.entries.size(); ++code) {
      by_stop[inspection.reasons()[code].stop] += shares.entries[code];
      entries += shares.entries[code];
    }
    record.add("entries", entries);
    for (const auto& [stop, count] : by_stop)
      if (stop != Stop::nothing && count > 0) record.add(to_string(stop), count);
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
  for (const auto& [measure, values] : history.measures) plots.push_back(plot_of(measure, values));
  for (const auto& [quantity, by_step] : history.quantities) {
    const bool stopped =
        std::ranges::any_of(by_step, [](const auto& entry) { return !entry.second.by_reason.empty(); });
    if (stopped) plots.push_back(plot_of(quantity, by_step));
  }
  return plots;
}

}  // namespace whence::look
