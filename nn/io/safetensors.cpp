// Checks the layout of the data before it allocates anything.
#include "nn/io/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <set>

#include "nn/io/files.h"
#include "nn/io/safetensors_header.h"
#include "nn/io/sha256.h"
#include "tensor/raw.h"

namespace whence {
namespace {

static_assert(std::endian::native == std::endian::little, "tensors are written as they lie in memory");

constexpr std::uint64_t length_bytes = 8;
constexpr std::uint64_t header_limit = 100'000'000;
constexpr std::uint64_t alignment = 8;

constexpr std::pair<const char*, DType> dtypes[] = {{"F16", DType::f16}, {"BF16", DType::bf16}, {"F32", DType::f32},
    {"F64", DType::f64}, {"I32", DType::i32}, {"I64", DType::i64}, {"BOOL", DType::boolean}};

template <class... Parts> [[noreturn]] void refuse(const std::string& path, const Parts&... parts) {
  throw FileError(path, ": safetensors: ", parts...);
}

// ---- The seal

constexpr std::size_t seal_digits = 64;

// Returns where the digits of the seal begin in the head. The search text is unique: inside a name or other metadata,
// quotes are escaped.
std::size_t place_of_seal(const std::string& head) {
  const std::string before = to_text('"', seal_key, "\":\"");
  const std::size_t found = head.find(before);
  return found == head.npos ? head.npos : found + before.size();
}

// Hashes the head with zeros in place of the seal; the data are added to it.
Sha256 hash_of_head(std::string head) {
  if (const std::size_t at = place_of_seal(head); at != head.npos && at + seal_digits <= head.size())
    head.replace(at, seal_digits, seal_digits, '0');
  Sha256 hash;
  hash.add(head);
  return hash;
}

// ---- Reading

// Returns what a file without a sensible header length is, if its first bytes tell.
const char* foreign_format(const std::string& first) {
  if (first.starts_with("PK\x03\x04"))
    return "a zip archive, as torch.save writes; convert it with safetensors.torch.save_file";
  if (first.size() > 1 && first[0] == '\x80' && first[1] >= 2 && first[1] <= 5)
    return "a Python pickle, which can run code; convert it with safetensors.torch.save_file";
  if (first.starts_with("GGUF")) return "a GGUF file; convert it to safetensors";
  if (first.starts_with("\x89HDF\r\n\x1a\n")) return "an HDF5 file; convert it to safetensors";
  return nullptr;
}

std::uint64_t checked_header_length(const std::string& path, const InputFile& file) {
  std::string first(static_cast<std::size_t>(std::min<std::uint64_t>(file.size(), length_bytes + 1)), '\0');
  file.read(0, std::as_writable_bytes(std::span(first)));
  std::uint64_t length = 0;
  if (first.size() > length_bytes) std::memcpy(&length, first.data(), length_bytes);
  const bool opens = first.size() > length_bytes && first.back() == '{';
  if (opens && length >= 2 && length <= header_limit && length <= file.size() - length_bytes) return length;
  if (const char* const format = foreign_format(first)) refuse(path, "this is ", format);
  if (first.size() <= length_bytes) refuse(path, file.size(), " bytes; 8 bytes of header length and a header required");
  if (length > header_limit)
    refuse(path, "header length at byte 0 is ", length, "; at most ", header_limit, " required");
  if (length > file.size() - length_bytes) {
    refuse(path, "header length at byte 0 is ", length, " but ", file.size() - length_bytes,
        " bytes follow; is the file cut off?");
  }
  if (length < 2) refuse(path, "header length at byte 0 is ", length, "; 2 or more required");
  refuse(path, "byte 8 does not open a JSON object; '{' required");
}

DType dtype_named(const std::string& path, const SafetensorsEntry& entry) {
  for (const auto& [name, dtype] : dtypes)
    if (entry.dtype == name) return dtype;
  refuse(path, "tensor ", printable(entry.name), " has dtype ", printable(entry.dtype),
      "; F16, BF16, F32, F64, I32, I64 or BOOL required");
}

// Overflow is checked with zeros counted as 1, because a zero must not hide that the other extents overflow.
Shape checked_shape(const std::string& path, const SafetensorsEntry& entry, DType dtype) {
  Shape shape;
  index_t bytes = static_cast<index_t>(size_of(dtype));
  for (const std::uint64_t extent : entry.shape) {
    const bool fits = extent <= static_cast<std::uint64_t>(INT64_MAX);
    if (!fits || __builtin_mul_overflow(bytes, std::max<index_t>(static_cast<index_t>(extent), 1), &bytes)) {
      refuse(path, "tensor ", printable(entry.name), " has a shape whose bytes overflow at extent ", extent,
          "; less than 2^63 required");
    }
    shape.push_back(static_cast<index_t>(extent));
  }
  return shape;
}

// Sorts the entries by their data, which must fill `data_bytes` without hole or overlap.
void order_by_data(const std::string& path, std::vector<SafetensorsEntry>& entries, std::uint64_t data_bytes) {
  for (const SafetensorsEntry& entry : entries) {
    if (entry.offsets[0] > entry.offsets[1] || entry.offsets[1] > data_bytes) {
      refuse(path, "tensor ", printable(entry.name), " lies from ", entry.offsets[0], " to ", entry.offsets[1],
          "; begin <= end <= ", data_bytes, ", the data's size, required; is the file cut off?");
    }
  }
  std::sort(entries.begin(), entries.end(),
      [](const SafetensorsEntry& a, const SafetensorsEntry& b) { return a.offsets < b.offsets; });
  std::uint64_t end = 0;
  for (const SafetensorsEntry& entry : entries) {
    if (entry.offsets[0] != end) {
      refuse(path, "tensor ", printable(entry.name), " begins at ", entry.offsets[0],
          " where the data before it ends at ", end, "; neither hole nor overlap required");
    }
    end = entry.offsets[1];
  }
  if (end != data_bytes)
    refuse(path, "the tensors end at ", end, " of ", data_bytes, " data bytes; nothing after the last tensor required");
}

void require_booleans(const std::string& path, const SafetensorsEntry& entry, std::span<const std::byte> bytes) {
  const auto wrong = std::find_if(bytes.begin(), bytes.end(), [](std::byte b) { return b > std::byte{1}; });
  if (wrong == bytes.end()) return;
  refuse(path, "tensor ", printable(entry.name), " is BOOL and holds ", static_cast<int>(*wrong), " at element ",
      wrong - bytes.begin(), "; 0 or 1 required");
}

Tensor read_tensor(const std::string& path, const InputFile& file, const SafetensorsEntry& entry,
    std::uint64_t data_begin, Sha256* hash) {
  const DType dtype = dtype_named(path, entry);
  const Shape shape = checked_shape(path, entry, dtype);
  const std::uint64_t bytes = static_cast<std::uint64_t>(numel(shape)) * size_of(dtype);
  if (bytes != entry.offsets[1] - entry.offsets[0]) {
    refuse(path, "tensor ", printable(entry.name), " has ", entry.offsets[1] - entry.offsets[0], " bytes; ", bytes,
        " required by ", entry.dtype, " ", shape);
  }
  const Tensor tensor = Tensor::empty(shape, dtype);
  const std::span<std::byte> numbers(tensor.bytes(), static_cast<std::size_t>(bytes));
  file.read(data_begin + entry.offsets[0], numbers);
  if (hash) hash->add(numbers);
  if (dtype == DType::boolean) require_booleans(path, entry, numbers);
  return tensor;
}

// ---- Writing

const char* name_of(DType dtype, const std::string& tensor) {
  for (const auto& [name, known] : dtypes)
    if (dtype == known) return name;
  throw Error(
      "safetensors: tensor ", printable(tensor), " is ", dtype, ", which the format has no name for; cast it first");
}

NamedTensors in_file_order(const NamedTensors& given) {
  NamedTensors tensors;
  std::set<std::string> names{"__metadata__"};
  for (const auto& [name, tensor] : given) {
    if (!names.insert(name).second)
      throw Error("safetensors: name ", printable(name), " given twice, or reserved; another required");
    tensors.emplace_back(name, raw::to_device(raw::contiguous(tensor.detach()), Device::cpu()));
  }
  std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) {
    const std::size_t size_a = size_of(a.second.dtype()), size_b = size_of(b.second.dtype());
    return size_a != size_b ? size_a > size_b : a.first < b.first;
  });
  return tensors;
}

