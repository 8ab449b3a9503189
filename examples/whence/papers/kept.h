// The folder that `reproduce --record` writes: recorded.txt and the page of all that was recorded there, and of each
// table a page with its figures, and JSON for other programs.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "examples/whence/papers/commands.h"
#include "examples/whence/papers/record.h"

namespace whence::papers {

// InputError where FOLDER/README.md is there and is no such page.
void require_own_page(const std::filesystem::path& folder);
// None where nothing was recorded.
[[nodiscard]] std::vector<Record> records_in(const std::filesystem::path& folder);
// In the place of what was there of the same table and preset. `drawn`: where the figures lie.
void keep(const std::filesystem::path& folder, const PaperTable& table, const Record& record,
    const std::vector<Said>& said, const std::filesystem::path& drawn);

// FOLDER/recorded.txt, and FOLDER/README.md from it.
void write_records(const std::filesystem::path& folder, const std::vector<Record>& records);

}  // namespace whence::papers
