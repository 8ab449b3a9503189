#include "examples/whence/look/overview.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "examples/whence/look/axes.h"
#include "tensor/error.h"
#include "tensor/parallel.h"
#include "tensor/raw.h"

namespace whence::look {
namespace {

constexpr float nothing = std::numeric_limits<float>::quiet_NaN();
constexpr double bytes_as_text = 4.0 / 3;                  // of a byte, in base64
constexpr index_t bytes_at_work = 2 << 20;                 // of one map of pairs in a strip; its ops make a hundred
constexpr index_t least_window = 32, largest_window = 96;  // queries and keys
constexpr std::size_t most_windows = 64;

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

// How many query rows are worked on at once.
index_t height_of(const Rows& rows) {
  const TransformerOptions& model = rows.subject().model->options();
  const auto size = static_cast<index_t>(size_of(rows.subject().model->parameters()[0].tensor.dtype()));
  return std::clamp<index_t>(bytes_at_work / (model.heads * rows.subject().tokens.numel() * size), 1, 64);
}

// Writes the rows of `pairs` [1|b h rows keys], which begin with query `first`, into `numbers` [h rows columns] from
// row first - window.i on: NaN where there is no pair.
void cut_rows(const Tensor& pairs, index_t first, const Window& window, bool causal, std::vector<double>& numbers) {
  const Tensor all = maps_of(pairs);
  const std::vector<double> from = all.to_vector();
  const index_t heads = all.size(0), rows = all.size(1), keys = all.size(2);
  numbers.resize(static_cast<std::size_t>(heads * window.rows * window.columns));
  for (index_t head = 0; head < heads; ++head) {
    for (index_t row = 0; row < rows; ++row) {
      double* out = numbers.data() + (head * window.rows + first + row - window.i) * window.columns;
      for (index_t j = window.j; j < window.j + window.columns; ++j) {
        const bool hidden = j >= keys || (causal && j > first + row);
        *out++ = hidden ? std::nan("") : from[static_cast<std::size_t>((head * rows + row) * keys + j)];
      }
    }
  }
}

void fill(Window& window, const Rows& rows) {
  const bool causal = rows.subject().model->options().causal;
  std::vector<std::vector<double>> values, gradients;
  const index_t height = height_of(rows), end = window.i + window.rows;
  for (index_t first = window.i; first < end; first += height) {
    std::size_t next = 0;
    for (const Quantity& quantity : rows.of(window.layer, first, std::min(first + height, end))) {
      if (!has_pairs(quantity)) continue;
      if (first == window.i)
        window.quantities.push_back(without_numbers(quantity)), values.emplace_back(), gradients.emplace_back();
      cut_rows(quantity.value, first, window, causal, values[next]);
      if (quantity.gradient.defined()) cut_rows(quantity.gradient, first, window, causal, gradients[next]);
      ++next;
    }
  }
  const DType dtype = rows.subject().model->parameters()[0].tensor.dtype() == DType::f64 ? DType::f64 : DType::f32;
  for (std::size_t k = 0; k < values.size(); ++k) {
    const Shape shape{
        static_cast<index_t>(values[k].size()) / window.rows / window.columns, window.rows, window.columns};
    window.quantities[k].value = Tensor::of(values[k], shape, dtype);
    if (!gradients[k].empty()) window.quantities[k].gradient = Tensor::of(gradients[k], shape, dtype);
  }
}

struct Strong {
  index_t head, row, column;  // of cells
  float gradient;
};

// The cells of a layer by the gradient of their logits, the largest first.
std::vector<Strong> strongest_of(const Overview& overview, index_t layer) {
  std::vector<Strong> all;
  for (const Pools& pools : overview.pools) {
    if (pools.quantity.layer != layer || pools.quantity.name != "logits") continue;
    const float* numbers = pools.gradient.data<float>();
    for (index_t place = 0; place < pools.gradient.numel(); ++place)
      if (numbers[place] > 0)
        all.push_back({place / overview.cells / overview.cells, place / overview.cells % overview.cells,
            place % overview.cells, numbers[place]});
  }
  std::ranges::stable_sort(all, std::ranges::greater{}, &Strong::gradient);
  return all;
}

// How wide windows are: as a cell, within bounds, and so that `count` of them fit into `bytes`.
index_t side_of_windows(const Overview& overview, std::size_t count, double bytes_of_number, double bytes) {
  const double fits = std::sqrt(bytes / (static_cast<double>(count) * bytes_of_number));
  return std::min(
      {std::clamp(overview.cell, least_window, largest_window), static_cast<index_t>(fits), overview.tokens});
}

// Around (i, j), but within its cell where that is as large.
Window window_at(const Overview& overview, index_t side, index_t layer, index_t i, index_t j, std::string why) {
  const auto start = [&](index_t place) {
    const index_t cell = place / overview.cell * overview.cell, middle = place - side / 2;
    const index_t inside = side <= overview.cell ? std::clamp(middle, cell, cell + overview.cell - side) : middle;
    return std::clamp<index_t>(inside, 0, overview.tokens - side);
  };
  return {layer, start(i), start(j), side, side, std::move(why), {}};
}

// Quantities of pairs times heads: how many maps one layer has.
double maps_in_a_layer(const Rows& rows) {
  double maps = 0;
  for (const Quantity& quantity : rows.of(0, 0, 1, false))
    if (has_pairs(quantity)) maps += static_cast<double>(quantity.value.size(1));
  return maps;
}

bool is_within(const Window& window, index_t i, index_t j) {
  return window.i <= i && i < window.i + window.rows && window.j <= j && j < window.j + window.columns;
}

using Places = std::vector<std::pair<index_t, index_t>>;

// Those of `at` in every layer, and then the strongest cells of the layers in turn.
void choose_windows(Overview& overview, index_t layers, const Places& at, index_t side, std::size_t most) {
  for (const auto& [i, j] : at)
    for (index_t layer = 0; layer < layers; ++layer)
      overview.windows.push_back(window_at(overview, side, layer, i, j, to_text("asked for: query ", i, ", key ", j)));
  std::vector<std::vector<Strong>> strongest;
  for (index_t layer = 0; layer < layers; ++layer) strongest.push_back(strongest_of(overview, layer));
  std::vector<std::size_t> next(strongest.size());
  const auto is_taken = [&](index_t layer, index_t i, index_t j) {
    return std::ranges::any_of(
        overview.windows, [&](const Window& window) { return window.layer == layer && is_within(window, i, j); });
  };
  for (bool found = true; found && overview.windows.size() < most;) {
    found = false;
    for (index_t layer = 0; layer < layers && overview.windows.size() < most; ++layer) {
      const auto of_layer = static_cast<std::size_t>(layer);
      while (next[of_layer] < strongest[of_layer].size()) {
        const Strong& cell = strongest[of_layer][next[of_layer]++];
        const index_t i = std::min(cell.row * overview.cell + overview.cell / 2, overview.tokens - 1),
                      j = std::min(cell.column * overview.cell + overview.cell / 2, i);
        if (is_taken(layer, i, j)) continue;
        overview.windows.push_back(
            window_at(overview, side, layer, i, j, to_text("a strong gradient of the logits, head ", cell.head)));
        found = true;
        break;
      }
    }
  }
}

void choose_strips(Overview& overview, index_t layers, const Places& at, double bytes_of_number, double bytes) {
  const double each = static_cast<double>(overview.tokens) * bytes_of_number;
  std::vector<index_t> queries{overview.tokens - 1};
  for (const auto& [i, j] : at) queries.insert(queries.begin(), i);
  for (const index_t query : queries)
    for (index_t layer = 0; layer < layers; ++layer)
      if (static_cast<double>(overview.strips.size() + 1) * each <= bytes)
        overview.strips.push_back({layer, query, 0, 1, overview.tokens, "one query against all keys", {}});
}

}  // namespace

double bytes_of_all(const Rows& rows) {
  double numbers = 0, size = 4;
  const index_t tokens = rows.subject().tokens.numel();
  for (const Quantity& quantity : rows.of(0, tokens - 1, tokens, false)) {
    if (!quantity.probe) continue;
    const Axes axes(quantity);
    const bool one_row = axes.has('i') && axes.extent('i') == 1;
    numbers += static_cast<double>(quantity.value.numel()) * (one_row ? static_cast<double>(tokens) : 1);
    size = static_cast<double>(size_of(quantity.value.dtype()));
  }
  return static_cast<double>(rows.subject().model->options().layers) * numbers * (2 * size + 1);
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
  const auto size = static_cast<double>(size_of(rows.subject().model->parameters()[0].tensor.dtype()));
  const double bytes_of_number = maps * 2 * size * bytes_as_text;  // in every map of a layer, with its gradient
  const std::size_t asked = at.size() * static_cast<std::size_t>(model.layers);
  const index_t side = side_of_windows(
      overview, std::max(asked, static_cast<std::size_t>(2 * model.layers)), bytes_of_number, 0.3 * bytes);
  if (asked > 0 && side < std::min(least_window / 4, tokens))
    throw InputError("--at: ", at.size(), " places given; a page has no room for their windows in ", model.layers,
        " layers; fewer required");
  const index_t height = height_of(rows);
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
  const auto most = static_cast<std::size_t>(
      0.3 * bytes / (bytes_of_number * static_cast<double>(std::max<index_t>(side * side, 1))));
  if (side > 0) choose_windows(overview, model.layers, at, side, std::min(most, most_windows));
  choose_strips(overview, model.layers, at, bytes_of_number, 0.25 * bytes);
  for (std::vector<Window>* all : {&overview.windows, &overview.strips})
    for (Window& window : *all) fill(window, rows);
  return overview;
}

}  // namespace whence::look
