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

#include "nn/io/trust.h"
#include "tensor/tensor.h"

namespace whence {

// The metadata whence.sha256 proves the tensors: it is the SHA-256 of the lines
//
//   HASH DTYPE SHAPE LENGTH NAME
//
// one for every tensor, each with a line end, in the byte order of the names. HASH is the SHA-256 of the tensor's data,
// in hexadecimal as everywhere, DTYPE as in the header, SHAPE as "[2,3]", LENGTH the bytes of NAME. In Python:
//   sha256("".join(f"{sha256(data)} {dtype} [{','.join(map(str, shape))}] {len(name)} {name}\n" ...sorted by name))
struct SafetensorsFile {
  std::vector<std::pair<std::string, Tensor>> tensors;
  std::vector<std::pair<std::string, std::string>> metadata;
  bool proven = false;  // read, with a checksum, and the bytes are what was hashed
};

constexpr const char* content_sha256_key = "whence.sha256";

// Atomic (nn/io/files.h). The same content gives the same bytes in whatever order it is listed. Metadata is sorted by
// key, tensors by element size, largest first, then by name, so that numbers are aligned. Where the metadata holds
// whence.sha256, its value is made anew, while the data are written. Throws Error when a name is given twice or a dtype
// has no name in the format, and what write_file throws.
void write_safetensors(const std::string& path, const SafetensorsFile& content);

// The same without whence.sha256; returns the SHA-256 of the whole file, made while it is written.
[[nodiscard]] std::string write_hashed_safetensors(const std::string& path, SafetensorsFile content);

// Tensors in the order of their data, on the CPU; F16 BF16 F32 F64 I32 I64 BOOL. Everything in the file is checked
// before it is believed: its form, and its bytes as they are read, by `sha256`, of the whole file, if it is not empty,
// else by whence.sha256 if the file has that. Throws FileError "FILE: safetensors: what is wrong; the rule", or what
// require_sha256 throws with `trust`; SystemError when the file cannot be read.
[[nodiscard]] SafetensorsFile read_safetensors(
    const std::string& path, Trust* trust = nullptr, const std::string& sha256 = {});

}  // namespace whence
