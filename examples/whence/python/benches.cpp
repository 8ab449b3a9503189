// Cases of the benches for Python, which alternates them with other code (examples/experiments/beside_torch.py).
#include "examples/whence/python/arrays.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "examples/whence/bench/attention_core.h"
#include "nn/scheme.h"
#include "nn/training/precision.h"
#include "tensor/cpu/threads.h"
#include "tensor/raw.h"

namespace nb = nanobind;

namespace whence {
namespace {

using bench::Measured;

// Returns tensors of PyTorch on the CPU, numbers in f32.
nb::dict handed(const NamedTensors& tensors) {
  Results results(true);
  nb::dict all;
  for (const auto& [name, tensor] : tensors) {
    const DType dtype = is_floating(tensor.dtype()) ? DType::f32 : tensor.dtype();
    all[name.c_str()] = results(raw::to_device(raw::cast(tensor.detach(), dtype), Device()));
  }
  return all;
}

Device device_named(const std::string& name) { return choose_device(name).device; }

}  // namespace

void declare_benches(nb::module_& module) {
  using namespace nb::literals;
  nb::class_<Measured>(module, "Measured")
      .def_ro("name", &Measured::name)
      .def_ro("heads", &Measured::heads)
      .def_prop_ro("given", [](const Measured& what) { return handed(what.given); })
      .def_prop_ro("results", [](const Measured& what) { return handed(what.results()); })
      .def("run", [](const Measured& what) {
        const nb::gil_scoped_release unlocked;
        const bench::Repetition found = what.run();
        return std::tuple(found.forward, found.backward, found.peak);
      });
  module.def("threads", &threads);
  module.def("set_threads", &set_threads, "count"_a);
  module.def("measured_attention",
      [](const std::string& scheme, index_t length, index_t heads, index_t kv_heads, index_t head_dim, index_t batch,
          bool sparse, const std::string& executor, const std::string& precision, const std::string& device) {
        return bench::measured_attention(
            {canonical_text(parse_schemes(scheme)), length, heads, kv_heads, head_dim, batch,
                sparse ? bench::Gates::sparse : bench::Gates::initial, storage_dtype_of(precision)},
            executor, device_named(device));
      });
  module.def("measured_ops", [](double scale, const std::string& precision, const std::string& device) {
    return bench::measured_ops(scale, storage_dtype_of(precision), device_named(device));
  });
  module.def(
      "measured_step", [](const std::string& model, const std::string& scheme, index_t batch, index_t length,
                           const std::string& executor, const std::string& precision, const std::string& device) {
        return bench::measured_step({model, scheme, executor, batch, length},
            {.device = device_named(device), .precision = storage_dtype_of(precision), .text = {}});
      });
  module.def("measured_decode", [](const std::string& scheme, index_t prompt, index_t tokens, index_t kv_heads,
                                    const std::string& precision, const std::string& device) {
    return bench::measured_decode({scheme, prompt, tokens, kv_heads}, precision, device_named(device));
  });
}

}  // namespace whence
