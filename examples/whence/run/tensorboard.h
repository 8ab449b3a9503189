// Event files that TensorBoard reads: scalars over steps. A file is a sequence of records (TFRecord), each
// an Event (a protobuf message):
//   record = length u64, masked crc32c of these 8 bytes u32, the event's bytes, masked crc32c of them u32
// All is little-endian. Only the CRC has to be computed, and only five fields of protobuf are written.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "examples/whence/cli/output_file.h"

namespace whence {

// CRC-32C (Castagnoli) of the bytes.
[[nodiscard]] std::uint32_t crc32c(std::string_view bytes);

// One record around an event.
[[nodiscard]] std::string tensorboard_record(std::string_view event);

// The events' bytes. `time` in seconds since 1970.
[[nodiscard]] std::string tensorboard_version_event(double time);
[[nodiscard]] std::string tensorboard_start_event(double time,
    std::int64_t step);  // forget what older files have from `step` on
[[nodiscard]] std::string tensorboard_scalar_event(double time, std::int64_t step, std::string_view tag, float value);

class TensorBoardLog {
 public:
  // A new file in `folder` of a run, or of its continuation, whose next step is `first_step`.
  // SystemError when it cannot be written, or is there as a link.
  TensorBoardLog(const std::filesystem::path& folder, std::int64_t first_step);
  void scalar(std::string_view tag, std::int64_t step, double value);
  void flush();  // what scalar() has kept; SystemError

 private:
  void write(const std::string& event);

  std::filesystem::path path_;
  OutputFile file_;
  std::string waiting_;  // for the next flush
};

}  // namespace whence
