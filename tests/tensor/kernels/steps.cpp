// Rows of kernels of an optimiser's step, and of random numbers.
#include "tensor/adam.h"
#include "tests/tensor/kernels/table.h"

namespace whence::test {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

// ---- Adam.

struct Part {  // one of the parameters of a step
  index_t count, shift;
  DType gradient, weight, shadow;  // shadow == weight: none
};
Operand numbers(const Part& part, DType dtype) { return of(dtype, shifted(part.count, part.shift)); }
// in: gradients, and the controls of the step, if given as numbers; out: each parameter's weight, moments and shadow.
std::vector<AdamEntry> entries_of(In in, In out) {
  std::vector<AdamEntry> entries;
  for (std::size_t k = 0; 4 * k < out.size(); ++k)
    entries.push_back({in[k], out[4 * k], out[4 * k + 1], out[4 * k + 2], out[4 * k + 3], k % 2 == 0});
  for (std::size_t k = 1; k < entries.size(); k += 3) entries[k].low = -0.25, entries[k].high = 0.5;
  return entries;
}
Results adam_of(const AdamStep& step, const std::vector<AdamEntry>& entries) {
  Results results;
  for (const AdamEntry& entry : entries) {
    Numbers w = read(entry.weight), m = read(entry.first), v = read(entry.second);
    const Numbers gradient = read(entry.gradient);
    const double coupled = entry.decays ? step.coupled_decay : 0, decoupled = entry.decays ? step.decoupled_decay : 0,
                 t = static_cast<double>(step.step);
    for (std::size_t i = 0; i < w.size(); ++i) {
      const double d = gradient[i] * step.gradient_scale + coupled * w[i];
      w[i] -= step.learning_rate * decoupled * w[i];
      m[i] = step.beta1 * m[i] + (1 - step.beta1) * d;
      v[i] = step.beta2 * v[i] + (1 - step.beta2) * d * d;
      const double m_hat = m[i] / (1 - std::pow(step.beta1, t)), v_hat = v[i] / (1 - std::pow(step.beta2, t));
      w[i] -= step.learning_rate * m_hat / (std::sqrt(v_hat) + step.epsilon);
      w[i] = std::clamp(w[i], entry.low, entry.high);
    }
    for (const Numbers& each : {w, m, v, w}) results.push_back(each);
  }
  return results;
}
Operand controls_of(const AdamStep& step, double max_norm, double loss_scale) {
  const auto all = step_controls(step, max_norm, loss_scale);
  return chosen({all.begin(), all.end()}, {control_count}, DType::f64);
}
KernelCase adam(const std::string& name, const std::vector<Part>& parts, const AdamStep& step, bool with_controls) {
  AdamStep said = step;
  if (with_controls) said.gradient_scale = 77, said.learning_rate = 88, said.step = 99;  // not used
  KernelCase row{"adam_all", name, {}, {},
      [=](Kernels& k, In in, In out) { k.adam_all(said, in.back(), entries_of(in, out)); },
      [=](In in, In out) { return adam_of(step, entries_of(in, out)); }, {4}, {DType::f32}};
  row.composed = [=](Kernels& k, In in, In out) {
    for (const AdamEntry& entry : entries_of(in, out)) {
      k.adam_all(said, in.back(), {&entry, 1});
      if (entry.shadow.defined()) k.copy(entry.weight, entry.shadow);
    }
  };
  for (const Part& part : parts) {
    const Operand square =
        then(numbers(part, part.weight), [](const Tensor& x) { return raw::unary(functions::Square{}, x); });
    row.in.push_back(numbers(part, part.gradient));
    for (const Operand& each : {numbers(part, part.weight), numbers(part, part.weight), square,
             part.shadow == part.weight ? none() : numbers(part, part.shadow)})
      row.out.push_back(each);
  }
  row.in.push_back(with_controls ? controls_of(step, 1, 1) : none());
  return row;
}
std::vector<Part> mixed() {
  std::vector<Part> parts;
  for (const index_t count : {1, 5, 300, 8192, 20001})
    for (const index_t shift : {0, 3})
      for (const Part& part : {Part{count, shift, DType::f32, DType::f32, DType::f32},
               Part{count, shift, DType::f16, DType::f32, DType::f16},
               Part{count, shift, DType::bf16, DType::f32, DType::bf16},
               Part{count, shift, DType::f32, DType::f32, DType::bf16},
               Part{count, shift, DType::f64, DType::f64, DType::f64}})
        parts.push_back(part);
  parts.push_back({0, 0, DType::f32, DType::f32, DType::f32});
  for (index_t k = 0; k < 120; ++k)
    parts.push_back({k + 1, 0, DType::f32, DType::f32, DType::f32});  // more than one launch
  return parts;
}
void add_adam(KernelCases& table) {
  AdamStep step{0.01, 0.9, 0.95, 1e-8, 0, 0, 1, 3};
  for (const auto& [decoupled, coupled, scale] :
      {std::array{0.0, 0.0, 1.0}, std::array{0.1, 0.0, 0.5}, std::array{0.0, 0.2, 1.0}, std::array{0.1, 0.01, 0.5}}) {
    step.decoupled_decay = decoupled, step.coupled_decay = coupled, step.gradient_scale = scale;
    const std::string name = to_text("decays ", decoupled, " and ", coupled, ", scale ", scale);
    for (const DType dtype : {DType::f32, DType::f64})
      table.push_back(adam(name, {{50, 0, dtype, dtype, dtype}}, step, false));
    if (decoupled != 0 && coupled != 0)
      for (const bool with_controls : {false, true}) table.push_back(adam(name, mixed(), step, with_controls));
  }
  // A step that must change nothing.
  step.gradient_scale = std::nan("");
  for (const bool with_controls : {false, true}) {
    table.push_back(adam("a scale that is not finite", mixed(), step, with_controls));
    table.back().composed = {}, table.back().terms = {0};
    table.back().loops = [](In, In out) {
      Results as_before;
      for (const Tensor& x : out) as_before.push_back(x.defined() ? read(x) : Numbers());
      return as_before;
    };
  }
  step.gradient_scale = 1, step.step = 1;
  table.push_back(adam("the first step", {{50, 0, DType::f32, DType::f32, DType::f32}}, step, false));
  table.push_back(adam("", {{200005, 0, DType::f32, DType::f32, DType::f32}}, step, false).on_threads());
  for (const DType dtype : {DType::f32, DType::bf16})
    table.push_back(adam("", {{65536, 0, dtype, DType::f32, dtype}}, step, true).counted(1)),
        table.back().dtypes = {DType::f32};
}

// ---- The norm of all gradients.

KernelCase sum_of_squares(const std::vector<Part>& parts, double unit) {
  const auto total = [=](In in, In) {
    long double sum = 0;
    for (const Tensor& x : in)
      for (const double number : read(x)) sum += number / unit * (number / unit);
    return Numbers{static_cast<double>(sum)};
  };
  KernelCase row{"sum_of_squares", to_text(parts.size(), " in units of ", unit), {}, {of(DType::f64, rows({1}))},
      [=](Kernels& k, In in, In out) { k.sum_of_squares(in, unit, out[0]); }, total, {10000}, {DType::f32}};
  for (const Part& part : parts) row.in.push_back(numbers(part, part.gradient));
  return row;
}
KernelCase clip_scale(double number, double max_norm) {
  constexpr double loss_scale = 4;
  const auto controls = [=](In, In out) {
    Numbers all = read(out[0]);
    const double norm = std::sqrt(number) / loss_scale;
    all[place(static_cast<index_t>(Control::norm))] = norm;
    all[place(static_cast<index_t>(Control::gradient_scale))] =
        std::isfinite(norm) ? std::min(1.0, max_norm / norm) / loss_scale : std::nan("");
    return all;
  };
  return {"clip_scale", to_text("the root of ", number, " to ", max_norm), {chosen({number}, {1}, DType::f64)},
      {controls_of({1e-2, 0.9, 0.99, 1e-8, 0.1, 0.01, 0.5, 3}, max_norm, loss_scale)},
      [](Kernels& k, In in, In out) { k.clip_scale(in[0], out[0]); }, controls, {0}, {DType::f64}};
}

// ---- Random numbers: draw n at element n, whatever the dtype's block is.

const Stream stream(7, "kernels", 3);
KernelCase random(const char* kernel, const std::function<void(Kernels&, const Tensor&)>& draw,
    const std::function<double(std::uint64_t, DType)>& number) {
  return {kernel, "", {}, {rows({20001})}, [=](Kernels& k, In, In out) { draw(k, out[0]); },
      [=](In, In out) {
        Numbers all;
        for (std::uint64_t n = 0; n < 20001; ++n) all.push_back(number(n, out[0].dtype()));
        return all;
      }};
}

}  // namespace

