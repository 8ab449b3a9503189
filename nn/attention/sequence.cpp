#include "nn/attention/sequence.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <mutex>
#include <tuple>

#include "autograd/ops.h"
#include "tensor/error.h"
#include "tensor/kernels.h"
#include "tensor/pairs.h"
#include "tensor/raw.h"

namespace whence {
namespace {

// Returns bool [b t], contiguous. Refuses gaps. A convolution along keys (CDAPE) would read across a gap, and no paper
// defines whether it sees 0 or the convolution of 0 there.
Tensor checked_present(const Tensor& present) {
  if (present.rank() != 2 || present.dtype() != DType::boolean)
    fail("sequence", "present is ", present.dtype(), " ", present.shape(), "; bool [batch, time] required");
  const Tensor known = raw::copy(raw::to_device(present, Device::cpu()));  // the caller may write the next batch there
  for (index_t b = 0; b < known.size(0); ++b) {
    const bool *row = known.data<bool>() + b * known.size(1), *const end = row + known.size(1);
    const bool* const gap = std::find(std::find(row, end, true), end, false);
    if (std::find(gap, end, true) != end)
      fail("sequence", "present has a gap at token ", gap - row, " of sequence ", b,
          "; tokens next to each other, padded on the left or the right, required");
  }
  return known;
}

// Returns [t] or [b t] f64: 0 at the first present token, negative before it. Tokens after the last present one get its
// position, so that the largest position is that of a token.
Tensor positions_of(index_t length, const Tensor& present) {
  if (!present.defined()) return Tensor::arange(length, DType::f64);
  const Tensor positions = Tensor::empty(present.shape(), DType::f64);
  for (index_t b = 0; b < present.size(0); ++b) {
    const bool* row = present.data<bool>() + b * length;
    const index_t first = std::find(row, row + length, true) - row;
    index_t last = length - 1;
    while (last > first && !row[last]) --last;
    for (index_t t = 0; t < length; ++t)
      positions.data<double>()[b * length + t] = static_cast<double>(std::min(t, last) - first);
  }
  return positions;
}

std::vector<index_t> tokens_of(const Tensor& present) {
  std::vector<index_t> counts;
  for (index_t b = 0; present.defined() && b < present.size(0); ++b) {
    const bool* row = present.data<bool>() + b * present.size(1);
    counts.push_back(std::count(row, row + present.size(1), true));
  }
  return counts;
}

// Returns a AND b on the CPU, broadcast to a common shape.
Tensor both(const Tensor& a, const Tensor& b) {
  const Shape shape = broadcast_shapes("mask", a.shape(), b.shape());
  const Tensor result = Tensor::empty(shape, DType::boolean);
  kernels(Device::cpu()).masked(raw::expand(a, shape), raw::expand(b, shape), 0, result);
  return result;
}

// Returns the mask of causality, window and padding; undefined if they hide nothing.
Tensor hidden_by_facts(const Visibility& of, Device device) {
  if (of.causal || of.window > 0)
    return raw::band_mask(of.rows, of.keys, Band::of(of.first_row, of.causal, of.window), of.present, device);
  return of.present.defined() ? raw::to_device(of.present, device) : of.present;
}

// REQUIRES: something is hidden. The caller's mask is joined on the CPU.
Tensor mask_of(const Visibility& of) {
  if (!of.given_mask.defined()) return hidden_by_facts(of, of.device);
  const Tensor given = raw::to_device(of.given_mask, Device::cpu()), hidden = hidden_by_facts(of, Device::cpu());
  return raw::to_device(hidden.defined() ? both(given, hidden) : given, of.device);
}

std::uint64_t writes(const Tensor& x) { return x.defined() ? x.storage().version() : 0; }
std::uint64_t writes(const Visibility& of) { return writes(of.present) + writes(of.given_mask); }

// A cache of the last few values by the inputs that made them; `From` has == and writes(), which counts the writes to
// its tensors: a value made from earlier numbers is not found again. Thread-safe; two threads that ask at once may both
// compute.
template <class From, class Made, std::size_t most = 2> class LruCache {
 public:
  template <class Make> Made get(const From& from, const Make& make) {
    {
      const std::lock_guard lock(mutex_);
      for (const auto& [known, writes_then, made] : all_)
        if (writes(known) == writes_then && known == from) return made;
    }
    const std::uint64_t writes_before = writes(from);
    Made made = make();
    const std::lock_guard lock(mutex_);
    if (all_.size() == most) all_.erase(all_.begin());
    all_.emplace_back(from, writes_before, made);
    return made;
  }

 private:
  std::mutex mutex_;
  std::vector<std::tuple<From, std::uint64_t, Made>> all_;
};

// True if all bits are equal. REQUIRES: both on the CPU, contiguous
bool same_numbers(const Tensor& x, const Tensor& y) {
  if (x.dtype() != y.dtype() || !(x.shape() == y.shape())) return false;
  return x.bytes() == y.bytes() ||  // one storage
         std::memcmp(x.bytes(), y.bytes(), static_cast<std::size_t>(x.numel()) * size_of(x.dtype())) == 0;
}

// The inputs of a constant sent to a device, or of a table by distance: equal inputs give equal values, made once for
// all layers.
struct MadeOf {
  Tensor numbers;  // on the CPU, contiguous
  Device device = {};
  std::string function = {};  // of a table, as the next two
  bool causal = false;
  DType dtype = {};

