// Checked<Ops...>: one line in a file of ops that registers them, with their samples, for every generic test.
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

// An entry for ops without a struct: linear maps, functions of several ops, any number of inputs.
struct CheckedEntry {
  CheckedEntry(CheckedOp entry) {
    if (entry.samples) {
      entry.samples = [name = entry.name, samples = std::move(entry.samples)] {
        draw::seed(name);
        return samples();
      };
    }
    checked_ops().push_back(std::move(entry));
  }
};

template <class... Ops> struct Checked {
  Checked() { (enter<Ops>(), ...); }

 private:
  template <class Op> static void enter() {
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
            if constexpr (requires { &Op::composed; }) erased.back().composed = Op::composed;
          }
          return erased;
        },
        {}, {}};
    if constexpr (requires { Op::bad_inputs(); }) entry.bad_inputs = Op::bad_inputs;
    if constexpr (requires { &Op::reference; }) entry.reference = Op::reference;
    checked_ops().push_back(std::move(entry));
  }
};

}  // namespace whence
