// A folder for one test case, empty at first and gone at the end.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>

namespace whence::test {

struct Scratch {
  explicit Scratch(const std::string& name) : folder(std::filesystem::absolute("scratch-" + name)) {
    std::filesystem::remove_all(folder);
    std::filesystem::create_directories(folder);
  }
  ~Scratch() { std::filesystem::remove_all(folder); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  std::string operator/(const std::string& name) const { return (folder / name).string(); }

  std::filesystem::path folder;
};

// While alive, bit number `bit` of the file, counted from its first byte's lowest, is another.
class FlippedBit {
 public:
  FlippedBit(const std::string& path, std::size_t bit) : path_(path), bit_(bit) { flip(); }
  ~FlippedBit() { flip(); }
  FlippedBit(const FlippedBit&) = delete;
  FlippedBit& operator=(const FlippedBit&) = delete;

 private:
  void flip() const {
    std::fstream file(path_, std::ios::binary | std::ios::in | std::ios::out);
    file.seekg(static_cast<std::streamoff>(bit_ / 8));
    const int byte = file.get();
    file.seekp(static_cast<std::streamoff>(bit_ / 8));
    file.put(static_cast<char>(byte ^ 1 << bit_ % 8));
  }
  std::string path_;
  std::size_t bit_;
};

}  // namespace whence::test
