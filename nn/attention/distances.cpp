// How far keys lie behind queries. Where positions are whole numbers everything is worked out from one row of queries,
// one of keys and one number per step; pairs are only read.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <unordered_set>

#include "autograd/ops.h"
#include "autograd/recording.h"
#include "nn/attention/kept.h"
#include "nn/positional/distances.h"
#include "tensor/error.h"
#include "tensor/parallel.h"
#include "tensor/raw.h"

namespace whence {
namespace {

constexpr index_t pairs_per_chunk = index_t(1) << 14;
constexpr index_t most_steps = index_t(1) << 24;
constexpr double largest_position = 4503599627370496;  // 2^52: differences are exact

const Tensor& query_of(const Positions& positions) {
  return positions.undivided_query.defined() ? positions.undivided_query : positions.query;
}
const Tensor& key_of(const Positions& positions) {
  return positions.undivided_key.defined() ? positions.undivided_key : positions.key;
}

// [t] or [b t] f64 as i64 [1|b t]; undefined where one is not whole
Tensor whole(const Tensor& positions) {
  const Tensor from = raw::contiguous(positions);
  const Tensor to = Tensor::empty({from.rank() == 2 ? from.size(0) : 1, from.size(-1)}, DType::i64);
  for (index_t n = 0; n < from.numel(); ++n) {
    const double position = from.data<double>()[n];
    if (position != std::floor(position) || std::fabs(position) > largest_position) return {};
    to.data<index_t>()[n] = static_cast<index_t>(position);
  }
  return to;
}

// Row b of [1|b t]
const index_t* row_of(const Tensor& x, index_t b) { return x.data<index_t>() + (x.size(0) == 1 ? 0 : b * x.size(1)); }

index_t batch_of(const Tensor& query, const Tensor& key) { return std::max(query.size(0), key.size(0)); }

struct Steps {
  Tensor query, key;
  index_t lowest = 0, count = 0;
};

std::optional<Steps> steps_of(const AttendContext& at) {
  const Tensor query = whole(query_of(at.positions)), key = whole(key_of(at.positions));
  if (!query.defined() || !key.defined() || query.numel() == 0 || key.numel() == 0) return std::nullopt;
  index_t lowest = std::numeric_limits<index_t>::max(), highest = std::numeric_limits<index_t>::min();
  for (index_t b = 0; b < batch_of(query, key); ++b) {
    const auto [first_query, last_query] = std::minmax_element(row_of(query, b), row_of(query, b) + query.size(1));
    const auto [first_key, last_key] = std::minmax_element(row_of(key, b), row_of(key, b) + key.size(1));
    lowest = std::min(lowest, *first_query - *last_key), highest = std::max(highest, *last_query - *first_key);
  }
  if (at.causal) lowest = 0, highest = std::max<index_t>(highest, 0);
  const index_t count = highest - lowest + 1;
  if (count > most_steps) return std::nullopt;
  return Steps{query, key, lowest, count};
}

// What `steps` steps count as.
class Counting {
 public:
  explicit Counting(const Positions& positions) : divisor_(positions.divisor) {
    if (positions.distances.defined()) drawn_ = positions.distances.to_vector();
    draws_ = positions.distances.defined();
  }
  double operator()(index_t steps) const {
    double counted = static_cast<double>(steps);
    if (draws_) {
      const std::size_t apart = static_cast<std::size_t>(std::llabs(steps));
      if (apart >= drawn_.size()) {
        fail("distance", steps, " steps between a query and a key; drawn distances require whole steps below ",
            drawn_.size());
      }
      counted = std::copysign(drawn_[apart], counted);
    }
    return divisor_ == 1 ? counted : counted / divisor_;
  }

