// An intrusive counted pointer: one word, one allocation per object. The object decides how it is destroyed
// (T::dispose).
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

namespace whence {

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

}  // namespace whence
