// Perplexities by length as tables, CSV and plots.
#include <algorithm>
#include <cmath>
#include <limits>

#include "examples/language/length_evaluation.h"
#include "examples/report/plot.h"
#include "examples/report/style.h"
#include "nn/files.h"

namespace whence::language {
namespace {

std::string number(double value, int digits) { return std::isfinite(value) ? fixed(value, digits) : "-"; }

index_t train_length(const NamedScores& model) { return model.scores.empty() ? 1 : model.scores.front().length; }

double doublings(const NamedScores& model, const LengthScore& score) {
  return std::log2(static_cast<double>(score.length) / static_cast<double>(train_length(model)));
}

// Points that can be shown. A curve of one would be a label without a line; the table says why there is no more.
std::size_t shown(const report::Curve& curve) {
  return static_cast<std::size_t>(std::count_if(curve.y.begin(), curve.y.end(), [](double y) { return std::isfinite(y); }));
}

// Inline SVG takes its colours from the page around it; a file of its own brings them along.
std::string svg_file(const report::Plot& plot) {
  std::string text = report::svg(plot);
  const std::size_t tag = text.find("<svg"), end = text.find('>', tag);
  text.insert(end + 1, concat("<style><![CDATA[", report::style_sheet, "svg { background: var(--page); }]]></style>"));
  if (text.find("xmlns=") == std::string::npos) text.insert(tag + 4, " xmlns=\"http://www.w3.org/2000/svg\"");
  return text;
}

}  // namespace

whence::Table length_table(const std::vector<NamedScores>& models) {
  whence::Table table({"scheme", "length", "x training", "windows", "last tokens", "perplexity", "standard error", "note"});
  for (const NamedScores& model : models) {
    for (const LengthScore& score : model.scores) {
      const auto count = [&](index_t number) { return score.refused.empty() ? std::to_string(number) : std::string("-"); };
      table.row({model.name, std::to_string(score.length), std::to_string(score.length / train_length(model)), count(score.windows),
                 count(score.last), number(score.perplexity, 3), number(score.standard_error, 3), score.refused});
    }
  }
  return table;
}

whence::Table delta_table(const std::vector<NamedScores>& models) {
  whence::Table table({"scheme", "length", "last tokens", "full", "truncated", "Delta-P"});
  for (const NamedScores& model : models) {
    for (const LengthScore& score : model.scores) {
      for (const DeltaP& delta : score.deltas) {
        table.row({model.name, std::to_string(score.length), std::to_string(delta.last), number(delta.full, 3), number(delta.truncated, 3),
                   number(delta.value(), 3)});
      }
    }
  }
  return table;
}

report::Plot length_plot(const std::vector<NamedScores>& models) {
  report::Plot plot{.title = "Perplexity beyond the training length",
                    .x_label = "doublings of the training length",
                    .y_label = "perplexity of the last tokens",
                    .curves = {},
                    .log_y = false};
  double lowest = std::numeric_limits<double>::infinity(), highest = 0;
  for (const NamedScores& model : models) {
    report::Curve curve{model.name, {}, {}};
    for (const LengthScore& score : model.scores) curve.x.push_back(doublings(model, score)), curve.y.push_back(score.perplexity);
    if (shown(curve) < 2) continue;
    for (const double y : curve.y) lowest = std::fmin(lowest, y), highest = std::fmax(highest, y);
    plot.curves.push_back(std::move(curve));
  }
  plot.log_y = highest > 4 * lowest;  // a scheme that breaks down would press the others together
  return plot;
}

report::Plot delta_plot(const std::vector<NamedScores>& models) {
  report::Plot plot{.title = "What text before the training length is worth",
                    .x_label = "doublings of the training length",
                    .y_label = "Delta-P (above 0: it helps)",
                    .curves = {},
                    .log_y = false};
  for (const NamedScores& model : models) {
    report::Curve curve{model.name, {}, {}};
    for (const LengthScore& score : model.scores) {
      if (score.deltas.empty()) continue;
      curve.x.push_back(doublings(model, score)), curve.y.push_back(score.deltas.front().value());
    }
    if (shown(curve) > 0) plot.curves.push_back(std::move(curve));
  }
  return plot;
}

void write_length_files(const std::vector<NamedScores>& models, const std::string& prefix) {
  write_file(prefix + ".csv", length_table(models).csv());
  write_file(prefix + "_delta.csv", delta_table(models).csv());
  write_file(prefix + ".svg", svg_file(length_plot(models)));
  write_file(prefix + "_delta.svg", svg_file(delta_plot(models)));
}

}  // namespace whence::language
