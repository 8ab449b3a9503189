// Small models with a sequence for look, and checks of every look.
#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>

#include "examples/whence/look/inspection.h"
#include "examples/whence/look/subject.h"
#include "examples/whence/verify/scheme_texts.h"
#include "tests/support/programs.h"
#include "tests/support/schemes.h"

namespace whence::test {

inline look::Subject subject_with(const TransformerOptions& options, index_t length, bool random = true) {
  look::Subject subject;
  subject.title = options.scheme;
  subject.model = std::make_unique<Transformer>(options);
  if (random)
    randomise(*subject.model);
  else
    subject.model->initialise(1), subject.model->to(DType::f64);
  subject.tokens = random_tokens(1, length, options.vocabulary);
  subject.targets = random_tokens(1, length, options.vocabulary, 2);
  subject.texts.assign(static_cast<std::size_t>(length), "a");
  subject.answers.assign(static_cast<std::size_t>(length), "b");
  for (index_t k = 0; k < options.vocabulary; ++k) subject.outputs.emplace_back(1, static_cast<char>('a' + k));
  return subject;
}

inline const look::Quantity& named(const std::vector<look::Quantity>& all, const std::string& path) {
  const auto found = std::ranges::find(all, path, &look::Quantity::path);
  REQUIRE_MESSAGE(found != all.end(), path);
  return *found;
}

// Trains a short run in `out` with a checkpoint after every second step.
inline void train_flip_flop(const std::string& out, const std::string& more) {
  (void)done(
      "train flip_flop --scheme cope --length 16 --dim 8 --layers 1 --heads 2 --batch 2 --test-sequences 2 "
      "--save-every 2 --quiet " +
      more + " --out '" + out + "'");
}

// Calls f(subject, text, causal) for every scheme that a model accepts.
template <class F> void for_every_scheme(std::initializer_list<bool> kinds, const F& f) {
  for (const std::string& text : promised_texts()) {
    for (const bool causal : kinds) {
      INFO(text, ", causal ", causal);
      TransformerOptions options = small(text);
      options.causal = causal;
      std::optional<look::Subject> subject;
      try {
        subject = subject_with(options, 7);
      } catch (const InputError&) { continue; }
      f(*subject, text, causal);
    }
  }
}

inline void check_quantities(const look::Inspection& inspection) {
  for (const look::Quantity& quantity : inspection.quantities()) {
    if (quantity.path.find(".attention.") == std::string::npos) continue;
    CAPTURE(quantity.path);
    REQUIRE(quantity.probe != nullptr);
    CHECK(static_cast<int>((quantity.probe->axes.size() + 1) / 2) == quantity.value.rank());
    CHECK_FALSE(quantity.probe->caption.empty());
    CHECK(quantity.causes.size() == static_cast<std::size_t>(quantity.value.numel()));
  }
}

// Checks that every exact 0 has a cause, and that every entry with a cause is 0 or nearly 0.
inline void check_causes(const look::Inspection& inspection) {
  for (const std::vector<look::Quantity>* all : {&inspection.quantities(), &inspection.parameters()}) {
    for (const look::Quantity& quantity : *all) {
      if (!quantity.gradient.defined()) continue;
      CAPTURE(quantity.path);
      const std::vector<double> numbers = quantity.gradient.to_vector();
      double size = 0;
      for (const double number : numbers) size = std::max(size, std::abs(number));
      for (std::size_t e = 0; e < numbers.size(); ++e) {
        const Stop stop = inspection.causes()[quantity.causes[e]].stop;
        if (numbers[e] == 0) CHECK(stop != Stop::nothing);
        const bool channels = quantity.probe && quantity.probe->axes.starts_with("b c");
        if (stop != Stop::nothing && (stop != Stop::masked || channels) && !vanishes(stop))
          CHECK(std::abs(numbers[e]) <= 1e-10 * std::max(size, 1e-3));
      }
    }
  }
}

}  // namespace whence::test
