#include "examples/whence/look/tables.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "examples/whence/cli/numbers.h"
#include "examples/whence/report/encode.h"
#include "tensor/raw.h"

namespace whence::look {
namespace {

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

std::string percent(index_t part, index_t whole) {
  return whole ? fixed(100 * static_cast<double>(part) / static_cast<double>(whole), 1) : "-";
}

}  // namespace

SafetensorsFile tensors_of(const Inspection& inspection) {
  SafetensorsFile file;
  const auto add = [&](const Quantity& quantity) {
    file.tensors.emplace_back(quantity.path, raw::contiguous(quantity.value));
    if (quantity.gradient.defined()) file.tensors.emplace_back("gradient." + quantity.path, quantity.gradient);
    const Tensor reasons = Tensor::empty(quantity.value.shape(), DType::i32);
    std::ranges::copy(quantity.reasons, reasons.data<std::int32_t>());
    file.tensors.emplace_back("reason." + quantity.path, reasons);
  };
  for (const Quantity& quantity : inspection.quantities()) add(quantity);
  for (const Quantity& parameter : inspection.parameters()) add(parameter);
  for (const WaysTo& to : inspection.ways()) {
    for (std::size_t k = 0; k < to.ways.size(); ++k) {
      const std::string name = to_text("way.", to.layer, ".", to.name, ".", k);
      file.tensors.emplace_back(name, raw::contiguous(to.ways[k].gradient));
      file.metadata.emplace(name, name_of(to.ways[k]));
    }
  }
  for (std::size_t code = 0; code < inspection.reasons().size(); ++code) {
    const Reason& reason = inspection.reasons()[code];
    file.metadata.emplace(
        to_text("reason ", code), to_text(to_string(reason.stop), "  ", reason.op, "  ", reason.line));
  }
  return file;
}

SafetensorsFile tensors_of(const Overview& overview) {
  SafetensorsFile file;
  file.metadata = {{"tokens", std::to_string(overview.tokens)}, {"tokens along a cell", std::to_string(overview.cell)}};
  for (const Pools& pools : overview.pools) {
    file.tensors.emplace_back("maximum." + pools.quantity.path, pools.maximum);
    file.tensors.emplace_back("mean." + pools.quantity.path, pools.mean);
    file.tensors.emplace_back("gradient." + pools.quantity.path, pools.gradient);
  }
  return file;
}

Table causes_of(const Inspection& inspection) {
  const std::vector<Shares> all = inspection.shares();
  std::vector<Stop> stops;  // that occur
  for (int stop = 1; stop < stop_count; ++stop) {
    const auto occurs = [&](const Shares& shares) {
      for (std::size_t code = 0; code < shares.entries.size(); ++code)
        if (shares.entries[code] > 0 && inspection.reasons()[code].stop == static_cast<Stop>(stop)) return true;
      return false;
    };
    if (std::ranges::any_of(all, occurs)) stops.push_back(static_cast<Stop>(stop));
  }
  std::vector<std::string> header{"layer", "quantity", "head", "entries", "zero %"};
  for (const Stop stop : stops) header.push_back(to_text(to_string(stop), " %"));
  Table table(header);
  for (const Shares& shares : all) {
    index_t entries = 0;
    std::vector<index_t> by_stop(stop_count);
    for (std::size_t code = 0; code < shares.entries.size(); ++code) {
      entries += shares.entries[code];
      by_stop[static_cast<std::size_t>(inspection.reasons()[code].stop)] += shares.entries[code];
    }
    std::vector<std::string> cells{std::to_string(shares.quantity->layer), shares.quantity->name,
        shares.head < 0 ? "-" : std::to_string(shares.head), std::to_string(entries),
        percent(shares.exact_zeros, entries)};
    for (const Stop stop : stops) cells.push_back(percent(by_stop[static_cast<std::size_t>(stop)], entries));
    table.row(std::move(cells));
  }
  return table;
}

Table ways_table(const Inspection& inspection) {
  Table table({"layer", "gradient of", "way", "norm", "along the whole %", "sum against autograd"});
  for (const WaysTo& to : inspection.ways()) {
    const std::vector<double> whole = to.whole.to_vector();
    for (const Way& way : to.ways) {
      const std::vector<double> part = way.gradient.to_vector();
      const double along = dot(whole, whole) > 0 ? 100 * dot(part, whole) / dot(whole, whole) : 0;
      table.row({std::to_string(to.layer), to.name, name_of(way), report::number(std::sqrt(dot(part, part)), 4),
          fixed(along, 1), report::number(to.difference, 2)});
    }
  }
  return table;
}

Table edits_table(const std::vector<EditOutcome>& edits) {
  Table table({"edit", "predicted change of the loss", "real change"});
  for (const EditOutcome& each : edits)
    table.row({each.text, each.predicted ? report::number(*each.predicted) : "-", report::number(each.real)});
  return table;
}

}  // namespace whence::look
