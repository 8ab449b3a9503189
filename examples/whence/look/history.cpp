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

// Of one quantity at one step: how many entries there are, and how many each reason takes.
struct Counts {
  double entries = 0, masked = 0;
  std::map<std::string, double> by_reason;
};
using Curves = std::map<std::string, std::map<double, double>>;  // by name, the value at each step

struct History {
  std::map<std::string, Curves> measures;                      // by what they are of
  std::map<std::string, std::map<double, Counts>> quantities;  // by step
};

History read(const std::filesystem::path& file) {
  History history;
  std::string text = read_file(file);
  text.resize(text.rfind('\n') + 1);  // without a line that a crash cut short
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

// For each reason the percentage that it takes of the entries that the mask does not hide.
Curves shares_of(const std::map<double, Counts>& by_step) {
  Curves curves;
  for (const auto& [step, counts] : by_step)
    for (const auto& [reason, count] : counts.by_reason) curves[reason];
  for (auto& [reason, curve] : curves) {
    for (const auto& [step, counts] : by_step) {
      const auto found = counts.by_reason.find(reason);
      const double seen = counts.entries - counts.masked;
      curve[step] = found == counts.by_reason.end() || seen <= 0 ? 0 : 100 * found->second / seen;
    }
  }
  return curves;
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
  for (const auto& [quantity, by_step] : history.quantities)
    if (const Curves shares = shares_of(by_step); !shares.empty())
      plots.push_back(
          plot_of(to_text("Gradient of ", quantity, ": why entries are zero or next to it"), "% of entries", shares));
  return plots;
}

}  // namespace whence::look
