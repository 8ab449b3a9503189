// --device auto, cpu and cuda: the choice, its reason, and each refusal's cause.
#include "examples/whence/machine/placement.h"

#include "examples/whence/machine/memory.h"
#include "examples/whence/machine/models.h"
#include "tensor/device/device_runtime.h"
#include "tensor/kernels.h"
#include "tests/support/tensors.h"

using namespace whence;
using namespace whence::test;

namespace {

DeviceFacts usable_gpu() {
  DeviceFacts facts;
  facts.name = "NVIDIA H100 80GB HBM3";
  facts.count = 1;
  facts.capability = 90;
  facts.multiprocessors = 132;
  facts.memory = std::size_t{80} << 30;
  return facts;
}

}  // namespace

TEST_CASE("device choice: a GPU that can be used, one that cannot, an emulated one, and other words") {
  const auto check = [](const char* wanted, const DeviceFacts& facts, Device device, const char* said) {
    const DeviceChoice choice = choose_device(wanted, facts);
    CHECK(choice.device == device);
    CHECK_MESSAGE(has(choice.sentence, said), choice.sentence);
  };
  DeviceFacts gpu = usable_gpu(), emulated = gpu, none;
  emulated.emulated = true, none.refusal = "no driver", none.advice = "install it";
  check("auto", gpu, Device::cuda(0), "NVIDIA H100");
  check("cuda", gpu, Device::cuda(0), "as asked");
  check("cpu", gpu, Device::cpu(), "as asked");
  check("auto", none, Device::cpu(), "no driver");
  check("auto", emulated, Device::cpu(), "only emulates");
  check("cuda", emulated, Device::cuda(0), "emulated");
  CHECK(has(error_text<InputError>([&] { (void)choose_device("cuda", none); }), "no driver; install it"));
  CHECK(has(error_text<InputError>([&] { (void)choose_device("gpu", gpu); }), "device: 'gpu'"));
}

TEST_CASE("device choice: tokens are drawn one by one on the CPU where its estimate is the faster") {
  const auto parameters = [](const char* model) { return planned_parameters(named_model(model)); };
  CHECK(!cpu_to_draw(12, parameters("gpt2-124m"), 20));  // 25 ms against 2.2
  CHECK(!cpu_to_draw(48, 1'557'611'200, 200));           // GPT-2 XL, on a server: 31 ms against 8.8
  CHECK(cpu_to_draw(12, parameters("gpt2-124m"), 1000));
  const auto small = cpu_to_draw(2, 433'728, 20);
  REQUIRE(small);
  CHECK(small->device == Device::cpu());
  MachineOptions options;
  options.precision = "bf16";
  const std::string text = placement_of(options, *small).text;
  says(text, {"0.087 ms", "20 GB/s", "0.37 ms", "2 layers", "precision: bf16"});
}

TEST_CASE("device choice: a GPU that cannot be used is refused with the cause") {
  const DeviceFacts& facts = cuda_facts();
  const std::string text = error_text([] { (void)Tensor::zeros({2}, DType::f32, Device::cuda(0)); });
  if (!facts.refusal.empty()) {
    CHECK(has(text, "device: cuda:0"));
    CHECK(has(text, facts.refusal));
    CHECK(text.ends_with(facts.advice + ", or use cpu"));
    CHECK(error_text([] { (void)raw::to_device(Tensor::ones({2}), Device::cuda(0)); }) == text);
  } else {
    CHECK(text.empty());
    CHECK(Tensor::ones({2}, DType::f32, Device::cuda(0)).to_vector() == std::vector<double>{1, 1});
    MESSAGE("cuda:0 is " << (facts.emulated ? "emulated (cuda/emulator/)" : facts.name));
  }
}
