#include "examples/language/token_cache.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "nn/io/files.h"

namespace whence::language {
namespace {

constexpr std::string_view magic = "whence tokens 2\n";
constexpr std::size_t header_bytes = 4096;

[[noreturn]] void refuse(const std::string& path, const char* action) {
  throw InputError(
      path, ": token cache: ", action, ": ", std::strerror(errno), "; room on a disk that can be written required");
}

nlohmann::json to_json(const PartSize& size) {
  return {size.documents, size.bytes, size.tokens, size.unknown, size.words};
}

PartSize size_from(const nlohmann::json& numbers) {
  return {numbers.at(0).get<std::int64_t>(), numbers.at(1).get<std::int64_t>(), numbers.at(2).get<std::int64_t>(),
      numbers.at(3).get<std::int64_t>(), numbers.at(4).get<std::int64_t>()};
}

}  // namespace

TokenWriter::TokenWriter(const std::string& path, int bytes_per_token)
    : path_(path),
      temporary_(to_text(path, ".tmp-", ::getpid())),
      width_(bytes_per_token),
      file_(nullptr, std::fclose) {
  if (path_.empty()) return;
  file_.reset(std::fopen(temporary_.c_str(), "wbe"));
  if (!file_) refuse(path_, "open");
  const std::string blank(header_bytes, ' ');
  write(blank.data(), blank.size());
}

TokenWriter::~TokenWriter() {
  if (file_) ::unlink(temporary_.c_str());  // finish() was not reached
}

void TokenWriter::write(const void* data, std::size_t bytes) {
  if (std::fwrite(data, 1, bytes, file_.get()) != bytes) refuse(path_, "write");
}

void TokenWriter::add(std::span<const TokenId> ids) {
  std::string packed(ids.size() * static_cast<std::size_t>(width_), '\0');
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const auto narrow = static_cast<std::uint16_t>(ids[i]);
    const void* number = width_ == 2 ? static_cast<const void*>(&narrow) : &ids[i];
    std::memcpy(packed.data() + i * static_cast<std::size_t>(width_), number, static_cast<std::size_t>(width_));
  }
  if (file_) return write(packed.data(), packed.size());
  memory_ += packed;
}

// The header comes last, over the blanks that were left for it: a file without one is never taken for whole.
void TokenWriter::finish(const std::string& key, const PartSize (&sizes)[part_count]) {
  if (!file_) return;
  const nlohmann::json facts{{"key", key}, {"bytes_per_token", width_}, {"training", to_json(sizes[0])},
      {"validation", to_json(sizes[1])}, {"test", to_json(sizes[2])}};
  const std::string header = std::string(magic) + facts.dump() + '\n';
  if (std::fseek(file_.get(), 0, SEEK_SET) != 0) refuse(path_, "seek");
  write(header.data(), header.size());
  if (std::fflush(file_.get()) != 0 || ::fsync(::fileno(file_.get())) != 0) refuse(path_, "sync");
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) refuse(path_, "rename");
  file_.reset();
  sync_folder(std::filesystem::path(path_).parent_path().string());
}

CachedTokens runs_in(const char* tokens, int width, const PartSize (&sizes)[part_count]) {
  CachedTokens found;
  for (std::size_t part = 0; part < part_count; ++part) {
    found.sizes[part] = sizes[part];
    found.runs[part] = TokenRun(tokens, width, sizes[part].tokens);
    tokens += sizes[part].tokens * width;
  }
  return found;
}

bool read_cache(const MappedFile& file, const std::string& key, CachedTokens& found) {
  const std::string_view bytes = file.bytes(), header = bytes.substr(0, header_bytes);
  if (bytes.size() < header_bytes || !header.starts_with(magic)) return false;
  const std::size_t end = header.find('\n', magic.size());
  if (end == std::string_view::npos) return false;
  const auto facts = nlohmann::json::parse(header.substr(magic.size(), end - magic.size()), nullptr, false);
  try {
    if (!facts.is_object() || facts.at("key") != key) return false;
    const int width = facts.at("bytes_per_token").get<int>();
    const PartSize sizes[part_count] = {
        size_from(facts.at("training")), size_from(facts.at("validation")), size_from(facts.at("test"))};
    const auto tokens = static_cast<std::uint64_t>(sizes[0].tokens + sizes[1].tokens + sizes[2].tokens);
    if ((width != 2 && width != 4) || bytes.size() != header_bytes + tokens * static_cast<std::uint64_t>(width))
      return false;
    found = runs_in(bytes.data() + header_bytes, width, sizes);
    return true;
  } catch (const nlohmann::json::exception&) { return false; }
}

}  // namespace whence::language
