// --device auto, cpu and cuda: the choice, its reason, and each refusal's cause.
#include "examples/whence/machine/placement.h"

#include "examples/whence/machine/memory.h"
#include "examples/whence/machine/models.h"
#include "tensor/device/device_runtime.h"
#include "tensor/kernels.h"
#include "tensor/raw.h"
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

DeviceFacts no_gpu(const std::string& refusal, const std::string& advice) {
  DeviceFacts facts;
  facts.refusal = refusal;
  facts.advice = advice;
  return facts;
}

}  // namespace

TEST_CASE("device choice: a usable GPU") {
  const DeviceFacts facts = usable_gpu();
  const std::string gpu = "NVIDIA H100 80GB HBM3 (compute capability 9.0, 132 multiprocessors, 80 GiB)";
  CHECK(choose_device("auto", facts).device == Device::cuda(0));
  CHECK(choose_device("auto", facts).sentence == "device: cuda:0, because it is there; " + gpu);
  CHECK(choose_device("cuda", facts).device == Device::cuda(0));
  CHECK(choose_device("cuda", facts).sentence == "device: cuda:0, as asked; " + gpu);
  CHECK(choose_device("cpu", facts).device == Device::cpu());
  CHECK(choose_device("cpu", facts).sentence == "device: cpu, as asked");
}

TEST_CASE("device choice: an unusable GPU is named with its cause, and refused if requested") {
  const DeviceFacts facts =
      no_gpu("no NVIDIA driver is installed", "install the driver, or give the container its GPU");
  CHECK(choose_device("auto", facts).device == Device::cpu());
  CHECK(choose_device("auto", facts).sentence ==
        "device: cpu, because no GPU can be used: no NVIDIA driver is installed");
  CHECK(error_text<InputError>([&] { (void)choose_device("cuda", facts); }) ==
        "device: cuda given; no GPU can be used: no NVIDIA driver is installed; install the driver, or give the "
        "container its GPU, or use "
        "cpu");
}

TEST_CASE("device choice: auto never takes the emulator, cuda does and says so") {
  DeviceFacts facts = usable_gpu();
  facts.emulated = true;
  CHECK(choose_device("auto", facts).device == Device::cpu());
  CHECK(choose_device("auto", facts).sentence ==
        "device: cpu, because this build only emulates a GPU; cuda chooses the emulator");
  CHECK(choose_device("cuda", facts).device == Device::cuda(0));
  CHECK(choose_device("cuda", facts).sentence.find("emulated") != std::string::npos);
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
  CHECK(
      placement_of(options, *small).text ==
      "device: cpu, because it is estimated to draw a token in 0.087 ms (1.73 MB of weights at 20 GB/s), a GPU in 0.37 "
      "ms, in which it launches the kernels of 2 layers; precision: bf16");
}

TEST_CASE("device choice: other words are refused") {
  CHECK(error_text<InputError>([] { (void)choose_device("gpu", usable_gpu()); }) ==
        "device: 'gpu' given; auto, cpu or cuda required");
}

TEST_CASE("device choice: what is chosen here can be used, and what is refused here cannot") {
  const Device chosen = choose_device("auto").device;
  CHECK(Tensor::ones({2}, DType::f32, chosen).to_vector() == std::vector<double>{1, 1});
  if (cuda_facts().refusal.empty())
    CHECK(Tensor::ones({2}, DType::f32, choose_device("cuda").device).to_vector() == std::vector<double>{1, 1});
  else
    CHECK(error_text<InputError>([] {
      (void)choose_device("cuda");
    }).starts_with("device: cuda given; no GPU can be used: "));
}

TEST_CASE("device choice: a GPU that cannot be used is refused with the cause") {
  const DeviceFacts& facts = cuda_facts();
  const std::string text = error_text([] { (void)Tensor::zeros({2}, DType::f32, Device::cuda(0)); });
  if (!facts.refusal.empty()) {
    CHECK(text.starts_with("device: cuda:0 given; "));
    CHECK(text.find(facts.refusal) != std::string::npos);
    CHECK(text.ends_with(facts.advice + ", or use cpu"));
    CHECK(error_text([] { (void)raw::to_device(Tensor::ones({2}), Device::cuda(0)); }) == text);
  } else {
    CHECK(text.empty());
    CHECK(Tensor::ones({2}, DType::f32, Device::cuda(0)).to_vector() == std::vector<double>{1, 1});
    MESSAGE("cuda:0 is " << (facts.emulated ? "emulated (cuda/emulator/)" : facts.name));
  }
}
