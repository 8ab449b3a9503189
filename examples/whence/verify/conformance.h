// The conformance matrix: checks of every positional scheme and every composition on small models. A scheme that a user
// registers is a row of it. A scheme's claims (nn/attention/position.h) decide what a check demands. A claim that is too
// bold fails, and a claim that is too timid fails too.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "nn/transformer.h"

namespace whence {

struct ConformanceCell {
  enum class Mark : unsigned char { passed, failed, not_applicable };
  Mark mark = Mark::passed;
  double figure = 0;      // the largest disagreement found
  std::string note = {};  // the demand (by the claims), or the failure

  static ConformanceCell passed(double figure, std::string note) { return {Mark::passed, figure, std::move(note)}; }
  static ConformanceCell failed(double figure, std::string note) { return {Mark::failed, figure, std::move(note)}; }
  static ConformanceCell not_applicable(std::string note) { return {Mark::not_applicable, 0, std::move(note)}; }
  static ConformanceCell refused(const std::exception& error) { return passed(0, to_text("refused: ", error.what())); }
  static ConformanceCell within(double figure, double tolerance, const std::string& note = "");
};

// Input of a check; `text` is canonical and accepted by the schemes.
struct ConformanceSubject {
  std::string text;
  Claims claims;
  std::uint64_t seed;

  // Returns a transformer with random nonzero parameters. The same sizes give the same numbers.
  [[nodiscard]] std::unique_ptr<Transformer> model(
      index_t layers = 2, bool causal = true, DType dtype = DType::f64) const;
};

struct ConformanceCheck {
  std::string name;     // the column's head: "causality"
  std::string meaning;  // one sentence
  std::function<ConformanceCell(const ConformanceSubject&)> run;
};
const std::vector<ConformanceCheck>& conformance_checks();

struct ConformanceRow {
  std::string scheme;
  std::string refusal;                 // why the schemes cannot be combined; empty if they can
  std::vector<ConformanceCell> cells;  // one per check
  [[nodiscard]] int count(ConformanceCell::Mark mark) const;
};

// Runs the checks on one text. A check that throws fails.
[[nodiscard]] ConformanceRow conform(
    const std::string& text, std::uint64_t seed, const std::vector<ConformanceCheck>& checks = conformance_checks());

}  // namespace whence