  friend bool operator==(const MadeOf& a, const MadeOf& b) {
    return a.device == b.device && a.function == b.function && a.causal == b.causal && a.dtype == b.dtype &&
           same_numbers(a.numbers, b.numbers);
  }
  friend std::uint64_t writes(const MadeOf& of) { return writes(of.numbers); }
};

}  // namespace

// Values computed from a sequence once, and shared by all users.
struct SequenceCache {
  // The keys hold tensors, and so keep their identities alive.
  LruCache<Visibility, Tensor> masks;
  LruCache<MadeOf, Tensor, 64> constants;  // more than one pass has, because a recorded pass reads them again
};

struct TableCache {
  LruCache<MadeOf, Tensor, 4> all;
};

bool operator==(const Visibility& a, const Visibility& b) {
  return a.rows == b.rows && a.keys == b.keys && a.causal == b.causal && a.first_row == b.first_row &&
         a.window == b.window && a.present.identity() == b.present.identity() &&
         a.given_mask.identity() == b.given_mask.identity() && a.device == b.device;
}

Sequence::Sequence() : tables(std::make_shared<TableCache>()) { own_cache(); }

void Sequence::own_cache() { kept = std::make_shared<SequenceCache>(); }

// Makes `rows` queries after the first `first_row` tokens. `real`: bool [b first_row+rows], contiguous, or undefined
static Sequence rows_of_run(index_t first_row, index_t rows, index_t capacity, const Tensor& real) {
  const index_t keys = first_row + rows;
  const Tensor positions = positions_of(keys, real);
  Sequence sequence;
  sequence.rows = rows, sequence.keys = keys, sequence.first_row = first_row;
  if (real.defined()) sequence.present = raw::reshape(real, {real.size(0), 1, 1, keys});
  sequence.positions = {.query = raw::slice(positions, -1, first_row, keys),
      .key = positions,
      .tokens = tokens_of(real),
      .length = capacity};
  return sequence;
}

Sequence Sequence::run(index_t length, bool causal) {
  Sequence sequence = rows_of_run(0, length, length, {});
  sequence.causal = causal;
  return sequence;
}

Sequence Sequence::padded(const Tensor& present, bool causal) {
  const Tensor real = checked_present(present);
  Sequence sequence = rows_of_run(0, real.size(1), real.size(1), real);
  sequence.causal = causal;
  return sequence;
}

Sequence Sequence::continued(index_t first_row, index_t rows, index_t capacity, const Tensor& present) {
  const index_t keys = first_row + rows;
  const Tensor real = present.defined() ? checked_present(present) : present;
  if (keys > capacity || (real.defined() && real.size(1) != keys)) {
    fail("sequence", first_row, " tokens and ", rows, " new ones with capacity ", capacity, " and present ",
        real.defined() ? real.shape() : Shape{}, " given; at most capacity tokens, each named in present, required");
  }
  Sequence sequence = rows_of_run(first_row, rows, capacity, real);
  sequence.keys_behind = std::numeric_limits<index_t>::max();  // a decoded row equals that of an endless run
  return sequence;
}

Sequence Sequence::on(Device where) const {
  Sequence moved = *this;
  moved.device = where;
  return moved;
}

Tensor Sequence::mask() const {
  if (!causal && window == 0 && !present.defined() && !given_mask.defined()) return {};
  return kept->masks.get(*this, [&] { return mask_of(*this); });
}

Tensor Sequence::masked(const Tensor& t, double otherwise, Site site) const {
  const Tensor seen = mask();
  return seen.defined() ? whence::masked(t, seen, otherwise, site) : t;
}

Tensor Sequence::without_padding(const Tensor& x, int axis, Site site) const {
  const index_t tokens = x.size(axis);
  if (!present.defined()) return x;
  Shape shape = x.shape();
  for (int each = 0; each < x.rank(); ++each) shape[each] = 1;
  shape[0] = present.size(0), shape[axis] = tokens;
  const Tensor real = raw::slice(present, 3, present.size(3) - tokens, present.size(3));
  return whence::masked(x, on_device(raw::reshape(real, shape)), 0, site);
}

Tensor Sequence::kept_once(const Tensor& constant) const {
  const Tensor numbers = raw::contiguous(constant);
  return kept->constants.get({numbers, device}, [&] { return raw::to_device(numbers, device); });
}

Tensor Sequence::table_once(
    const std::string& function, const Tensor& distances, DType dtype, const std::function<Tensor()>& make) const {
  return on_device(tables->all.get({raw::contiguous(distances), {}, function, causal, dtype}, make));
}

}  // namespace whence
