// Checked<Op>: one line in an op's file that gives it, with its samples, to every generic test.
#pragma once

#include "autograd/check/samples.h"
#include "autograd/op.h"

namespace whence {

namespace detail {
template <class Op, std::size_t... K>
Tensor apply_to(const Op& op, const std::vector<Tensor>& inputs, std::index_sequence<K...>) {
  return apply(Op(op), Site::current(), inputs[K]...);
}

template <class Op, class Result, class... In>
constexpr std::size_t input_count(Result (Op::*)(typename Op::Saved&, In...) const) {
  return sizeof...(In);
}
}  // namespace detail

// For functions made of several ops, and ops with any number of inputs: they are no struct with forward and backward.
struct CheckedEntry {
  explicit CheckedEntry(CheckedOp entry) {
    if (entry.samples) {
      entry.samples = [name = entry.name, samples = std::move(entry.samples)] {
        draw::seed(name);
        return samples();
      };
    }
    checked_ops().push_back(std::move(entry));
  }
};

template <class Op> struct Checked {
  Checked() {
    CheckedOp entry{Op::name, Once<Op>,
        [] {
          std::vector<CheckedSample> erased;
          draw::seed(Op::name);
          for (const Sample<Op>& sample : Op::samples()) {
            erased.push_back(
                {sample.name, sample.kinked, sample.inputs, [op = sample.op](const std::vector<Tensor>& inputs) {
                   constexpr std::size_t count = detail::input_count(&Op::forward);
                   return detail::apply_to(op, inputs, std::make_index_sequence<count>());
                 }});
          }
          return erased;
        },
        {}, {}};
    if constexpr (requires { Op::bad_inputs(); }) entry.bad_inputs = [] { return Op::bad_inputs(); };
    if constexpr (requires(const std::vector<Tensor>& in) { Op::reference(in); })
      entry.reference = [](const std::vector<Tensor>& inputs) { return Op::reference(inputs); };
    checked_ops().push_back(std::move(entry));
  }
};

}  // namespace whence
