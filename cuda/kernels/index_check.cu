// Checks indices on the device, so that nothing waits and a graph can be captured: a wrong index becomes 0, and is
// recorded for the next copy of numbers to the CPU.
#include "tensor/kernels.h"

#include <array>
#include <cstring>

#include "cuda/kernels/kernels.h"
#include "cuda/runtime/runtime.h"
#include "cuda/vocabulary/launch_kernel.h"
#include "cuda/vocabulary/packs.h"
#include "tensor/device/allocator.h"

namespace whence {
namespace gpu {
namespace {

// The subject of a check, for the Error that comes later. A kernel stores its words to memory and reads none.
struct Subject {
  IndexCheck check;
  Shape shape;
  Site site;
};
constexpr std::size_t subject_words = sizeof(Subject) / sizeof(index_t);
static_assert(std::is_trivially_copyable_v<Subject> && sizeof(Subject) % sizeof(index_t) == 0);

struct FaultNotes {
  Tensor found = Tensor::zeros({1}, DType::i32, Device::cuda());  // indices out of range since the last report
  // The first wrong index to arrive: the check's subject, the element, the value.
  Tensor note = Tensor::zeros({subject_words + 2}, DType::i64, Device::cuda());
};
FaultNotes* fault_notes = nullptr;  // never destroyed: tensors in static storage would outlive the device

// Per entry: 8 bytes read, 8 written, a few comparisons: memory, for few entries the latency of a launch.
struct CheckIndex {
  static constexpr const char* name = "check of an index";
  static constexpr int threads = 256;
  Global<const index_t> index;
  Global<index_t> checked, note;
  Global<std::int32_t> found;
  index_t total;
  IndexCheck check;
  index_t subject[subject_words];
  WHENCE_HD void operator()(Thread& t) const {
    const index_t i = t.block() * threads + t.index();
    if (i >= total) return;
    const index_t value = index[i];
    if (check.allows(value)) {
      checked[i] = value;
      return;
    }
    checked[i] = 0;
    if (t.atomic_add(found, 0, std::int32_t{1}) != 0) return;
    for (std::size_t k = 0; k < subject_words; ++k) note[k] = subject[k];
    note[subject_words] = i, note[subject_words + 1] = value;
  }
};

}  // namespace
}  // namespace gpu

Tensor CudaKernels::checked_index(const IndexCheck& check, const Tensor& index) {
  if (!gpu::fault_notes) {
    if (gpu::capturing())
      fail(check.op, "asked for the first time while work is being recorded; do the work once before recording it");
    gpu::fault_notes = new gpu::FaultNotes;
  }
  const Tensor checked = Tensor::empty(index.shape(), DType::i64, index.device());
  gpu::CheckIndex kernel{gpu::global<const index_t>(index), gpu::global<index_t>(checked),
      gpu::global<index_t>(gpu::fault_notes->note), gpu::global<std::int32_t>(gpu::fault_notes->found), index.numel(),
      check, {}};
  const gpu::Subject subject{check, index.shape(), CallSite::here()};
  std::memcpy(kernel.subject, &subject, sizeof subject);
  gpu::launch_kernel(kernel, {.blocks = gpu::blocks_for(index.numel(), gpu::CheckIndex::threads)});
  return checked;
}

void CudaKernels::report_faults() {
  if (!gpu::fault_notes) return;
  const auto read = [](const Tensor& from, auto& to) {
    memory_of(Device::cuda()).source().copy_to_cpu(from.bytes(), &to, sizeof to);
  };
  std::int32_t found = 0;
  read(gpu::fault_notes->found, found);
  if (found == 0) return;
  std::array<index_t, gpu::subject_words + 2> note{};
  read(gpu::fault_notes->note, note);
  fill(gpu::fault_notes->found, 0);
  gpu::Subject subject;
  std::memcpy(static_cast<void*>(&subject), note.data(), sizeof subject);
  const CallSite place(subject.site);
  index_out_of_range(subject.check, subject.shape, note[gpu::subject_words], note[gpu::subject_words + 1]);
}

}  // namespace whence
