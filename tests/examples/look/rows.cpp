// `whence look` on long texts: rows computed alone equal those of the whole, pools and windows have the same numbers, and
// the page's links name all terms of a gradient.
#include <doctest/doctest.h>
#include <algorithm>
#include <cmath>

#include "examples/whence/cli/json.h"
#include "examples/whence/look/links.h"
#include "examples/whence/look/page.h"
#include "examples/whence/look/page_data.h"
#include "tensor/raw.h"
#include "tests/examples/look/subjects.h"

using namespace whence;
using namespace whence::look;
using namespace whence::test;

namespace {

// Returns rows [begin, end) of `whole`, along the axis of queries, with the number of keys of `part`.
Tensor rows_like(const Tensor& whole, const Quantity& part, index_t begin, index_t end) {
  const Tensor rows = raw::slice(whole, static_cast<int>(part.probe->axes.find('i') / 2), begin, end);
  const std::size_t keys = part.probe->axes.find('j');
  if (keys == std::string::npos) return rows;
  return raw::slice(rows, static_cast<int>(keys / 2), 0, part.value.size(static_cast<int>(keys / 2)));
}

void check_close(const Tensor& one, const Tensor& other) {
  CHECK(distance(one, other) <= 1e-11 * std::max(1e-3, largest(other)));
}

}  // namespace

TEST_CASE("look: rows of a long text are those of the whole, in value and gradient, for every scheme") {
  for_every_scheme({true, false}, [](const Subject& subject, const std::string&, bool) {
    if (!Rows::take(subject)) {
      CHECK(error_text([&] { const Rows rows(subject); }).find("its rows depend on each other") != std::string::npos);
      return;
    }
    const Inspection whole(subject, false);
    const Rows rows(subject);
    CHECK(std::abs(rows.loss() - whole.loss()) < 1e-12);
    for (const Quantity& part : rows.of(1, 2, 5)) {
      if (!part.probe || !has(part.probe->axes, "i")) continue;  // not by query
      CAPTURE(part.path);
      const Quantity& all = named(whole.quantities(), part.path);
      const bool is_whole = part.value.shape() == all.value.shape();  // queries are cut where pairs are made of them
      const auto rows_of = [&](const Tensor& x) { return is_whole ? rows_like(x, part, 2, 5) : x; };
      check_close(rows_of(part.value), rows_like(all.value, part, 2, 5));
      CHECK(part.gradient.defined() == all.gradient.defined());
      if (part.gradient.defined()) check_close(rows_of(part.gradient), rows_like(all.gradient, part, 2, 5));
    }
  });
}

TEST_CASE("look: pools and windows are of the text's numbers") {
  const Subject subject = subject_with(small("cope(p_max=3)"), 21);
  const Inspection whole(subject, false);
  const Rows rows(subject);
  const Overview overview = overview_of(rows, {{17, 4}}, 300000);
  CHECK(overview.tokens == 21);
  REQUIRE(overview.cell > 1);
  CHECK((overview.cells - 1) * overview.cell < 21);
  CHECK(overview.cells * overview.cell >= 21);
  for (const Pools& pools : overview.pools) {
    CAPTURE(pools.quantity.path);
    const Quantity& all = named(whole.quantities(), pools.quantity.path);
    const std::vector<double> value = all.value.to_vector(), gradient = all.gradient.to_vector(),
                              maximum = pools.maximum.to_vector(), mean = pools.mean.to_vector(),
                              steepest = pools.gradient.to_vector();
    for (index_t place = 0; place < pools.maximum.numel(); ++place) {
      const index_t head = place / overview.cells / overview.cells, row = place / overview.cells % overview.cells,
                    column = place % overview.cells;
      double largest = -1e300, sum = 0, steep = 0;
      int count = 0;
      for (index_t i = row * overview.cell; i < std::min<index_t>(21, (row + 1) * overview.cell); ++i) {
        for (index_t j = column * overview.cell; j < std::min(i + 1, (column + 1) * overview.cell); ++j, ++count) {
          const auto e = static_cast<std::size_t>((head * 21 + i) * 21 + j);
          largest = std::max(largest, value[e]), sum += value[e], steep = std::max(steep, std::abs(gradient[e]));
        }
      }
      const auto at = static_cast<std::size_t>(place);
      if (count == 0) {
        CHECK((std::isnan(maximum[at]) && std::isnan(mean[at]) && std::isnan(steepest[at])));
        continue;
      }
      CHECK(maximum[at] == doctest::Approx(largest).epsilon(1e-6));
      CHECK(mean[at] == doctest::Approx(sum / count).epsilon(1e-6));
      CHECK(steepest[at] == doctest::Approx(steep).epsilon(1e-6));
    }
  }
  const Window& window = overview.windows.at(0);  // the requested one
  CHECK((window.i <= 17 && 17 < window.i + window.rows && window.j <= 4 && 4 < window.j + window.columns));
  for (const Quantity& cut : window.quantities) {
    CAPTURE(cut.path);
    const Quantity& all = named(whole.quantities(), cut.path);
    CHECK(cut.value.at({1, 17 - window.i, 4 - window.j}) == doctest::Approx(all.value.at({0, 1, 17, 4})));
    CHECK(cut.gradient.at({1, 17 - window.i, 4 - window.j}) == doctest::Approx(all.gradient.at({0, 1, 17, 4})));
  }
  REQUIRE_FALSE(overview.strips.empty());
  CHECK(overview.strips[0].i == 17);
  PageNumbers numbers;
  const Json data = Json::read(json_of(overview, rows, numbers).line(), "data");
  CHECK(data.object("overview").whole("cells") == overview.cells);
  CHECK(data.list("quantities").empty());
}

