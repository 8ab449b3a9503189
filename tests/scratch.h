// A folder for one test case, empty at first and gone at the end.
#pragma once

#include <filesystem>
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

}  // namespace whence::test
