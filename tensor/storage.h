// Reference-counted bytes on a device, shared by a tensor and its views, with a version that counts writes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "tensor/device.h"
#include "tensor/error.h"
#include "tensor/ref.h"
#include "tensor/shape.h"

namespace whence {

class Storage final : public RefCounted {
 public:
  // Throws OutOfMemory if memory is out, Error if this build has no such `device`.
  static Ref<Storage> create(std::size_t bytes, Device device);

  // Throws Error unless made for 0 bytes, without guards.
  void borrow(std::byte* data, std::size_t size, std::shared_ptr<const void> owner);
  bool borrowed() const { return owner_ != nullptr; }

  std::byte* bytes() const { return data_; }
  std::size_t size() const { return size_; }  // bytes
  Device device() const { return device_; }

  // Every in-place write bumps the version and notes its site, so that a saved tensor can report that it was
  // overwritten, and where.
  std::uint64_t version() const { return version_; }
  const Site& last_write() const { return last_write_; }
  void written(const Site& site) {
    ++version_;
    last_write_ = site;
  }

  index_t row_width() const { return row_width_; }
  void set_row_width(index_t numbers) { row_width_ = numbers; }

  static void set_guards(bool on);
  bool guards_intact() const;

  void dispose();  // called by Ref

 private:
  Storage() = default;
  ~Storage() = default;

  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  std::uint64_t version_ = 0;
  index_t row_width_ = 0;  // numbers in use of each row, if zeros are stored between rows (product_layout.h); else 0
  Site last_write_;
  Device device_;
  bool guarded_ = false;
  std::shared_ptr<const void> owner_;  // of borrowed bytes
};

}  // namespace whence
