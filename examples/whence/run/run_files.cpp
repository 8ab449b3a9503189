#include "examples/whence/run/run_files.h"

#include <unistd.h>

#include <iostream>
#include <set>
#include <sstream>
#include <system_error>

#include "examples/whence/cli/json_lines.h"
#include "examples/whence/cli/text.h"
#include "examples/whence/machine/memory.h"
#include "nn/io/files.h"
#include "tensor/error.h"

namespace whence {
namespace {

const bool notes_are_printed = [] {
  on_damage.say = [said = std::set<std::string>()](const std::string& note) mutable {
    if (said.insert(note).second) std::cerr << "warning: " << one_line(note) << std::endl;
  };
  return true;
}();

}  // namespace

namespace fs = std::filesystem;
std::string read_file(const fs::path& path) {
  const InputFile file(path.string());
  return file.text(file.size());
}

void ensure_output_folder(const fs::path& folder) {
  const auto refuse = [&folder](const std::string& why) {
    throw SystemError(
        folder.string(), ": output folder: ", why, "; a folder that can be written required; choose another");
  };
  if (folder.empty()) throw InputError("output folder: no name given; a folder that can be written required");
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) refuse(error.message());
  if (!fs::is_directory(folder, error)) refuse("not a folder");
  const fs::path trial = folder / to_text(".written-by-", getpid());
  try {
    write_file(trial.string(), "whence writes here\n");
  } catch (const Error& failure) { refuse(failure.what()); }
  fs::remove(trial, error);
}

void ensure_output_file(const fs::path& file) {
  if (file.empty()) return;
  require_writable(file.string());
  remove_leftovers(file.has_parent_path() ? file.parent_path().string() : ".", file.filename().string());
}

void truncate_jsonl_after(const fs::path& path, std::int64_t step) {
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return;
  const std::string before = read_file(path);
  std::istringstream lines(before);
  std::string kept, line;
  for (int number = 1; std::getline(lines, line) && !lines.eof(); ++number) {  // every complete line ends in a newline
    try {
      const Json record = Json::read(line, to_text(path.string(), ": line ", number));
      const auto at = record.find("step");
      if (at && at->as_number() > static_cast<double>(step)) continue;
    } catch (const FileError&) {
      if (lines.peek() != std::istream::traits_type::eof()) throw;
      break;  // a torn line too
    }
    kept += line + '\n';
  }
  if (kept.size() != before.size()) write_file(path.string(), kept);
}

void require_room_for(const TransformerOptions& model, const std::string& place, const std::string& weights) {
  std::error_code none;  // loading reports the fault later
  const std::uintmax_t bytes = std::filesystem::file_size(weights, none);
  constexpr double few = 1 << 22;  // a smaller model is built at once, and compared with the file's names and shapes
  const auto require = [&](double parameters) {
    if (!none && parameters >= few && 2 * parameters > static_cast<double>(bytes))  // at least 16 bits each
      throw FileError(place, ": a model of ", model.layers, " layers of dim ", model.dim, " has at least ", parameters,
          " parameters; ", weights, " has ", bytes, " bytes; the sizes of its weights required; is the file damaged?");
  };
  require(fewest_parameters(model));
  require(static_cast<double>(planned_parameters(model)));
  require_memory(model, Device::cpu(), 1);
}

}  // namespace whence
