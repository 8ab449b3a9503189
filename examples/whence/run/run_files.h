// Output folders, whole files, a log cut back to the step resumed from, and files that are damaged or too small: notes
// about them go to stderr, a line each and once. (Atomic writing: nn/io/files.h.)
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace whence {

struct TransformerOptions;

// Reads the bytes of a file. SystemError with the path and the system's reason if it cannot be read.
[[nodiscard]] std::string read_file(const std::filesystem::path& path);

// Creates the folder and its parents if needed, and checks that files can be written there. Otherwise SystemError.
void ensure_output_folder(const std::filesystem::path& folder);

// Checks that a program can write this file when its work is done, and removes what killed programs left of it. Does
// nothing for an empty name. SystemError as from write_file.
void ensure_output_file(const std::filesystem::path& file);

// Removes the lines of a JSONL log whose "step" is above `step`, and a last line torn by a crash, atomically. FileError
// when another line is no JSON object. The other lines stay byte for byte. A missing log is no error.
void truncate_jsonl_after(const std::filesystem::path& path, std::int64_t step);

// Checks before any part of the model is made: FileError if a model of these sizes and this scheme, which `place`
// names, has more parameters than the weights' file has room for; OutOfMemory if they take more than is free;
// InputError as from Transformer.
void require_room_for(const TransformerOptions& model, const std::string& place, const std::string& weights);

}  // namespace whence
