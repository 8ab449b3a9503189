// Output folders, whole files, and a log cut back to the step resumed from. (Atomic writing: nn/io/files.h.)
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace whence {

// The bytes of a file. SystemError with the path and the system's reason if it cannot be read.
[[nodiscard]] std::string read_file(const std::filesystem::path& path);

// Creates the folder and those above it if need be, and makes sure that files can be written there. Else SystemError.
void ensure_output_folder(const std::filesystem::path& folder);

// Makes sure that a program can write this file when its work is done, and removes what killed ones left of it; nothing
// where no file is asked for. SystemError as from write_file.
void ensure_output_file(const std::filesystem::path& file);

// Drops the lines of a JSONL log whose "step" is above `step`, and a last line that was torn by a crash, atomically.
// FileError when another line is no JSON object. The other lines stay byte for byte. A missing log is no error.
void truncate_jsonl_after(const std::filesystem::path& path, std::int64_t step);

// A JSONL log as CSV (RFC 4180): a column for every field of any line, in order of
// appearance; empty where a line lacks it. FileError when a line is no JSON object.
[[nodiscard]] std::string jsonl_as_csv(const std::filesystem::path& path);

}  // namespace whence
