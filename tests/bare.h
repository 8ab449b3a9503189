// Schemes on bare queries, keys and values, and what every causal scheme must do there and in a model: see no future,
// keep its rows in a longer run, ignore padding, decode, run in strips.
#pragma once

#include <doctest/doctest.h>

#include <set>

#include "autograd/inspect/probe.h"
#include "nn/attention/executor.h"
#include "nn/decoding.h"
#include "tests/models.h"

namespace whence::test {

using Texts = std::vector<std::string>;

// Schemes on bare queries, keys and values, with all parameters random or copied.
class Bare {
 public:
  explicit Bare(const std::string& text, index_t heads = 2, index_t head_dim = 4, index_t length = 12)
      : owner_(text, {heads * head_dim, heads, length}) {
    randomise(owner_);
    for (const Module::Parameter& parameter : owner_.parameters()) parameter.put_inside_bounds();
    std::vector<const PositionalScheme*> schemes = owner_.shared.all();
    for (const PositionalScheme* scheme : owner_.each_layer.all()) schemes.push_back(scheme);
    stages_ = Stages::of(schemes);
  }

  const Module& owner() const { return owner_; }
  const Stages& stages() const { return stages_; }
  // The parameter whose path ends so.
  Tensor operator[](const std::string& ending) const {
    for (const Module::Parameter& each : owner_.parameters())
      if (("." + each.path).ends_with("." + ending)) return each.tensor;
    fail("Bare", to_text("'", ending, "' given; no such parameter"));
  }
  void set(const std::string& ending, const Tensor& numbers) const {
    raw::copy_into(reshape(numbers.detach(), (*this)[ending].shape()), (*this)[ending]);
  }
  void fill(const std::string& ending, double value) const {
    set(ending, Tensor::full((*this)[ending].shape(), value, DType::f64));
  }

  Tensor logits(const AttendInputs& inputs) const {
    Tensor found;
    Capture capture;
    capture.edit("logits", [&found](const Tensor& value) { return found = value; });
    (void)reference_executor().attend(inputs, stages_);
    const Tensor seen = inputs.sequence.mask();
    return seen.defined() ? masked(found, seen) : found;
  }
  Tensor output(const AttendInputs& inputs, const Executor& executor = reference_executor()) const {
    return executor.attend(inputs, stages_);
  }