SafetensorsHeader header_of(const NamedTensors& tensors, const Metadata& metadata) {
  SafetensorsHeader header{{}, metadata};
  std::uint64_t begin = 0;
  for (const auto& [name, tensor] : tensors) {
    const std::uint64_t end = begin + static_cast<std::uint64_t>(tensor.numel()) * size_of(tensor.dtype());
    const std::vector<std::uint64_t> shape(tensor.shape().begin(), tensor.shape().end());
    header.entries.push_back({name, name_of(tensor.dtype(), name), shape, {begin, end}});
    begin = end;
  }
  return header;
}

std::span<const std::byte> bytes_of(const Tensor& tensor) {
  return {tensor.bytes(), static_cast<std::size_t>(tensor.numel()) * size_of(tensor.dtype())};
}

// Returns all bytes before the data.
std::string head_of(const SafetensorsHeader& header) {
  std::string text = safetensors_header_text(header);
  text.resize((text.size() + alignment - 1) / alignment * alignment, ' ');
  if (text.size() > header_limit)
    throw Error("safetensors: a header of ", text.size(), " bytes; ", header_limit, " allowed");
  const std::uint64_t length = text.size();
  std::string head(length_bytes, '\0');
  std::memcpy(head.data(), &length, length_bytes);
  return head + text;
}

}  // namespace

