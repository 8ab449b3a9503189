#include "nn/attention/finite_rows.h"

#include <algorithm>

#include "autograd/ops.h"
#include "tensor/finite.h"
#include "tensor/raw.h"

namespace whence {
namespace {

// For each sequence and token (or row) a yes or no.
class Marks {
 public:
  Marks(index_t batch, index_t count) : count_(count), marks_(static_cast<std::size_t>(batch * count)) {}
  char& at(index_t b, index_t n) { return marks_[static_cast<std::size_t>(b * count_ + n)]; }
  char at(index_t b, index_t n) const { return marks_[static_cast<std::size_t>(b * count_ + n)]; }
  bool any() const { return std::ranges::count(marks_, 0) < std::ssize(marks_); }
  bool all() const { return std::ranges::count(marks_, 0) == 0; }

  // bool [b 1 n 1], or [b n 1] for three axes; true where the mark is not set, or the other way round
  Tensor mask(int rank, bool where_set) const {
    const index_t batch = std::ssize(marks_) / std::max<index_t>(count_, 1);
    const Tensor mask = Tensor::empty(rank == 4 ? Shape{batch, 1, count_, 1} : Shape{batch, count_, 1}, DType::boolean);
    for (index_t n = 0; n < mask.numel(); ++n)
      mask.data<bool>()[n] = (marks_[static_cast<std::size_t>(n)] != 0) == where_set;
    return mask;
  }

 private:
  index_t count_;
  std::vector<char> marks_;
};

// Marks the tokens of x [b h t d] or [b t c] with a number that is not finite.
void mark_not_finite(const Tensor& x, Marks& marks) {
  if (!x.defined()) return;
  const int axis = x.rank() - 2;
  for (index_t b = 0; b < x.size(0); ++b)
    for (index_t t = 0; t < x.size(axis); ++t)
      if (!all_finite(raw::slice(raw::slice(x, 0, b, b + 1), axis, t, t + 1))) marks.at(b, t) = 1;
}

// Which query may see which key, in any head.
class Sight {
 public:
  Sight(const AttendInputs& inputs, const Stages& stages) : of_(inputs.sequence) {
    const Shape pairs{inputs.query.size(0), inputs.query.size(1), inputs.query.size(2), inputs.key.size(2)};
    if (of_.given_mask.defined()) given_ = raw::expand(raw::to_device(of_.given_mask, Device::cpu()), pairs);
    if (of_.present.defined()) present_ = raw::expand(of_.present, {pairs[0], 1, 1, pairs[3]});
    for (const PositionalScheme* scheme : stages.schemes)
      alone_ = alone_ && scheme->claims().row_local && scheme->claims().sees_no_future;
  }
  bool present(index_t b, index_t j) const {
    return !present_.defined() || present_.data<bool>()[b * present_.strides()[0] + j * present_.strides()[3]];
  }
  index_t token_of(index_t row) const { return of_.first_row + row; }
  // As x may, whatever mask is given: a sum of gates counts tokens between the two of a pair.
  bool reaches(index_t b, index_t row, index_t j) const {
    return present(b, j) && !(alone_ && of_.causal && j > token_of(row));  // else by way of other rows or later keys
  }
  bool operator()(index_t b, index_t row, index_t j) const {
    if (!reaches(b, row, j)) return false;
    if (!alone_ || !given_.defined()) return true;
    const Strides& step = given_.strides();
    for (index_t h = 0; h < given_.size(1); ++h)
      if (given_.data<bool>()[b * step[0] + h * step[1] + row * step[2] + j * step[3]]) return true;
    return false;
  }

 private:
  const Sequence& of_;
  Tensor given_, present_;
  bool alone_ = true;  // rows need no other rows and no later keys
};

struct Parts {
  Marks bad_keys, rows, seen_by_rows;  // rows: that see something which is not finite
  Marks bad_queries;                   // these rows, and what is not finite in padding
};

Parts parts_of(const AttendInputs& inputs, const Stages& stages) {
  const index_t batch = inputs.query.size(0), queries = inputs.query.size(2), keys = inputs.key.size(2);
  const Sight sees(inputs, stages);
  Marks bad_x(batch, keys);
  Parts parts{{batch, keys}, {batch, queries}, {batch, keys}, {batch, queries}};
  mark_not_finite(inputs.query, parts.bad_queries);
  mark_not_finite(inputs.x, bad_x);
  for (const Tensor* x : {&inputs.x, &inputs.key, &inputs.value}) mark_not_finite(*x, parts.bad_keys);
  for (index_t b = 0; b < batch; ++b) {
    for (index_t i = 0; i < queries; ++i) {
      const index_t own = std::min(sees.token_of(i), keys - 1);
      if (own < 0 || !sees.present(b, own)) continue;
      char& row = parts.rows.at(b, i);
      row = parts.bad_queries.at(b, i) || bad_x.at(b, own);
      for (index_t j = 0; j < keys && !row; ++j)
        row = (parts.bad_keys.at(b, j) && sees(b, i, j)) || (bad_x.at(b, j) && sees.reaches(b, i, j));
      if (!row) continue;
      parts.bad_queries.at(b, i) = 1;
      parts.seen_by_rows.at(b, own) = 1;
      for (index_t j = 0; j < keys; ++j)
        if (sees(b, i, j) || (inputs.x.defined() && sees.reaches(b, i, j))) parts.seen_by_rows.at(b, j) = 1;
    }
  }
  return parts;
}

AttendInputs with(const AttendInputs& inputs, const Marks& rows, bool those, const Marks& tokens, bool these) {
  AttendInputs some = inputs;
  some.query = masked(inputs.query, rows.mask(4, those), 0);
  some.key = masked(inputs.key, tokens.mask(4, these), 0);
  some.value = masked(inputs.value, tokens.mask(4, these), 0);
  if (inputs.x.defined()) some.x = masked(inputs.x, tokens.mask(3, these), 0);
  return some;
}

}  // namespace

bool inputs_are_finite(const AttendInputs& inputs) {
  const Sequence& of = inputs.sequence;
  const bool all_pairs = inputs.query.size(0) == 1 && inputs.query.size(2) == 1 &&
                         of.first_row + 1 == inputs.key.size(2) && !of.present.defined() && !of.given_mask.defined();
  if (all_pairs || !inputs.query.device().is_cpu()) return true;
  for (const Tensor* x : {&inputs.query, &inputs.key, &inputs.value, &inputs.x})
    if (x->defined() && !all_finite(*x)) return false;
  return true;
}

Tensor attend_apart(
    const AttendInputs& inputs, const Stages& stages, const std::function<Tensor(const AttendInputs&)>& attend) {
  if (inputs.query.numel() == 0) return attend(inputs);
  const Parts parts = parts_of(inputs, stages);
  const Tensor others =
      parts.rows.all() ? Tensor() : attend(with(inputs, parts.bad_queries, false, parts.bad_keys, false));
  if (!parts.rows.any()) return others;
  const Tensor rows = attend(with(inputs, parts.rows, true, parts.seen_by_rows, true));
  if (!others.defined()) return rows;
  // -0 adds nothing to any number, -0 included.
  return masked(others, parts.rows.mask(4, false), -0.0) + masked(rows, parts.rows.mask(4, true), -0.0);
}

}  // namespace whence
