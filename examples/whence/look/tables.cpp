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

std::vector<std::string> header_of(std::vector<std::string> header, const std::set<Stop>& stops) {
  for (const Stop stop : stops) header.push_back(to_text(to_string(stop), " %"));
  return header;
}

// Returns the inputs of the pass, then parameters, then quantities in the order of the pass.
SafetensorsFile pass_file(
    const Subject& subject, const std::vector<Quantity>& parameters, const std::vector<Quantity>& quantities) {
  const TransformerOptions& model = subject.model->options();
  SafetensorsFile file{{}, {{"scheme", subject.model->scheme()}, {"causal", model.causal ? "true" : "false"}}};
  if (!subject.given) file.tensors = {{"tokens", subject.tokens}, {"targets", subject.targets}};
  for (const std::vector<Quantity>* all : {&parameters, &quantities}) {
    for (const Quantity& quantity : *all) {
      file.tensors.emplace_back(quantity.path, raw::contiguous(quantity.value));
      if (quantity.gradient.defined()) file.tensors.emplace_back("gradient." + quantity.path, quantity.gradient);
    }
  }
  return file;
}

}  // namespace

SafetensorsFile pass_of(const Subject& subject) {
  const std::vector<double> targets = subject.targets.to_vector();
  const bool asks = subject.given || std::ranges::any_of(targets, [](double target) { return target >= 0; });
  Capture capture("*");
  Subject::Pass pass;
  if (asks)
    pass = subject.pass();
  else
    pass.logits = (*subject.model)(subject.tokens);
  capture.stop();
  if (asks) backward(pass.loss);
  SafetensorsFile file =
      pass_file(subject, parameters_of(*subject.model), quantities_of(capture, parse_schemes(subject.model->scheme())));
  if (pass.logits.defined()) file.tensors.emplace_back("answer.logits", pass.logits.detach());
  if (asks) file.tensors.emplace_back("loss", pass.loss.detach());
  record_order(file);
  return file;
}

SafetensorsFile tensors_of(const Inspection& inspection) {
  SafetensorsFile file = pass_file(inspection.subject(), inspection.parameters(), inspection.quantities());
  record_order(file);
  for (const std::vector<Quantity>* all : {&inspection.parameters(), &inspection.quantities()}) {
    for (const Quantity& quantity : *all) {
      const Tensor causes = Tensor::empty(quantity.value.shape(), DType::i32);
      std::ranges::copy(quantity.causes, causes.data<std::int32_t>());
      file.tensors.emplace_back("cause." + quantity.path, causes);
    }
  }
  for (const PathsTo& to : inspection.paths()) {
    for (std::size_t k = 0; k < to.paths.size(); ++k) {
      const std::string name = to_text("path.", to.layer, ".", to.name, ".", k);
      file.tensors.emplace_back(name, raw::contiguous(to.paths[k].gradient));
      file.metadata.emplace(name, name_of(to.paths[k]));
    }
  }
  for (std::size_t code = 0; code < inspection.causes().size(); ++code) {
    const Cause& cause = inspection.causes()[code];
    file.metadata.emplace(to_text("cause ", code), to_text(to_string(cause.stop), "  ", cause.op, "  ", cause.line));
  }
  return file;
}

Table causes_of(const Inspection& inspection) {
  const std::vector<Shares> all = inspection.shares();
  std::set<Stop> stops;
  for (const Shares& shares : all)
    for (const auto& [stop, count] : inspection.by_stop(shares)) stops.insert(stop);
  stops.erase(Stop::nothing);
  Table table(header_of({"layer", "quantity", "head", "entries", "zero %"}, stops));
  for (const Shares& shares : all) {
    std::vector<std::string> cells{std::to_string(shares.quantity->layer), shares.quantity->name,
        shares.head < 0 ? "-" : std::to_string(shares.head), std::to_string(shares.count),
        percent(shares.exact_zeros, shares.count)};
    std::map<Stop, index_t> by_stop = inspection.by_stop(shares);
    for (const Stop stop : stops) cells.push_back(percent(by_stop[stop], shares.count));
    table.row(std::move(cells));
  }
  return table;
}

Table causes_in_short(const Inspection& inspection) {
  struct Row {
    std::string quantity;
    index_t entries = 0, zeros = 0;
    std::map<Stop, index_t> by;
  };
  std::vector<Row> rows;
  std::set<Stop> stops;
  for (const Shares& shares : inspection.shares()) {
    auto row = std::ranges::find(rows, shares.quantity->name, &Row::quantity);
    if (row == rows.end()) row = rows.insert(row, {shares.quantity->name, 0, 0, {}});
    std::map<Stop, index_t> by_stop = inspection.by_stop(shares);
    const index_t masked = by_stop[Stop::masked];
    row->entries += shares.count - masked, row->zeros += shares.exact_zeros - masked;
    for (const Stop none : {Stop::masked, Stop::nothing}) by_stop.erase(none);
    for (const auto& [stop, count] : by_stop) row->by[stop] += count, stops.insert(stop);
  }
  Table table(header_of({"quantity", "zero %"}, stops));
  for (const Row& row : rows) {
    if (row.by.empty()) continue;
    std::vector<std::string> cells{row.quantity, percent(std::max<index_t>(row.zeros, 0), row.entries)};
    for (const Stop stop : stops) cells.push_back(row.by.contains(stop) ? percent(row.by.at(stop), row.entries) : "-");
    table.row(std::move(cells));
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

Table edits_table(const std::vector<EditOutcome>& edits) {
  Table table({"edit", "predicted change of the loss", "real change"});
  for (const EditOutcome& each : edits)
    table.row({each.text, each.predicted ? digits(*each.predicted) : "-", digits(each.real)});
  return table;
}

Table gradients_table(const std::string& edit, const std::vector<GradientOutcome>& changed) {
  Table table({to_text(edit, ": the gradient of"), "its norm", "with the edit"});
  for (const GradientOutcome& each : changed) table.row({each.parameter, digits(each.before), digits(each.after)});
  return table;
}

}  // namespace whence::look
