// The page's links between neighbouring quantities name all terms of a gradient.

#include "examples/whence/look/links.h"
#include "examples/whence/cli/json.h"
#include "examples/whence/look/page.h"
#include "examples/whence/look/page_data.h"
#include "tests/examples/look/subjects.h"

using namespace whence;
using namespace whence::look;
using namespace whence::test;

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
    const bool row_local = std::ranges::all_of(subject.model->attention(0).stages().schemes,
        [](const PositionalScheme* scheme) { return scheme->claims().row_local; });
    const bool passes_through = has(text, "hard_attention");  // its backward is no derivative
    for (const std::string always : {"v", "scores", "logits", "pattern"})
      if ((row_local || always != "scores") &&  // links do not connect rows
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
