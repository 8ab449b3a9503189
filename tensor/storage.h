// Reference-counted bytes on a device, shared by a tensor and its views, with a version that counts writes.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "tensor/device.h"
#include "tensor/error.h"
#include "tensor/shape.h"

namespace whence {

// Ref is an intrusive counted pointer: one word, one allocation per object. The object decides how it is destroyed
// (T::dispose).
class RefCounted {
 public:
  RefCounted() = default;
  RefCounted(const RefCounted&) = delete;
  RefCounted& operator=(const RefCounted&) = delete;

 protected:
  ~RefCounted() = default;

 private:
  template <class T> friend class Ref;
  std::atomic<std::uint32_t> references_{0};
};

template <class T> class Ref {
 public:
  Ref() = default;
  explicit Ref(T* object) : object_(object) { retain(); }
  Ref(const Ref& other) : object_(other.object_) { retain(); }
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  template <class U>
    requires std::is_convertible_v<U*, T*>
  Ref(const Ref<U>& other) : object_(other.get()) {
    retain();
  }
  Ref& operator=(Ref other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Ref() { release(); }

  T* get() const { return object_; }
  T* operator->() const { return object_; }
  T& operator*() const { return *object_; }
  explicit operator bool() const { return object_ != nullptr; }
  friend bool operator==(const Ref& a, const Ref& b) { return a.object_ == b.object_; }
  bool unique() const { return object_ && object_->references_.load(std::memory_order_acquire) == 1; }

 private:
  void retain() {
    if (object_) object_->references_.fetch_add(1, std::memory_order_relaxed);
  }
  void release() {
    if (object_ && object_->references_.fetch_sub(1, std::memory_order_acq_rel) == 1) object_->dispose();
  }

  T* object_ = nullptr;
};

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