 private:
  struct Owner : Module {
    Owner(const std::string& text, const SchemeSizes& sizes)
        : shared(parse_schemes(text), sizes, SchemeList::Part::shared),
          each_layer(parse_schemes(text), sizes, SchemeList::Part::each_layer) {
      child("shared", shared.root());
      child("layer", each_layer.root());
    }
    SchemeList shared, each_layer;
  };
  Owner owner_;
  Stages stages_;
};

// Random queries, keys and values, all leaves.
inline AttendInputs random_inputs(
    index_t length, const Sequence& sequence, index_t batch = 1, index_t heads = 2, index_t head_dim = 4) {
  const Shape shape{batch, heads, length, head_dim};
  return {.x = normal_leaf({batch, length, heads * head_dim}, 4),
      .query = normal_leaf(shape, 1),
      .key = normal_leaf(shape, 2),
      .value = normal_leaf(shape, 3),
      .sequence = sequence};
}
inline AttendInputs random_inputs(index_t length) { return random_inputs(length, Sequence::run(length)); }

inline AttendInputs first_tokens(const AttendInputs& all, index_t count) {
  return {.x = slice(all.x, 1, 0, count),
      .query = slice(all.query, 2, 0, count),
      .key = slice(all.key, 2, 0, count),
      .value = slice(all.value, 2, 0, count),
      .sequence = Sequence::run(count)};
}

// d(row i of the allowed logits, weighted at random) / d(tokens): the tokens with any gradient that is not exactly 0.
inline std::set<index_t> tokens_seen(const Bare& scheme, const AttendInputs& inputs, index_t row) {
  const Tensor logits = select(scheme.logits(inputs), 2, row);
  const Tensor loss = sum(logits * normal(logits.shape(), 77));
  const std::vector<Tensor> leaves{inputs.x, inputs.query, inputs.key, inputs.value};
  const std::vector<Tensor> found = grad(loss, {}, leaves, {.allow_unused = true});
  std::set<index_t> seen;
  for (std::size_t k = 0; k < leaves.size(); ++k) {
    const int axis = k == 0 ? 1 : 2;
    for (index_t t = 0; found[k].defined() && t < leaves[k].size(axis); ++t)
      if (largest(select(found[k], axis, t)) != 0) seen.insert(t);
  }
  return seen;
}

inline std::set<index_t> up_to(index_t last) {
  std::set<index_t> all;
  for (index_t t = 0; t <= last; ++t) all.insert(t);
  return all;
}

// Values and every gradient of two executors.
inline void check_same(const Bare& scheme, const AttendInputs& inputs, const Executor& executor) {
  std::vector<Tensor> leaves{inputs.query, inputs.key, inputs.value, inputs.x};
  for (const Module::Parameter& parameter : scheme.owner().parameters()) leaves.push_back(parameter.tensor);
  const Tensor expected = scheme.output(inputs), found = scheme.output(inputs, executor),
               weights = normal(expected.shape(), 9);
  CHECK(distance(found, expected) < 1e-12);
  const std::vector<Tensor> a = grad(sum(expected * weights), {}, leaves, {.allow_unused = true}),
                            b = grad(sum(found * weights), {}, leaves, {.allow_unused = true});
  for (std::size_t k = 0; k < leaves.size(); ++k) {
    CAPTURE(k);
    const Tensor zero = Tensor::zeros(leaves[k].shape(), DType::f64);
    CHECK(distance(a[k].defined() ? a[k] : zero, b[k].defined() ? b[k] : zero) < 1e-12);
  }
}

// bool [2 t]: the first sequence is whole, the second has `count` tokens of padding.
inline Tensor present_but(index_t length, index_t count, bool left) {
  const Tensor present = Tensor::empty({2, length}, DType::boolean);
  for (index_t t = 0; t < length; ++t) {
    present.data<bool>()[t] = true;
    present.data<bool>()[length + t] = left ? t >= count : t < length - count;
  }
  return present;
}

// Rows of a run's first `count` tokens, alone and in the whole run: how far their allowed logits are apart.
inline double prefix_gap(const Bare& scheme, const AttendInputs& longer, index_t count, index_t row) {
  const Tensor in_longer = slice(select(scheme.logits(longer), 2, row), 2, 0, count);
  return distance(in_longer.detach(), select(scheme.logits(first_tokens(longer, count)), 2, row).detach());
}

inline void check_no_future(const Texts& texts) {
  const AttendInputs inputs = random_inputs(9);
  for (const std::string& text : texts) {
    CAPTURE(text);
    const Bare scheme(text);
    for (const index_t row : {0, 3, 8}) {
      const std::set<index_t> seen = tokens_seen(scheme, inputs, row);
      CHECK(!seen.empty());
      CHECK(*seen.rbegin() <= row);
    }
    CHECK(tokens_seen(scheme, inputs, 5) == up_to(5));  // and every earlier one
  }
}

inline void check_prefixes(const Texts& texts) {
  const AttendInputs longer = random_inputs(12);
  for (const std::string& text : texts) {
    CAPTURE(text);
    const Bare scheme(text);
    for (index_t row = 0; row < 8; ++row) CHECK(prefix_gap(scheme, longer, 8, row) < 1e-13);
    for (const SchemeSpec& spec : parse_schemes(text)) CHECK(spec.make({8, 2, 9})->claims().prefix_consistent);
  }
}

inline void check_duplicates(const Texts& texts) {
  const AttendInputs once = random_inputs(9);
  AttendInputs twice = once;
  for (Tensor* each : {&twice.x, &twice.query, &twice.key, &twice.value}) *each = concat_along(0, {*each, *each});
  for (const std::string& text : texts) {
    CAPTURE(text);
    const Bare scheme(text);
    const std::vector<Module::Parameter> parameters = scheme.owner().parameters();
    std::vector<Tensor> handles;
    for (const Module::Parameter& parameter : parameters) handles.push_back(parameter.tensor);
    if (handles.empty()) continue;
    const Tensor weights = normal({1, 2, 9, 4}, 8);
    const std::vector<Tensor> a = grad(sum(scheme.output(once) * weights), {}, handles),
                              b = grad(sum(scheme.output(twice) * weights), {}, handles);
    for (std::size_t k = 0; k < handles.size(); ++k) CHECK(distance((a[k] * 2.0).detach(), b[k].detach()) < 1e-12);
  }
}

// In a causal model: without padding, with padding on the left, with padding on the right.
inline void check_strips(const Texts& texts, bool causal) {
  for (const std::string& text : texts) {
    CAPTURE(text);
    const Bare scheme(text);
    for (const index_t rows : {1, 4, 5}) {  // 11 tokens: last blocks of 1 and 3 rows
      CAPTURE(rows);
      const auto strips = strips_executor_of(rows);
      check_same(scheme, random_inputs(11, Sequence::run(11, causal)), *strips);
      for (const bool left : {true, false})
        check_same(scheme, random_inputs(11, Sequence::padded(present_but(11, 4, left), causal), 2), *strips);
    }
  }
}

inline std::unique_ptr<Transformer> random_model(const std::string& text, bool causal = true) {
  TransformerOptions options = small(text);
  options.causal = causal;
  auto model = random_decoder(options);
  for (const Module::Parameter& each : model->parameters()) each.put_inside_bounds();
  return model;
}

// Of 9 tokens 3 are padding, on either side.
inline void check_padding(const Texts& texts, bool causal) {
  const Tensor tokens = random_tokens(2, 9, 5);
  for (const std::string& text : texts) {
    CAPTURE(text);
    const auto model = random_model(text, causal);
    for (const bool left : {true, false}) {
      CAPTURE(left);
      const Tensor logits = (*model)(tokens, Sequence::padded(present_but(9, 3, left), causal), {});
      const index_t begin = left ? 3 : 0;
      const Tensor alone = (*model)(raw::slice(raw::slice(tokens, 0, 1, 2), 1, begin, begin + 6));
      CHECK(distance(slice(slice(logits, 0, 1, 2), 1, begin, begin + 6).detach(), alone.detach()) < 1e-12);
      CHECK(distance(slice(logits, 0, 0, 1).detach(), (*model)(raw::slice(tokens, 0, 0, 1)).detach()) < 1e-12);
    }
  }
}

// Decoded rows against those of a run that is `reach` tokens longer: one at a time, in chunks, and behind padding.
inline void check_decoding(const std::string& text, index_t reach = 0) {
  CAPTURE(text);
  const auto model = random_model(text);
  const Tensor tokens = random_tokens(2, 9 + reach, 5);
  const Tensor full = slice((*model)(tokens), 1, 0, 9);
  Decoding one(*model, 12), chunks(*model, 12);
  for (index_t t = 0; t < 9; ++t)
    CHECK(distance(one(raw::slice(tokens, 1, t, t + 1)), slice(full, 1, t, t + 1).detach()) < 1e-12);
  for (const auto& [begin, end] : {std::pair<index_t, index_t>{0, 4}, {4, 5}, {5, 9}})
    CHECK(distance(chunks(raw::slice(tokens, 1, begin, end)), slice(full, 1, begin, end).detach()) < 1e-12);
  // Sequences of different lengths that end together: the second is 3 tokens shorter.
  Decoding padded(*model, 12, {0, 3});
  (void)padded(raw::slice(tokens, 1, 0, 5));
  const Tensor alone = (*model)(raw::slice(raw::slice(tokens, 0, 1, 2), 1, 3, 9 + reach));
  for (index_t t = 5; t < 9; ++t) {
    const Tensor row = padded(raw::slice(tokens, 1, t, t + 1));
    CHECK(distance(slice(row, 0, 1, 2), slice(alone, 1, t - 3, t - 2).detach()) < 1e-12);
    CHECK(distance(slice(row, 0, 0, 1), slice(slice(full, 0, 0, 1), 1, t, t + 1).detach()) < 1e-12);
  }
}

}  // namespace whence::test
