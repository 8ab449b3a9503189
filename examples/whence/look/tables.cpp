#include "examples/whence/look/tables.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "autograd/backward.h"
#include "autograd/inspect/capture.h"
#include "examples/whence/cli/numbers.h"
#include "examples/whence/verify/comparison.h"
#include "tensor/raw.h"

namespace whence::look {
namespace {

std::string percent(index_t part, index_t whole) {
  return whole ? fixed(100 * static_cast<double>(part) / static_cast<double>(whole), 1) : "-";
}

}  // namespace

SafetensorsFile pass_of(const Subject& subject) {
  const std::vector<double> targets = subject.targets.to_vector();
  const bool asks = subject.given || std::ranges::any_of(targets, [](double target) { return target >= 0; });
  Capture capture("*");
  const Subject::Pass pass = asks ? subject.pass() : Subject::Pass{{}, (*subject.model)(subject.tokens)};
  capture.stop();
  if (asks) backward(pass.loss);
  const TransformerOptions& model = subject.model->options();
  SafetensorsFile file{{}, {{"scheme", subject.model->scheme()}, {"causal", model.causal ? "true" : "false"}}};
  if (!subject.given) file.tensors = {{"tokens", subject.tokens}, {"targets", subject.targets}};
  for (const std::vector<Quantity>& all :
      {parameters_of(*subject.model), quantities_of(capture, parse_schemes(subject.model->scheme()))}) {
    for (const Quantity& quantity : all) {
      file.tensors.emplace_back(quantity.path, raw::contiguous(quantity.value));
      if (quantity.gradient.defined()) file.tensors.emplace_back("gradient." + quantity.path, quantity.gradient);
    }
  }
  if (pass.logits.defined()) file.tensors.emplace_back("answer.logits", pass.logits.detach());
  if (asks) file.tensors.emplace_back("loss", pass.loss.detach());
  record_order(file);
  return file;
}

Table causes_of(const Inspection& inspection, bool in_short) {
  struct Row {
    std::vector<std::string> cells;
    index_t entries = 0, zeros = 0;
    std::map<Stop, index_t> by = {};
  };
  std::vector<Row> rows;
  std::set<Stop> stops;
  for (const Shares& shares : inspection.shares()) {
    const Quantity& quantity = *shares.quantity;
    std::map<Stop, index_t> by = inspection.by_stop(shares);
    by.erase(Stop::nothing);
    const auto masked = in_short ? by.extract(Stop::masked) : std::map<Stop, index_t>::node_type();
    const index_t left_out = masked ? masked.mapped() : 0;
    auto row = std::ranges::find_if(rows, [&](const Row& each) { return in_short && each.cells[0] == quantity.name; });
    if (row == rows.end())
      row = rows.insert(
          row, {in_short ? std::vector{quantity.name}
                         : std::vector{std::to_string(quantity.layer), quantity.name,
                               shares.head < 0 ? "-" : std::to_string(shares.head), std::to_string(shares.count)}});
    row->entries += shares.count - left_out, row->zeros += shares.exact_zeros - left_out;
    for (const auto& [stop, count] : by) row->by[stop] += count, stops.insert(stop);
  }
  std::vector<std::string> header{"layer", "quantity", "head", "entries", "zero %"};
  if (in_short) header = {"quantity", "zero %"};
  for (const Stop stop : stops) header.push_back(to_text(to_string(stop), " %"));
  Table table(header);
  for (Row& row : rows) {
    if (in_short && row.by.empty()) continue;
    row.cells.push_back(percent(std::max<index_t>(row.zeros, 0), row.entries));
    for (const Stop stop : stops)
      row.cells.push_back(in_short && !row.by.contains(stop) ? "-" : percent(row.by[stop], row.entries));
    table.row(row.cells);
  }
  return table;
}

Table paths_table(const Inspection& inspection) {
  Table table({"layer", "gradient of", "path", "norm", "along the whole %", "sum against autograd"});
  for (const PathsTo& to : inspection.paths()) {
    const double whole = dot(to.whole, to.whole);
    for (const GradientPath& path : to.paths)
      table.row({std::to_string(to.layer), to.name, name_of(path), digits(std::sqrt(dot(path.gradient, path.gradient))),
          fixed(whole > 0 ? 100 * dot(path.gradient, to.whole) / whole : 0, 1), digits(to.difference, 2)});
  }
  return table;
}

}  // namespace whence::look
