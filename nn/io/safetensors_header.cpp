#include "nn/io/safetensors_header.h"

#include "nn/io/json.h"
#include "tensor/error.h"
#include "tensor/shape.h"
#include "tensor/suggest.h"

namespace whence {
namespace {

// Of a list of counts, at most `most`.
std::vector<std::uint64_t> counts_in(const Json& entry, const char* name, std::size_t most) {
  std::vector<std::uint64_t> counts;
  for (const Json& each : entry.list(name)) {
    const auto* count = each.as<std::int64_t>();
    if (!count || *count < 0)
      entry.refuse(to_text(name, " holds ", plain(each.line()), "; whole numbers from 0 to 2^63 - 1 required"));
    if (counts.size() == most) entry.refuse(to_text(name, " has more numbers; at most ", most, " required"));
    counts.push_back(static_cast<std::uint64_t>(*count));
  }
  return counts;
}

SafetensorsEntry entry_of(const std::string& name, const Json& json) {
  for (const auto& [field, value] : json.fields())
    if (field != "dtype" && field != "shape" && field != "data_offsets")
      json.refuse(to_text("field ", printable(field), " given; dtype, shape and data_offsets required, and no other"));
  SafetensorsEntry entry{
      name, json.text("dtype"), counts_in(json, "shape", max_rank), counts_in(json, "data_offsets", 2)};
  if (entry.offsets.size() != 2) json.refuse("data_offsets of another length; two required");
  return entry;
}

}  // namespace

std::string plain(const std::string& name) {
  constexpr std::size_t limit = 60;
  std::string shown = name.substr(0, limit);
  for (char& c : shown)
    if (static_cast<unsigned char>(c) < 32 || c == 127) c = '?';
  return shown + (name.size() > limit ? "..." : "");
}

std::string printable(const std::string& name) { return "'" + plain(name) + "'"; }

SafetensorsHeader parse_safetensors_header(const std::string& path, const std::string& json) {
  SafetensorsHeader header;
  const std::string place = path + ": safetensors: header";
  (void)Json::read(json, place, [&](const std::string& name, const Json& value) {
    if (!value.is_object())
      throw FileError(place, ": ", printable(name), " is ", plain(value.line()), "; an object required");
    if (name.find('\0') != name.npos || name.find("../") != name.npos)
      throw FileError(place, ": a tensor is called ", printable(name), "; a name without NUL and ../ required");
    if (name != "__metadata__") {
      header.entries.push_back(entry_of(name, value));
      return;
    }
    for (const auto& [key, text] : value.fields()) {
      const auto* held = text.as<std::string>();
      if (!held) value.refuse(to_text("field ", printable(key), " is ", plain(text.line()), "; a text required"));
      header.metadata.emplace(key, *held);
    }
  });
  return header;
}

std::string safetensors_header_text(const SafetensorsHeader& header) {
  Json::Fields metadata;
  for (const auto& [name, text] : header.metadata) metadata.push_back({name, text});
  Json page{{"__metadata__", metadata}};
  for (const SafetensorsEntry& entry : header.entries)
    page.add(entry.name, {{"dtype", entry.dtype}, {"shape", entry.shape}, {"data_offsets", entry.offsets}});
  return page.line(Json::Utf8::refused);
}

}  // namespace whence