TEST_CASE("look: of every scheme, a gradient is the sum over its links") {
  for_every_scheme({true}, [](const Subject& subject, const std::string& text, bool) {
    const Inspection inspection(subject);
    const Links links = links_of(inspection, 1e9);
    CHECK(links.rows.at(1).size() == 7);  // all of them
    std::map<std::string, std::vector<double>> sums;
    for (const Link& link : links.all) {
      if (link.layer != 1) continue;
      const Quantity& from = named(inspection.quantities(), "blocks.1.attention." + link.from);
      const std::vector<double> gradient =
          named(inspection.quantities(), "blocks.1.attention." + link.to).gradient.to_vector();
      std::vector<double>& sum = sums[from.path];
      sum.resize(static_cast<std::size_t>(from.value.numel()));
      for (const Link::Entry& entry : link.entries) sum[entry.a] += gradient[entry.b] * entry.derivative;
    }
    const bool passes_through = has(text, "hard_attention");  // its backward is no derivative
    for (const std::string always : {"v", "scores", "logits", "pattern"})
      if ((Rows::take(subject) || always != "scores") &&  // links do not connect rows
          named(inspection.quantities(), to_text("blocks.1.attention.", always)).gradient.defined() && !passes_through)
        CHECK_MESSAGE(sums.contains("blocks.1.attention." + always), always);
    for (const auto& each : sums) {  // no structured binding: clang 16 with OpenMP cannot capture one
      const std::string& path = each.first;
      CAPTURE(path);
      const Tensor& gradient = named(inspection.quantities(), path).gradient;
      const double size = std::max(1e-6, largest(gradient));
      CHECK(distance(Tensor::of(each.second, gradient.shape(), DType::f64), gradient) <= 1e-10 * size);
    }
  });
}

TEST_CASE("look: links that do not fit are left out by queries, those with small gradients first") {
  const Subject subject = subject_with(small("cope(p_max=3)"), 9);
  const Inspection inspection(subject);
  const Links few = links_of(inspection, 60000);
  CHECK_FALSE(few.rows.at(0).empty());
  CHECK(few.rows.at(0).size() < 9);
  for (const Link& link : few.all) {
    if (link.layer != 0 || link.to != "logits") continue;
    for (const Link::Entry& entry : link.entries)
      CHECK(std::ranges::count(few.rows[0], static_cast<index_t>(entry.b / 9 % 9)) == 1);
  }
}

TEST_CASE("look: the command, on texts too long for every number, and on checkpoints") {
  const Scratch scratch("look long");
  const std::string page = scratch / "long.html";
  const Outcome made = done("look cope(p_max=4) --length 700 --at 'i=650 j=20' --numbers --out '" + page + "'");
  CHECK(has(made.out, "; as pools of"));
  CHECK(std::filesystem::file_size(page) <= most_bytes);
  CHECK(std::filesystem::exists(scratch / "long.safetensors"));
  const std::string run = scratch / "run";
  train_flip_flop(run, "--steps 8 --keep-checkpoints 0");
  (void)done("look --checkpoints 3 '" + run + "' --out '" + page + "'");
  const std::string text = text_of(page);
  for (const char* label : {"\"label\":\"step 0\"", "\"label\":\"step 4\"", "\"label\":\"step 8\""})
    CHECK_MESSAGE(has(text, label), label);
}