void refuse_damaged(const std::string& what, Trust* trust) {
  if (!trust || !trust->accept_damaged)
    throw FileError(what, "; restore it from a copy, or accept the damage (--accept-damaged)");
  trust->notes.push_back(what + "; it is used all the same");
}

SafetensorsFile read_safetensors(const std::string& path, Trust* trust) {
  const InputFile file(path);
  const std::uint64_t length = checked_header_length(path, file);
  std::string head(static_cast<std::size_t>(length_bytes + length), '\0');
  file.read(0, std::as_writable_bytes(std::span(head)));
  SafetensorsHeader header = parse_safetensors_header(path, head.substr(length_bytes));
  order_by_data(path, header.entries, file.size() - head.size());

  SafetensorsFile content{{}, std::move(header.metadata)};
  const auto seal = content.metadata.find(seal_key);
  const bool sealed = seal != content.metadata.end();
  Sha256 hash = hash_of_head(head);
  for (const SafetensorsEntry& entry : header.entries)
    content.tensors.emplace_back(entry.name, read_tensor(path, file, entry, head.size(), sealed ? &hash : nullptr));
  if (!sealed) return content;
  content.seal = seal->second;
  content.metadata.erase(seal);
  if (const std::string found = hash.hexadecimal(); found != content.seal) {
    refuse_damaged(to_text(path, ": is damaged: its SHA-256 is ", found, "; ",
                       is_sha256(content.seal) ? content.seal : printable(content.seal), ", as its metadata ", seal_key,
                       " says, required"),
        trust);
  }
  return content;
}

std::string write_safetensors(const std::string& path, const SafetensorsFile& content) {
  const NamedTensors tensors = in_file_order(content.tensors);
  Metadata metadata = content.metadata;
  if (!metadata.emplace(seal_key, std::string(seal_digits, '0')).second)
    throw Error("safetensors: metadata ", seal_key, " given; other keys required; the writer seals the file itself");
  std::string head = head_of(header_of(tensors, metadata));
  Sha256 hash = hash_of_head(head);
  for (const auto& entry : tensors) hash.add(bytes_of(entry.second));
  const std::string seal = hash.hexadecimal();
  head.replace(place_of_seal(head), seal_digits, seal);
  std::vector<std::span<const std::byte>> parts{std::as_bytes(std::span(head))};
  for (const auto& entry : tensors) parts.push_back(bytes_of(entry.second));
  write_file(path, parts);
  return seal;
}

}  // namespace whence
