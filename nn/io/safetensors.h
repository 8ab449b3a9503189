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

#include "nn/io/errors.h"
#include "tensor/tensor.h"

namespace whence {

using NamedTensors = std::vector<std::pair<std::string, Tensor>>;
using Metadata = std::map<std::string, std::string>;

// Every file that is written here has a seal, the metadata whence.seal: the SHA-256 of the file's bytes, of which the
// 64 digits of the seal itself count as zeros. So one changed bit anywhere in the file is noticed. In Python:
//   bytes = open(file, "rb").read()
//   sha256(bytes.replace(seal.encode(), b"0" * 64, 1)).hexdigest() == seal
inline constexpr const char* seal_key = "whence.seal";

// How much is believed of files that carry seals, and what is to be said about it. Nothing in nn prints.
struct Trust {
  bool accept_damaged = false;          // files that their seals do not prove are taken all the same, with a note
  std::vector<std::string> notes = {};  // "FILE: what is to be known of it", a line each, for people; added to
};

// `what`: "FILE: is damaged: why". FileError of that text, or a note of it if `trust` accepts damage.
void refuse_damaged(const std::string& what, Trust* trust);

struct SafetensorsFile {
  NamedTensors tensors;
  Metadata metadata = {};  // without the seal
  std::string seal = {};   // of a file that was read: empty where it has none
};

// Returns the seal. Atomic (nn/io/files.h). The same content gives the same bytes in whatever order it is listed:
// metadata is sorted by key, tensors by element size, largest first, then by name, so that numbers are aligned. Throws
// Error when a name is given twice, a dtype has no name in the format or metadata holds a seal, InputError when text is
// not UTF-8, and what write_file throws.
std::string write_safetensors(const std::string& path, const SafetensorsFile& content);

// Tensors in the order of their data, on the CPU; F16 BF16 F32 F64 I32 I64 BOOL. Everything in the file is checked
// before it is believed: its form, and its bytes by the seal if it has one. Throws FileError "FILE: safetensors: what
// is wrong; the rule", or what refuse_damaged throws with `trust`; SystemError when the file cannot be read.
[[nodiscard]] SafetensorsFile read_safetensors(const std::string& path, Trust* trust = nullptr);

}  // namespace whence
