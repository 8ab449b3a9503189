// Checks the layout of the data before it allocates anything.
#include "nn/io/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <unordered_set>

#include "nn/io/files.h"
#include "tensor/raw.h"

namespace whence {
namespace {

static_assert(std::endian::native == std::endian::little, "tensors are written as they lie in memory");

constexpr std::uint64_t length_bytes = 8, header_limit = 100'000'000, alignment = 8;

constexpr std::pair<const char*, DType> dtypes[] = {{"F16", DType::f16}, {"BF16", DType::bf16}, {"F32", DType::f32},
    {"F64", DType::f64}, {"I32", DType::i32}, {"I64", DType::i64}, {"BOOL", DType::boolean}};

template <class... Parts> [[noreturn]] void refuse(const std::string& path, const Parts&... parts) {
  throw FileError(path, ": safetensors: ", parts...);
}

// ---- Reading

struct Entry {
  std::string name = {};
  DType dtype = {};
  Shape shape = {};
  std::vector<std::uint64_t> offsets = {};  // begin and end of its data

  std::uint64_t bytes() const { return static_cast<std::uint64_t>(numel(shape)) * size_of(dtype); }
};

// Handles the parser's events: JSON of the form above, no key twice, no NUL, no name that leads out of a folder, shapes
// whose bytes fit in 63 bits. No value of the JSON library is made, because freeing one allocates, and memory may have
// run out.
struct HeaderReader {
  const std::string& path;
  std::vector<Entry> entries = {};
  Metadata metadata = {};
  std::unordered_set<std::string> names = {};
  std::string name = {}, field = {};  // the last keys of the header, and of the object in it
  std::set<std::string> fields = {};  // keys of that object
  Entry entry = {};
  int depth = 0;  // 1: in the header, 2: in the metadata or a tensor's entry, 3: in a list of such an entry

  bool in_metadata() const { return name == "__metadata__"; }
  template <class... Parts> [[noreturn]] void refuse_header(const Parts&... parts) const {
    refuse(path, "header: ", parts...);
  }
  [[noreturn]] void refuse_value(const char* kind, const std::string& value) const {
    if (depth == 1) refuse_header(printable(name), " is ", plain(value), "; an object required");
    const std::string place = plain(name) + ": ";
    if (depth == 3) refuse_header(place, field, " holds ", plain(value), "; whole numbers from 0 to 2^63 - 1 required");
    if (in_metadata()) refuse_header(place, "field ", printable(field), " is ", plain(value), "; a text required");
    refuse_header(place, "field '", field, "' is ", kind, field == "dtype" ? "; a text required" : "; a list required");
  }
  template <class Value> bool refuse_scalar(const char* kind, const Value& value) const {
    refuse_value(kind, nlohmann::json(value).dump());
  }

