// Probes: names, values, gradients, edits, and no cost without a capture.
#include "autograd/inspect/capture.h"

#include <thread>

#include "autograd/graph.h"
#include "autograd/inspect/explain.h"
#include "autograd/inspect/graph_text.h"
#include "autograd/inspect/zeros.h"
#include "tensor/device/allocator.h"
#include "tests/support/tensors.h"

using namespace whence;
using namespace whence::test;

namespace {

// layer.squares = x^2;  layer.inner.cubes = x^3;  y = their product
Tensor function(const Tensor& x) {
  static const std::string outer = "layer", inner = "layer.inner";
  const Scope scope(outer);
  const Tensor squares = probe("squares", x * x);
  const Tensor cubes = [&] {
    const Scope deeper(inner);
    return probe("cubes", squares * x);
  }();
  return sum(probe("product", squares * cubes));
}

std::size_t nodes_of(const Tensor& y) { return detail::nodes_behind("nodes_of", y).size(); }

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("a probe is named after its scope, and gives value and gradient") {
  const Tensor x = leaf({2, -1}, {2});
  const Capture capture("*");
  backward(function(x));
  CHECK(capture.names() == Names{"layer.squares", "layer.inner.cubes", "layer.product"});
  CHECK(capture["layer.squares"].value().to_vector() == std::vector<double>{4, 1});
  CHECK(capture["layer.inner.cubes"].value().to_vector() == std::vector<double>{8, -1});
  CHECK_FALSE(tracked(capture["layer.squares"].value()));
  // y = s c, c = s x:  dy/dc = s,  dy/ds = c + s x = 2 x^3
  CHECK(capture["layer.inner.cubes"].gradient().to_vector() == std::vector<double>{4, 1});
  CHECK(capture["layer.squares"].gradient().to_vector() == std::vector<double>{16, -2});
  CHECK(capture["layer.product"].gradient().to_vector() == std::vector<double>{1, 1});
  CHECK(gradient(x).to_vector() == std::vector<double>{80, 5});  // 5 x^4
}

TEST_CASE("a value that is probed twice under one name adds its gradients and keeps the last value") {
  const Tensor x = leaf({3}, {});
  const Capture capture("p");
  const Tensor first = probe("p", x * 2.0);
  const Tensor y = first + probe("p", x * 5.0) * 10.0;
  backward(y);
  CHECK(capture.names().size() == 1);
  CHECK(capture["p"].value().item() == 15);
  CHECK(capture["p"].gradient().item() == 11);
}

TEST_CASE("a capture counts the probes that are passed under it, and those that it does not save too") {
  const Capture outer("layer.squares"), nothing;
  (void)function(leaf({1}, {}));
  CHECK(nothing.passes() == 3);
  CHECK(nothing.names().empty());
  CHECK(outer.passes() == 3);
  CHECK(outer.names() == Names{"layer.squares"});
}

TEST_CASE("patterns") {
  using Pair = std::pair<const char*, const char*>;
  for (const Pair& yes : {Pair{"*", ""}, {"*", "blocks.0.q"}, {"*.gates", "blocks.0.attention.position.gates"},
           {"*gates", "gates"}, {"blocks.*.q", "blocks.11.q"}, {"a*b*c", "aXbYbZc"}, {"", ""}, {"x**", "x"}})
    CHECK_MESSAGE(matches(yes.first, yes.second), yes.first << " and " << yes.second);
  for (const Pair& no :
      {Pair{"*.gates", "gates"}, {"blocks.*.q", "blocks.11.qk"}, {"a*b*c", "aXcYb"}, {"", "x"}, {"Q", "q"}})
    CHECK_FALSE_MESSAGE(matches(no.first, no.second), no.first << " and " << no.second);
  const Capture capture("*.squares", "*.inner.*");
  (void)function(leaf({1}, {}));
  CHECK(capture.names() == Names{"layer.squares", "layer.inner.cubes"});
  CHECK(capture.contains("layer.squares"));
  CHECK_FALSE(capture.contains("layer.product"));
}

TEST_CASE("without a matching capture nothing is recorded: the same nodes, the same tensor") {
  const Tensor x = leaf({2, 3}, {2});
  const std::size_t plain = nodes_of(function(x));
  CHECK(probe("anything", x).identity() == x.identity());
  {
    const Capture capture("*.nothing.has.this.name");
    CHECK(nodes_of(function(x)) == plain);
    CHECK(capture.names().empty());
  }
  const Capture capture("*");
  CHECK(nodes_of(function(x)) == plain + 3);
}

TEST_CASE("an edit replaces the value, is itself differentiated, and can ablate") {
  const Tensor x = leaf({2}, {});
  const double untouched = function(x).item();
  {
    Capture capture;  // edits need no pattern to capture
    capture.edit("*.squares", [](const Tensor& value) { return value * 3.0; });
    const Tensor y = function(x);  // s = 3 x^2, c = s x, y = s c = 9 x^5
    CHECK(y.item() == 9 * untouched);
    CHECK(grad(y, {}, {x})[0].item() == 9 * 80);
    CHECK(capture.names().empty());
  }
  Capture capture("*cubes");
  capture.edit("*cubes", [](const Tensor& value) { return Tensor::zeros(value.shape(), value.dtype()); });
  const Tensor y = function(x);
  CHECK(y.item() == 0);
  CHECK(capture["layer.inner.cubes"].value().item() == 0);  // after the edit
  backward(y);
  CHECK(gradient(x).item() == 0);
}

TEST_CASE("edits run in order, outer captures after inner ones") {
  Capture outer("p");
  outer.edit("p", [](const Tensor& value) { return value * 10.0; });
  Capture inner("p");
  inner.edit("p", [](const Tensor& value) { return value + 1.0; });
  inner.edit("*", [](const Tensor& value) { return value * 2.0; });
  CHECK(probe("p", leaf({3}, {})).item() == 80);
  CHECK(inner["p"].value().item() == 8);
  CHECK(outer["p"].value().item() == 80);
}

TEST_CASE("an edited gradient goes on as f(gradient); the value stays, and the capture has what arrived") {
  // y = s c, c = s x, s = x^2:  dy/dc = s = 4 and dy/ds = c + x dy/dc = 8 + 8 at x = 2
  const auto slope = [](const std::function<Tensor(const Tensor&)>& f) {
    const Tensor x = leaf({2}, {});
    Capture capture("*");
    capture.edit_gradient("*cubes", f);
    const Tensor y = function(x);
    CHECK(y.item() == 32);
    backward(y);
    CHECK(capture["layer.inner.cubes"].gradient().item() == 4);  // before the change
    return std::pair{capture["layer.squares"].gradient().item(), gradient(x).item()};
  };
  CHECK(slope([](const Tensor& dy) { return dy; }) == std::pair{16.0, 80.0});
  // halved: ds = 8 + 2 x, and dy/dx = 2 x ds + s dc
  CHECK(slope([](const Tensor& dy) { return dy * 0.5; }) == std::pair{8.0 + 4, 4 * 12.0 + 4 * 2});
  CHECK(slope([](const Tensor& dy) { return clamp(dy, -1, 1); }) == std::pair{8.0 + 2, 4 * 10.0 + 4 * 1});
  CHECK(slope([](const Tensor& dy) { return Tensor::zeros(dy.shape(), dy.dtype()); }) == std::pair{8.0, 32.0});
  // grad() with respect to the probe's result is also the gradient that arrived there.
  Capture capture;  // needs no pattern to capture
  capture.edit_gradient("p", [](const Tensor& dy) { return dy * 0.0; });
  const Tensor x = leaf({3}, {}), p = probe("p", x * 1.0), y = p * p;
  CHECK(grad(y, {}, {p})[0].item() == 6);
  CHECK(grad(y, {}, {x})[0].item() == 0);
  CHECK(capture.names().empty());
}

TEST_CASE("edits of gradients: captures nest, and uses are summed first") {
  const Tensor x = leaf({3}, {});
  Capture outer("p");
  outer.edit_gradient("p", [](const Tensor& dy) { return clamp_max(dy, 7); });
  Capture inner("p");
  inner.edit_gradient("*", [](const Tensor& dy) { return dy + 1.0; });
  inner.edit_gradient("p", [](const Tensor& dy) { return dy * 10.0; });
  const Tensor p = probe("p", x * 1.0);
  backward(p * 4.0 + p * 5.0);
  CHECK(outer["p"].gradient().item() == 9);
  CHECK(inner["p"].gradient().item() == 7);
  CHECK(gradient(x).item() == 80);
  CHECK(is_watched_under("any"));  // patterns of such edits count: "*"
}

TEST_CASE("edits of gradients: another shape, and whoever would take such a gradient apart, is refused by name") {
  const Tensor x = leaf({1, 2}, {2});
  Capture capture("*");
  capture.edit_gradient("*squares", [](const Tensor& dy) { return sum(dy); });
  const Tensor y = function(x);
  CHECK(has(message([&] { backward(y, {}, {.keep_graph = true}); }), "gave f64 []"));
  CHECK_FALSE(gradient(x).defined());
  for (const auto& apart : {std::function<void()>([&] { (void)why_zero(y, {}, {place_of("x", x)}); }),
           std::function<void()>([&] { (void)gradient_paths(y, {}, place_of("x", x), {}); }),
           std::function<void()>([&] { (void)passages(y, {}, {place_of("x", x)}); })})
    CHECK(has(message(apart), "layer.squares"));
  CHECK(gradient_paths(y, {}, capture.place("layer.product"), {}).size() == 1);  // no path passes there
  const Tape tape;
  const Tensor again = function(x);
  CHECK(has(
      message([&] { (void)explain_value(tape, capture.place("layer.inner.cubes"), {0}, {}); }), "edit_gradient: the"));
  // A gradient that has not passed the edit is right: at x = 1, dy/ds = c + x s = 2
  const std::vector<Place> next{capture.place("layer.inner.cubes"), capture.place("layer.product")};
  const ExplainedGradient explained = explain_gradient(tape, sum(again), capture.place("layer.squares"), {0}, next);
  CHECK(explained.gradient == 2);
  CHECK(explained.sum == 2);
}

TEST_CASE("is_watched_under: true if an active capture could match a name under a path") {
  const auto check = [](const std::vector<const char*>& watched, const std::vector<const char*>& others) {
    for (const char* path : watched) CHECK_MESSAGE(is_watched_under(path), path);
    for (const char* path : others) CHECK_FALSE_MESSAGE(is_watched_under(path), path);
  };
  check({}, {"blocks.0"});
  const std::vector<const char*> first{"blocks.0.attention", "blocks.0.attention.position", "blocks.0"};
  {
    const Capture capture("*.gates");  // a star matches any path
    check({"blocks.0", ""}, {});
  }
  Capture capture("blocks.0.attention.*");
  check(first, {"blocks.1.attention", "blocks.0.mlp"});
  {
    const Capture inner("blocks.1.attention.pattern");
    check(first, {"blocks.1.attention.pattern"});  // a name, not a path
    check({"blocks.1.attention"}, {});
  }
  check({}, {"blocks.1.attention"});
  capture.edit("blocks.1.*", [](const Tensor& value) { return value; });
  check({"blocks.1.attention"}, {});
}

TEST_CASE("unknown names and edits of another shape are refused") {
  Capture capture("*");
  CHECK(has(message([&] { (void)capture["gates"]; }), "capture: 'gates'"));
  (void)function(leaf({1}, {}));
  CHECK(has(message([&] { (void)capture["layer.cubes"]; }), "capture: 'layer.cubes'"));
  capture.edit("*.product", [](const Tensor& value) { return sum(value); });
  CHECK(has(message([] { (void)function(leaf({1, 2}, {2})); }), "gave f64 []"));
  Capture other;
  other.edit("p", [](const Tensor& value) { return raw::cast(value, DType::f32); });
  CHECK(has(message([] { (void)probe("p", Tensor::ones({2}, DType::f64)); }), "gave f32 [2]"));
}

TEST_CASE("probes work without gradients, and a captured gradient keeps no graph alive") {
  {
    const NoGrad values_only;
    const Capture capture("*");
    (void)function(leaf({2}, {}));
    CHECK(capture["layer.squares"].value().item() == 4);
    CHECK_FALSE(capture["layer.squares"].gradient().defined());
  }
  const std::size_t before = Allocator::cpu().statistics().live;
  {
    const Capture capture("*");
    const Tensor x = leaf({2}, {});
    const Tensor slope = grad(function(x), {}, {x}, {.create_graph = true})[0];
    CHECK(capture["layer.squares"].gradient().item() == 16);
    CHECK_FALSE(tracked(capture["layer.squares"].gradient()));
    CHECK(tracked(slope));
  }
  CHECK(Allocator::cpu().statistics().live == before);
  const Capture capture("*");
  const Tensor x = leaf({2}, {});
  CHECK(grad(grad(function(x), {}, {x}, {.create_graph = true})[0], {}, {x})[0].item() == 20 * 8);
}

TEST_CASE("an observer may end on another thread, and after its own thread") {
  const Tensor x = leaf({1, 2}, {2});
  const Capture outer("layer.squares");
  auto held = std::make_unique<Capture>("layer");
  std::thread([&] { held.reset(); }).join();
  std::unique_ptr<Capture> late;
  std::thread([&] { late = std::make_unique<Capture>("layer"), (void)function(x); }).join();
  late.reset();
  (void)function(x);
  CHECK(outer["layer.squares"].value().at({1}) == 4);
}
