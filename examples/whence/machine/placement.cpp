#include "examples/whence/machine/placement.h"

#include "examples/whence/cli/numbers.h"
#include "tensor/error.h"

namespace whence {

std::string describe(const DeviceFacts& facts) {
  if (facts.emulated) return "emulated: kernels run on the CPU, slowly, and are checked";
  return to_text(facts.name, " (compute capability ", facts.capability / 10, '.', facts.capability % 10, ", ",
      facts.multiprocessors, " multiprocessors, ", bytes_text(facts.memory), ')');
}

DeviceChoice choose_device(std::string_view wanted, const DeviceFacts& facts) {
  const bool usable = facts.refusal.empty();
  const std::string gpu = to_string(Device::cuda(0));
  if (wanted == "cpu") return {Device::cpu(), "device: cpu, as asked"};
  if (wanted == "cuda") {
    if (!usable)
      throw InputError("device: cuda given; no GPU can be used: ", facts.refusal, "; ", facts.advice, ", or use cpu");
    return {Device::cuda(0), to_text("device: ", gpu, ", as asked; ", describe(facts))};
  }
  if (wanted != "auto") throw InputError("device: '", wanted, "' given; auto, cpu or cuda required");
  if (!usable) return {Device::cpu(), to_text("device: cpu, because no GPU can be used: ", facts.refusal)};
  if (facts.emulated)
    return {Device::cpu(), "device: cpu, because this build only emulates a GPU; cuda chooses the emulator"};
  return {Device::cuda(0), to_text("device: ", gpu, ", because it is there; ", describe(facts))};
}

std::optional<DeviceChoice> cpu_to_draw(index_t layers, index_t parameters, double cpu_gb_per_s) {
  // An H200 took 2.2 ms for a token of GPT-2's 12 layers, whose weights it reads in 0.1 ms.
  constexpr double gpu_ms_of_layer = 2.2 / 12;
  const double megabytes = 4 * static_cast<double>(parameters) / 1e6, cpu_ms = megabytes / cpu_gb_per_s,
               gpu_ms = gpu_ms_of_layer * static_cast<double>(layers);
  if (cpu_ms >= gpu_ms) return std::nullopt;
  return DeviceChoice{Device::cpu(),
      to_text("device: cpu, because it is estimated to draw a token in ", digits(cpu_ms, 2), " ms (",
          digits(megabytes, 3), " MB of weights at ", digits(cpu_gb_per_s, 2), " GB/s), a GPU in ", digits(gpu_ms, 2),
          " ms, in which it launches the kernels of ", layers, layers == 1 ? " layer" : " layers")};
}

void declare_device(Fields& line, std::string* device) {
  line.choice("device", device, {"auto", "cpu", "cuda"}, {"device; auto: a GPU if one can be used"});
}

void declare_precision(Fields& line, std::string* precision) {
  line.choice("precision", precision, {"f32", "f16", "bf16"},
      {"dtype of parameters and activations; trained weights are kept and written in f32 regardless"});
}

void declare(Fields& line, MachineOptions& options) {
  line.heading("Machine").integer(
      "threads", &options.threads, Range<int>{1, 1024}, {"CPU threads; results do not depend on them"});
  declare_device(line, &options.device);
  declare_precision(line, &options.precision);
}

Placement placement_of(const MachineOptions& options, std::optional<DeviceChoice> choice) {
  set_threads(options.threads);
  if (!choice) choice = choose_device(options.device);
  const std::string numbers = options.precision == "f32" ? "" : "; precision: " + options.precision;
  return {choice->device, storage_dtype_of(options.precision), choice->sentence + numbers};
}

void place(Module& model, const Placement& placement) {
  model.to(placement.precision);
  model.to(placement.device);
}

}  // namespace whence
