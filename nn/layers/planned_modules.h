// Modules of any size without memory.
#pragma once

#include "tensor/device.h"

namespace whence {

// While alive, modules that this thread makes have their parameters on the planned device (tensor/device/planned.cpp): paths,
// shapes and counts are those of the module, and nothing is allocated.
class PlannedModules {
 public:
  explicit PlannedModules(Device in_place_of = Device::cpu());
  ~PlannedModules();
  PlannedModules(const PlannedModules&) = delete;
  PlannedModules& operator=(const PlannedModules&) = delete;

 private:
  Device previous_;
};

}  // namespace whence
