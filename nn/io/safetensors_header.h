// The JSON header of a safetensors file, as data and as text; safetensors.cpp reads and writes it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace whence {

struct SafetensorsEntry {
  std::string name, dtype;
  std::vector<std::uint64_t> shape, offsets;  // offsets: begin and end
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;
  std::map<std::string, std::string> metadata;
};

// Checks the form: JSON of the shape above, no key twice, no NUL, no name that leads out of a folder, integers that fit
// in 64 bits. The meaning of the numbers is not checked here. Throws FileError "PATH: safetensors: ...".
SafetensorsHeader parse_safetensors_header(const std::string& path, const std::string& json);

// Throws InputError if a name, a key or a text is not UTF-8.
std::string safetensors_header_text(const SafetensorsHeader& header);

// A name from a file, safe to print: control characters replaced, long names cut; and the same in quotes.
std::string plain(const std::string& name);
std::string printable(const std::string& name);

}  // namespace whence
