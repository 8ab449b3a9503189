// Notes about files, while it lives (nn/io/files.h).
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "nn/io/files.h"

namespace whence::test {

struct Notes {
  explicit Notes(bool accept_damaged) {
    on_damage = {accept_damaged, [this](const std::string& note) { notes.push_back(note); }};
  }
  ~Notes() { on_damage = std::move(before_); }
  Notes(const Notes&) = delete;
  Notes& operator=(const Notes&) = delete;

  std::vector<std::string> notes;

 private:
  OnDamage before_ = on_damage;
};

}  // namespace whence::test
