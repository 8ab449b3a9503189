// Reading and writing safetensors: named tensors in a file that anyone can read and that runs no code.
//
//   8 bytes    length n of the header, little-endian, at most 100 MB
//   n bytes    JSON: {"__metadata__": {"key": "text"}, "name": {"dtype": "F32", "shape": [2,3],
//              "data_offsets": [begin, end]}, ...}
//   the rest   numbers, row-major, little-endian; offsets count from here and leave neither hole nor overlap
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tensor/tensor.h"

namespace whence {

struct SafetensorsFile {
  std::vector<std::pair<std::string, Tensor>> tensors;
  std::vector<std::pair<std::string, std::string>> metadata;
};

// Atomic (nn/io/files.h). The same content gives the same bytes in whatever order it is listed. Metadata is sorted by
// key, tensors by element size, largest first, then by name, so that numbers are aligned. Throws Error when a name is
// given twice or a dtype has no name in the format.
void write_safetensors(const std::string& path, const SafetensorsFile& content);

// Tensors in the order of their data, on the CPU; F16 BF16 F32 F64 I32 I64 BOOL. Everything in the file is checked
// before it is believed. Throws InputError "FILE: safetensors: what is wrong; the rule".
[[nodiscard]] SafetensorsFile read_safetensors(const std::string& path);

}  // namespace whence
