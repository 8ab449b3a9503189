// Perplexities by length as tables, CSV and plots, and as a file that another run can show beside its own.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "examples/whence/cli/json.h"
#include "examples/whence/cli/numbers.h"
#include "examples/whence/language/length_evaluation.h"
#include "examples/whence/report/plot.h"
#include "examples/whence/report/table.h"
#include "examples/whence/run/run_files.h"
#include "nn/io/files.h"

namespace whence::language {
namespace {

Json json_of(const NamedScores& model) {
  Json::List lengths;
  for (const LengthScore& score : model.scores) {
    Json::List deltas;
    for (const DeltaP& delta : score.deltas)
      deltas.push_back({{"last", delta.last}, {"full", delta.full}, {"truncated", delta.truncated}});
    lengths.push_back(
        {{"length", score.length}, {"windows", score.windows}, {"last", score.last}, {"perplexity", score.perplexity},
            {"standard_error", score.standard_error}, {"deltas", deltas}, {"refused", score.refused}});
  }
  return {{"scheme", model.name}, {"lengths", lengths}};
}

std::string number(double value, int digits) { return std::isfinite(value) ? fixed(value, digits) : "-"; }

index_t train_length(const NamedScores& model) { return model.scores.empty() ? 1 : model.scores.front().length; }

// Lengths stand at equal distances where each is twice the one before, and are marked as they are.
double place_of(index_t length) { return std::log2(static_cast<double>(length)); }

// A curve for each model, of perplexities or of the Delta-P of the smaller K.
report::Plot plot_of(const std::vector<NamedScores>& models, bool deltas) {
  report::Plot plot{
      .title = deltas ? "What text before the training length is worth" : "Perplexity beyond the training length",
      .x_label = "length, tokens",
      .y_label = deltas ? "Delta-P (above 0: it helps)" : "perplexity of the last tokens (bars: standard error)",
      .curves = {}};
  std::map<index_t, report::Tick> ticks;
  for (const NamedScores& model : models) {
    report::Curve curve{model.name, {}, {}};
    for (const LengthScore& score : model.scores) {
      ticks[score.length] = {place_of(score.length), std::to_string(score.length)};
      if (deltas && score.deltas.empty()) continue;
      curve.x.push_back(place_of(score.length));
      curve.y.push_back(deltas ? score.deltas.front().value() : score.perplexity);
      if (!deltas) curve.error.push_back(score.standard_error);
    }
    // A perplexity alone would be a label without a line; the table says why there is no more.
    const auto shown = std::ranges::count_if(curve.y, [](double y) { return std::isfinite(y); });
    if (shown >= (deltas ? 1 : 2)) plot.curves.push_back(std::move(curve));
  }
  for (const auto& [length, tick] : ticks) plot.x_ticks.push_back(tick);
  return plot;
}

}  // namespace

Table length_table(const std::vector<NamedScores>& models) {
  Table table({"scheme", "length", "x training", "windows", "last tokens", "perplexity", "standard error", "note"});
  for (const NamedScores& model : models) {
    for (const LengthScore& score : model.scores) {
      const auto count = [&](index_t n) { return score.refused.empty() ? std::to_string(n) : "-"; };
      table.row({model.name, std::to_string(score.length), std::to_string(score.length / train_length(model)),
          count(score.windows), count(score.last), number(score.perplexity, 3), number(score.standard_error, 3),
          score.refused});
    }
  }
  return table;
}

Table delta_table(const std::vector<NamedScores>& models) {
  Table table({"scheme", "length", "last tokens", "full", "truncated", "Delta-P"});
  for (const NamedScores& model : models) {
    for (const LengthScore& score : model.scores) {
      for (const DeltaP& delta : score.deltas) {
        table.row({model.name, std::to_string(score.length), std::to_string(delta.last), number(delta.full, 3),
            number(delta.truncated, 3), number(delta.value(), 3)});
      }
    }
  }
  return table;
}

report::Plot length_plot(const std::vector<NamedScores>& models) {
  report::Plot plot = plot_of(models, false);
  double lowest = std::numeric_limits<double>::infinity(), highest = 0;
  for (const report::Curve& curve : plot.curves)
    for (const double y : curve.y) lowest = std::fmin(lowest, y), highest = std::fmax(highest, y);
  plot.log_y = highest > 4 * lowest;  // a scheme that breaks down would press the others together
  return plot;
}

report::Plot delta_plot(const std::vector<NamedScores>& models) { return plot_of(models, true); }

void write_length_files(const std::vector<NamedScores>& models, const std::string& prefix) {
  write_file(prefix + ".csv", length_table(models).csv());
  write_file(prefix + "_delta.csv", delta_table(models).csv());
  write_file(prefix + ".svg", report::svg_file(length_plot(models)));
  write_file(prefix + "_delta.svg", report::svg_file(delta_plot(models)));
  write_file(prefix + ".json", json_of(models.front()).page(1) + '\n');
}

NamedScores read_length_scores(const std::string& path) {
  constexpr std::int64_t most = index_t{1} << 40;
  const Json file = Json::read(read_file(path), path);
  NamedScores model{file.text("scheme"), {}};
  for (const Json& at : file.objects("lengths")) {
    LengthScore score{.length = at.whole("length", 1, most),
        .windows = at.whole("windows", 0, most),
        .last = at.whole("last", 0, most),
        .perplexity = at.number("perplexity"),
        .standard_error = at.number("standard_error")};
    for (const Json& delta : at.objects("deltas"))
      score.deltas.push_back({delta.whole("last", 0, most), delta.number("full"), delta.number("truncated")});
    score.refused = at.text("refused");
    model.scores.push_back(std::move(score));
  }
  return model;
}

}  // namespace whence::language
