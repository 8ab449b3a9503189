#include "nn/io/safetensors_header.h"

#include <nlohmann/json.hpp>
#include <set>
#include <unordered_set>

#include "nn/io/errors.h"
#include "tensor/shape.h"

namespace whence {
namespace {

// Handles the parser's events. No value of the JSON library is made, because freeing one allocates, and memory may have
// run out.
struct HeaderReader {
  const std::string& place;
  SafetensorsHeader header = {};
  std::unordered_set<std::string> names = {};
  std::string name = {}, field = {};  // the last keys of the header, and of the object in it
  std::set<std::string> fields = {};  // keys of that object
  SafetensorsEntry entry = {};
  int depth = 0;  // 1: in the header, 2: in the metadata or a tensor's entry, 3: in a list of such an entry

  bool in_metadata() const { return name == "__metadata__"; }
  template <class... Parts> [[noreturn]] void refuse(const Parts&... parts) const {
    throw FileError(place, ": ", plain(name), ": ", parts...);
  }
  [[noreturn]] void refuse_value(const char* kind, const std::string& value) const {
    if (depth == 1) throw FileError(place, ": ", printable(name), " is ", plain(value), "; an object required");
    if (depth == 3) refuse(field, " holds ", plain(value), "; whole numbers from 0 to 2^63 - 1 required");
    if (in_metadata()) refuse("field ", printable(field), " is ", plain(value), "; a text required");
    refuse("field '", field, "' is ", kind, field == "dtype" ? "; a text required" : "; a list required");
  }
  template <class Value> bool refuse_scalar(const char* kind, const Value& value) const {
    refuse_value(kind, nlohmann::json(value).dump());
  }

  bool null() { return refuse_scalar("null", nullptr); }
  bool boolean(bool value) { return refuse_scalar("true or false", value); }
  bool number_integer(std::int64_t value) { return refuse_scalar("a whole number", value); }  // below 0
  bool number_unsigned(std::uint64_t value) {
    if (depth != 3 || value > INT64_MAX) return refuse_scalar("a whole number", value);
    std::vector<std::uint64_t>& list = field == "shape" ? entry.shape : entry.offsets;
    const std::size_t most = field == "shape" ? max_rank : 2;
    if (list.size() == most) refuse(field, " has more numbers; at most ", most, " required");
    list.push_back(value);
    return true;
  }
  bool number_float(double value, const std::string&) { return refuse_scalar("a number", value); }
  bool string(std::string& text) {
    if (depth == 2 && in_metadata())
      header.metadata.emplace(field, text);
    else if (depth == 2 && field == "dtype")
      entry.dtype = text;
    else
      return refuse_scalar("a text", text);
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
    fields.clear(), entry = {name, {}, {}, {}};
    return ++depth;
  }
  bool key(std::string& text) {
    const bool is_name = depth == 1;
    if (!(is_name ? names.insert(text).second : fields.insert(text).second))
      throw FileError(
          place, ": ", is_name ? "" : plain(name) + ": ", "field ", printable(text), " given twice; once required");
    (is_name ? name : field) = text;
    if (is_name && (text.find('\0') != text.npos || text.find("../") != text.npos))
      throw FileError(place, ": a tensor is called ", printable(text), "; a name without NUL and ../ required");
    if (!is_name && !in_metadata() && text != "dtype" && text != "shape" && text != "data_offsets")
      refuse("field ", printable(text), " given; dtype, shape and data_offsets required, and no other");
    return true;
  }
  bool end_object() {
    if (--depth == 0 || in_metadata()) return true;
    for (const char* const required : {"dtype", "shape", "data_offsets"})
      if (!fields.contains(required))
        refuse("no field '", required, required == std::string_view("dtype") ? "'; a text" : "'; a list",
            " of that name required");
    if (entry.offsets.size() != 2) refuse("data_offsets of another length; two required");
    header.entries.push_back(std::move(entry));
    return true;
  }
  bool parse_error(std::size_t byte, const std::string&, const nlohmann::json::exception& error) {
    if (dynamic_cast<const nlohmann::json::out_of_range*>(&error))
      throw FileError(place, ": a number beyond what a computer's numbers hold, at byte ", byte);
    throw FileError(place, ": no JSON, from its byte ", byte, " on; one whole object required");
  }
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
  const std::string place = path + ": safetensors: header";
  if (const std::size_t at = json.find('\0'); at != json.npos)  // the parser would stop there
    throw FileError(place, ": holds a NUL at byte ", at, "; JSON text required; is the file damaged?");
  HeaderReader reader{place};
  nlohmann::json::sax_parse(json, &reader);
  return std::move(reader.header);
}

std::string safetensors_header_text(const SafetensorsHeader& header) try {
  const auto quoted = [](const std::string& text) { return nlohmann::json(text).dump(); };
  const auto list = [](const std::vector<std::uint64_t>& numbers) {
    std::string text;
    for (const std::uint64_t number : numbers) text += to_text(text.empty() ? "" : ",", number);
    return text;
  };
  std::string metadata, entries;
  for (const auto& [name, text] : header.metadata)
    metadata += (metadata.empty() ? "" : ",") + quoted(name) + ":" + quoted(text);
  for (const SafetensorsEntry& entry : header.entries)
    entries += to_text(",", quoted(entry.name), R"(:{"dtype":")", entry.dtype, R"(","shape":[)", list(entry.shape),
        R"(],"data_offsets":[)", list(entry.offsets), "]}");
  return R"({"__metadata__":{)" + metadata + "}" + entries + "}";
} catch (const nlohmann::json::type_error&) { throw InputError("JSON: text that is not UTF-8 given; UTF-8 required"); }

}  // namespace whence
