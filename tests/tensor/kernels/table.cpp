// Draws the operands of a row, runs the rows on the CPU, and checks that every kernel has a row.
#include "tests/tensor/kernels/table.h"

#include <set>

#include "tests/support/programs.h"

namespace whence::test {

Operand none() {
  return [](Draw&) { return Tensor(); };
}
Operand laid(const Shape& shape, Layout layout) {
  return [=](Draw& draw) { return random_tensor(shape, draw.dtype, ++draw.seed, layout); };
}
Operand rows(const Shape& shape) { return laid(shape, Layout::contiguous); }
Operand any(const Shape& shape) {
  return [=](Draw& draw) { return laid(shape, draw.layout)(draw); };
}
Operand of(DType dtype, const Operand& operand) {
  return [=](Draw& draw) {
    const With chosen(draw.dtype, dtype);
    return operand(draw);
  };
}
Operand wide(const Operand& operand) {
  return [=](Draw& draw) { return of(compute_dtype(draw.dtype), operand)(draw); };
}
Operand then(const Operand& operand, const std::function<Tensor(const Tensor&)>& f) {
  return [=](Draw& draw) { return f(operand(draw)); };
}
Operand expanded(const Operand& operand, const Shape& shape) {
  return then(operand, [=](const Tensor& x) { return raw::expand(x, shape); });
}
Operand shifted(index_t count, index_t shift) {
  return then(rows({count + shift}), [=](const Tensor& x) { return x.view({count}, {1}, shift); });
}
Operand few(const Shape& shape) {
  return [=](Draw& draw) { return raw::cast(of(DType::i32, rows(shape))(draw), draw.dtype); };
}
Operand mask(const Shape& shape) {
  return of(DType::f32, then(rows(shape), [](const Tensor& x) {
    const Tensor zero = Tensor::scalar(0);
    return raw::cast(raw::binary("mask", functions::GreaterEqual{}, x, zero), DType::boolean);
  }));
}
Operand chosen(const Numbers& numbers, const Shape& shape, DType dtype) {
  return [=](Draw&) { return Tensor::of(numbers, shape, dtype); };
}
Operand below(index_t count, const Shape& shape) {
  return [=](Draw& draw) {
    const Stream stream(++draw.seed, "indices");
    const Tensor index = Tensor::empty(shape, DType::i64);
    for (index_t i = 0; i < index.numel(); ++i)
      index.data<index_t>()[i] = stream.below(static_cast<std::uint64_t>(i), static_cast<std::uint32_t>(count));
    return index;
  };
}
Operand at_least(double low, const Shape& shape) {
  return then(any(shape), [=](const Tensor& x) {
    const Tensor all = whole(x);
    kernels(all).unary(functions::Abs{}, {}, all, all);
    kernels(all).unary(functions::Affine{}, {1, low}, all, all);
    return x;
  });
}

KernelCase KernelCase::counted(std::uint64_t of_a_gpu) const {
  KernelCase row = *this;
  row.dtypes = {DType::f32, DType::bf16}, row.any_strides = false, row.of_a_transformer = true, row.launches = of_a_gpu;
  return row;
}
KernelCase KernelCase::on_threads() const {
  KernelCase row = *this;
  row.dtypes = {DType::f32}, row.any_strides = false, row.on_cpu_alone = true;
  return row;
}

Given given(const KernelCase& row, Draw draw) {
  Given made;
  for (const Operand& operand : row.in) made.in.push_back(operand(draw));
  for (const Operand& operand : row.out) made.out.push_back(operand(draw));
  if (row.prepare) row.prepare(made.in);
  return made;
}

Tensors twins(const Tensors& all) {
  Tensors made;
  for (const Tensor& x : all)
    made.push_back(x.defined() ? raw::copy(whole(x)).view(x.shape(), x.strides(), offset_of(x)) : x);
  return made;
}

KernelCases all_kernel_cases() {
  KernelCases all;
  for (const auto family : {elementwise_cases, row_cases, product_cases, lookup_cases, step_cases})
    for (const KernelCase& row : family()) all.push_back(row);
  return all;
}

void for_each_way(const KernelCase& row, const std::function<void(const Draw&)>& f) {
  INFO(row.kernel, ", name ", row.name);
  for (const DType dtype : row.dtypes) {
    CAPTURE(std::string(to_string(dtype)));
    for (const Layout layout : row.any_strides ? layouts : std::vector{Layout::contiguous}) {
      CAPTURE(name_of(layout));
      f({dtype, layout});
    }
  }
}

index_t offset_of(const Tensor& x) {
  return (x.bytes() - x.storage().bytes()) / static_cast<index_t>(size_of(x.dtype()));
}
Tensor whole(const Tensor& x) {
  return x.view({static_cast<index_t>(x.storage().size() / size_of(x.dtype()))}, {1}, -offset_of(x));
}

void expect_numbers(const KernelCase& row, std::size_t output, Numbers got, Numbers expected, DType dtype) {
  if (row.terms_of(output) != 0 && is_floating(dtype)) {
    got.insert(got.end(), row.size > 0 ? got.size() : 0, row.size);
    expected.insert(expected.end(), row.size > 0 ? expected.size() : 0, row.size);
    return expect_close(got, expected, dtype, row.terms_of(output));
  }
  REQUIRE(got.size() == expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (got[i] == expected[i] || (std::isnan(got[i]) && std::isnan(expected[i]))) continue;
    FAIL_CHECK("element " << i << " of " << got.size() << ": got " << got[i] << ", expected " << expected[i]);
    return;
  }
}

void expect_same_bits(const Tensors& got, const Tensors& expected) {
  for (std::size_t k = 0; k < got.size(); ++k)
    if (got[k].defined()) CHECK_MESSAGE(same_bits(got[k], expected[k]), "tensor ", k);
}

namespace {

void expect_untouched_around(const Tensor& y, const Tensor& before) {
  if (y.is_contiguous() && y.numel() == before.numel()) return;
  const Tensor now = raw::copy(whole(y));
  const std::size_t size = size_of(y.dtype());
  for_each_position(y.shape(), [&](const std::vector<index_t>& position) {
    index_t at = offset_of(y);
    for (int axis = 0; axis < y.rank(); ++axis) at += position[static_cast<std::size_t>(axis)] * y.strides()[axis];
    std::copy_n(
        before.bytes() + static_cast<std::size_t>(at) * size, size, now.bytes() + static_cast<std::size_t>(at) * size);
  });
  CHECK(same_bits(now, before));
}

Tensors as_duals(const Tensors& all) {
  Tensors result;
  for (const Tensor& x : all)
    result.push_back(x.defined() && is_floating(x.dtype()) ? raw::cast(x, DType::dual)
                     : x.defined()                         ? raw::copy(x)
                                                           : x);
  return result;
}

Tensors wholes(const Tensors& all) {
  Tensors copies;
  for (const Tensor& x : all) copies.push_back(x.defined() ? raw::copy(whole(x)) : x);
  return copies;
}

}  // namespace

void walk_on_cpu(const KernelCases& rows) {
  for (const KernelCase& row : rows) {
    for_each_way(row, [&](const Draw& draw) {
      const Guards guards;
      const Given before = given(row, draw);
      Kernels& cpu = kernels(Device::cpu());
      const auto run = [&](int count, const auto& call) {
        const WithThreads chosen(count);
        Given after{twins(before.in), twins(before.out)};
        call(cpu, after.in, after.out);
        return after;
      };
      Results expected;
      if (row.loops) {
        expected = row.loops(before.in, before.out);
      } else if (is_floating(draw.dtype)) {
        const Given duals{as_duals(before.in), as_duals(before.out)};
        row.call(cpu, duals.in, duals.out);
        for (const Tensor& y : duals.out) expected.push_back(y.defined() ? read(y) : Numbers());
      }
      const auto check = [&](const Given& made) {
        expect_same_bits(wholes(made.in), wholes(before.in));
        for (std::size_t k = 0; k < made.out.size(); ++k) {
          if (!made.out[k].defined()) continue;
          CAPTURE(k);
          if (!expected.empty()) expect_numbers(row, k, read(made.out[k]), expected[k], made.out[k].dtype());
          CHECK(made.out[k].storage().guards_intact());
          expect_untouched_around(made.out[k], whole(before.out[k]));
        }
      };
      const Given one = run(1, row.call);
      check(one);
      if (draw.layout != Layout::contiguous) return;
      for (const int count : {2, 3}) {
        CAPTURE(count);
        expect_same_bits(wholes(run(count, row.call).out), wholes(one.out));
      }
      if (row.composed) expect_same_bits(wholes(run(2, row.composed).out), wholes(one.out));
    });
  }
}

// report_faults writes nothing: "an index out of range is reported" in tests/cuda/elementwise.cpp tests it. Tiled attention,
// terms by distance, products of few rows and layouts exist on GPUs alone: tests/cuda/tiled_attention.cpp, tiled_mix.cpp,
// schemes.cpp, products.cpp.
TEST_CASE("every kernel has a row in the table") {
  std::set<std::string> in_table{"report_faults", "attention", "attention_backward", "mix", "mix_backward",
      "makes_terms", "kerple", "kerple_backward", "mix_terms", "mix_terms_backward", "matmul_beside", "product_rows",
      "is_transposed_view", "is_copied_by_products"},
      declared;
  for (const KernelCase& row : all_kernel_cases()) in_table.insert(row.kernel);
  for (const char* name : {"kernels.h", "device/gpu_kernels.h"})
    for (const auto& found : all_matches(text_of(source_folder() + "/tensor/" + name), R"(virtual \w+ (\w+)\()"))
      declared.insert(found[1]);
  CHECK(declared.size() >= 44);
  for (const std::string& kernel : declared) CHECK_MESSAGE(in_table.count(kernel), kernel, " has no row in the table");
  for (const std::string& kernel : in_table) CHECK_MESSAGE(declared.count(kernel), kernel, " is no kernel");
}

}  // namespace whence::test