 private:
  double divisor_;
  bool draws_;
  std::vector<double> drawn_;
};

// [n] f64: what each of the steps counts as
Tensor values_of(const AttendContext& at, const Steps& all) {
  const Counting counting(at.positions);
  const Tensor values = Tensor::empty({all.count}, DType::f64);
  for (index_t n = 0; n < all.count; ++n) values.data<double>()[n] = counting(all.lowest + n);
  return values;
}

// Wherever a token is present, it stands where it lies, but for what its sequence is moved by.
bool lie_plain(const AttendContext& at, const Tensor& query, const Tensor& key) {
  const index_t padded = at.present.defined() ? at.present.size(0) : 1;
  const Tensor present = at.present.defined() ? raw::contiguous(at.present) : at.present;
  for (index_t b = 0; b < std::max(batch_of(query, key), padded); ++b) {
    const bool* real = present.defined() ? present.data<bool>() + (padded == 1 ? 0 : b * present.size(-1)) : nullptr;
    const auto is_real = [&](index_t token) { return !real || token >= present.size(-1) || real[token]; };
    std::optional<index_t> moved;  // by how much, as the first token of the sequence says
    const auto stands = [&](index_t position, index_t token) {
      if (!is_real(token)) return true;
      if (!moved) moved = position - token;
      return *moved == position - token;
    };
    for (index_t j = 0; j < key.size(1); ++j)
      if (!stands(row_of(key, b)[j], j)) return false;
    for (index_t i = 0; i < query.size(1); ++i)
      if (!stands(row_of(query, b)[i], at.first_row + i)) return false;
  }
  return true;
}

// read(step) for every pair, steps below `lowest` as that: T [1|b 1 i j]
template <class T, class Read>
Tensor for_each_pair(const Tensor& query, const Tensor& key, index_t lowest, const Read& read) {
  const index_t rows = query.size(1), keys = key.size(1);
  const Tensor result = Tensor::empty({batch_of(query, key), 1, rows, keys}, dtype_of<T>);
  T* out = result.data<T>();
  parallel_for(result.numel() / keys, pairs_per_chunk / keys + 1, [&](index_t begin, index_t end) {
    for (index_t row = begin; row < end; ++row) {
      const index_t here = row_of(query, row / rows)[row % rows];
      const index_t* there = row_of(key, row / rows);
      for (index_t j = 0; j < keys; ++j) out[row * keys + j] = read(std::max(here - there[j], lowest));
    }
  });
  return result;
}

// Positions between whole numbers, or far apart: a sort of all pairs. Neighbouring pairs often share their distance, so
// that a sort of each would be mostly waste.
PairDistances sorted(const Tensor& pairs) {
  const Tensor distance = raw::contiguous(pairs), index = Tensor::empty(distance.shape(), DType::i64);
  const double* d = distance.data<double>();
  std::unordered_set<double> seen;
  double last = std::nan("");
  for (index_t n = 0; n < distance.numel(); ++n)
    if (d[n] != last) seen.insert(last = d[n]);
  std::vector<double> values(seen.begin(), seen.end());
  std::sort(values.begin(), values.end());
  index_t* out = index.data<index_t>();
  parallel_for(distance.numel(), pairs_per_chunk, [&](index_t begin, index_t end) {
    for (index_t n = begin; n < end; ++n)
      out[n] = std::lower_bound(values.begin(), values.end(), d[n]) - values.begin();
  });
  return {Tensor::of(values, {static_cast<index_t>(values.size())}, DType::f64), {}, index};
}

// positions [t] or [b t] as [1|b 1 t 1] or, for keys, [1|b 1 1 t]
Tensor by_pair(const Tensor& positions, bool keys) {
  const index_t batch = positions.rank() == 2 ? positions.size(0) : 1, length = positions.size(-1);
  return reshape(positions, keys ? Shape{batch, 1, 1, length} : Shape{batch, 1, length, 1});
}

// [1|b 1 i j]. Two rows of positions travel to the device, not their differences, but where distances are drawn.
Tensor distance_of(const AttendContext& at, Device device) {
  const NoGrad data_only;
  const Positions& positions = at.positions;
  const auto there = [device](const Tensor& x) { return raw::to_device(x, device); };
  if (positions.distances.defined()) {
    const std::optional<DistanceSteps> steps = distance_steps(at);
    if (!steps) fail("distance", "drawn distances between positions that are not whole given; whole ones required");
    const double* values = steps->values.data<double>();
    return there(for_each_pair<double>(
        steps->query, steps->key, steps->lowest, [&](index_t apart) { return values[apart - steps->lowest]; }));
  }
  Tensor distance = there(by_pair(query_of(positions), false)) - there(by_pair(key_of(positions), true));
  if (positions.divisor != 1) distance = distance / Tensor::scalar(positions.divisor, DType::f64, device);
  return at.causal ? clamp(distance, 0, std::numeric_limits<double>::infinity()) : distance;
}

Device device_of_scores(const AttendContext& at) { return at.query.defined() ? at.query.device() : Device::cpu(); }

}  // namespace

bool operator==(const StepsOfPairs& a, const StepsOfPairs& b) {
  const auto same = [](const Tensor& x, const Tensor& y) {
    return x.shape() == y.shape() && std::equal(x.data<index_t>(), x.data<index_t>() + x.numel(), y.data<index_t>());
  };
  return a.lowest == b.lowest && a.device == b.device && same(a.query, b.query) && same(a.key, b.key);
}

bool operator==(const ConstantThere& a, const ConstantThere& b) {
  return a.device == b.device && a.constant.dtype() == b.constant.dtype() && a.constant.shape() == b.constant.shape() &&
         std::memcmp(a.constant.bytes(), b.constant.bytes(),
             static_cast<std::size_t>(a.constant.numel()) * size_of(a.constant.dtype())) == 0;
}

std::optional<DistanceSteps> distance_steps(const AttendContext& at) {
  const std::optional<Steps> all = steps_of(at);
  if (!all) return std::nullopt;
  return DistanceSteps{all->query, all->key, all->lowest, values_of(at, *all), lie_plain(at, all->query, all->key)};
}

PairDistances pair_distances(const AttendContext& at) {
  const Device device = device_of_scores(at);
  const std::optional<Steps> all = steps_of(at);
  // A table of all steps pays where pairs outnumber them.
  if (!all || all->count > 4 * batch_of(all->query, all->key) * all->query.size(1) * all->key.size(1)) {
    PairDistances found = sorted(at.distance_on_cpu());
    found.index = raw::to_device(found.index, device);
    return found;
  }
  return {values_of(at, *all),
      at.kept->steps.get({all->query, all->key, all->lowest, device},
          [&] { return PairSteps::of(all->query, all->key, all->lowest, all->count).on(device); }),
      {}};
}

Tensor PairDistances::read(const Tensor& table, Site here) const {
  if (steps) return by_distance(table, *steps, here);
  if (!is_floating(table.dtype())) return raw::cast(read(raw::cast(table, DType::f64), here), table.dtype());
  return permute(take_rows(transpose(table), select(index, 1, 0), here), {0, 3, 1, 2}, here);
}

Tensor PairDistances::index_of_pairs() const {
  if (!steps) return index;
  const Tensor all = reshape(Tensor::arange(steps->count, DType::i64), {1, steps->count});
  return by_distance(raw::to_device(all, steps->query.device()), *steps);
}

Tensor AttendContext::masked(const Tensor& t, double otherwise, Site at) const {
  const Tensor seen = mask();
  return seen.defined() ? whence::masked(t, seen, otherwise, at) : t;
}

Tensor AttendContext::here(const Tensor& constant) const {
  const Device there = device_of_scores(*this);
  if (there == constant.device()) return constant;
  const Tensor numbers = raw::contiguous(constant);
  return kept->constants.get({numbers, there}, [&] { return raw::to_device(numbers, there); });
}

Tensor AttendContext::distance_on_cpu() const { return distance_of(*this, Device::cpu()); }

Tensor AttendContext::distance() const { return distance_of(*this, device_of_scores(*this)); }

}  // namespace whence
