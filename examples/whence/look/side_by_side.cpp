#include "examples/whence/look/side_by_side.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "examples/whence/cli/numbers.h"
#include "examples/whence/look/inspection.h"
#include "examples/whence/report/heat_map.h"
#include "tensor/raw.h"

namespace whence::look {
namespace {

constexpr double decades = 4;  // of gradients that a map tells apart
constexpr std::size_t across = 4;

// One head's numbers, of [1 h ...].
std::vector<double> of_head(const Tensor& x, index_t head) {
  return raw::select(raw::select(x, 0, 0), 0, x.size(1) == 1 ? 0 : head).to_vector();
}

struct Head {
  index_t layer = 0, number = 0;
};

// Where the pattern's gradient is largest: there the sequence teaches most.
Head head_of(const Inspection& inspection) {
  Head best;
  double largest = -1;
  for (const Quantity& quantity : inspection.quantities()) {
    if (quantity.name != "pattern" || !quantity.gradient.defined()) continue;
    for (index_t head = 0; head < quantity.gradient.size(1); ++head) {
      double squares = 0;
      for (const double number : of_head(quantity.gradient, head)) squares += number * number;
      if (squares > largest) largest = squares, best = {quantity.layer, head};
    }
  }
  return best;
}

bool seen(std::size_t pair, std::size_t tokens, bool causal) { return !causal || pair % tokens <= pair / tokens; }

// Values from the least to the most of those that are seen; of a gradient sizes, by decades below the largest.
report::HeatMap map_of(
    const std::string& name, std::vector<double> numbers, std::size_t tokens, bool causal, bool sizes) {
  double low = std::numeric_limits<double>::infinity(), high = -low;
  for (std::size_t pair = 0; pair < numbers.size(); ++pair) {
    if (sizes) numbers[pair] = std::fabs(numbers[pair]);
    if (!seen(pair, tokens, causal) || !std::isfinite(numbers[pair])) continue;
    low = std::min(low, numbers[pair]), high = std::max(high, numbers[pair]);
  }
  for (double& number : numbers)
    if (sizes)
      number = number > 0 ? std::max(0.0, 1 + std::log10(number / high) / decades) : 0;
    else
      number = high > low ? (number - low) / (high - low) : 0;
  const std::string title = sizes ? to_text("dLoss/d", name, ", up to ", digits(high, 2))
                                  : to_text(name, ", ", digits(low, 2), " to ", digits(high, 2));
  return {.title = title, .tokens = tokens, .values = std::move(numbers), .causal = causal};
}

report::Plot plot_of(const std::string& title, const std::string& y_label, const Tensor& x, index_t head) {
  report::Curve curve{.name = "", .x = {}, .y = of_head(x, head)};
  for (std::size_t t = 0; t < curve.y.size(); ++t) curve.x.push_back(static_cast<double>(t));
  return {.title = title, .x_label = "token", .y_label = y_label, .curves = {curve}};
}

}  // namespace

SideBySide side_by_side(const std::vector<SubjectOptions>& runs) {
  SideBySide found;
  for (const SubjectOptions& options : runs) {
    const Subject subject = subject_of(options);
    const Inspection inspection(subject, false);
    const Head head = head_of(inspection);
    const auto tokens = static_cast<std::size_t>(subject.tokens.numel());
    const bool causal = subject.model->options().causal;
    std::vector<report::HeatMap> maps;
    for (const Quantity& quantity : inspection.quantities()) {
      if (quantity.layer != head.layer || !quantity.probe ||
          (quantity.scheme.empty() && quantity.name != "scores" && quantity.name != "pattern"))
        continue;
      const std::string name = quantity.name.substr(quantity.name.rfind('.') + 1);
      if (quantity.probe->axes == "b h t") {
        const std::string title = to_text(subject.model->scheme(), ", head ", head.number, ": ");
        found.plots.push_back(plot_of(title + name, quantity.probe->equation, quantity.value, head.number));
        if (quantity.gradient.defined())
          found.plots.push_back(plot_of(title + "dLoss/d" + name, "nats", quantity.gradient, head.number));
      }
      if (!quantity.has_pairs()) continue;
      maps.push_back(map_of(name, of_head(quantity.value, head.number), tokens, causal, false));
      if (quantity.gradient.defined())
        maps.push_back(map_of(name, of_head(quantity.gradient, head.number), tokens, causal, true));
    }
    const std::string title = to_text(subject.model->scheme(), ": layer ", head.layer, ", head ", head.number);
    found.pictures.push_back(report::svg_file(title,
        to_text("Loss of this sequence ", digits(inspection.loss(), 3),
            ". Colours run from the least to the most; of "
            "gradients they are sizes, from a ten-thousandth of the largest up."),
        maps, across));
  }
  return found;
}

}  // namespace whence::look
