// Runs rungs, checks their numbers and their promises, and writes the table.
#include <algorithm>
#include <cmath>
#include <iomanip>
#include <limits>
#include <sstream>

#include "cuda/ladder/ladder.h"
#include "tensor/error.h"
#include "tensor/raw.h"

namespace whence::gpu::ladder {
namespace {

const std::vector<std::pair<Count, const char*>> columns{{Count::bytes, "bytes"}, {Count::sectors, "sectors"},
    {Count::requests, "requests"}, {Count::barriers, "barriers"}, {Count::shuffles, "shuffles"},
    {Count::arithmetic, "arithmetic"}, {Count::special, "special"}, {Count::shared_bytes, "sh.bytes"},
    {Count::shared_requests, "sh.requests"}, {Count::conflicts, "conflicts"}, {Count::on_tensor_cores, "on t.cores"}};

const char* name_of(Count count) {
  return std::find_if(columns.begin(), columns.end(), [count](const auto& c) { return c.first == count; })->second;
}

std::string in_ladder(const Ladder& ladder, const Rung& rung) {
  return to_text("ladder: ", ladder.name, ", ", rung.name);
}

// Sums of another order differ by roundings; a wrong index makes a much larger difference. NaN is never near.
void require_near(const Ladder& ladder, const Rung& rung, const Tensor& got, const Tensor& expected) {
  const float* const a = got.data<float>();
  const float* const b = expected.data<float>();
  float largest = 0;
  for (index_t i = 0; i < expected.numel(); ++i) largest = std::max(largest, std::abs(b[i]));
  for (index_t i = 0; i < expected.numel(); ++i) {
    if (std::abs(a[i] - b[i]) <= 1e-4f * largest) continue;
    throw Error(to_text(in_ladder(ladder, rung), ": element ", i, " is ", a[i], "; the CPU's op has ", b[i]));
  }
}

}  // namespace

std::vector<Ladder> ladders() {
  return {softmax(), layer_norm(), reduction(), matmul(), cope(), attention(), cope_attention(), mix_attention()};
}

Measured climb(const Ladder& ladder, const Rung& rung, const Shape& sizes) {
  const Tensors inputs = ladder.inputs(sizes);
  const Tensor expected = ladder.on_cpu(inputs);
  Tensors there;
  for (const Tensor& x : inputs) there.push_back(raw::to_device(x, Device::cuda(0)));
  const Tensor unset = Tensor::full(expected.shape(), std::numeric_limits<double>::quiet_NaN());
  const Tensor output = raw::to_device(unset, Device::cuda(0));
  const Measured measured = measure([&] { rung.run(there, output); });
  require_near(ladder, rung, raw::to_device(output, Device::cpu()), expected);
  return measured;
}

std::string climb_all(bool emulated) {
  std::ostringstream out;
  for (const Ladder& ladder : ladders()) {
    const Shape& sizes = emulated ? ladder.emulated : ladder.on_gpu;
    const Tensors inputs = ladder.inputs(sizes);
    index_t least = ladder.on_cpu(inputs).numel();  // numbers that must be read or written
    for (const Tensor& x : inputs) least += x.numel();
    out << ladder.name << ": " << ladder.formula << " = " << sizes << ", at least " << 4 * least << " bytes\n";
    out << std::left << std::setw(32) << "" << std::right;
    if (emulated)
      for (const auto& column : columns) out << std::setw(12) << column.second;
    else
      out << std::setw(12) << "ms" << std::setw(12) << "% of peak";
    out << "\n";
    Counts before;
    int number = 1;
    for (const Rung& rung : ladder.rungs) {
      const Measured now = climb(ladder, rung, sizes);
      out << std::left << std::setw(32) << to_text("  ", number++, ". ", rung.name) << std::right;
      if (emulated) {
        for (const auto& column : columns) out << std::setw(12) << now.counts.at(column.first);
        if (rung.fewer && now.counts.at(*rung.fewer) >= before.at(*rung.fewer))
          throw Error(to_text(in_ladder(ladder, rung), ": ", now.counts.at(*rung.fewer), " ", name_of(*rung.fewer),
              "; fewer than ", before.at(*rung.fewer), ", those of the rung before, promised"));
        if (rung.fewer) out << "   fewer " << name_of(*rung.fewer);
      } else {
        const double share = 4e5 * static_cast<double>(least) / now.milliseconds / now.peak_bytes_per_second;
        out << std::fixed << std::setprecision(3) << std::setw(12) << now.milliseconds << std::setprecision(1)
            << std::setw(12) << share;
      }
      out << "\n";
      before = now.counts;
    }
    out << "\n";
  }
  return out.str();
}

}  // namespace whence::gpu::ladder
