#include "examples/look/overview.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tensor/error.h"
#include "tensor/parallel.h"
#include "tensor/raw.h"

namespace whence::look {
namespace {

constexpr float nothing = std::numeric_limits<float>::quiet_NaN();
constexpr double bytes_as_text = 4.0 / 3;   // of a byte, in base64
constexpr index_t bytes_at_work = 2 << 20;  // of one map of pairs in a strip; its ops make a hundred
constexpr index_t largest_window = 96;      // queries and keys

bool has_pairs(const Quantity& quantity) { return quantity.probe && quantity.probe->axes == "b h i j"; }

Quantity without_numbers(const Quantity& quantity) {
  return {.path = quantity.path,
      .name = quantity.name,
      .layer = quantity.layer,
      .probe = quantity.probe,
      .scheme = quantity.scheme,
      .line = quantity.line};
}

// [h rows keys] f32 or f64, contiguous
Tensor maps_of(const Tensor& pairs) { return pairs.defined() ? raw::contiguous(raw::select(pairs, 0, 0)) : pairs; }

// Pools while they are summed: rows of cells are finished in any order, cells of one map by one thread each.
class Pooling {
 public:
  Pooling(const Quantity& quantity, index_t heads, const Overview& overview, bool causal)
      : causal_(causal),
        cell_(overview.cell),
        cells_(overview.cells),
        counts_(static_cast<std::size_t>(cells_ * cells_)) {
    const Shape shape{heads, cells_, cells_};
    pools_ = {without_numbers(quantity), Tensor::empty(shape, DType::f32), Tensor::zeros(shape, DType::f32),
        Tensor::empty(shape, DType::f32)};
    sums_.resize(static_cast<std::size_t>(numel(shape)));
    for (const Tensor& largest : {pools_.maximum, pools_.gradient})
      std::fill_n(largest.data<float>(), largest.numel(), nothing);
  }

  void add(const Quantity& strip, index_t begin) {
    const Tensor value = maps_of(strip.value), gradient = maps_of(strip.gradient);
    if (value.dtype() == DType::f64)
      add<double>(value, gradient, begin);
    else
      add<float>(value, gradient, begin);
  }

  Pools finished() {
    for (index_t map = 0; map < pools_.mean.size(0); ++map) {
      for (index_t cell = 0; cell < cells_ * cells_; ++cell) {
        const auto place = static_cast<std::size_t>(map * cells_ * cells_ + cell);
        const index_t count = counts_[static_cast<std::size_t>(cell)];
        pools_.mean.data<float>()[place] =
            count ? static_cast<float>(sums_[place] / static_cast<double>(count)) : nothing;
      }
    }
    return std::move(pools_);
  }

 private:
  template <class T> void add(const Tensor& value, const Tensor& gradient, index_t begin) {
    const index_t heads = value.size(0), rows = value.size(1), keys = value.size(2);
    parallel_for(heads, 1, [&](index_t first, index_t last) {
      for (index_t head = first; head < last; ++head)
        for (index_t row = 0; row < rows; ++row)
          add_row(head, begin + row, value.data<T>() + (head * rows + row) * keys,
              gradient.defined() ? gradient.data<T>() + (head * rows + row) * keys : nullptr, keys);
    });
    for (index_t row = 0; row < rows; ++row)
      for (index_t j = 0; j < seen(begin + row, keys); ++j)
        ++counts_[static_cast<std::size_t>((begin + row) / cell_ * cells_ + j / cell_)];
  }

  index_t seen(index_t i, index_t keys) const { return causal_ ? std::min(i + 1, keys) : keys; }

  template <class T> void add_row(index_t head, index_t i, const T* value, const T* gradient, index_t keys) {
    const index_t row = (head * cells_ + i / cell_) * cells_, end = seen(i, keys);
    for (index_t begin = 0; begin < end; begin += cell_) {
      const index_t place = row + begin / cell_, stop = std::min(begin + cell_, end);
      T largest = value[begin], steepest = 0;
      double sum = 0;
      for (index_t j = begin; j < stop; ++j)
        largest = std::max(largest, value[j]), sum += static_cast<double>(value[j]);
      for (index_t j = begin; gradient && j < stop; ++j) steepest = std::max(steepest, std::abs(gradient[j]));
      // The other operand where one is no number.
      float &maximum = pools_.maximum.data<float>()[place], &of_gradient = pools_.gradient.data<float>()[place];
      maximum = std::fmax(maximum, static_cast<float>(largest));
      if (gradient) of_gradient = std::fmax(of_gradient, static_cast<float>(steepest));
      sums_[static_cast<std::size_t>(place)] += sum;
    }
  }

