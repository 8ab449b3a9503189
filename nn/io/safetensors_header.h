// The JSON header of a safetensors file, as data and as text. What reads and writes it is safetensors.cpp.
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
// in 64 bits. What the numbers mean is not checked here. Throws FileError "PATH: safetensors: ...".
SafetensorsHeader parse_safetensors_header(const std::string& path, const std::string& json);

// Throws InputError when a name, a key or a text is not UTF-8.
std::string safetensors_header_text(const SafetensorsHeader& header);

// A name from a file, fit to print: control characters replaced, cut when long; and the same in quotes.
std::string plain(const std::string& name);
std::string printable(const std::string& name);

}  // namespace whence
