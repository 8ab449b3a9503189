// The tensor handle: one word that owns a body of shape, strides, dtype, storage, and a link to the graph that made it.
//
// Copying a handle copies no numbers: both name the same body. Views are new bodies over the same storage
// (tensor/raw.h; with gradients: autograd/ops.h). Ownership: handles own bodies. Bodies own storages and the node that
// made them. Nodes own the nodes of their inputs and the tensors that they saved. Nothing points forward.
#pragma once

#include <cstddef>
#include <iosfwd>
#include <string>
#include <vector>

#include "tensor/dtype.h"
#include "tensor/shape.h"
#include "tensor/storage.h"

namespace whence {

struct Stream;

// GraphLink is attached by the autograd layer. tensor/ only counts its references.
class GraphLink : public RefCounted {
 public:
  virtual void dispose() = 0;

 protected:
  virtual ~GraphLink() = default;
};

class Tensor {
 public:
  Tensor() = default;  // no tensor: defined() is false, and any other use is an error

  // New, contiguous, on the CPU unless `device` is given. Throw Error if an extent is negative, OutOfMemory if memory
  // is out.
  [[nodiscard]] static Tensor empty(
      const Shape& shape, DType dtype = DType::f32, Device device = {});  // numbers unspecified
  // Returns a tensor with x's dtype and device, and with x's shape if none is given.
  [[nodiscard]] static Tensor like(const Tensor& x) { return like(x, x.shape()); }
  [[nodiscard]] static Tensor like(const Tensor& x, const Shape& shape) { return empty(shape, x.dtype(), x.device()); }
  [[nodiscard]] static Tensor full(const Shape& shape, double value, DType dtype = DType::f32, Device device = {});
  [[nodiscard]] static Tensor zeros(const Shape& shape, DType dtype = DType::f32, Device device = {});
  [[nodiscard]] static Tensor ones(const Shape& shape, DType dtype = DType::f32, Device device = {});
  [[nodiscard]] static Tensor scalar(double value, DType dtype = DType::f32, Device device = {});
  // `values` in row-major order. Throws Error unless there is one for each element of the shape.
  [[nodiscard]] static Tensor of(const std::vector<double>& values, const Shape& shape, DType dtype = DType::f32);
  [[nodiscard]] static Tensor arange(index_t count, DType dtype = DType::i64);  // 0, 1, ..., count - 1
  // Uniform on [low, high), and N(mean, deviation^2): element i is number i of the stream. Throw Error unless `dtype`
  // is floating.
  [[nodiscard]] static Tensor uniform(
      const Shape& shape, double low, double high, const Stream& stream, DType dtype = DType::f32);
  [[nodiscard]] static Tensor normal(
      const Shape& shape, double mean, double deviation, const Stream& stream, DType dtype = DType::f32);

  bool defined() const { return static_cast<bool>(body_); }
  const Shape& shape() const { return body().shape; }
  const Strides& strides() const { return body().strides; }
  int rank() const { return shape().rank(); }
  index_t size(int axis) const;  // negative axes count from the end; Error beyond the axes
  index_t numel() const { return whence::numel(shape()); }
  DType dtype() const { return body().dtype; }
  Device device() const { return body().storage->device(); }
  Storage& storage() const { return *body().storage; }
  // True if no other tensor, views included, uses these numbers. Then they may be overwritten once they are not needed.
  bool owns_storage_alone() const { return body().storage.unique(); }
  bool is_only_handle() const { return body_.unique() && owns_storage_alone(); }  // no other name for these numbers
  bool is_contiguous() const { return whence::is_contiguous(shape(), strides()); }

  // Returns the first element's address. Numbers may be written through a const handle; code that writes in place also
  // calls storage().written(site). Throws Error if T is not the dtype.
  template <class T> T* data() const {
    if (dtype() != dtype_of<T>) wrong_dtype("data", dtype(), to_string(dtype_of<T>));
    return reinterpret_cast<T*>(bytes());
  }
  std::byte* bytes() const {
    return body().storage->bytes() + static_cast<std::size_t>(body().offset) * size_of(dtype());
  }

  // Values as double (a dual's value), for tests, printing and scalars. Numbers on a device are copied first; this copy
  // throws the Error about an index that a kernel found out of range.
  double item() const;                                       // the only element; Error if there is not exactly one
  double at(std::initializer_list<index_t> position) const;  // one element; Error if out of range
  std::vector<double> to_vector() const;                     // all elements in row-major order

  // Returns the same numbers without the graph: gradients stop here.
  [[nodiscard]] Tensor detach() const;
  // Returns a new body over the same storage; element [0,...] is `offset` elements after this one's. REQUIRES: all of
  // it is inside the storage.
  [[nodiscard]] Tensor view(const Shape& shape, const Strides& strides, index_t offset = 0) const;
  // Makes every handle of this body refer to `value`'s numbers and dtype instead (loading, casting a model). Throws
  // Error if shapes differ.
  void replace(const Tensor& value) const;

  // The node of the graph that made the tensor, and which of the node's results it is.
  GraphLink* link() const { return body_ ? body_->link.get() : nullptr; }
  std::uint8_t result_of_link() const { return body_->result; }
  void set_link(Ref<GraphLink> link, std::uint8_t result = 0) const {
    body_->link = std::move(link), body_->result = result;
  }
  const void* identity() const { return body_.get(); }  // equal for handles of one body

 private:
  struct Body final : RefCounted {
    Shape shape;
    Strides strides;
    index_t offset = 0;  // in elements
    Ref<Storage> storage;
    Ref<GraphLink> link;
    DType dtype = DType::f32;
    std::uint8_t result = 0;
    void dispose() { delete this; }
  };
  const Body& body() const {
    if (!body_) undefined();
    return *body_;
  }
  [[noreturn]] static void undefined();

  Ref<Body> body_;
};

// Returns a line that describes x, then the numbers: nested rows aligned, long axes cut short with "...".
std::string to_string(const Tensor& x);
std::ostream& operator<<(std::ostream& out, const Tensor& x);

}  // namespace whence
