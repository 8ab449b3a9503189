#include "examples/whence/run/tensorboard.h"

#include <unistd.h>

#include <array>
#include <bit>
#include <chrono>

#include "tensor/error.h"

namespace whence {
namespace {

// Remainders of one byte by the polynomial 0x1EDC6F41, bits in reverse order.
constexpr std::array<std::uint32_t, 256> crc_table = [] {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t remainder = byte;
    for (int bit = 0; bit < 8; ++bit) remainder = remainder & 1 ? remainder >> 1 ^ 0x82F63B78u : remainder >> 1;
    table[byte] = remainder;
  }
  return table;
}();

template <class Integer> std::string little_endian(Integer value) {
  std::string bytes;
  for (std::size_t k = 0; k < sizeof(value); ++k) bytes += static_cast<char>(value >> (8 * k) & 0xFF);
  return bytes;
}

// A CRC of data that holds CRCs is weak, so the format stores it rotated and shifted.
std::string masked_crc(std::string_view bytes) {
  const std::uint32_t crc = crc32c(bytes);
  return little_endian((crc >> 15 | crc << 17) + 0xA282EAD8u);
}

// Protobuf: a field is its key (number << 3 | wire type) and value. Types: 0 varint, 1 eight, 5 four bytes, 2 text.
std::string varint(std::uint64_t value) {
  std::string bytes;
  for (; value >= 128; value >>= 7) bytes += static_cast<char>((value & 0x7F) | 0x80);
  return bytes + static_cast<char>(value);
}
std::string integer_field(int number, std::int64_t value) {
  return varint(static_cast<std::uint64_t>(number) << 3 | 0) + varint(static_cast<std::uint64_t>(value));
}
std::string double_field(int number, double value) {
  return varint(static_cast<std::uint64_t>(number) << 3 | 1) + little_endian(std::bit_cast<std::uint64_t>(value));
}
std::string bytes_field(int number, std::string_view value) {
  return varint(static_cast<std::uint64_t>(number) << 3 | 2) + varint(value.size()) + std::string(value);
}
std::string float_field(int number, float value) {
  return varint(static_cast<std::uint64_t>(number) << 3 | 5) + little_endian(std::bit_cast<std::uint32_t>(value));
}

// Event: wall_time = 1, step = 2, file_version = 3, summary = 5, session_log = 7.
constexpr int wall_time = 1, step_number = 2, file_version = 3, summary = 5, session_log = 7;

double now() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  std::uint32_t crc = 0xFFFFFFFFu;
  for (const char byte : bytes) crc = crc_table[(crc ^ static_cast<unsigned char>(byte)) & 0xFF] ^ crc >> 8;
  return ~crc;
}

std::string tensorboard_record(std::string_view event) {
  const std::string length = little_endian(static_cast<std::uint64_t>(event.size()));
  return length + masked_crc(length) + std::string(event) + masked_crc(event);
}

std::string tensorboard_version_event(double time) {
  return double_field(wall_time, time) + bytes_field(file_version, "brain.Event:2");
}

std::string tensorboard_start_event(double time, std::int64_t step) {
  // SessionLog: status = 1, of which 1 is START.
  return double_field(wall_time, time) + integer_field(step_number, step) +
         bytes_field(session_log, integer_field(1, 1));
}

std::string tensorboard_scalar_event(double time, std::int64_t step, std::string_view tag, float value) {
  // Summary: value = 1, repeated; Value: tag = 1, simple_value = 2.
  const std::string entry = bytes_field(1, tag) + float_field(2, value);
  return double_field(wall_time, time) + integer_field(step_number, step) + bytes_field(summary, bytes_field(1, entry));
}

TensorBoardLog::TensorBoardLog(const std::filesystem::path& folder, std::int64_t first_step)
    : path_(folder /
            to_text("events.out.tfevents.", static_cast<std::int64_t>(now()), ".whence.", getpid(), ".", first_step)),
      file_(path_.string(), OutputFile::Mode::fresh) {
  write(tensorboard_version_event(now()));
  if (first_step > 1) write(tensorboard_start_event(now(), first_step));
  flush();
}

void TensorBoardLog::scalar(std::string_view tag, std::int64_t step, double value) {
  write(tensorboard_scalar_event(now(), step, tag, static_cast<float>(value)));
}

void TensorBoardLog::write(const std::string& event) { waiting_ += tensorboard_record(event); }

void TensorBoardLog::flush() {
  file_.append(waiting_);
  waiting_.clear();
}

}  // namespace whence
