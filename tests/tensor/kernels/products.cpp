// Rows of matrix products against three plain loops in long double; and other promises of products.

#include "tests/tensor/kernels/table.h"

namespace whence::test {
namespace {

struct Problem {
  Shape a, b;
};

Numbers product(const Tensor& a, const Tensor& b, double alpha, const Tensor& bias = {}) {
  const Numbers as = read(a), bs = read(b), shift = bias.defined() ? read(bias) : Numbers();
  const std::size_t m = static_cast<std::size_t>(a.size(-2)), n = static_cast<std::size_t>(b.size(-1)),
                    k = static_cast<std::size_t>(a.size(-1));
  Shape out = a.shape();
  out[-1] = b.size(-1);
  Numbers result(static_cast<std::size_t>(numel(out)));
  for (std::size_t at = 0; at < result.size(); ++at) {
    const std::size_t matrix = at / (m * n), i = at / n % m, j = at % n;
    long double total = 0;
    for (std::size_t l = 0; l < k; ++l)
      total += static_cast<long double>(as[(matrix * m + i) * k + l]) * bs[(matrix * k + l) * n + j];
    result[at] = static_cast<double>(alpha * total + (shift.empty() ? 0 : shift[j]));
  }
  return result;
}

// x with the batches of the result, as raw::matmul passes it to a kernel.
Tensor with_batches(const Tensor& x, const Shape& out) {
  Shape shape = out;
  shape[-2] = x.size(-2), shape[-1] = x.size(-1);
  return raw::expand(x, shape);
}
Shape out_of(const Problem& of) {
  Shape rows_a = of.a, rows_b = of.b;
  rows_a[-1] = rows_a[-2] = rows_b[-1] = rows_b[-2] = 1;
  Shape out = broadcast_shapes("test", rows_a, rows_b);
  out[-2] = of.a[-2], out[-1] = of.b[-1];
  return out;
}

// With and without alpha and a bias. For broadcast batches raw::matmul may make one matrix of many: it is tested too.
KernelCases products(const Problem& problem, const Operand& a, const Operand& b, const std::string& name = "") {
  const Shape out = out_of(problem);
  const bool stretched = !(problem.a.leading(-2) == problem.b.leading(-2));
  KernelCases both;
  for (const bool plain : {true, false}) {
    const double alpha = plain ? 1 : -0.5;
    both.push_back({"matmul", to_text(problem.a, " by ", problem.b, ", ", name, plain ? "" : ", scaled, with a bias"),
        {a, b, plain ? none() : laid({out[-1]}, Layout::sliced)}, {rows(out), stretched ? rows(out) : none()},
        [=](Kernels& k, In in, In y) {
          const Tensor* bias = plain ? nullptr : &in[2];
          k.matmul(with_batches(in[0], out), with_batches(in[1], out), bias, alpha, y[0]);
          if (stretched) k.copy(raw::matmul(in[0], in[1], alpha, bias), y[1]);
        },
        [=](In in, In) {
          const Numbers y = product(with_batches(in[0], out), with_batches(in[1], out), alpha, in[2]);
          return Results{y, y};
        },
        {problem.a[-1]}});
  }
  return both;
}

void add_products(KernelCases& table) {
  const auto add = [&](const KernelCases& both, const std::vector<DType>& dtypes, bool any_strides = false,
                       bool on_cpu_alone = false) {
    for (KernelCase row : both) {
      row.dtypes = dtypes, row.any_strides = any_strides, row.on_cpu_alone = on_cpu_alone;
      table.push_back(row);
    }
  };
  for (const Problem& each : std::vector<Problem>{{{3, 4}, {4, 5}}, {{1, 1}, {1, 1}}, {{1, 7}, {7, 1}},
           {{5, 1}, {1, 6}}, {{2, 3, 4}, {2, 4, 5}}, {{2, 3, 4}, {4, 5}}, {{3, 4}, {2, 4, 5}},
           {{2, 1, 3, 4}, {3, 4, 2}}, {{20, 17}, {17, 33}}, {{3, 20, 17}, {3, 17, 33}}, {{2, 20, 40}, {1, 40, 30}},
           {{2, 2, 16, 30}, {30, 24}}, {{2, 3, 17, 9}, {2, 3, 9, 6}}, {{3, 0}, {0, 2}}, {{0, 4}, {4, 3}},
           {{5, 2, 4}, {5, 4, 0}}, {{0, 2, 4}, {4, 3}}})
    for (const Layout layout : layouts)
      add(products(each, any(each.a), laid(each.b, layout), name_of(layout)), floating_dtypes, true,
          each.a == Shape{1, 7});  // one number, nearly cancelled: FMA would give another
  const std::vector<DType> wide{DType::f32, DType::f64};
  const Layout plain = Layout::contiguous, turned = Layout::permuted;
  // Several tiles, with ragged edges.
  for (const Problem& each :
      {Problem{{300, 70}, {70, 530}}, Problem{{70, 700}, {700, 90}}, Problem{{3, 257, 65}, {3, 65, 129}}}) {
    add(products(each, rows(each.a), rows(each.b)), {DType::f32}, false, true);
    add(products(each, rows(each.a), laid(each.b, turned)), {DType::f64}, false, true);
    add(products(each, laid(each.a, turned), laid(each.b, turned)), {DType::f32}, false, true);
  }
  // A few rows, for which the other operand is read once.
  for (const Problem& each : {Problem{{1, 300}, {300, 705}}, Problem{{7, 65}, {65, 1030}},
           Problem{{3, 2, 1, 70}, {3, 2, 70, 64}}, Problem{{4, 1, 90}, {90, 70}}, Problem{{5, 1}, {1, 4096}}})
    for (const Layout of_a : {plain, turned})
      for (const Layout of_b : {plain, turned})
        add(products(each, laid(each.a, of_a), laid(each.b, of_b)), {DType::f32, DType::f64, DType::bf16}, false, true);
  const Operand heads = then(rows({2, 10, 3, 8}), [](const Tensor& x) { return raw::permute(x, {0, 2, 1, 3}); });
  const Operand keys = then(heads, [](const Tensor& x) { return raw::transpose(x); });
  add(products({{2, 3, 10, 8}, {2, 3, 8, 10}}, heads, keys, "heads inside tokens"), floating_dtypes);
  const Operand across = then(rows({64, 16, 2}), [](const Tensor& x) {
    return raw::slice(raw::permute(x, {1, 2, 0}), 1, 0, 1);
  });
  add(products({{16, 1, 64}, {64, 32}}, across, rows({64, 32}), "single rows that lie across"), wide);
  add(products({{16, 1, 64}, {64, 32}}, expanded(rows({1, 1, 64}), {16, 1, 64}), rows({64, 32}), "one row"), wide);

  // Sizes that threads share; the loops would take minutes.
  const auto share = [&](const Problem& of, Layout of_a, Layout of_b) {
    KernelCases both = products(of, laid(of.a, of_a), laid(of.b, of_b), "on threads");
    for (KernelCase& row : both) row.loops = {};
    add(both, wide, false, true);
  };
  for (const Layout of_b : {plain, turned}) share({{3, 800}, {800, 3000}}, plain, of_b);
  share({{520, 300}, {300, 310}}, plain, plain);
  share({{90, 2100}, {2100, 90}}, turned, plain);  // slabs
  share({{310, 300}, {300, 310}}, turned, plain);  // a long inner axis
  // The last panels of columns have other widths in other tiles.
  for (const index_t columns : {300, 304}) share({{520, 800}, {800, columns}}, plain, plain);
  share({{6, 100, 40}, {6, 40, 100}}, plain, turned);
  share({{60, 9, 9}, {60, 9, 9}}, plain, plain);
  share({{60, 90}, {90, 60}}, plain, turned);  // one tile
}

// ---- Fused products. More: a bias, or sums.

KernelCase matmul_gelu(const Shape& a, const Shape& b, bool more) {
  const auto both = [](In in, In) {
    Numbers before = product(in[0], in[1], 1, in[2]), after = before;
    for (double& number : after) number = functions::Gelu::value(number, {});
    return Results{before, after};
  };
  return {"matmul_gelu", to_text(a, " by ", b, more ? ", with a bias" : ""),
      {rows(a), laid(b, Layout::permuted), more ? rows({b[1]}) : none()}, {rows({a[0], b[1]}), rows({a[0], b[1]})},
      [=](Kernels& k, In in, In y) { k.matmul_gelu(in[0], in[1], more ? &in[2] : nullptr, y[0], y[1]); }, both, {a[1]}};
}
KernelCase matmul_gelu_backward(const Shape& a, const Shape& b, bool more) {
  const auto both = [](In in, In) {
    Numbers y = product(in[0], in[1], 1), sums(place(in[1].size(1)));
    const Numbers before = read(in[2]);
    for (std::size_t i = 0; i < y.size(); ++i)
      sums[i % sums.size()] += y[i] *= functions::Gelu::derivative(before[i], {});
    return Results{y, sums};
  };
  return {"matmul_gelu_backward", to_text(a, " by ", b, more ? ", with sums" : ""),
      {rows(a), rows(b), rows({a[0], b[1]})}, {rows({a[0], b[1]}), more ? rows({b[1]}) : none()},
      [](Kernels& k, In in, In y) { k.matmul_gelu_backward(in[0], in[1], in[2], y[0], y[1]); }, both, {a[1]}};
}
KernelCase matmul_row_sums(const Shape& a, const Shape& b) {
  const auto both = [](In in, In) {
    Numbers sums(place(in[0].size(0)));
    const Numbers numbers = read(in[0]);
    for (std::size_t i = 0; i < numbers.size(); ++i) sums[i / (numbers.size() / sums.size())] += numbers[i];
    return Results{product(in[0], in[1], 1), sums};
  };
  return {"matmul_row_sums", to_text(a, " by ", b), {laid(a, Layout::permuted), rows(b)},
      {rows({a[0], b[1]}), rows({a[0]})}, [](Kernels& k, In in, In y) { k.matmul_row_sums(in[0], in[1], y[0], y[1]); },
      both, {a[1]}};
}

}  // namespace

KernelCases product_cases() {
  KernelCases table;
  add_products(table);
  for (const Shape& b : {Shape{24, 32}, Shape{24, 20}, Shape{24, 9}}) {  // 20, 9: no pack divides a row
    for (const bool more : {false, true}) {
      table.push_back(matmul_gelu({10, 24}, b, more));
      table.push_back(matmul_gelu_backward({10, 24}, b, more));
    }
    table.push_back(matmul_row_sums({10, 24}, b));
  }
  table.push_back(matmul_gelu_backward({64, 24}, {24, 512}, true).counted(0));
  for (const KernelCase& few :
      products({{3, 64}, {64, 96}}, rows({3, 64}), laid({64, 96}, Layout::permuted), "few rows"))
    table.push_back(few.counted(0));
  return table;
}

}  // namespace whence::test

using namespace whence;
using namespace whence::test;

TEST_CASE("kernels that multiply matrices") { walk_on_cpu(product_cases()); }

TEST_CASE("NaN and infinity pass through") {
  const Tensor a = Tensor::of({NAN, 1, 0, 1}, {2, 2}), b = Tensor::of({1, 2, INFINITY, 3}, {2, 2});
  const auto y = read(raw::matmul(a, b));
  CHECK(std::isnan(y[0]));
  CHECK(y[2] == INFINITY);
  CHECK(y[3] == 3);
}
