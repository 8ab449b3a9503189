#include "nn/io/safetensors_header.h"

#include <nlohmann/json.hpp>
#include <unordered_set>

#include "tensor/error.h"
#include "tensor/shape.h"
#include "tensor/suggest.h"

namespace whence {
namespace {

using Json = nlohmann::json;

// Takes the parser's events one by one: keys given twice are seen, and nesting
// deeper than the format has ends the parse at once.
class HeaderEvents final : public nlohmann::json_sax<Json> {
 public:
  explicit HeaderEvents(const std::string& path) : path_(path) {}
  SafetensorsHeader header;

  bool start_object(std::size_t) override {
    if (place_ == Place::outside)
      place_ = Place::top;
    else if (place_ == Place::top && key_ == "__metadata__")
      place_ = Place::metadata;
    else if (place_ == Place::top)
      header.entries.push_back({key_, {}, {}, {}}), place_ = Place::tensor;
    else
      refuse("holds an object", expected());
    if (place_ != Place::top) inner_keys_.clear();
    return true;
  }

  bool key(std::string& name) override {
    auto& seen = place_ == Place::top ? top_keys_ : inner_keys_;
    if (!seen.insert(name).second) refuse(to_text("holds key ", printable(name), " twice"), "keys must differ");
    if (place_ == Place::tensor && name != "dtype" && name != "shape" && name != "data_offsets")
      refuse(to_text("holds key ", printable(name)), "dtype, shape and data_offsets required, and no other");
    if (place_ == Place::top && (name.find('\0') != std::string::npos || name.find("../") != std::string::npos))
      refuse(to_text("names a tensor ", printable(name)), "a name without NUL and ../ required");
    (place_ == Place::top ? key_ : inner_key_) = name;
    return true;
  }

  bool end_object() override {
    if (place_ == Place::tensor && inner_keys_.size() != 3)
      refuse("lacks a key", "dtype, shape and data_offsets required");
    if (place_ == Place::tensor && header.entries.back().offsets.size() != 2)
      refuse("has data_offsets of another length", "two required");
    place_ = place_ == Place::top ? Place::outside : Place::top;
    return true;
  }

  bool start_array(std::size_t) override {
    if (place_ != Place::tensor || inner_key_ == "dtype") refuse("holds an array", expected());
    place_ = Place::array;
    return true;
  }

  bool end_array() override {
    place_ = Place::tensor;
    return true;
  }

  bool number_unsigned(std::uint64_t value) override {
    if (place_ != Place::array) refuse(to_text("holds number ", value), expected());
    SafetensorsEntry& entry = header.entries.back();
    const bool is_shape = inner_key_ == "shape";
    auto& numbers = is_shape ? entry.shape : entry.offsets;
    const std::size_t limit = is_shape ? max_rank : 2;
    if (numbers.size() == limit)
      refuse(is_shape ? "has more axes" : "has more offsets", to_text("at most ", limit, " required"));
    numbers.push_back(value);
    return true;
  }

  bool string(std::string& text) override {
    if (place_ == Place::metadata)
      header.metadata.emplace(inner_key_, text);
    else if (place_ == Place::tensor && inner_key_ == "dtype")
      header.entries.back().dtype = text;
    else
      refuse(to_text("holds text ", printable(text)), expected());
    return true;
  }

  bool number_integer(std::int64_t value) override { refuse(to_text("holds number ", value), expected()); }
  bool number_float(double, const std::string& text) override {
    refuse(to_text("holds number ", printable(text)), expected());
  }
  bool null() override { refuse("holds null", expected()); }
  bool boolean(bool value) override { refuse(value ? "holds true" : "holds false", expected()); }
  bool binary(Json::binary_t&) override { refuse("holds binary data", expected()); }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) override {
    refuse(to_text("is no JSON at byte ", 7 + position),
        "a JSON object required; is the file damaged, or another format?");
  }

 private:
  enum class Place : unsigned char { outside, top, metadata, tensor, array };

  const char* expected() const {
    switch (place_) {
      case Place::metadata: return "texts required in __metadata__";
      case Place::tensor: return "a dtype by name, and shape and data_offsets as arrays required";
      case Place::array: return "whole numbers from 0 to 2^64 - 1 required";
      default: return "an object of objects required";
    }
  }

  [[noreturn]] void refuse(const std::string& what, const std::string& rule) const {
    const bool inside = place_ == Place::tensor || place_ == Place::array;
    const std::string where = inside ? to_text("tensor ", printable(header.entries.back().name)) : "header";
    throw FileError(path_, ": safetensors: ", where, " ", what, "; ", rule);
  }

  const std::string& path_;
  Place place_ = Place::outside;
  std::string key_, inner_key_;
  std::unordered_set<std::string> top_keys_, inner_keys_;
};

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
  if (const std::size_t at = json.find('\0'); at != std::string::npos) {
    throw FileError(path, ": safetensors: header holds a NUL at byte ", 8 + at,
        ", which the parser would take for its end; JSON text required; is the file damaged?");
  }
  HeaderEvents events(path);
  Json::sax_parse(json, &events);
  return std::move(events.header);
}

// As text, value by value: an object of the library takes memory to be freed, and ends the program where there is none.
std::string safetensors_header_text(const SafetensorsHeader& header) try {
  const auto quoted = [](const std::string& text) { return Json(text).dump(); };
  const auto pair = [&](const auto& entry) { return quoted(entry.first) + ':' + quoted(entry.second); };
  std::string text = "{\"__metadata__\":{" + joined(header.metadata, pair, ",") + '}';
  for (const SafetensorsEntry& entry : header.entries) {
    text += to_text(',', quoted(entry.name), ":{\"dtype\":", quoted(entry.dtype), ",\"shape\":[",
        joined(entry.shape, {}, ","), "],\"data_offsets\":[", joined(entry.offsets, {}, ","), "]}");
  }
  return text + '}';
} catch (const Json::exception& problem) {
  throw Error("safetensors: a name or metadata is not UTF-8; UTF-8 required (", problem.what(), ")");
}

}  // namespace whence
