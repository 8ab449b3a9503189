#include "examples/whence/bench/bench.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <iostream>

#include "examples/whence/cli/numbers.h"
#include "examples/whence/cli/run_main.h"
#include "examples/whence/report/table.h"
#include "tensor/cpu/threads.h"
#include "tensor/raw.h"

namespace whence::bench {
namespace {

std::string three_digits(double value) {
  const double size = std::abs(value);
  return fixed(value, size < 0.9995 ? 3 : size < 9.995 ? 2 : size < 99.95 ? 1 : 0);
}

}  // namespace

std::string text_of(const Median& figure) {
  return std::isnan(figure.value) ? "-" : three_digits(figure.value) + " ±" + three_digits(figure.spread);
}

std::string percent_of(double share) { return std::isnan(share) ? "-" : fixed(100 * share, 0) + " %"; }

Tensor drawn_tokens(const Shape& shape, index_t vocabulary, const Stream& stream) {
  const Tensor tokens = Tensor::empty(shape, DType::i64);
  for (index_t n = 0; n < tokens.numel(); ++n)
    tokens.data<index_t>()[n] = stream.below(static_cast<std::uint64_t>(n), static_cast<std::uint32_t>(vocabulary));
  return tokens;
}

void draw_zeros(const Module& model, double deviation) {
  for (const Module::Parameter& parameter : model.parameters())
    if (parameter.init.kind == Init::Kind::constant && parameter.init.first == 0)
      raw::copy_into(
          Tensor::normal(parameter.tensor.shape(), 0, deviation, Stream(1, parameter.path)), parameter.tensor);
}

Median median(std::vector<double> values) {
  std::ranges::sort(values);
  const auto at = [&](double share) {  // interpolates linearly between neighbours
    const double place = share * static_cast<double>(values.size() - 1);
    const auto below = static_cast<std::size_t>(place), above = std::min(below + 1, values.size() - 1);
    return std::lerp(values[below], values[above], place - static_cast<double>(below));
  };
  return {at(0.5), (at(0.75) - at(0.25)) / 2};
}

Row& Row::add(std::string field, Json value, std::string heading, std::string text) {
  const double* number = value.as<double>();
  const bool known = !number || !std::isnan(*number);
  if (!heading.empty()) {
    if (text.empty()) text = value.as<std::string>() ? *value.as<std::string>() : value.line();
    cells_.emplace_back(std::move(heading), known ? std::move(text) : "-");
  }
  if (!field.empty() && known) line_.add(std::move(field), std::move(value));
  return *this;
}

Row& Row::add(const Times& times, const std::string& backward, const std::string& both) {
  const Median first = median(times.forward), second = median(times.backward), sum = median(times.both);
  return add("forward_ms", first.value, "forward ms", text_of(first))
      .add("backward_ms", second.value, backward, text_of(second))
      .add("both_ms", sum.value, both, text_of(sum))
      .add("spread_ms", sum.spread);
}

Bench::Bench(std::string name, const Options& options, Device device, std::size_t steps)
    : name_(std::move(name)),
      options_(options),
      device_(device),
      progress_("bench " + name_, static_cast<std::int64_t>(steps), false) {
  install_interrupt_handler();
  if (!device.is_cpu()) return;
  ceilings_ = measure_ceilings();
  if (!options.json) std::cout << ceilings_.text() << std::endl;
  keep(Row()
           .add("vectors", ceilings_.vectors)
           .add("fma_gflops_alone", ceilings_.fma_gflops_alone)
           .add("fma_gflops", ceilings_.fma_gflops)
           .add("copy_gb_per_s", ceilings_.copy_gb_per_s)
           .add("read_gb_per_s", ceilings_.read_gb_per_s)
           .add("load", ceilings_.load));
}

Bench::~Bench() {
  if (std::uncaught_exceptions() == 0) progress_.update(begun_, 0, {});
  progress_.finish();
  for (const auto& [title, rows] : tables_) {
    if (&title != &tables_.front().first) std::cout << '\n';
    if (!title.empty()) std::cout << title << '\n';
    std::vector<std::string> header;  // the columns of the first row, then further columns of later rows
    for (const Row::Cells& cells : rows)
      for (const auto& [heading, text] : cells)
        if (std::ranges::find(header, heading) == header.end()) header.push_back(heading);
    Table table(header);
    for (const Row::Cells& cells : rows) {
      std::vector<std::string> texts(header.size(), "-");
      for (const auto& [heading, text] : cells)
        texts[static_cast<std::size_t>(std::ranges::find(header, heading) - header.begin())] = text;
      table.row(std::move(texts));
    }
    std::cout << table.text();
  }
  for (const std::string& text : notes_) std::cout << text << '\n';
  std::cout << std::flush;
}

void Bench::begin(const std::string& what) {
  stop_if_asked();
  progress_.update(begun_++, 0, {});
  progress_.note(what);
}

std::vector<Times> Bench::measure(const std::vector<Measured>& cases) {
  std::vector<Times> all(cases.size());
  for (int round = -1; round < options_.repetitions; ++round) {  // the first round warms up
    for (std::size_t k = 0; k < cases.size(); ++k) {
      stop_if_asked();
      const Repetition one = cases[k].run();
      Times& times = all[k];
      times.kept = one.kept, times.peak = std::max(times.peak, one.peak);
      if (round < 0) continue;
      times.forward.push_back(one.forward), times.backward.push_back(one.backward);
      times.both.push_back(one.forward + (std::isnan(one.backward) ? 0 : one.backward));
    }
  }
  for (std::size_t k = 0; k < cases.size(); ++k)
    if (cases[k].row) keep(cases[k].row(all[k], ceilings_));
  return all;
}

void Bench::keep(const Row& row, const std::string& title) {
  if (options_.json && !row.line_.fields().empty()) {
    Json line{{"bench", name_}, {"device", to_string(device_)}, {"threads", threads()}};
    for (const auto& [field, value] : row.line_.fields()) line.add(field, value);
    std::cout << line.line() << '\n' << std::flush;
  } else if (!options_.json && !row.cells_.empty()) {
    auto table = std::ranges::find(tables_, title, &decltype(tables_)::value_type::first);
    if (table == tables_.end()) table = tables_.insert(table, {title, {}});
    table->second.push_back(row.cells_);
  }
}

void Bench::note(const std::string& text) {
  if (!options_.json && std::ranges::find(notes_, text) == notes_.end()) notes_.push_back(text);
}

void stop_if_asked() {
  if (interrupt_requested()) throw Interrupted("stopped; the measurements until then are printed");
}

}  // namespace whence::bench
