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
#include "tensor/ref.h"
#include "tensor/shape.h"
#include "tensor/storage.h"

namespace whence {

struct Stream;

// What the autograd layer attaches to a tensor. tensor/ only counts references to it.
class GraphLink : public RefCounted {
 public:
  virtual void dispose() = 0;

 protected:
  virtual ~GraphLink() = default;
};

class Tensor {
 public:
  Tensor() = default;  // no tensor: defined() is false and everything else is an error

  // New, contiguous, on the CPU unless said. Throw Error when an extent is negative, OutOfMemory when memory is out.
  [[nodiscard]] static Tensor empty(
      const Shape& shape, DType dtype = DType::f32, Device device = {});  // numbers unspecified
  // x's dtype and device; x's shape where none is given.
  [[nodiscard]] static Tensor like(const Tensor& x) { return like(x, x.shape()); }
  [[nodiscard]] static Tensor like(const Tensor& x, const Shape& shape) { return empty(shape, x.dtype(), x.device()); }
  [[nodiscard]] static Tensor full(const Shape& shape, double value, DType dtype = DType::f32, Device device = {});
  [[nodiscard]] static Tensor zeros(const Shape& shape, DType dtype = DType::f32, Device device = {});
  [[nodiscard]] static Tensor ones(const Shape& shape, DType dtype = DType::f32, Device device = {});
  [[nodiscard]] static Tensor scalar(double value, DType dtype = DType::f32, Device device = {});
  // `values` row-major. Error unless there are as many as the shape has elements.
  [[nodiscard]] static Tensor of(const std::vector<double>& values, const Shape& shape, DType dtype = DType::f32);
  [[nodiscard]] static Tensor arange(index_t count, DType dtype = DType::i64);  // 0, 1, ..., count - 1
  // On [low, high), and N(mean, deviation^2): element i is number i of the stream. Error unless `dtype` is floating.
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
  // No other tensor names these numbers, views included: whoever is done with them may write others in their place.
  bool owns_storage_alone() const { return body().storage.unique(); }
  bool is_contiguous() const { return whence::is_contiguous(shape(), strides()); }

  // The first element. Numbers may be written through a const handle. Whoever writes in place also calls
  // storage().written(site). Throws Error when T is not the dtype.
  template <class T> T* data() const {
    if (dtype() != dtype_of<T>) wrong_dtype("data", dtype(), to_string(dtype_of<T>));
    return reinterpret_cast<T*>(bytes());
  }
  std::byte* bytes() const {
    return body().storage->bytes() + static_cast<std::size_t>(body().offset) * size_of(dtype());
  }

  // Values as double (a dual's value), for tests, printing and scalars. On a device they are copied first, and what
  // throws then is the Error about an index that a kernel found out of range there.
  double item() const;                                       // the only element; Error when there is not exactly one
  double at(std::initializer_list<index_t> position) const;  // one element; Error when out of range
  std::vector<double> to_vector() const;                     // all elements in row-major order

  // The same numbers without the graph: gradients stop here.
  [[nodiscard]] Tensor detach() const;
  // A new body over the same storage; element [0,...] lies `offset` elements after this one's.
  // REQUIRES: stays inside the storage.
  [[nodiscard]] Tensor view(const Shape& shape, const Strides& strides, index_t offset = 0) const;
  // Makes every handle of this body name `value`'s numbers and dtype instead (loading, casting a
  // model). Error when shapes differ.
  void replace(const Tensor& value) const;

  // The node of the graph that made it, and which of the node's results it is.
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

// As text: a line that describes it, then the numbers, nested rows aligned, long axes cut short with "...".
std::string to_string(const Tensor& x);
std::ostream& operator<<(std::ostream& out, const Tensor& x);

}  // namespace whence
