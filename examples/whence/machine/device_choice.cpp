#include "examples/whence/machine/device_choice.h"

#include "tensor/device/backend.h"
#include "tensor/error.h"
#include "tensor/kernels.h"

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

DeviceChoice choose_device(std::string_view wanted) { return choose_device(wanted, cuda_facts()); }

}  // namespace whence
