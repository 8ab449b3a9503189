// The conformance matrix: what must hold for every positional scheme and every composition, checked on small models. A
// scheme that a user registers is a row of it. A scheme's claims (nn/attention/position.h) decide what a check demands:
// a claim that is too bold fails, and so does one that is too timid.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "nn/transformer.h"

namespace whence {

struct ConformanceCell {
  // As claimed: the property does not hold, and the scheme says so.
  enum class Mark : unsigned char { passed, differs_as_claimed, refused_as_claimed, failed, not_applicable };
  Mark mark = Mark::passed;
  double figure = 0;      // the largest disagreement found
  std::string note = {};  // what was demanded; where that depends on the claims, which it was; what went wrong

  static ConformanceCell passed(double figure, std::string note) { return {Mark::passed, figure, std::move(note)}; }
  static ConformanceCell failed(double figure, std::string note) { return {Mark::failed, figure, std::move(note)}; }
  static ConformanceCell not_applicable(std::string note) { return {Mark::not_applicable, 0, std::move(note)}; }
  static ConformanceCell refused(const std::exception& error);
  static ConformanceCell within(double figure, double tolerance, const std::string& note = "");
};

// What a check is given: a scheme text that the schemes accept, canonical.
struct ConformanceSubject {
  std::string text;
  Claims claims;
  std::uint64_t seed;

  // A transformer with random parameters, none of them zero; the same numbers for the same sizes.
  [[nodiscard]] std::unique_ptr<Transformer> model(
      index_t layers = 2, bool causal = true, DType dtype = DType::f64) const;
};

struct ConformanceCheck {
  std::string name;     // the column's head: "causality"
  std::string meaning;  // one sentence
  std::function<ConformanceCell(const ConformanceSubject&)> run;
};
const std::vector<ConformanceCheck>& conformance_checks();
const std::vector<ConformanceCheck>& attention_checks();  // those among them that run attention without a model

struct ConformanceRow {
  std::string scheme;
  std::string refusal;                 // why the schemes do not go together; empty: they do
  std::vector<ConformanceCell> cells;  // one per check
  [[nodiscard]] int count(ConformanceCell::Mark mark) const;
};

// The checks on one text. What a check throws is its failure.
[[nodiscard]] ConformanceRow conform(
    const std::string& text, std::uint64_t seed, const std::vector<ConformanceCheck>& checks = conformance_checks());

}  // namespace whence
