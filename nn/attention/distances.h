// How far keys lie behind queries, as positions count it. Where positions are whole numbers, all that is read by
// distance is worked out from one row of queries, one of keys and one number per step.
#pragma once

#include <cmath>
#include <optional>

#include "nn/attention/position.h"
#include "tensor/error.h"
#include "tensor/pairs.h"

namespace whence {

// The distances of all pairs in one row, and which of them a pair has: a table or a network is read at these.
struct Distances {
  Tensor values;          // [n] f64, ascending, on the CPU
  Steps steps = {};       // beside the scores: pair (i, j) has values[its steps - lowest]
  bool diagonal = false;  // its steps are first_row + i - j wherever both tokens are present
  Tensor index = {};      // in place of steps where positions are not whole: i64 [1|b 1 i j], beside the scores

  // table [h n], beside the scores, of any dtype -> [1|b h i j]
  [[nodiscard]] Tensor read(const Tensor& table, Site site = Site::current()) const;
  [[nodiscard]] Tensor index_of_pairs(const Sequence& sequence) const;  // i64 [1|b 1 i j]. REQUIRES: it has these
  // Whether each pair of present tokens reads the same entry of a table [h n] as there. REQUIRES: whole positions
  [[nodiscard]] bool reads_as(const Distances& other) const;
};

// All throw Error where drawn distances (Positions::distances) are fewer than the steps. In O(i + j + n). Nothing where
// a position is not a whole number, or where n would exceed 2^24: n counts every step between the least and the
// greatest, whether a pair has it or not. In causal runs the least is 0.
[[nodiscard]] std::optional<Distances> whole_distances(const AttendContext& context);
// Of any positions, but whole ones beside drawn distances, else Error; where they are not whole, or much farther apart
// than pairs are many, in O(i j) on the host.
[[nodiscard]] Distances distances_of(const AttendContext& context);
// [1|b 1 i j] f64, beside the scores: how far key j lies behind query i; in causal runs 0 above the diagonal
[[nodiscard]] Tensor distance_of_pairs(const AttendContext& context);

// f(distance) for each of distances f64, on the CPU: T, of their shape
template <class T, class F> [[nodiscard]] Tensor of_each(const Tensor& distances, const F& f) {
  const Tensor made = Tensor::empty(distances.shape(), dtype_of<T>);
  for (index_t n = 0; n < made.numel(); ++n) made.data<T>()[n] = static_cast<T>(f(distances.data<double>()[n]));
  return made;
}

// f(distance) for every pair, worked out once per distance: T [1|b 1 i j], beside the scores
template <class T, class F> [[nodiscard]] Tensor of_each_distance(const AttendContext& context, const F& f) {
  const Distances distances = distances_of(context);
  const Tensor table = of_each<T>(distances.values, f);  // [n]
  return distances.read(context.on_device(table.view({1, table.size(0)}, {table.size(0), 1})));
}

// f(distance), a whole number, for every pair: [1|b 1 i j] i64. Throws Error where a distance is not a whole number of
// steps.
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
