// Reading and writing safetensors: named tensors in a file that anyone can read and that runs no code.
//
//   8 bytes    length n of the header, little-endian, at most 100 MB
//   n bytes    JSON: {"__metadata__": {"key": "text"}, "name": {"dtype": "F32", "shape": [2,3],
//              "data_offsets": [begin, end]}, ...}
//   the rest   numbers, row-major, little-endian; offsets count from here and leave neither hole nor overlap
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "nn/io/files.h"
#include "tensor/tensor.h"

namespace whence {

using NamedTensors = std::vector<std::pair<std::string, Tensor>>;
using Metadata = std::map<std::string, std::string>;

inline constexpr const char* seal_key = "whence.seal";  // of the metadata: nn/io/files.h

struct SafetensorsFile {
  NamedTensors tensors;
  Metadata metadata = {};  // without the seal
  std::string seal = {};   // set by reading; empty if the file has none
};

// Returns the seal. Atomic (nn/io/files.h). The same content gives the same bytes in any order: metadata is sorted by
// key; tensors by element size, largest first, then by name, so that numbers are aligned. Throws Error if a name occurs
// twice, a dtype has no name in the format or metadata holds a seal, InputError if text is not UTF-8, and the errors of
// write_file.
std::string write_safetensors(const std::string& path, const SafetensorsFile& content);

// Returns tensors in the order of their data, on the CPU; F16 BF16 F32 F64 I32 I64 BOOL. The form of the file is
// checked first, and its bytes by the seal if it has one. Throws FileError "FILE: safetensors: what is wrong; the
// rule", or the error of refuse_damaged; SystemError if the file cannot be read.
[[nodiscard]] SafetensorsFile read_safetensors(const std::string& path);

// A name from a file, safe to print: control characters replaced, long names cut; and the same in quotes.
std::string plain(const std::string& name);
std::string printable(const std::string& name);

}  // namespace whence
