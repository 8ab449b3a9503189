// Associative recall: the generator, and the paper's construction. It must be right on every sequence.
#include <doctest/doctest.h>
#include <cmath>
#include <set>

#include "autograd/recording.h"
#include "examples/whence/tasks/recall_construction.h"
#include "nn/attention/plan.h"
#include "tensor/error.h"
#include "tests/support/programs.h"

using namespace whence;
using namespace whence::tasks;

namespace {

Batch random_batch(index_t length, index_t vocabulary, const std::string& trigger, index_t sequences) {
  const auto task = make_task("associative_recall",
      {"--length", std::to_string(length), "--vocabulary", std::to_string(vocabulary), "--trigger", trigger});
  return task->training_batch(6, 1, sequences);
}

}  // namespace

TEST_CASE("associative recall: the last token was seen once before, the target is what followed it") {
  for (const std::string trigger : {"anywhere", "first"}) {
    const Batch batch = random_batch(12, 20, trigger, 3000);
    std::vector<int> places(12), answers(20);
    for (index_t row = 0; row < batch.sequences; ++row) {
      const auto begin = batch.inputs.begin() + row * 12;
      const std::set<std::int64_t> different(begin, begin + 11);
      CHECK(different.size() == 11);
      const auto seen = std::find(begin, begin + 11, begin[11]) - begin;
      REQUIRE(seen < 10);  // a token other than the trigger follows it
      CHECK(batch.targets[static_cast<std::size_t>(row * 12 + 11)] == begin[seen + 1]);
      for (index_t i = 0; i < 11; ++i) CHECK(batch.targets[static_cast<std::size_t>(row * 12 + i)] == no_target);
      ++places[static_cast<std::size_t>(seen)], ++answers[static_cast<std::size_t>(begin[seen + 1])];
    }
    if (trigger == "first") CHECK(places[0] == 3000);
    for (std::size_t place = 0; place < 10 && trigger == "anywhere"; ++place)
      CHECK(std::abs(places[place] - 300) < 5 * std::sqrt(300));
    for (const int seen : answers) CHECK(std::abs(seen - 150) < 5 * std::sqrt(150));
  }
}

TEST_CASE("associative recall: longer test sets where the vocabulary suffices, and guesses") {
  CHECK(make_task("associative_recall", {"--length", "16", "--vocabulary", "32"})->test_sets().size() == 2);
  const auto task = make_task("associative_recall", {"--length", "16", "--trigger", "first"});
  CHECK(task->test_sets().size() == 3);
  CHECK(task->test_batch(2, 0, 0, 2).positions == 64);
  CHECK_THROWS_WITH_AS((void)make_task("associative_recall", {"--length", "16", "--vocabulary", "14"}),
      doctest::Contains("at least --length - 1 required"), InputError);
  const Batch batch = task->test_batch(1, 0, 0, 50);
  Errors second, before;
  second.add(batch, task->guesses()[0].predict(batch));
  before.add(batch, task->guesses()[1].predict(batch));
  CHECK(second.token_percent() == 0.0);  // with the trigger always first, the second token is the answer
  CHECK(before.token_percent() == 100.0);
}

TEST_CASE("associative recall: by construction 100 %, in both forms and executors, with and without the residual") {
  for (const index_t length : {4, 33, 128, 512}) {
    const index_t vocabulary = length + 1;
    for (const std::string trigger : {"first", "anywhere"}) {
      const Batch batch = random_batch(length, vocabulary, trigger, 512 / length);
      for (const Executor executor : {Executor::reference, Executor::strips}) {
        for (const bool residual : {true, false}) {
          for (const KernelForm form : {KernelForm::linear, KernelForm::module}) {
            CAPTURE(length);
            CAPTURE(name_of(executor));
            CAPTURE(residual);
            const RecallOutcome outcome = recall_by_construction(batch, vocabulary, form, residual, {executor});
            CHECK(outcome.errors.tokens == batch.sequences);
            CHECK(outcome.errors.wrong_tokens == 0);
            // e^b / (e^b + N - 1) with the residual, e^b / (e^b + 2 e^-b + N - 3) without
            const double b = recall_sharpness(length), n = static_cast<double>(length);
            const double mass =
                residual ? std::exp(b) / (std::exp(b) + n - 1) : std::exp(b) / (std::exp(b) + 2 * std::exp(-b) + n - 3);
            CHECK(outcome.least_mass == doctest::Approx(mass).epsilon(1e-4));
          }
        }
      }
    }
  }
}

TEST_CASE("associative recall: a kernel that looks the other way is wrong, so that the test above can be") {
  const Batch batch = random_batch(24, 40, "anywhere", 20);
  const auto scheme = recall_scheme(KernelForm::module, true);
  // The construction is in the weights alone: with weights of a fresh cdape the same head only guesses.
  const auto fresh = parse_schemes("cdape(none, width=2, kernel=3)")[0].make({.dim = 1, .heads = 1});
  fresh->initialise(1);
  CHECK(scheme->parameters().size() == fresh->parameters().size());
  for (std::size_t k = 0; k < 4; ++k) CHECK(scheme->parameters()[k].path == fresh->parameters()[k].path);
  CHECK(scheme->parameters()[0].tensor.to_vector() == std::vector<double>{1, -1, 0, -1, 1, 0});
  RecallModel model(1, 40, 24, "reference");
  Errors right, wrong;
  const NoGrad no_grad;
  right.add(batch, most_probable(model(batch.input_tensor())));
  CHECK(right.wrong_tokens == 0);
  for (const Module::Parameter& parameter : model.parameters()) {
    if (parameter.path != "attention.position.hidden.weight") continue;
    const double mirrored[] = {0, -1, 1, 0, 1, -1};
    for (int i = 0; i < 6; ++i) parameter.tensor.data<float>()[i] = static_cast<float>(mirrored[i]);
  }
  wrong.add(batch, most_probable(model(batch.input_tensor())));
  CHECK(wrong.token_percent() == 100.0);
}

