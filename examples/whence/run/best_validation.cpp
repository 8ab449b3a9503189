#include "examples/whence/run/best_validation.h"

#include <limits>
#include <type_traits>

#include "examples/whence/cli/numbers.h"
#include "examples/whence/cli/text.h"
#include "tensor/error.h"
#include "tensor/raw.h"

namespace whence {
namespace {

template <class Number> Number fact(const RunFolder::Facts& facts, const std::string& name, Number otherwise) {
  const auto found = facts.find(name);
  if (found == facts.end()) return otherwise;
  if constexpr (std::is_same_v<Number, double>)  // the score of a validation may be none
    for (const double odd : {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()})
      if (found->second == exact(odd)) return odd;
  const std::optional<Number> number = parse_number<Number>(found->second);
  if (!number)
    throw FileError(
        "--resume: the checkpoint's fact '", name, "' is ", in_quotes(found->second), "; a number required");
  return *number;
}

}  // namespace

double number_fact(const RunFolder::Facts& facts, const std::string& name, double otherwise) {
  return fact(facts, name, otherwise);
}

std::int64_t whole_fact(const RunFolder::Facts& facts, const std::string& name, std::int64_t otherwise) {
  return fact(facts, name, otherwise);
}

bool BestValidation::offer(double score, std::int64_t step) {
  const bool better = step_ == 0 || score < score_;
  worse_since_ = better ? 0 : worse_since_ + 1;
  if (!better) return false;
  score_ = score, step_ = step;
  remember();
  return true;
}

void BestValidation::remember() {
  weights_.clear();
  if (!keep_weights_) return;
  for (const Module::Parameter& parameter : model_.weights()) weights_.push_back(raw::copy(parameter.tensor));
}

void BestValidation::put_back() const {
  for (std::size_t k = 0; k < weights_.size(); ++k) raw::copy_into(weights_[k], model_.weights()[k].tensor.detach());
  model_.publish();
}

RunFolder::Facts BestValidation::facts() const {
  if (step_ == 0) return {};
  return {{"best score", exact(score_)}, {"best step", std::to_string(step_)},
      {"worse since", std::to_string(worse_since_)}};
}

void BestValidation::restore(const RunFolder::Facts& facts) {
  score_ = number_fact(facts, "best score", 0);
  step_ = whole_fact(facts, "best step", 0);
  worse_since_ = whole_fact(facts, "worse since", 0);
}

}  // namespace whence
