// Graphs as Graphviz, by memory; and the search for the first number that is not finite.
#include "autograd/inspect/graph_text.h"

#include <set>

#include "autograd/inspect/observers.h"
#include "autograd/op.h"
#include "examples/whence/verify/scheme_texts.h"
#include "tests/support/programs.h"
#include "tests/support/schemes.h"

using namespace whence;
using namespace whence::test;

namespace {

// y = x, with a NaN in the gradient.
struct BrokenBackward {
  static constexpr const char* name = "broken";
  struct Saved {};
  Tensor forward(Saved&, const Tensor& x) const { return raw::copy(x); }
  Grads<1> backward(const Saved&, const Tensor& dy, Needs<1>) const {
    const Tensor dx = raw::copy(dy);
    dx.data<double>()[1] = std::nan("");
    return {dx};
  }
};

std::string line_after(const std::string& place, int lines) {
  const auto colon = place.find(':') + 1;
  return to_text(place.substr(0, colon), std::stoi(place.substr(colon)) + lines);
}

}  // namespace

TEST_CASE("to_dot of a small graph") {
  const Tensor x = requires_grad(Tensor::of({1, 2}, {2}, DType::f64));
  const Tensor square = multiply(x, x);
  const Tensor y = sum(square, {}, false);
  const std::string last = above(), second = line_after(last, -1), first = line_after(last, -2);
  CHECK(to_dot(y) == to_text("digraph whence {\n  rankdir=TB;\n  node [fontname=\"monospace\", fontsize=10];\n"
                             "  n1 [label=\"leaf\\nf64 [2]\\n",
                         first, "\", shape=box];\n  n2 [label=\"multiply\\nf64 [2]\\n", second,
                         "\", shape=ellipse];\n  n3 [label=\"sum\\nf64 []\\n", last,
                         "\", shape=ellipse];\n  n1 -> n2;\n  n1 -> n2;\n  n2 -> n3;\n}\n"));
}

TEST_CASE("operators record the line where they are written") {
  const Tensor x = leaf({1, 2}, {2}), c = Tensor::ones({2}, DType::f64);
  const std::vector<Tensor> results{x + c, c - x, x * c, c / x, -x, x * 2, 2 * x, x + 1, x - 1};
  const std::string here = above();
  for (const Tensor& y : results) CHECK(to_string(node_of(y)->site) == here);
  const std::string text = error_text([&] { (void)(x + Tensor::ones({3}, DType::f64)); });
  CHECK(text.starts_with(above() + ": add: "));
}

TEST_CASE("graphs name the files of schemes, modules and callers, and no header") {
  for (const std::string& scheme : promised_texts()) {
    const Transformer model(small(scheme));
    const std::string graph = to_dot(cross_entropy_sum(model(random_tokens(1, 8, 5)), random_tokens(1, 8, 5)));
    CHECK_MESSAGE((!has(graph, ".h:") && has(graph, ".cpp:")), scheme, "\n", graph);
  }
}

TEST_CASE("parameters show their paths, and modules are boxes") {
  TransformerOptions options = small("dape(kerple)");
  options.executor = "reference";  // in tiles the pairs are one op
  const Transformer model(options);
  const Tensor y = model(random_tokens(1, 4, 5));
  const std::string dot = to_dot(y);
  const auto begin = dot.find("  subgraph \"cluster_blocks.0.attention.position\" {\n  label=\"position\";\n"),
             end = dot.find("  subgraph \"cluster_blocks.0.attention.query\" {\n  label=\"query\";\n");
  REQUIRE(begin < end);
  REQUIRE(end < dot.size());
  const std::string box = dot.substr(begin, end - begin);
  for (const char* inside : {"label=\"base\";\n", "label=\"hidden\";\n",
           "[label=\"strength\\nf32 [2]\\nkerple.cpp:", "[label=\"convolve_keys\\nf32 [1,2,4,4]\\ndape.cpp:"})
    CHECK_MESSAGE(has(box, inside), inside);
  std::set<std::string> files;
  for (const auto& place : all_matches(box, R"(\\n(\w+\.\w+):\d+)")) files.insert(place[1]);
  CHECK(files == std::set<std::string>{"dape.cpp", "kerple.cpp", "layers.cpp", "tile_terms.cpp"});
  CHECK(std::count(dot.begin(), dot.end(), '{') == std::count(dot.begin(), dot.end(), '}'));
}

