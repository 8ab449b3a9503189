// A masked pair adds exactly nothing, not even 0 x NaN: how rows that see no number which is not finite keep their
// bits.
#pragma once

#include <functional>

#include "nn/attention/executor.h"

namespace whence {

// Whether queries, keys, values and x are finite. True without a look where no pair is masked, as of a token that is
// decoded, and where they are not on the CPU: a device would be waited for, at each layer.
[[nodiscard]] bool inputs_are_finite(const AttendInputs& inputs);

// attend(inputs) where some of them are not finite, made of at most two runs of `attend`, whose inputs are:
//   for rows that see such a token   queries of the others 0, tokens that none of these rows sees 0
//   for all other rows               queries of the former 0, tokens that are not finite 0
// Nothing passes between the two, in backward neither. Rows of padding count among the others: they mean nothing.
[[nodiscard]] Tensor attend_apart(const AttendInputs& inputs, const Stages& stages,
    const std::function<Tensor(const AttendInputs&)>& attend);  // [b h i d]

}  // namespace whence
