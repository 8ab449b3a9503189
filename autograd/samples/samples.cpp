#include "autograd/samples/samples.h"

#include "autograd/backward.h"
#include "tensor/random.h"

namespace whence {
namespace draw {
namespace {

struct Source {
  std::string name = "unnamed";
  std::uint64_t count = 0;
  Stream next() { return Stream(20, name, count++); }
};
thread_local Source source;

Tensor whole(const Shape& shape, int low, int count, DType dtype) {
  const Stream stream = source.next();
  std::vector<double> values(static_cast<std::size_t>(numel(shape)));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = low + static_cast<double>(stream.below(i, static_cast<std::uint32_t>(count)));
  return Tensor::of(values, shape, dtype);
}

}  // namespace

Tensor normal(const Shape& shape) { return Tensor::normal(shape, 0, 1, source.next(), DType::f64); }
Tensor uniform(const Shape& shape, double low, double high) {
  return Tensor::uniform(shape, low, high, source.next(), DType::f64);
}

Tensor integers(const Shape& shape, int low, int high) { return whole(shape, low, high - low + 1, DType::f64); }
Tensor index(const Shape& shape, int count) { return whole(shape, 0, count, DType::i64); }

Tensor mask(const Shape& shape, double share_of_true) {
  const Stream stream = source.next();
  std::vector<double> values(static_cast<std::size_t>(numel(shape)));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = stream.uniform(i) < share_of_true ? 1 : 0;
  return Tensor::of(values, shape, DType::boolean);
}

}  // namespace draw

Checked::Checked(CheckedOp op, Accepts accepts) {
  op.accepts = accepts;
  op.samples = [name = op.name, samples = std::move(op.samples)] {
    draw::source = {name, 0};
    return samples();
  };
  checked_ops().push_back(std::move(op));
}

SampleCall adjoint(std::function<Tensor(const Tensor& x, const std::vector<Tensor>& in)> f, const Shape& x) {
  return [=](const std::vector<Tensor>& in) {
    const Tensor zeros = requires_grad(Tensor::zeros(x, in[0].dtype(), in[0].device()));
    const auto of_zeros = [&](const std::vector<Tensor>& given) { return f(given[0], in); };
    return gradients_of(of_zeros, std::vector{zeros}, in[0])[0];
  };
}

}  // namespace whence
