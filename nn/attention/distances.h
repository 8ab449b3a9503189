// Distances from queries back to keys, measured in positions. If positions are whole numbers, tables by distance need
// only one row of queries, one row of keys and one number per step.
#pragma once

#include <cmath>
#include <optional>

#include "nn/attention/position.h"
#include "tensor/error.h"
#include "tensor/pairs.h"

namespace whence {

// The distances that occur, in one row, and the index of each pair's distance: a table or a network is read at these.
struct Distances {
  Tensor values;          // [n] f64, ascending, on the CPU
  Steps steps = {};       // on the scores' device: pair (i, j) has values[its steps - lowest]
  bool diagonal = false;  // true if steps are first_row + i - j for all pairs of present tokens
  Tensor index = {};      // replaces steps if positions are not whole: i64 [1|b 1 i j], on the scores' device

  // table [h n], on the scores' device, of any dtype -> [1|b h i j]
  [[nodiscard]] Tensor read(const Tensor& table, Site site = Site::current()) const;
  [[nodiscard]] Tensor index_of_pairs(const Sequence& sequence) const;  // i64 [1|b 1 i j]. REQUIRES: steps or an index
  // True if each pair of present tokens reads the same entry of a table [h n] as in `other`. REQUIRES: whole positions
  [[nodiscard]] bool reads_as(const Distances& other) const;
};

// All throw Error if there are fewer drawn distances (Positions::distances) than steps. Takes O(i + j + n). Returns
// nothing if a position is not whole, or if n would exceed 2^24: n counts every step between the smallest and the
// largest, used or not. In causal runs the smallest is 0.
[[nodiscard]] std::optional<Distances> whole_distances(const AttendContext& context);
// For any positions; Error for positions that are not whole with drawn distances. Takes O(i j) on the host if positions
// are not whole, or if there are many more steps than pairs.
[[nodiscard]] Distances distances_of(const AttendContext& context);
// Returns [1|b 1 i j] f64 on the scores' device: the distance from query i back to key j; in causal runs 0 for j > i.
[[nodiscard]] Tensor distance_of_pairs(const AttendContext& context);

// Returns f(distance) for each of `distances` (f64, on the CPU): T, of their shape.
template <class T, class F> [[nodiscard]] Tensor of_each(const Tensor& distances, const F& f) {
  const Tensor made = Tensor::empty(distances.shape(), dtype_of<T>);
  for (index_t n = 0; n < made.numel(); ++n) made.data<T>()[n] = static_cast<T>(f(distances.data<double>()[n]));
  return made;
}

// Returns f(distance) for every pair, computed once per distance: T [1|b 1 i j], on the scores' device.
template <class T, class F> [[nodiscard]] Tensor of_each_distance(const AttendContext& context, const F& f) {
  const Distances distances = distances_of(context);
  const Tensor table = of_each<T>(distances.values, f);  // [n]
  return distances.read(context.on_device(table.view({1, table.size(0)}, {table.size(0), 1})));
}

// Returns f(distance), a whole number, for every pair: [1|b 1 i j] i64. Error if a distance is not whole.
template <class F> [[nodiscard]] Tensor index_of_steps(const char* scheme, const AttendContext& context, const F& f) {
  return of_each_distance<index_t>(context, [&](double distance) -> index_t {
    if (distance != std::floor(distance))
      fail(scheme, "a distance of ", distance,
          " given; whole distances required, as its table has a row for each; leave out what "
          "stretches positions");
    return f(static_cast<index_t>(distance));
  });
}

}  // namespace whence
