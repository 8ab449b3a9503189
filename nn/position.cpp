#include "nn/position.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_set>

#include "autograd/ops.h"
#include "autograd/recording.h"
#include "tensor/error.h"
#include "tensor/raw.h"

namespace whence {
namespace {

// bool [1|b 1 rows keys]: true where query i = token first_row + i may see key j.
Tensor mask_of(index_t first_row, index_t rows, index_t keys, bool causal, const Tensor& present) {
  const index_t batch = present.defined() ? present.size(0) : 1;
  const Tensor mask = Tensor::empty({batch, 1, rows, keys}, DType::boolean);
  bool* allowed = mask.data<bool>();
  const bool* real = present.defined() ? present.data<bool>() : nullptr;
  for (index_t b = 0; b < batch; ++b) {
    for (index_t i = first_row; i < first_row + rows; ++i)
      for (index_t j = 0; j < keys; ++j) *allowed++ = (!causal || j <= i) && (!real || real[b * keys + j]);
  }
  return mask;
}

// bool [b t], contiguous
Tensor checked_present(const Tensor& present) {
  if (present.rank() != 2 || present.dtype() != DType::boolean)
    fail("sequence", "present is ", present.dtype(), " ", present.shape(), "; bool [batch, time] required");
  return raw::contiguous(raw::to_device(present, Device::cpu()));
}

// [t], or [b t] f64: 0 at the first token that is present, below 0 before it; behind the last one all stand where that
// stands, so that the largest position is that of a token.
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

// positions [t] or [b t] as [1|b 1 t 1] or, for keys, [1|b 1 1 t]
Tensor by_pair(const Tensor& positions, bool keys) {
  const index_t batch = positions.rank() == 2 ? positions.size(0) : 1, length = positions.size(-1);
  return reshape(positions, keys ? Shape{batch, 1, 1, length} : Shape{batch, 1, length, 1});
}

// sign(d) distances[|d|]
Tensor counted(const Tensor& distance, const Tensor& distances) {
  const std::vector<double> drawn = distances.to_vector();
  const Tensor result = raw::copy(distance);
  double* d = result.data<double>();
  for (index_t n = 0; n < result.numel(); ++n) {
    const std::size_t steps = static_cast<std::size_t>(std::fabs(d[n]));
    if (steps >= drawn.size() || d[n] != std::floor(d[n])) {
      fail("distance", d[n], " steps between a query and a key; drawn distances require whole steps below ",
          drawn.size());
    }
    d[n] = std::copysign(drawn[steps], d[n]);
  }
  return result;
}

// [1|b 1 i j]. Two rows of positions travel to the device, not their differences.
Tensor distance_of(const AttendContext& at, Device device) {
  const NoGrad data_only;
  const Positions& positions = at.positions;
  const auto there = [device](const Tensor& x) { return raw::to_device(x, device); };
  const Tensor query =
                   by_pair(positions.undivided_query.defined() ? positions.undivided_query : positions.query, false),
               key = by_pair(positions.undivided_key.defined() ? positions.undivided_key : positions.key, true);
  Tensor distance =
      positions.distances.defined() ? there(counted(query - key, positions.distances)) : there(query) - there(key);
  if (positions.divisor != 1) distance = distance / Tensor::scalar(positions.divisor, DType::f64, device);
  return at.causal ? clamp(distance, 0, std::numeric_limits<double>::infinity()) : distance;
}

// Ascending, each once. Neighbouring pairs often share their distance, so a sort of all of them would be mostly waste.
std::vector<double> distinct(const double* d, index_t count) {
  std::unordered_set<double> seen;
  double last = std::nan("");
  for (index_t n = 0; n < count; ++n)
    if (d[n] != last) seen.insert(last = d[n]);
  std::vector<double> values(seen.begin(), seen.end());
  std::sort(values.begin(), values.end());
  return values;
}

template <class Interface> void enter_stage(std::vector<StageOf<Interface>>& stage, const PositionalScheme& scheme) {
  if (const auto* part = dynamic_cast<const Interface*>(&scheme)) stage.push_back({part, &scheme.path()});
}

template <class Interface>
void enter_moved_stage(
    std::vector<StageOf<Interface>>& stage, const std::vector<StageOf<Interface>>& inner, const MovesPositions& mover) {
  for (StageOf<Interface> part : inner) {
    part.movers.insert(part.movers.begin(), &mover);
    stage.push_back(std::move(part));
  }
}

}  // namespace

Positions Positions::range(index_t length) {
  const Tensor positions = Tensor::arange(length, DType::f64);
  return {.query = positions, .key = positions, .length = length};
}

Sequence Sequence::run(index_t length, bool causal) {
  return {.mask = causal ? mask_of(0, length, length, true, {}) : Tensor(),
      .positions = Positions::range(length),
      .causal = causal};
}

Sequence Sequence::padded(const Tensor& present, bool causal) {
  const Tensor real = checked_present(present), positions = positions_of(present.size(1), real);
  const index_t batch = present.size(0), length = present.size(1);
  return {.mask = mask_of(0, length, length, causal, real),
      .present = reshape(real, {batch, 1, 1, length}),
      .positions = {.query = positions, .key = positions, .tokens = tokens_of(real), .length = length},
      .causal = causal};
}

Sequence Sequence::continued(index_t first_row, index_t rows, index_t capacity, const Tensor& present) {
  const index_t keys = first_row + rows;
  const Tensor real = present.defined() ? checked_present(present) : present;
  if (keys > capacity || (real.defined() && real.size(1) != keys)) {
    fail("sequence", first_row, " tokens and ", rows, " new ones with capacity ", capacity, " and present ",
        real.defined() ? real.shape() : Shape{}, " given; at most capacity tokens, each named in present, required");
  }
  const Tensor positions = positions_of(keys, real);
  return {.mask = mask_of(first_row, rows, keys, true, real),
      .present = real.defined() ? reshape(real, {real.size(0), 1, 1, keys}) : real,
      .positions = {.query = slice(positions, -1, first_row, keys),
          .key = positions,
          .tokens = tokens_of(real),
          .length = capacity},
      .first_row = first_row,
      .keys_behind = std::numeric_limits<index_t>::max()};  // a row is that of a run which goes on, however long
}

Sequence Sequence::on(Device device) const {
  Sequence moved = *this;
  if (mask.defined()) moved.mask = raw::to_device(mask, device);
  if (present.defined()) moved.present = raw::to_device(present, device);
  return moved;
}

Tensor AttendContext::masked(const Tensor& t, double otherwise, Site at) const {
  return mask.defined() ? whence::masked(t, mask, otherwise, at) : t;
}

Tensor AttendContext::here(const Tensor& constant) const {
  return query.defined() ? raw::to_device(constant, query.device()) : constant;
}

Tensor AttendContext::distance_on_cpu() const { return distance_of(*this, Device::cpu()); }

Tensor AttendContext::distance() const { return distance_of(*this, query.defined() ? query.device() : Device::cpu()); }

DistinctDistances distinct_distances(const AttendContext& at) {
  const Tensor distance = raw::contiguous(at.distance_on_cpu()), index = Tensor::empty(distance.shape(), DType::i64);
  const double* d = distance.data<double>();
  const std::vector<double> values = distinct(d, distance.numel());
  for (index_t n = 0; n < distance.numel(); ++n)
    index.data<index_t>()[n] = std::lower_bound(values.begin(), values.end(), d[n]) - values.begin();
  return {Tensor::of(values, {static_cast<index_t>(values.size())}, DType::f64), index};
}

void PositionalScheme::join(Stages& stages) const { stages.enter(*this); }

void Stages::enter(const PositionalScheme& scheme) {
  enter_stage(embeds, scheme);
  enter_stage(rotates, scheme);
  enter_stage(biases, scheme);
  enter_stage(transforms, scheme);
  enter_stage(maps, scheme);
  enter_stage(patterns, scheme);
  enter_stage(mixes, scheme);
}

void Stages::enter_moved(const Stages& inner, const MovesPositions& mover) {
  enter_moved_stage(embeds, inner.embeds, mover);
  enter_moved_stage(rotates, inner.rotates, mover);
  enter_moved_stage(biases, inner.biases, mover);
  enter_moved_stage(transforms, inner.transforms, mover);
  enter_moved_stage(maps, inner.maps, mover);
  enter_moved_stage(patterns, inner.patterns, mover);
  enter_moved_stage(mixes, inner.mixes, mover);
}

Stages Stages::of(const std::vector<const PositionalScheme*>& schemes) {
  Stages stages;
  stages.schemes = schemes;
  for (const PositionalScheme* scheme : schemes) scheme->join(stages);
  if (stages.patterns.size() > 1)
    throw InputError("schemes: two that stand for the softmax given; at most one has a meaning; leave one out");
  for (const PositionalScheme* scheme : schemes) scheme->check_company(stages);
  return stages;
}

}  // namespace whence
