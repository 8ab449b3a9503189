// Rows of kernels that move numbers or compute them one by one, against the formulas in double; and the formulas
// themselves.
#include "tests/tensor/kernels/table.h"

namespace whence::test {
namespace {

const Shape of_a_model{64, 768};

UnaryAttributes attributes_of(Unary f) { return facts_of(f).samples.attributes; }

// Returns numbers where f is defined and not steep, as the derivative's argument requires.
Operand argument(Unary f, const Shape& shape) {
  const double low = facts_of(f).samples.low;
  return low == UnaryFacts::Samples().low ? any(shape) : at_least(low, shape);
}
Operand saved(Unary f, const Shape& shape) {
  return then(argument(f, shape), [=](const Tensor& x) {
    const Tensor all = whole(x);
    if (facts_of(f).saves == Saves::output) kernels(all).unary(f, attributes_of(f), all, all);
    return x;
  });
}

// ---- Functions of one number.

KernelCase value(Unary f, const Shape& shape) {
  const UnaryAttributes p = attributes_of(f);
  const auto y = [=](double x) { return visit(f, [=]<class F>(F) { return F::value(x, p); }); };
  return {"unary", to_text(facts_of(f).name, " of ", shape), {argument(f, shape)}, {rows(shape)},
      [=](Kernels& k, In in, In out) { k.unary(f, p, in[0], out[0]); }, [=](In in, In) { return mapped(in[0], y); },
      {1}, floating_dtypes, true};
}
KernelCase derivative(Unary f, const Shape& shape) {
  const UnaryAttributes p = attributes_of(f);
  const auto slope = [=](double v) { return visit(f, [=]<class F>(F) { return F::derivative(v, p); }); };
  return {"unary_backward", to_text(facts_of(f).name, " of ", shape), {saved(f, shape), any(shape)}, {rows(shape)},
      [=](Kernels& k, In in, In out) { k.unary_backward(f, p, in[0], in[1], out[0]); },
      [=](In in, In) { return mapped(in[0], in[1], [&](double v, double dy) { return dy * slope(v); }); }, {1},
      floating_dtypes, true};
}
KernelCase second(Unary f, const std::vector<DType>& dtypes, index_t terms) {
  const UnaryAttributes p = attributes_of(f);
  const auto bend = [=](double v) {
    return visit(f, [=]<class F>(F) { return F::derivative(Dual(v, 1), p).tangent; });
  };
  KernelCase row = derivative(f, {4, 70});
  row.kernel = "unary_second", row.dtypes = dtypes, row.terms = {terms};
  row.call = [=](Kernels& k, In in, In out) { k.unary_second(f, p, in[0], in[1], out[0]); };
  row.loops = [=](In in, In) { return mapped(in[0], in[1], [&](double v, double dy) { return dy * bend(v); }); };
  return row;
}

void add_unary(KernelCases& table) {
  for (const Unary f : Unary::all()) {
    for (const Shape& shape :
        std::vector<Shape>{{}, {1}, {7}, {3, 5}, {2, 3, 4}, {4, 1, 9}, {2, 300}, {0}, {3, 0, 2}, {2, 2, 1, 3, 2, 2}})
      table.push_back(value(f, shape));
    table.push_back(derivative(f, {4, 70}));
    table.push_back(second(f, {DType::f16, DType::bf16, DType::f32}, 1));
    table.push_back(second(f, {DType::f64}, 2));  // the loops round as well
  }
  // In packs, with a remainder. Among these many numbers are some where f' is steep.
  for (const Unary f : std::initializer_list<Unary>{functions::Affine{}, functions::Gelu{}, functions::Sigmoid{},
           functions::Tanh{}, functions::Relu{}, functions::Softplus{}, functions::GeluErf{}}) {
    for (const index_t length : {0, 1, 257, 8197}) {
      table.push_back(value(f, {length})), table.back().any_strides = false;
      table.push_back(derivative(f, {length})), table.back().any_strides = false, table.back().loops = {};
      table.back().terms = {16};
    }
  }
  table.push_back(value(functions::Gelu{}, {200005}).on_threads());
  table.push_back(derivative(functions::Gelu{}, {200005}).on_threads()), table.back().loops = {},
                                                                         table.back().terms = {16};
  table.push_back(value(functions::Exp{}, of_a_model).counted(1));
  table.push_back(derivative(functions::Exp{}, of_a_model).counted(1));
}

// ---- Functions of two numbers, and masks, broadcast as in numpy.

KernelCase pair(Binary f, const Shape& left, const Shape& right) {
  const Shape shape = broadcast_shapes("test", left, right);
  const auto y = [=](double a, double b) { return visit(f, [=]<class F>(F) { return F::value(a, b); }); };
  return {"binary", to_text(facts_of(f).name, " of ", left, " and ", right),
      {expanded(any(left), shape), expanded(at_least(0.5, right), shape)}, {rows(shape)},
      [=](Kernels& k, In in, In out) { k.binary(f, in[0], in[1], out[0]); },
      [=](In in, In) { return mapped(in[0], in[1], y); }, {1}, floating_dtypes, true};
}
KernelCase masked(const Shape& shape, const Shape& smaller) {
  const auto y = [](double x, double kept) { return kept != 0 ? x : -7; };
  return {"masked", to_text(shape, " by ", smaller), {any(shape), expanded(mask(smaller), shape)}, {rows(shape)},
      [](Kernels& k, In in, In out) { k.masked(in[0], in[1], -7, out[0]); },
      [=](In in, In) { return mapped(in[0], in[1], y); }, {0}, floating_dtypes, true};
}

void add_pairs(KernelCases& table) {
  const Shape packs{3, 5, 16};
  for (const Binary f : Binary::all()) {
    for (const auto& [left, right] : std::vector<std::pair<Shape, Shape>>{{{3, 5}, {3, 5}}, {{3, 5}, {5}},
             {{3, 1}, {1, 5}}, {{}, {4}}, {{2, 3, 4}, {3, 1}}, {{4, 300}, {4, 1}}, {{0, 3}, {3}}, {{1, 1}, {1}}})
      table.push_back(pair(f, left, right));
    for (const index_t length : {257, 8197})
      table.push_back(pair(f, {length}, {length})), table.back().any_strides = false;
  }
  for (const Shape& smaller : std::vector<Shape>{{}, {1}, {16}, {5, 1}, {3, 1, 1}, {3, 1, 16}, {5, 16}, packs}) {
    for (const Binary f : std::initializer_list<Binary>{
             functions::Add{}, functions::Subtract{}, functions::Divide{}, functions::Minimum{}}) {
      table.push_back(pair(f, packs, smaller));
      table.push_back(pair(f, smaller, packs));
    }
    table.push_back(masked(packs, smaller));
  }
  for (const Shape& smaller : std::vector<Shape>{{2, 3, 4, 20}, {1, 1, 4, 20}, {2, 3, 4, 1}, {20}, {}})
    table.push_back(masked({2, 3, 4, 20}, smaller));
  table.push_back({"binary", "in place", {}, {any(packs)},
      [](Kernels& k, In, In out) { k.binary(functions::Add{}, out[0], out[0], out[0]); },
      [](In, In out) { return mapped(out[0], [](double x) { return 2 * x; }); }});
  table.push_back(pair(functions::Add{}, {5, 40001}, {40001}).on_threads());
  table.push_back(pair(functions::Add{}, of_a_model, of_a_model).counted(1));
  table.push_back(pair(functions::Add{}, of_a_model, {768}).counted(1));
  table.push_back(masked(of_a_model, of_a_model).counted(1));
}

// ---- fill and copy.

double converted(double x, DType from, DType to) {
  switch (to) {
    case DType::boolean: return x != 0;
    case DType::i64: return std::fmin(std::fmax(std::trunc(x), -0x1p63), 0x1p63);
    case DType::i32:
      if (from == DType::i64) return static_cast<std::int32_t>(static_cast<std::int64_t>(x));  // its bits wrap
      return std::fmin(std::fmax(std::trunc(x), -0x1p31), 0x1p31 - 1);
    case DType::f16: return nearest_in_16_bits(x, 10);
    case DType::bf16: return nearest_in_16_bits(x, 7);
    case DType::f32: return static_cast<double>(static_cast<float>(x));
    default: return x;
  }
}

KernelCase copy(const std::string& name, const Operand& from, const Operand& to,
    const std::vector<DType>& dtypes = all_dtypes, bool any_strides = false) {
  return {"copy", name, {from}, {to}, [](Kernels& k, In in, In out) { k.copy(in[0], out[0]); },
      [](In in, In out) {
        return mapped(in[0], [&](double x) { return converted(x, in[0].dtype(), out[0].dtype()); });
      },
      {0}, dtypes, any_strides};
}
KernelCase fill(const std::string& name, const Operand& out) {
  return {"fill", name, {}, {out}, [](Kernels& k, In, In y) { k.fill(y[0], 1); },
      [](In, In y) { return Numbers(read(y[0]).size(), 1); }, {0}, all_dtypes};
}
Operand turned(const Operand& x, const std::vector<int>& axes) {
  return then(x, [=](const Tensor& each) { return raw::permute(each, axes); });
}
// Heads inside tokens as tokens inside heads, and rows as they are.
KernelCase copy_all(index_t tokens, const Shape& shape) {
  return {"copy_all", to_text(tokens, " tokens and ", shape),
      {turned(rows({2, tokens, 12, 64}), {0, 2, 1, 3}), rows(shape)}, {rows({2, 12, tokens, 64}), rows(shape)},
      [](Kernels& k, In in, In out) { k.copy_all(in, out); },
      [](In in, In) {
        return Results{read(in[0]), read(in[1])};
      },
      {0}};
}

KernelCase copy_rows(const Shape& shape) {
  return {"copy_rows", to_text(shape), {rows(shape), chosen({2}, {1}, DType::i64)},
      {rows({shape[0], shape[1], 2, shape[3]})},
      [](Kernels& k, In in, In out) {
        k.copy_rows({in.data(), 1}, out, -2, in[1]);
      },
      [](In in, In) { return read(raw::slice(in[0], 2, 2, 4)); }, {0}};
}

void add_moves(KernelCases& table) {
  // The last six are beside the tie between two 16-bit numbers. A float of each would be the tie.
  const Numbers numbers{0, 1, -1, 2.5, -2.5, 3.75, 100, 127.5, 1e-8, 65504, 70000, -3e9, 1.0009765625, 1.00048828125001,
      1 + 0x1p-11 + 0x1p-40, 1 + 0x1p-8 + 0x1p-40, -1 - 0x3p-11 + 0x1p-40, -1 - 0x3p-8 + 0x1p-40, 0x5p-25 + 0x1p-63,
      1000.25 + 0x1p-30};
  for (const DType from : all_dtypes) {
    const Operand given =
        then(chosen(numbers, {2, 10}, DType::f64), [=](const Tensor& x) { return raw::transpose(raw::cast(x, from)); });
    const std::string name = to_text("from ", from);
    table.push_back(copy(name, given, rows({10, 2})));
    table.push_back(copy(name, of(from, any({4, 3, 5})), laid({4, 3, 5}, Layout::permuted), all_dtypes, true));
    for (const index_t length : {0, 1, 7, 8, 31, 257, 4096, 8193}) {
      if (length > 300 && !is_floating(from)) continue;
      for (const index_t shift : {0, 4})  // 4: both begin elsewhere, at different places
        table.push_back(copy(to_text(length, " ", name, ", to place ", shift), of(from, shifted(length, shift / 4)),
            shifted(length, shift), length > 300 ? floating_dtypes : all_dtypes));
    }
  }
  for (const Layout to : {Layout::contiguous, Layout::permuted, Layout::sliced}) {
    for (const Shape& shape : std::vector<Shape>{{33, 65}, {3, 31, 40}, {2, 3, 16, 8}, {2, 1, 5}, {64, 32}})
      table.push_back(copy(to_text(shape, " to ", name_of(to)), any(shape), laid(shape, to), all_dtypes, true));
    table.push_back(fill(name_of(to), laid({4, 3, 5}, to)));
  }
  table.push_back(fill("steps along both axes",
      then(rows({6, 10}), [](const Tensor& x) { return raw::slice(raw::slice(x, 0, 1, 5, 2), 1, 3, 9, 3); })));
  for (const index_t length : {0, 1, 7, 8, 31, 257, 4096, 8193})
    table.push_back(fill(to_text(length), shifted(length, 4)));
  const Operand heads = turned(rows({2, 64, 12, 64}), {0, 2, 1, 3});
  table.push_back(copy("[b t h d] as [b h t d]", turned(rows({2, 5, 4, 16}), {0, 2, 1, 3}), rows({2, 4, 5, 16})));
  table.push_back(
      copy("three axes turned", turned(any({3, 40, 50}), {1, 2, 0}), rows({40, 50, 3}), floating_dtypes, true));
  table.back().on_cpu_alone = true;
  table.push_back(copy("transposed", turned(rows({5, 40001}), {1, 0}), rows({40001, 5})).on_threads());
  table.push_back(copy("cast", rows({5, 40001}), of(DType::f16, rows({5, 40001}))).on_threads());
  table.push_back(copy_all(5, {3, 7}));
  for (const index_t width : {8, 3}) table.push_back(copy_rows({2, 3, 5, width}));
  table.push_back(copy_all(64, of_a_model).counted(1));
  table.push_back(copy("cast to f32", rows(of_a_model), of(DType::f32, rows(of_a_model))).counted(1));
  table.push_back(copy("cast to bf16", rows(of_a_model), of(DType::bf16, rows(of_a_model))).counted(1));
  table.push_back(copy("heads", heads, rows({2, 12, 64, 64})).counted(1));
  table.push_back(copy("heads, turned", turned(heads, {0, 1, 3, 2}), rows({2, 12, 64, 64})).counted(1));
  table.push_back(fill("all", rows(of_a_model)).counted(1));
}

}  // namespace

KernelCases elementwise_cases() {
  KernelCases table;
  add_unary(table), add_pairs(table), add_moves(table);
  return table;
}

}  // namespace whence::test

using namespace whence;
using namespace whence::test;

TEST_CASE("kernels that move numbers or work on them one by one") { walk_on_cpu(elementwise_cases()); }

TEST_CASE("a cast of NaN to whole numbers is 0") {
  for (const DType to : {DType::i32, DType::i64}) CHECK(raw::cast(Tensor::scalar(NAN), to).item() == 0);
}
