// Where a program's model runs, and in which numbers: --threads, --device, --precision and --products, declared once
// for every program that runs one.
#pragma once

#include <string>

#include "examples/whence/cli/command_line.h"
#include "nn/training/precision.h"
#include "tensor/parallel.h"

namespace whence {

struct MachineOptions {
  int threads = whence::threads();
  std::string device = "auto";
  std::string precision = "f32";
  std::string products = "f32";
};

// Under the title "Machine".
void declare(CommandLine& line, MachineOptions& options);
// --device alone, where a program has its own way to say the rest.
void declare_device(CommandLine& line, std::string* device);

struct Placement {
  Device device;
  DType precision = DType::f32;
  std::string text;  // "device: cpu, because ...; precision: bf16; products: bf16"
};

// Sets the threads and the numbers of products, and finds the device. InputError, with the cause, when a GPU, or bf16
// for products, is asked for and cannot be had.
[[nodiscard]] Placement placement_of(const MachineOptions& options);

// Moves a model there and rounds it. For a model that is only run, not trained, and has its parameters already.
void place(Module& model, const Placement& placement);

}  // namespace whence
