// Checks indices on the device, so that nothing waits and a graph can be captured: a wrong index becomes 0, and is
// recorded for the next copy of numbers to the CPU.
#include "tensor/kernels.h"

#include <array>
#include <map>
#include <string_view>
#include <tuple>
#include <vector>

#include "cuda/kernels/kernels.h"
#include "cuda/runtime/runtime.h"
#include "cuda/vocabulary/launch_kernel.h"
#include "cuda/vocabulary/packs.h"
#include "tensor/device/allocator.h"

namespace whence {
namespace gpu {
namespace {

// The subject of a check, for the Error that comes later. One for each place and shape.
struct KnownCheck {
  IndexCheck check;
  Shape shape;
  Site site;
  auto key() const {
    return std::tuple(std::string_view(check.op), std::string_view(check.argument), check.count, check.also,
        std::vector<index_t>(shape.begin(), shape.end()), std::string_view(site.file_name()), site.line());
  }
  bool operator<(const KnownCheck& other) const { return key() < other.key(); }
};

// [0]: how many indices were out of range since the last report. For the first to arrive: its check, the element, the
// value.
struct FaultNotes {
  Tensor found = Tensor::zeros({1}, DType::i32, Device::cuda());
  Tensor note = Tensor::zeros({3}, DType::i64, Device::cuda());
  std::vector<const KnownCheck*> known;  // by number

  index_t number_of(const KnownCheck& check) {
    const auto [at, is_new] = numbers.emplace(check, static_cast<index_t>(known.size()));
    if (is_new) known.push_back(&at->first);
    return at->second;
  }

 private:
  std::map<KnownCheck, index_t> numbers;
};
FaultNotes* fault_notes = nullptr;  // never destroyed: tensors in static storage would outlive the device

// Per entry: 8 bytes read, 8 written, a few comparisons: memory, for few entries the latency of a launch.
struct CheckIndex {
  static constexpr const char* name = "check of an index";
  static constexpr int threads = 256;
  Global<const index_t> index;
  Global<index_t> checked, note;
  Global<std::int32_t> found;
  index_t total, number;
  IndexCheck check;
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
    note[0] = number, note[1] = i, note[2] = value;
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
  gpu::FaultNotes& notes = *gpu::fault_notes;
  const Tensor checked = Tensor::empty(index.shape(), DType::i64, index.device());
  const index_t number =
      notes.number_of({check, index.shape(), CallSite::current() ? *CallSite::current() : Site::current()});
  const gpu::CheckIndex kernel{gpu::global<const index_t>(index), gpu::global<index_t>(checked),
      gpu::global<index_t>(notes.note), gpu::global<std::int32_t>(notes.found), index.numel(), number, check};
  gpu::launch_kernel(kernel, {.blocks = gpu::blocks_for(index.numel(), gpu::CheckIndex::threads)});
  return checked;
}

void CudaKernels::report_faults() {
  if (!gpu::fault_notes) return;
  const gpu::FaultNotes& notes = *gpu::fault_notes;
  std::int32_t found = 0;
  memory_of(Device::cuda()).source().copy_to_cpu(notes.found.bytes(), &found, sizeof found);
  if (found == 0) return;
  std::array<index_t, 3> note{};
  memory_of(Device::cuda()).source().copy_to_cpu(notes.note.bytes(), note.data(), sizeof note);
  fill(notes.found, 0);
  const gpu::KnownCheck& known = *notes.known[static_cast<std::size_t>(note[0])];
  const CallSite place(known.site);
  index_out_of_range(known.check, known.shape, note[1], note[2]);
}

}  // namespace whence