KernelCases step_cases() {
  KernelCases table;
  add_adam(table);
  for (const double unit : {1.0, 3.0}) table.push_back(sum_of_squares(mixed(), unit));
  table.push_back(table.back());
  table.back().in.push_back(chosen({1, std::nan(""), 1}, {3}, DType::f16));
  for (const DType dtype : {DType::f32, DType::bf16})
    table.push_back(sum_of_squares({{65536, 0, dtype, dtype, dtype}}, 1).counted(2)),
        table.back().dtypes = {DType::f32};
  for (const double number : {0.0, 25.0, infinity, std::nan("")})
    for (const double max_norm : {1.0, infinity}) table.push_back(clip_scale(number, max_norm));
  table.push_back(clip_scale(25, 1).counted(1)), table.back().dtypes = {DType::f64};
  table.push_back(random(
      "random_uniform", [](Kernels& k, const Tensor& y) { k.random_uniform(y, stream, -1, 3); },
      [](std::uint64_t n, DType dtype) {
        return -1 + 4 * (dtype == DType::f64 ? stream.uniform53(n) : static_cast<double>(stream.uniform(n)));
      }));
  table.push_back(random(
      "random_normal", [](Kernels& k, const Tensor& y) { k.random_normal(y, stream, 0.5, 2); },
      [](std::uint64_t n, DType) { return 0.5 + 2 * stream.normal(n); }));
  return table;
}

TEST_CASE("kernels that take an optimiser's step or draw numbers") { walk_on_cpu(step_cases()); }

}  // namespace whence::test