TEST_CASE("associative recall: a whole model with the construction as its weights, up to 512 tokens") {
  const NoGrad no_grad;
  for (const index_t length : {16, 128, 512}) {
    for (const std::string executor : {"reference", "strips"}) {
      RecallModel model(1, length, length, executor);
      const Batch batch = random_batch(length, length, "anywhere", 512 / length);
      Errors errors;
      errors.add(batch, most_probable(model(batch.input_tensor())));
      CHECK(errors.tokens == batch.sequences);
      CHECK(errors.wrong_tokens == 0);
    }
  }
}

namespace {

// The least mass of a last row on the answer by the formulas of the header, in f64.
double least_two_layer_mass(const Batch& batch, index_t vocabulary) {
  const index_t n = batch.positions;
  const double b = recall_sharpness(n);
  double least = 1;
  for (index_t number = 0; number < batch.sequences; ++number) {
    const Row row = batch.row(number);
    const Tokens& x = row.inputs;
    double answer = 0, all = 0;
    for (std::size_t j = 0; j < x.size(); ++j) {
      std::vector<double> previous(static_cast<std::size_t>(vocabulary));  // output of layer 1 in row j
      double sum = 0;
      for (std::size_t k = 0; k <= j; ++k) sum += k + 1 == j ? std::exp(b) : 1;
      for (std::size_t k = 0; k <= j; ++k)
        previous[static_cast<std::size_t>(x[k])] += (k + 1 == j ? std::exp(b) : 1) / sum;
      const double weight = std::exp(b * (previous[static_cast<std::size_t>(x.back())] - (x[j] == x.back() ? 1 : 0)));
      all += weight;
      if (x[j] == row.graded.back()) answer += weight;
    }
    least = std::min(least, answer / all);
  }
  return least;
}

}  // namespace

TEST_CASE("associative recall: two plain layers with positions, 100 % and the mass of the formulas") {
  for (const index_t length : {4, 33, 128, 512}) {
    const index_t vocabulary = length + 1;
    for (const std::string trigger : {"first", "anywhere"}) {
      const Batch batch = random_batch(length, vocabulary, trigger, 512 / length);
      const double mass = least_two_layer_mass(batch, vocabulary);
      for (const Executor executor : {Executor::reference, Executor::strips}) {
        CAPTURE(length);
        CAPTURE(name_of(executor));
        const RecallOutcome outcome = recall_by_two_layers(batch, vocabulary, SecondKey::previous_less_own, {executor});
        CHECK(outcome.errors.tokens == batch.sequences);
        CHECK(outcome.errors.wrong_tokens == 0);
        CHECK(outcome.least_mass == doctest::Approx(mass).epsilon(1e-4));
      }
      // As printed the first token's key is its own, and if it is the trigger it also gets attention.
      const RecallOutcome printed =
          recall_by_two_layers(batch, vocabulary, SecondKey::as_printed, {Executor::reference});
      if (trigger == "first") CHECK(printed.errors.token_percent() == 100.0);
    }
  }
}

TEST_CASE("associative recall: a whole model of two plain layers, whose positions it needs") {
  const NoGrad no_grad;
  for (const std::string trigger : {"first", "anywhere"}) {
    for (const index_t length : {16, 96}) {
      RecallModel model(2, length, length, "reference");
      const index_t wide = 4 * length;
      CHECK(model.parameter_count() == length * wide + length * wide + 8 * wide * wide);
      const Batch batch = random_batch(length, length, trigger, 16);
      const auto least_mass = [&] {
        const Tensor mass = model(batch.input_tensor());
        double least = 1;
        for (index_t row = 0; row < batch.sequences; ++row)
          least = std::min(
              least, mass.at({row, length - 1, batch.graded[static_cast<std::size_t>((row + 1) * length - 1)]}));
        return least;
      };
      const double expected = least_two_layer_mass(batch, length);
      CHECK(expected > 0.9);
      CHECK(least_mass() == doctest::Approx(expected).epsilon(1e-4));
      for (const Module::Parameter& parameter : model.parameters())
        if (parameter.path == "position.table")
          for (index_t k = 0; k < parameter.tensor.numel(); ++k) parameter.tensor.data<float>()[k] = 0;
      CHECK(least_mass() < 0.5);
    }
  }
}

TEST_CASE("recall: the command prints both propositions, which are right on every sequence") {
  const std::string out = test::done("recall --length 32 --sequences 4").out;
  std::size_t right = 0;
  for (std::size_t at = 0; (at = out.find("  100.0  ", at)) != std::string::npos; ++at) ++right;
  CHECK(right == 3 * (8 + 4));  // of 8, 16 and 32 tokens
  CHECK(test::has(out, "Proposition 2: two layers"));
}
