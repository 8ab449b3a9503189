// Whole numbers of any length as their binary digits: exact sums, products and square roots for the binary tasks.
#pragma once

#include "examples/whence/tasks/task.h"

namespace whence::tasks {

// Least significant digit first, no zeros at the end except in {0}.
Tokens without_end_zeros(Tokens digits);
Tokens binary_sum(const Tokens& a, const Tokens& b);
Tokens binary_product(const Tokens& a, const Tokens& b);

// Most significant digit first: the largest r with r^2 <= n, in half as many digits as n (rounded up).
Tokens binary_square_root(const Tokens& n);

}  // namespace whence::tasks