  bool causal_;
  index_t cell_, cells_;
  Pools pools_;
  std::vector<double> sums_;
  std::vector<index_t> counts_;
};

// Numbers [h rows columns] of pairs [1|b h rows keys] that stand from query `i` on: NaN where there are none.
Tensor cut_out(const Tensor& pairs, const Window& window, bool causal) {
  if (!pairs.defined()) return pairs;
  const Tensor all = maps_of(raw::cast(pairs, pairs.dtype() == DType::f64 ? DType::f64 : DType::f32));
  std::vector<double> numbers = all.to_vector(), cut;
  const index_t heads = all.size(0), rows = all.size(1), keys = all.size(2);
  for (index_t head = 0; head < heads; ++head) {
    for (index_t row = 0; row < rows; ++row) {
      for (index_t j = window.j; j < window.j + window.columns; ++j) {
        const bool hidden = j >= keys || (causal && j > window.i + row);
        cut.push_back(hidden ? std::nan("") : numbers[static_cast<std::size_t>((head * rows + row) * keys + j)]);
      }
    }
  }
  return Tensor::of(cut, {heads, rows, window.columns}, all.dtype());
}

void fill(Window& window, const Rows& rows) {
  const bool causal = rows.subject().model->options().causal;
  for (const Quantity& quantity : rows.of(window.layer, window.i, window.i + window.rows)) {
    if (!has_pairs(quantity)) continue;
    Quantity cut = without_numbers(quantity);
    cut.value = cut_out(quantity.value, window, causal), cut.gradient = cut_out(quantity.gradient, window, causal);
    window.quantities.push_back(std::move(cut));
  }
}

struct Strongest {
  index_t head = 0, row = 0, column = 0;
  float gradient = -1;
};

// Of the logits of one layer, outside of the cells that are `taken`.
Strongest strongest_of(const Overview& overview, index_t layer, const std::vector<Window>& taken) {
  Strongest found;
  for (const Pools& pools : overview.pools) {
    if (pools.quantity.layer != layer || pools.quantity.name != "logits") continue;
    const float* numbers = pools.gradient.data<float>();
    for (index_t place = 0; place < pools.gradient.numel(); ++place) {
      const Strongest here{place / overview.cells / overview.cells, place / overview.cells % overview.cells,
          place % overview.cells, numbers[place]};
      const bool known = std::ranges::any_of(taken, [&](const Window& window) {
        return window.layer == layer && (window.i + window.rows / 2) / overview.cell == here.row &&
               (window.j + window.columns / 2) / overview.cell == here.column;
      });
      if (!known && here.gradient > found.gradient) found = here;
    }
  }
  return found;
}

// The cell that (i, j) lies in; of one that is too large the part around (i, j).
Window window_at(const Overview& overview, index_t layer, index_t i, index_t j, std::string why) {
  const index_t side = std::min(overview.cell, largest_window);
  const auto start = [&](index_t place) {
    const index_t cell = place / overview.cell * overview.cell;
    return std::clamp<index_t>(place - side / 2, cell, std::max(cell, cell + overview.cell - side));
  };
  const index_t row = start(i), column = start(j);
  return {layer, row, column, std::min(side, overview.tokens - row), std::min(side, overview.tokens - column),
      std::move(why), {}};
}

// Quantities of pairs times heads: how many maps one layer has.
double maps_in_a_layer(const Rows& rows) {
  double maps = 0;
  for (const Quantity& quantity : rows.of(0, 0, 1, false))
    if (has_pairs(quantity)) maps += static_cast<double>(quantity.value.size(1));
  return maps;
}

void choose_windows(Overview& overview, const Rows& rows, const std::vector<std::pair<index_t, index_t>>& at,
    double bytes, double maps) {
  const index_t layers = rows.subject().model->options().layers;
  const auto size = static_cast<double>(size_of(rows.subject().model->parameters()[0].tensor.dtype()));
  const auto side = static_cast<double>(std::min(overview.cell, largest_window));
  const auto most = static_cast<std::size_t>(bytes / (side * side * maps * 2 * size * bytes_as_text));
  for (const auto& [i, j] : at)
    for (index_t layer = 0; layer < layers; ++layer)
      overview.windows.push_back(window_at(overview, layer, i, j, to_text("asked for: query ", i, ", key ", j)));
  for (bool found = true; found && overview.windows.size() < most;) {
    found = false;
    for (index_t layer = 0; layer < layers && overview.windows.size() < most; ++layer) {
      const Strongest place = strongest_of(overview, layer, overview.windows);
      if (place.gradient <= 0) continue;
      found = true;
      overview.windows.push_back(window_at(overview, layer, place.row * overview.cell + overview.cell / 2,
          place.column * overview.cell + overview.cell / 2,
          to_text("a strong gradient of the logits, head ", place.head)));
    }
  }
}

void choose_strips(Overview& overview, const Rows& rows, const std::vector<std::pair<index_t, index_t>>& at,
    double bytes, double maps) {
  const auto size = static_cast<double>(size_of(rows.subject().model->parameters()[0].tensor.dtype()));
  const double each = static_cast<double>(overview.tokens) * maps * 2 * size * bytes_as_text;
  std::vector<index_t> queries{overview.tokens - 1};
  for (const auto& [i, j] : at) queries.insert(queries.begin(), i);
  for (const index_t query : queries)
    for (index_t layer = 0; layer < rows.subject().model->options().layers; ++layer)
      if (static_cast<double>(overview.strips.size() + 1) * each <= bytes)
        overview.strips.push_back({layer, query, 0, 1, overview.tokens, "one query against all keys", {}});
}

}  // namespace

double bytes_of_all(const Rows& rows) {
  double numbers = 0, size = 4;
  const index_t tokens = rows.subject().tokens.numel();
  for (const Quantity& quantity : rows.of(0, tokens - 1, tokens, false)) {
    if (!quantity.probe) continue;
    const std::size_t axis = quantity.probe->axes.find('i');
    const bool one_row = axis != std::string::npos && quantity.value.size(static_cast<int>(axis / 2)) == 1;
    numbers += static_cast<double>(quantity.value.numel()) * (one_row ? static_cast<double>(tokens) : 1);
    size = static_cast<double>(size_of(quantity.value.dtype()));
  }
  return static_cast<double>(rows.subject().model->options().layers) * numbers * (2 * size + 1) * bytes_as_text;
}

Overview overview_of(const Rows& rows, const std::vector<std::pair<index_t, index_t>>& at, double bytes,
    const std::function<void(double)>& progress) {
  const TransformerOptions& model = rows.subject().model->options();
  const index_t tokens = rows.subject().tokens.numel();
  const double maps = maps_in_a_layer(rows), all_maps = maps * static_cast<double>(model.layers);
  const double most_cells = std::sqrt(0.45 * bytes / (all_maps * 3 * sizeof(float) * bytes_as_text));
  Overview overview{.tokens = tokens, .cell = 1, .cells = tokens, .pools = {}, .windows = {}, .strips = {}};
  overview.cell = std::max<index_t>(1, static_cast<index_t>(std::ceil(static_cast<double>(tokens) / most_cells)));
  overview.cells = (tokens + overview.cell - 1) / overview.cell;
  const auto row_bytes = model.heads * tokens * static_cast<index_t>(sizeof(float));
  const index_t height = std::clamp<index_t>(bytes_at_work / row_bytes, 1, 64);
  for (index_t layer = 0; layer < model.layers; ++layer) {
    std::vector<Pooling> pooling;
    for (index_t begin = 0; begin < tokens; begin += height) {
      std::size_t next = 0;
      for (const Quantity& strip : rows.of(layer, begin, std::min(begin + height, tokens))) {
        if (!has_pairs(strip)) continue;
        if (begin == 0) pooling.emplace_back(strip, strip.value.size(1), overview, model.causal);
        pooling[next++].add(strip, begin);
      }
      // In a causal model a strip's work grows with its place.
      const double done = static_cast<double>(begin) / static_cast<double>(tokens);
      if (progress)
        progress(
            (static_cast<double>(layer) + (model.causal ? done * done : done)) / static_cast<double>(model.layers));
    }
    for (Pooling& each : pooling) overview.pools.push_back(each.finished());
  }
  choose_windows(overview, rows, at, 0.3 * bytes, maps);
  choose_strips(overview, rows, at, 0.25 * bytes, maps);
  for (std::vector<Window>* all : {&overview.windows, &overview.strips})
    for (Window& window : *all) fill(window, rows);
  return overview;
}

}  // namespace whence::look
