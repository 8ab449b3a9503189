#include "examples/whence/look/overview.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tensor/error.h"
#include "tensor/parallel.h"
#include "tensor/raw.h"

namespace whence::look {
namespace {

constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();
constexpr double bytes_as_text = 4.0 / 3;            // of a byte, in base64
constexpr index_t bytes_at_work = 2 << 20;           // of one map of pairs in a strip; its ops make a hundred maps
constexpr index_t min_window = 32, max_window = 96;  // queries and keys
constexpr std::size_t max_windows = 64;

// Computes the pools of one quantity in one layer, strip by strip of whole rows.
class Pooling {
 public:
  Pooling(const Quantity& quantity, const Overview& overview, bool causal)
      : causal_(causal), tokens_(overview.tokens), cell_(overview.cell), cells_(overview.cells) {
    const Shape shape{quantity.value.size(1), cells_, cells_};
    pools_ = {quantity.without_numbers(), Tensor::full(shape, not_a_number), Tensor::full(shape, not_a_number),
        Tensor::full(shape, not_a_number)};
    sums_.resize(static_cast<std::size_t>(numel(shape)));
  }

  // One thread sums all cells of a head.
  void add(const Quantity& strip, index_t begin) {
    const index_t heads = strip.value.size(1), rows = strip.value.size(2), keys = strip.value.size(3);
    const auto doubles = [](const Tensor& x) { return x.defined() ? raw::contiguous(raw::cast(x, DType::f64)) : x; };
    const Tensor value = doubles(strip.value), gradient = doubles(strip.gradient);
    parallel_for(heads, 1, [&](index_t first, index_t last) {
      for (index_t row = first * rows; row < last * rows; ++row)
        add_row(row / rows, begin + row % rows, value.data<double>() + row * keys,
            gradient.defined() ? gradient.data<double>() + row * keys : nullptr, keys);
    });
  }

  Pools finished() {
    for (index_t cell = 0; cell < cells_ * cells_; ++cell) {
      const index_t count = count_of(cell / cells_, cell % cells_);
      for (index_t place = cell; count > 0 && place < pools_.mean.numel(); place += cells_ * cells_)
        pools_.mean.data<float>()[place] =
            static_cast<float>(sums_[static_cast<std::size_t>(place)] / static_cast<double>(count));
    }
    return std::move(pools_);
  }

 private:
  index_t seen(index_t i, index_t keys) const { return causal_ ? std::min(i + 1, keys) : keys; }

  // Returns the number of unmasked pairs of a cell.
  index_t count_of(index_t row, index_t column) const {
    index_t count = 0;
    for (index_t i = row * cell_; i < std::min((row + 1) * cell_, tokens_); ++i)
      count += std::clamp<index_t>(seen(i, tokens_) - column * cell_, 0, cell_);
    return count;
  }

  void add_row(index_t head, index_t i, const double* value, const double* gradient, index_t keys) {
    const index_t row = (head * cells_ + i / cell_) * cells_, end = seen(i, keys);
    for (index_t begin = 0; begin < end; begin += cell_) {
      const index_t place = row + begin / cell_, stop = std::min(begin + cell_, end);
      double largest = value[begin], sum = 0, steepest = 0;
      for (index_t j = begin; j < stop; ++j) {
        largest = std::max(largest, value[j]), sum += value[j];
        if (gradient) steepest = std::max(steepest, std::abs(gradient[j]));
      }
      sums_[static_cast<std::size_t>(place)] += sum;
      // fmax returns the other operand if one is NaN.
      float &maximum = pools_.maximum.data<float>()[place], &of_gradient = pools_.gradient.data<float>()[place];
      maximum = std::fmax(maximum, static_cast<float>(largest));
      if (gradient) of_gradient = std::fmax(of_gradient, static_cast<float>(steepest));
    }
  }