TEST_CASE("what has no history has no graph") {
  const Tensor x = Tensor::ones({2, 3});
  CHECK(has(message([&] { (void)to_dot(x); }), "to_dot: a [2,3]"));
  CHECK(has(message([&] { (void)memory_report(x); }), "memory_report: a [2,3]"));
}

TEST_CASE("memory_report sums by op and line, largest first, each storage once") {
  const Tensor x = normal_leaf({10, 10}, 1);  // 800 bytes
  Tensor y = x;
  for (int k = 0; k < 3; ++k) y = multiply(y, y);  // keeps x, x^2 and x^4
  const std::string loop = above();
  const Tensor again = multiply(x, y);  // x is counted above already; x^8 is new
  const std::string end = above();
  const MemoryReport report = memory_report(sum(again));
  REQUIRE(report.rows.size() == 3);
  CHECK(report.rows[0].op == "multiply");
  CHECK(report.rows[0].place == loop);
  CHECK(report.rows[0].nodes == 3);
  CHECK(report.rows[0].bytes == 2400);
  CHECK(report.rows[1].place == end);
  CHECK(report.rows[1].bytes == 800);
  CHECK(report.rows[2].op == "sum");
  CHECK(report.rows[2].bytes == 0);
  CHECK(report.total == 3200);
  const std::string text = report.text();
  CHECK(text.find("    2.34 KiB     3 x multiply                " + loop + "\n") == 0);
  CHECK(has(text, "3.12 KiB  kept"));
}

TEST_CASE("views of one storage are counted once, and after backward nothing is kept") {
  const Tensor x = normal_leaf({4, 25}, 1);
  const Tensor first = square(select(x, 0, 0)), second = square(select(x, 0, 1)), y = sum(first * second);
  CHECK(memory_report(y).total == 800 + 2 * 200);
  backward(y);
  CHECK(memory_report(y).total == 0);
}

TEST_CASE("CheckFinite names the op, its line, the number and the ranges of the inputs") {
  const Tensor x = leaf({0.5, -2, 3}, {3}), zeros = Tensor::zeros({3}, DType::f64);
  CHECK(std::isinf(divide(x, zeros).at({0})));  // nothing checks it
  const CheckFinite check;
  std::string text = error_text([&] { (void)divide(x, zeros); });
  const std::string place = above();
  CHECK(text == to_text(place,
                    ": divide: its forward made inf at element 0 of [3]; finite numbers required; input 0 is f64 "
                    "[3] in [-2, 3]; ",
                    "input 1 is f64 [3] in [0, 0]"));
  text = message([&] { (void)matmul(Tensor::of({INFINITY, 1}, {1, 2}), Tensor::of({0, 1}, {2, 1})); });
  CHECK(has(text, "matmul: its"));
  CHECK(has(text, "[1,2] in [1, 1] with 1"));
  CHECK(message([&] { (void)(x * x); }).empty());
}

TEST_CASE("CheckFinite sees the backward pass, and ends with its block") {
  const Tensor x = leaf({1, 2, 3}, {3}), y = apply(BrokenBackward{}, Site::current(), x);
  const std::string made = above();
  {
    const CheckFinite check;
    CHECK(error_text([&] { backward(sum(y)); }).find(made + ": broken: its backward") == 0);
  }
  CHECK(error_text([&] { backward(sum(apply(BrokenBackward{}, Site::current(), x))); }).empty());
}

TEST_CASE("OpClock: what its function throws goes to who called the op, and the clock goes on") {
  const Tensor x = leaf({1, 2, 3}, {3});
  int told = 0;
  bool fails = true;
  const OpClock clock([&](const OpTime& time) {
    ++told;
    if (fails) fail("profiler", "no room for ", time.op);
  });
  CHECK(has(message([&] { (void)(x * x); }), "profiler: no"));
  fails = false;
  const Tensor y = sum(x * x);
  fails = true;
  CHECK(has(message([&] { backward(y); }), "profiler: no"));
  fails = false;
  CHECK(error_text([&] { backward(y); }).empty());
  CHECK(told > 4);
}