  bool null() { return refuse_scalar("null", nullptr); }
  bool boolean(bool value) { return refuse_scalar("true or false", value); }
  bool number_integer(std::int64_t value) { return refuse_scalar("a whole number", value); }  // below 0
  bool number_unsigned(std::uint64_t value) {
    if (depth != 3 || value > INT64_MAX) return refuse_scalar("a whole number", value);
    const bool of_shape = field == "shape";
    const std::size_t count = of_shape ? static_cast<std::size_t>(entry.shape.rank()) : entry.offsets.size();
    if (const std::size_t most = of_shape ? max_rank : 2; count == most)
      refuse_header(plain(name), ": ", field, " has more numbers; at most ", most, " required");
    if (of_shape)
      entry.shape.push_back(static_cast<index_t>(value));
    else
      entry.offsets.push_back(value);
    return true;
  }
  bool number_float(double value, const std::string&) { return refuse_scalar("a number", value); }
  bool string(std::string& text) {
    if (depth != 2 || (!in_metadata() && field != "dtype")) return refuse_scalar("a text", text);
    if (in_metadata()) return metadata.emplace(field, text).second;
    const auto* const found = std::ranges::find(dtypes, text, [](const auto& each) { return each.first; });
    if (found == std::end(dtypes))
      refuse(path, "tensor ", printable(name), " has dtype ", printable(text),
          "; F16, BF16, F32, F64, I32, I64 or BOOL required");
    entry.dtype = found->second;
    return true;
  }
  bool binary(nlohmann::json::binary_t&) { return false; }
  bool start_array(std::size_t) {
    if (depth != 2 || in_metadata() || field == "dtype") refuse_value("a list", "a list");
    return ++depth;
  }
  bool end_array() { return --depth; }
  bool start_object(std::size_t) {
    if (depth >= 2) refuse_value("an object", "an object");
    fields.clear(), entry = {.name = name};
    return ++depth;
  }
  bool key(std::string& text) {
    const bool is_name = depth == 1;
    if (!(is_name ? names.insert(text).second : fields.insert(text).second))
      refuse_header(is_name ? "" : plain(name) + ": ", "field ", printable(text), " given twice; once required");
    (is_name ? name : field) = text;
    if (is_name && (text.find('\0') != text.npos || text.find("../") != text.npos))
      refuse_header("a tensor is called ", printable(text), "; a name without NUL and ../ required");
    if (!is_name && !in_metadata() && text != "dtype" && text != "shape" && text != "data_offsets")
      refuse_header(
          plain(name), ": field ", printable(text), " given; dtype, shape and data_offsets required, and no other");
    return true;
  }
  bool end_object() {
    if (--depth == 0 || in_metadata()) return true;
    for (const std::string_view required : {"dtype", "shape", "data_offsets"})
      if (!fields.contains(std::string(required)))
        refuse_header(plain(name), ": no field '", required, required == "dtype" ? "'; a text" : "'; a list",
            " of that name required");
    if (entry.offsets.size() != 2) refuse_header(plain(name), ": data_offsets of another length; two required");
    // Zeros count as 1, because a zero must not hide that the other extents overflow.
    index_t bytes = static_cast<index_t>(size_of(entry.dtype));
    for (const index_t extent : entry.shape)
      if (__builtin_mul_overflow(bytes, std::max<index_t>(extent, 1), &bytes))
        refuse(path, "tensor ", printable(name), " has a shape whose bytes overflow at extent ", extent,
            "; less than 2^63 required");
    entries.push_back(std::move(entry));
    return true;
  }
  bool parse_error(std::size_t byte, const std::string&, const nlohmann::json::exception& error) {
    if (dynamic_cast<const nlohmann::json::out_of_range*>(&error))
      refuse_header("a number beyond what a computer's numbers hold, at byte ", byte);
    refuse(path, "header: no JSON, from its byte ", byte, " on; one whole object required");
  }
};

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

// Returns all bytes before the data.
std::string read_head(const std::string& path, const InputFile& file) {
  std::string first(static_cast<std::size_t>(std::min<std::uint64_t>(file.size(), length_bytes + 1)), '\0');
  file.read(0, std::as_writable_bytes(std::span(first)));
  std::uint64_t length = 0;
  if (first.size() > length_bytes) std::memcpy(&length, first.data(), length_bytes);
  const bool opens = first.size() > length_bytes && first.back() == '{';
  const std::uint64_t most = file.size() - std::min(file.size(), length_bytes);
  if (!opens || length < 2 || length > std::min(header_limit, most)) {
    if (const char* const format = foreign_format(first)) refuse(path, "this is ", format);
    if (first.size() <= length_bytes)
      refuse(path, file.size(), " bytes; 8 bytes of header length and a header required");
    const std::string says = to_text("header length at byte 0 is ", length);
    if (length > header_limit) refuse(path, says, "; at most ", header_limit, " required");
    if (length > most) refuse(path, says, " but ", most, " bytes follow; is the file cut off?");
    if (length < 2) refuse(path, says, "; 2 or more required");
    refuse(path, "byte 8 does not open a JSON object; '{' required");
  }
  std::string head(static_cast<std::size_t>(length_bytes + length), '\0');
  file.read(0, std::as_writable_bytes(std::span(head)));
  if (const std::size_t at = head.find('\0', length_bytes); at != head.npos)  // the parser would stop there
    refuse(path, "header: holds a NUL at byte ", at - length_bytes, "; JSON text required; is the file damaged?");
  return head;
}

// Sorts the entries by their data, which must fill `data_bytes` without hole or overlap, each as its shape says.
void order_by_data(const std::string& path, std::vector<Entry>& entries, std::uint64_t data_bytes) {
  std::ranges::sort(entries, {}, &Entry::offsets);
  std::uint64_t end = 0;
  for (const Entry& entry : entries) {
    const std::string tensor = "tensor " + printable(entry.name);
    if (entry.offsets[0] > entry.offsets[1] || entry.offsets[1] > data_bytes)
      refuse(path, tensor, " lies from ", entry.offsets[0], " to ", entry.offsets[1], "; begin <= end <= ", data_bytes,
          ", the data's size, required; is the file cut off?");
    if (entry.offsets[0] != end)
      refuse(path, tensor, " begins at ", entry.offsets[0], " where the data before it ends at ", end,
          "; neither hole nor overlap required");
    end = entry.offsets[1];
    if (const std::uint64_t found = end - entry.offsets[0]; found != entry.bytes())
      refuse(path, tensor, " has ", found, " bytes; ", entry.bytes(), " required by ",
          std::ranges::find(dtypes, entry.dtype, [](const auto& each) { return each.second; })->first, ' ',
          entry.shape);
  }
  if (end != data_bytes)
    refuse(path, "the tensors end at ", end, " of ", data_bytes, " data bytes; nothing after the last tensor required");
}

// ---- Writing

NamedTensors in_file_order(const NamedTensors& given) {
  NamedTensors tensors;
  std::set<std::string> names{"__metadata__"};
  for (const auto& [name, tensor] : given) {
    if (!names.insert(name).second)
      throw Error("safetensors: name ", printable(name), " given twice, or reserved; another required");
    tensors.emplace_back(name, raw::to_device(raw::contiguous(tensor.detach()), Device::cpu()));
  }
  std::ranges::sort(tensors, {},
      [](const auto& each) { return std::pair(-static_cast<int>(size_of(each.second.dtype())), each.first); });
  return tensors;
}

std::span<const std::byte> bytes_of(const Tensor& tensor) {
  return {tensor.bytes(), static_cast<std::size_t>(tensor.numel()) * size_of(tensor.dtype())};
}

// Returns all bytes before the data.
std::string head_of(const NamedTensors& tensors, const Metadata& metadata) try {
  const auto quoted = [](const std::string& text) { return nlohmann::json(text).dump(); };
  std::string text = R"({"__metadata__":{)";
  for (const auto& [key, value] : metadata)
    text += to_text(text.back() == '{' ? "" : ",", quoted(key), ':', quoted(value));
  text += '}';
  std::size_t begin = 0;
  for (const auto& [name, tensor] : tensors) {
    const auto* const known = std::ranges::find(dtypes, tensor.dtype(), [](const auto& each) { return each.second; });
    if (known == std::end(dtypes))
      throw Error("safetensors: tensor ", printable(name), " is ", tensor.dtype(),
          ", which the format has no name for; cast it first");
    const std::size_t end = begin + bytes_of(tensor).size();
    text += to_text(',', quoted(name), R"(:{"dtype":")", known->first, R"(","shape":)", tensor.shape(),
        R"(,"data_offsets":[)", begin, ',', end, "]}");
    begin = end;
  }
  text += '}';
  text.resize((text.size() + alignment - 1) / alignment * alignment, ' ');
  if (text.size() > header_limit)
    throw Error("safetensors: a header of ", text.size(), " bytes; ", header_limit, " allowed");
  const std::uint64_t length = text.size();
  return std::string(reinterpret_cast<const char*>(&length), length_bytes) + text;
} catch (const nlohmann::json::type_error&) { throw InputError("JSON: text that is not UTF-8 given; UTF-8 required"); }

}  // namespace

std::string plain(const std::string& name) {
  constexpr std::size_t limit = 64;
  std::string shown = name.substr(0, limit);
  for (char& c : shown)
    if (static_cast<unsigned char>(c) < 32 || c == 127) c = '?';
  return shown + (name.size() > limit ? "..." : "");
}

std::string printable(const std::string& name) { return "'" + plain(name) + "'"; }

SafetensorsFile read_safetensors(const std::string& path) {
  const InputFile file(path);
  const std::string head = read_head(path, file);
  HeaderReader header{path};
  nlohmann::json::sax_parse(std::string_view(head).substr(length_bytes), &header);
  order_by_data(path, header.entries, file.size() - head.size());

  SafetensorsFile content{{}, std::move(header.metadata)};
  const auto seal = content.metadata.find(seal_key);
  const bool sealed = seal != content.metadata.end();
  if (sealed) content.seal = seal->second, content.metadata.erase(seal);
  Sha256 hash = sealed ? hash_around_seal(head, content.seal) : Sha256();
  for (const Entry& entry : header.entries) {
    const Tensor tensor = Tensor::empty(entry.shape, entry.dtype);
    const std::span<std::byte> numbers(tensor.bytes(), static_cast<std::size_t>(entry.bytes()));
    file.read(head.size() + entry.offsets[0], numbers);
    if (sealed) hash.add(numbers);
    for (std::size_t i = 0; entry.dtype == DType::boolean && i < numbers.size(); ++i)
      if (numbers[i] > std::byte{1})
        refuse(path, "tensor ", printable(entry.name), " is BOOL and holds ", static_cast<int>(numbers[i]),
            " at element ", i, "; 0 or 1 required");
    content.tensors.emplace_back(entry.name, tensor);
  }
  if (const std::string found = hash.hexadecimal(); sealed && found != content.seal)
    refuse_damaged(to_text(path, ": is damaged: its SHA-256 is ", found, "; ", plain(content.seal),
        ", as its metadata ", seal_key, " says, required"));
  return content;
}

std::string write_safetensors(const std::string& path, const SafetensorsFile& content) {
  const NamedTensors tensors = in_file_order(content.tensors);
  Metadata metadata = content.metadata;
  if (!metadata.emplace(seal_key, std::string(64, '0')).second)
    throw Error("safetensors: metadata ", seal_key, " given; other keys required; the writer seals the file itself");
  std::string head = head_of(tensors, metadata);
  std::vector<std::span<const std::byte>> parts{std::as_bytes(std::span(head))};
  for (const auto& entry : tensors) parts.push_back(bytes_of(entry.second));
  Sha256 hash;
  for (const auto& part : parts) hash.add(part);
  const std::string seal = hash.hexadecimal(), before = to_text('"', seal_key, "\":\"");
  head.replace(head.find(before) + before.size(), seal.size(), seal);  // elsewhere in the head, quotes are escaped
  write_file(path, parts);
  return seal;
}

}  // namespace whence