  bool causal_;
  index_t tokens_, cell_, cells_;
  Pools pools_;
  std::vector<double> sums_;
};

// Returns the number of query rows in a strip.
index_t height_of(const Rows& rows) {
  const Subject& subject = rows.subject();
  const auto size = static_cast<index_t>(size_of(subject.dtype()));
  return std::clamp<index_t>(bytes_at_work / (subject.model->options().heads * subject.tokens.numel() * size), 1, 64);
}

// Calls `take` for each strip of queries [begin, end), with its first query and its quantities of pairs.
void for_each_strip(const Rows& rows, index_t layer, index_t begin, index_t end,
    const std::function<void(index_t, const std::vector<Quantity>&)>& take) {
  for (index_t first = begin; first < end; first += height_of(rows)) {
    std::vector<Quantity> strip = rows.of(layer, first, std::min(first + height_of(rows), end));
    std::erase_if(strip, [](const Quantity& quantity) { return !quantity.has_pairs(); });
    take(first, strip);
  }
}

// Copies the rows of `pairs` [1 h rows keys] into the numbers of a window, [h rows columns], without masked pairs. The first
// row is query `first`.
void copy_rows(const Tensor& pairs, index_t first, const Window& window, bool causal, const Tensor& numbers) {
  const Tensor all = raw::select(pairs, 0, 0);
  for (index_t row = 0; row < all.size(1); ++row) {
    const index_t query = first + row, seen = causal ? std::min(query + 1, all.size(2)) : all.size(2);
    const index_t columns = std::min(seen - window.j, window.columns);
    if (columns > 0)
      raw::copy_into(raw::slice(raw::select(all, 1, row), 1, window.j, window.j + columns),
          raw::slice(raw::select(numbers, 1, query - window.i), 1, 0, columns));
  }
}

void fill(Window& window, const Rows& rows) {
  const bool causal = rows.subject().model->options().causal;
  for_each_strip(rows, window.layer, window.i, window.i + window.rows, [&](index_t first, const auto& strip) {
    for (std::size_t k = 0; k < strip.size(); ++k) {
      const Quantity& from = strip[k];
      if (first == window.i) {
        const Tensor empty =
            Tensor::full({from.value.size(1), window.rows, window.columns}, not_a_number, from.value.dtype());
        Quantity& to = window.quantities.emplace_back(from.without_numbers());
        to.value = empty;
        if (from.gradient.defined()) to.gradient = raw::copy(empty);
      }
      copy_rows(from.value, first, window, causal, window.quantities[k].value);
      if (from.gradient.defined()) copy_rows(from.gradient, first, window, causal, window.quantities[k].gradient);
    }
  });
}

struct Strong {
  index_t head, i, j;  // a pair in the middle of a cell
  float gradient;
};

// Returns the cells of a layer, those with the largest gradient of the logits first.
std::vector<Strong> strongest_of(const Overview& overview, index_t layer) {
  std::vector<Strong> all;
  for (const Pools& pools : overview.pools) {
    if (pools.quantity.layer != layer || pools.quantity.name != "logits") continue;
    for (index_t place = 0; place < pools.gradient.numel(); ++place) {
      const Shape at = position_of(place, pools.gradient.shape());  // [h cells cells]
      const index_t i = std::min(at[1] * overview.cell + overview.cell / 2, overview.tokens - 1),
                    j = std::min(at[2] * overview.cell + overview.cell / 2, i);
      if (const float gradient = pools.gradient.data<float>()[place]; gradient > 0)
        all.push_back({at[0], i, j, gradient});
    }
  }
  std::ranges::stable_sort(all, std::ranges::greater{}, &Strong::gradient);
  return all;
}

// Returns the side of a window: that of a cell, within bounds, and so that `count` windows fit into `bytes`.
index_t side_of_windows(const Overview& overview, std::size_t count, double bytes_of_number, double bytes) {
  const double fits = std::sqrt(bytes / (static_cast<double>(count) * bytes_of_number));
  return std::min({std::clamp(overview.cell, min_window, max_window), static_cast<index_t>(fits), overview.tokens});
}

// Returns a window around (i, j), within the cell of (i, j) if the cell is at least as large.
Window window_at(const Overview& overview, index_t side, index_t layer, index_t i, index_t j, std::string why) {
  const auto start = [&](index_t place) {
    const index_t cell = place / overview.cell * overview.cell, middle = place - side / 2;
    const index_t inside = side <= overview.cell ? std::clamp(middle, cell, cell + overview.cell - side) : middle;
    return std::clamp<index_t>(inside, 0, overview.tokens - side);
  };
  return {layer, start(i), start(j), side, side, std::move(why), {}};
}

// Returns the number of maps in a layer: quantities of pairs times heads.
double maps_in_a_layer(const Rows& rows) {
  double maps = 0;
  for (const Quantity& quantity : rows.of(0, 0, 1, false))
    if (quantity.has_pairs()) maps += static_cast<double>(quantity.value.size(1));
  return maps;
}

using Places = std::vector<std::pair<index_t, index_t>>;

// Returns the windows of `at`, and then of the strongest cells outside these, up to `most`.
std::vector<Window> windows_of_layer(
    const Overview& overview, index_t layer, const Places& at, index_t side, std::size_t most) {
  std::vector<Window> windows;
  for (const auto& [i, j] : at)
    windows.push_back(window_at(overview, side, layer, i, j, to_text("requested: query ", i, ", key ", j)));
  for (const auto& [head, i, j, gradient] : strongest_of(overview, layer)) {
    if (windows.size() >= most) break;
    if (std::ranges::none_of(windows, [&, query = i, key = j](const Window& window) { return window.has(query, key); }))
      windows.push_back(
          window_at(overview, side, layer, i, j, to_text("a strong gradient of the logits, head ", head)));
  }
  return windows;
}

// Chooses all windows of `at`, and others up to `most` in all, from the layers in turn.
void choose_windows(Overview& overview, index_t layers, const Places& at, index_t side, std::size_t most) {
  std::vector<std::vector<Window>> by_layer;
  for (index_t layer = 0; layer < layers; ++layer)
    by_layer.push_back(windows_of_layer(overview, layer, at, side, most));
  for (std::size_t round = 0; round < std::max(most, at.size()); ++round)
    for (std::vector<Window>& windows : by_layer)
      if (round < windows.size() && (round < at.size() || overview.windows.size() < most))
        overview.windows.push_back(std::move(windows[round]));
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

std::vector<Pools> pools_of(const Rows& rows, const Overview& overview, const std::function<void(double)>& progress) {
  const TransformerOptions& model = rows.subject().model->options();
  std::vector<Pools> pools;
  for (index_t layer = 0; layer < model.layers; ++layer) {
    std::vector<Pooling> pooling;
    for_each_strip(rows, layer, 0, overview.tokens, [&](index_t first, const auto& strip) {
      for (std::size_t k = 0; k < strip.size(); ++k) {
        if (first == 0) pooling.emplace_back(strip[k], overview, model.causal);
        pooling[k].add(strip[k], first);
      }
      // In a causal model later strips have more keys, and so more work.
      const double done = static_cast<double>(first) / static_cast<double>(overview.tokens);
      const double share = static_cast<double>(layer) + (model.causal ? done * done : done);
      if (progress) progress(share / static_cast<double>(model.layers));
    });
    for (Pooling& each : pooling) pools.push_back(each.finished());
  }
  return pools;
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
  const auto layers = static_cast<double>(model.layers);
  const double maps = maps_in_a_layer(rows);
  const double most_cells = std::sqrt(0.45 * bytes / (maps * layers * 3 * sizeof(float) * bytes_as_text));
  Overview overview{.tokens = tokens, .cell = 1, .cells = tokens, .pools = {}, .windows = {}, .strips = {}};
  overview.cell = std::max<index_t>(1, static_cast<index_t>(std::ceil(static_cast<double>(tokens) / most_cells)));
  overview.cells = (tokens + overview.cell - 1) / overview.cell;
  const double size = static_cast<double>(size_of(rows.subject().dtype())),
               bytes_of_number = maps * 2 * size * bytes_as_text;  // in every map of a layer, with its gradient
  const std::size_t asked = at.size() * static_cast<std::size_t>(model.layers);
  const index_t side = side_of_windows(
      overview, std::max(asked, static_cast<std::size_t>(2 * model.layers)), bytes_of_number, 0.3 * bytes);
  if (asked > 0 && side < std::min(min_window / 4, tokens))
    throw InputError("--at: ", at.size(), " places given; a page has no room for their windows in ", model.layers,
        " layers; fewer required");
  overview.pools = pools_of(rows, overview, progress);
  const auto most = static_cast<std::size_t>(
      0.3 * bytes / (bytes_of_number * static_cast<double>(std::max<index_t>(side * side, 1))));
  if (side > 0) choose_windows(overview, model.layers, at, side, std::min(most, max_windows));
  choose_strips(overview, model.layers, at, bytes_of_number, 0.25 * bytes);
  for (std::vector<Window>* all : {&overview.windows, &overview.strips})
    for (Window& window : *all) fill(window, rows);
  return overview;
}

}  // namespace whence::look
