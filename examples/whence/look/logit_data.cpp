#include "examples/whence/look/logit_data.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "examples/whence/look/attribution.h"

namespace whence::look {
namespace {

// Returns the chosen answer, and the four likeliest others.
std::vector<index_t> answers_at(const Tensor& logits, const Asked& asked) {
  const std::vector<double> shares = probabilities_at(logits, asked.token);
  std::vector<index_t> order(shares.size());
  std::iota(order.begin(), order.end(), index_t{0});
  std::ranges::stable_sort(
      order, std::ranges::greater{}, [&](index_t answer) { return shares[static_cast<std::size_t>(answer)]; });
  std::erase(order, asked.answer);
  order.insert(order.begin(), asked.answer);
  order.resize(std::min<std::size_t>(order.size(), 5));
  return order;
}

Json layer_json(index_t layer) { return layer < 0 ? Json() : Json(layer); }

class LogitData {
 public:
  LogitData(const Inspection& inspection, PageNumbers& numbers)
      : numbers_(numbers), dtype_(inspection.subject().dtype()), forward_(inspection.subject(), inspection.prepare()) {
    const Subject& subject = inspection.subject();
    for (index_t t = 0; t < std::ssize(subject.answers); ++t)
      if (subject.answers[static_cast<std::size_t>(t)]) asked_.push_back(t);
    found_.emplace(forward_, asked_);
    lens_ = lens_of(forward_);
  }

  [[nodiscard]] Json json() const {
    Json::List parts, stages, tokens;
    for (const LogitPart& part : found_->parts())
      parts.push_back({{"layer", layer_json(part.layer)}, {"name", part.name}});
    for (const LensLayer& layer : lens_) stages.push_back(layer_json(layer.layer));
    for (const index_t t : asked_) tokens.push_back(token_json(t));
    return {{"parts", parts}, {"stages", stages}, {"tokens", tokens}};
  }

 private:
  [[nodiscard]] Json token_json(index_t token) const {
    const Subject& subject = forward_.subject;
    const std::vector<index_t> answers = answers_at(forward_.logits, asked_of(forward_, token));
    std::vector<double> parts, logits, shares;
    Json::List texts, likeliest;
    for (const index_t answer : answers) {
      texts.push_back(subject.outputs[static_cast<std::size_t>(answer)]);
      const std::vector<double> of_answer = found_->of({token, answer});
      parts.insert(parts.end(), of_answer.begin(), of_answer.end());
    }
    for (const LensLayer& layer : lens_) {
      const std::vector<double> all = probabilities_at(layer.logits, token);
      for (const index_t answer : answers) {
        logits.push_back(layer.logits.at({0, token, answer}));
        shares.push_back(all[static_cast<std::size_t>(answer)]);
      }
      const auto best = std::ranges::max_element(all);
      likeliest.push_back(Json::List{subject.outputs[static_cast<std::size_t>(best - all.begin())], *best});
    }
    const auto array = [&](const std::vector<double>& each) {
      return numbers_.add(Tensor::of(each, {std::ssize(each)}, dtype_));
    };
    return {{"token", token}, {"answers", texts}, {"bits", dtype_ == DType::f64 ? 64 : 32}, {"parts", array(parts)},
        {"logits", array(logits)}, {"shares", array(shares)}, {"likeliest", likeliest}};
  }

  PageNumbers& numbers_;
  DType dtype_;
  Forward forward_;
  std::vector<index_t> asked_;
  std::optional<Attribution> found_;
  std::vector<LensLayer> lens_;
};

}  // namespace

Json logits_json(const Inspection& inspection, PageNumbers& numbers) {
  const Subject& subject = inspection.subject();
  if (subject.given || std::ranges::none_of(subject.answers, [](const auto& answer) { return answer.has_value(); }))
    return {};
  return LogitData(inspection, numbers).json();
}

}  // namespace whence::look
