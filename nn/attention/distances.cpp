#include "nn/attention/distances.h"

#include <algorithm>
#include <limits>
#include <unordered_set>

#include "autograd/ops.h"
#include "autograd/recording.h"
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

// Returns [t] or [b t] f64 as i64 [1|b t]; undefined if a number is not whole.
Tensor whole(const Tensor& positions) {
  const Tensor from = raw::contiguous(positions);
  const Tensor to = Tensor::empty({from.rank() == 2 ? from.size(0) : 1, from.size(-1)}, DType::i64);
  const double* position = from.data<double>();
  for (index_t *at = to.data<index_t>(), *const end = at + to.numel(); at < end; ++at, ++position) {
    if (*position != std::floor(*position) || std::fabs(*position) > largest_position) return {};
    *at = static_cast<index_t>(*position);
  }
  return to;
}

// Returns the steps on the CPU; nothing if there are none, or too many.
std::optional<Steps> whole_steps(const AttendContext& context) {
  const Tensor query = whole(query_of(context.positions)), key = whole(key_of(context.positions));
  if (!query.defined() || !key.defined() || query.numel() == 0 || key.numel() == 0) return std::nullopt;
  const Steps steps = Steps::of(query, key, context.causal);
  return steps.count > most_steps ? std::nullopt : std::optional(steps);
}

// Returns the distance that each step counts as, [n] f64.
Tensor values_of(const Positions& positions, const Steps& steps) {
  const bool draws = positions.distances.defined();
  const std::vector<double> drawn = draws ? positions.distances.to_vector() : std::vector<double>();
  const Tensor values = Tensor::empty({steps.count}, DType::f64);
  double* const counts_as = values.data<double>();
  for (index_t n = 0; n < steps.count; ++n) {
    double counted = static_cast<double>(steps.lowest + n);
    const auto apart = static_cast<std::size_t>(std::fabs(counted));
    if (draws && apart >= drawn.size()) {
      fail("distance", steps.lowest + n, " steps between a query and a key; drawn distances require whole steps below ",
          drawn.size());
    }
    if (draws) counted = std::copysign(drawn[apart], counted);
    counts_as[n] = positions.divisor == 1 ? counted : counted / positions.divisor;
  }
  return values;
}

// True if every present token has its index as its position, up to one shift for each sequence.
bool are_diagonal(const AttendContext& context, const Steps& steps) {
  const index_t padded = context.present.defined() ? context.present.size(0) : 1;
  const Tensor present = context.present.defined() ? raw::contiguous(context.present) : context.present;
  const index_t tokens = present.defined() ? present.size(-1) : 0, queries = steps.query.size(1),
                keys = steps.key.size(1);
  for (index_t b = 0; b < std::max(steps.batch(), padded); ++b) {
    const bool* real = present.defined() ? present.data<bool>() + (padded == 1 ? 0 : b * tokens) : nullptr;
    const auto is_real = [&](index_t token) { return !real || token >= tokens || real[token]; };
    std::optional<index_t> moved;  // the shift, taken from the first present token
    const auto matches_diagonal = [&](index_t position, index_t token) {
      if (!is_real(token)) return true;
      if (!moved) moved = position - token;
      return *moved == position - token;
    };
    const index_t *key = row_of(steps.key, b), *query = row_of(steps.query, b);
    for (index_t j = 0; j < keys; ++j)
      if (!matches_diagonal(key[j], j)) return false;
    for (index_t i = 0; i < queries; ++i)
      if (!matches_diagonal(query[i], context.first_row + i)) return false;
  }
  return true;
}

Distances distances_by_steps(const AttendContext& context, const Steps& steps) {
  Steps there = steps;
  there.query = context.kept_once(steps.query), there.key = context.kept_once(steps.key);
  return {values_of(context.positions, steps), there, are_diagonal(context, steps)};
}

// Sorts the distances of all pairs, for positions that are not whole or far apart. Neighbouring pairs often have the
// same distance, so repeated distances are not sorted.
Distances sorted(const Tensor& pairs, Device device) {
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
  return {.values = Tensor::of(values, {static_cast<index_t>(values.size())}, DType::f64),
      .index = raw::to_device(index, device)};
}

// Returns positions [t] or [b t] as [1|b 1 t 1] or, for keys, [1|b 1 1 t].
Tensor by_pair(const Tensor& positions, bool keys) {
  const index_t batch = positions.rank() == 2 ? positions.size(0) : 1, length = positions.size(-1);
  return reshape(positions, keys ? Shape{batch, 1, 1, length} : Shape{batch, 1, length, 1});
}

// [1|b 1 i j]. Sends two rows of positions to the device, once for all layers, instead of all differences.
Tensor distance_on(const AttendContext& context, Device device) {
  const NoGrad data_only;
  const Positions& positions = context.positions;
  const auto there = [&](const Tensor& x) {
    return device == context.device ? context.on_device(x) : raw::to_device(x, device);
  };
  if (positions.distances.defined()) {
    const std::optional<Steps> steps = whole_steps(context);
    if (!steps) fail("distance", "drawn distances between positions that are not whole given; whole ones required");
    return raw::read_by_distance(steps->on(device), there(reshape(values_of(positions, *steps), {1, -1})));
  }
  Tensor distance = there(by_pair(query_of(positions), false)) - there(by_pair(key_of(positions), true));
  if (positions.divisor != 1) distance = distance / Tensor::scalar(positions.divisor, DType::f64, device);
  return context.causal ? clamp(distance, 0, std::numeric_limits<double>::infinity()) : distance;
}

}  // namespace

std::optional<Distances> whole_distances(const AttendContext& context) {
  const std::optional<Steps> steps = whole_steps(context);
  if (!steps) return std::nullopt;
  return distances_by_steps(context, *steps);
}

Distances distances_of(const AttendContext& context) {
  const std::optional<Steps> steps = whole_steps(context);
  // A table of all steps pays if there are more pairs than steps.
  if (!steps || steps->count > 4 * steps->batch() * steps->query.size(1) * steps->key.size(1))
    return sorted(distance_on(context, Device::cpu()), context.device);
  return distances_by_steps(context, *steps);
}

Tensor distance_of_pairs(const AttendContext& context) { return distance_on(context, context.device); }

Tensor Distances::read(const Tensor& table, Site site) const {
  if (!index.defined()) return by_distance(table, steps, site);
  if (!is_floating(table.dtype())) return raw::cast(read(raw::cast(table, DType::f64), site), table.dtype());
  return permute(take_rows(transpose(table), select(index, 1, 0), site), {0, 3, 1, 2}, site);
}

Tensor Distances::index_of_pairs(const Sequence& sequence) const {
  if (index.defined()) return index;
  const Tensor all = reshape(Tensor::arange(steps.count, DType::i64), {1, steps.count});
  return by_distance(sequence.kept_once(all), steps);
}

bool Distances::reads_as(const Distances& other) const {
  if (diagonal && other.diagonal) return steps.lowest == other.steps.lowest && steps.count == other.steps.count;
  return steps == other.steps;
}

}  // namespace whence
