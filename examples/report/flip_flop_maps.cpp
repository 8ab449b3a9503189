// Capture, backward, copy: every probe of the scheme becomes a heat map.
#include "examples/report/flip_flop_maps.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "autograd/backward.h"
#include "autograd/probe.h"
#include "examples/tasks/flip_flop.h"
#include "nn/loss.h"

namespace whence::report {
namespace {

struct Quantity {
  std::string probe;  // under "blocks.L.attention."
  bool gradient;
  std::string name, caption;
  double low, high;  // of the colours; high 0: from the data
};

const Quantity quantities[] = {
    {"position.gates", false, "gates", "g_ij = sigmoid(q_i.k_j / sqrt(d)): does query i count key j?  (CoPE, Eq. 3)", 0,
        1},
    {"position.positions", false, "positions",
        "p_ij = sum of g_il for l = j..i, at most p_max: how many counted keys from j up to i  (CoPE, Eq. 4)", 0, 0},
    {"pattern", false, "attention pattern", "softmax over the keys j <= i of q_i.k_j / sqrt(d) + q_i.e[p_ij]", 0, 1},
    {"position.gates", true, "dLoss/dgates", "how the loss would change if gate g_ij opened further", 0, 0},
    {"position.positions", true, "dLoss/dpositions",
        "how the loss would change if p_ij grew; exactly 0 where p_ij is a whole number or at p_max", 0, 0},
    {"pattern", true, "dLoss/dpattern", "how the loss would change if query i attended more to key j", 0, 0},
};

// [1 h i j] of one probe -> one map per head. Keys after the query are masked.
void add_quantity(Page& page, const Quantity& quantity, const Tensor& values, int layer) {
  const std::vector<double> numbers = values.to_vector();
  const auto heads = static_cast<int>(values.size(1)), rows = static_cast<int>(values.size(2)),
             columns = static_cast<int>(values.size(3));
  for (int head = 0; head < heads; ++head) {
    HeatMap map{.name = quantity.name,
        .caption = quantity.caption,
        .layer = layer,
        .head = head,
        .rows = rows,
        .columns = columns,
        .values = {}};
    double largest = 0;
    for (int i = 0; i < rows; ++i) {
      for (int j = 0; j < columns; ++j) {
        const double number = numbers[static_cast<std::size_t>((head * rows + i) * columns + j)];
        map.values.push_back(j <= i ? static_cast<float>(number) : std::numeric_limits<float>::quiet_NaN());
        if (j <= i) largest = std::max(largest, std::abs(number));
      }
    }
    map.scale = quantity.gradient ? HeatMap::Scale::diverging : HeatMap::Scale::sequential;
    map.high = quantity.high > 0 ? quantity.high : std::max(largest, 1e-12);
    map.low = quantity.gradient ? -map.high : quantity.low;
    page.maps.push_back(std::move(map));
  }
}

}  // namespace

void add_maps(Page& page, const Transformer& model, const std::string& text) {
  const tasks::Tokens tokens = tasks::parse(text);
  tasks::Batch batch{.sequences = 1, .positions = static_cast<index_t>(tokens.size()) - 1};
  batch.inputs.assign(tokens.begin(), tokens.end() - 1);
  for (std::size_t t = 0; t + 1 < tokens.size(); ++t) {
    batch.targets.push_back(tokens[t] == tasks::read_token ? tokens[t + 1] : tasks::no_target);
    page.row_tokens.emplace_back(1, text[t]);
  }
  page.column_tokens = page.row_tokens;

  const Capture capture("*.gates", "*.positions", "*.pattern");
  backward(token_loss(model(batch.input_tensor()), batch.target_tensor()));
  for (const Module::Parameter& parameter : model.parameters())
    if (!parameter.frozen) clear_gradient(parameter.tensor);
  for (const Quantity& quantity : quantities) {
    for (int layer = 0; layer < static_cast<int>(model.options().layers); ++layer) {
      const std::string name = to_text("blocks.", layer, ".attention.", quantity.probe);
      if (!capture.contains(name)) continue;
      const Probed& probed = capture[name];
      const Tensor& values = quantity.gradient ? probed.gradient() : probed.value();
      if (values.defined()) add_quantity(page, quantity, values, layer);
    }
  }
}

}  // namespace whence::report
