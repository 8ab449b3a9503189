// Two sets of named tensors beside each other, in the order of the pass that made them: which differs first, where, and by
// how much.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "examples/whence/cli/fields.h"
#include "nn/io/safetensors.h"

namespace whence {

// The metadata with the names of a file's tensors in the order in which a pass made them: the format sorts by name.
inline constexpr const char* order_key = "order";
void record_order(SafetensorsFile& file);
[[nodiscard]] bool records_order(const SafetensorsFile& file);

struct ComparisonOptions {
  // Largest share allowed; nothing: epsilon^(2/3) of the dtype with fewer digits, which rounding does not reach.
  std::optional<double> tolerance = {};
  std::map<std::string, std::string> names = {};  // their name: ours; gradient.THEIRS follows
};

struct DifferenceAt {
  Shape at;
  double ours = 0, theirs = 0;
};

struct ComparedTensor {
  std::string name, their_name;
  Shape shape = {}, their_shape = {};  // the same but for extents of 1 in front, unless `differs`
  double largest = 0;                  // |ours - theirs| over all places but those of hidden pairs
  // Of the largest number of ours, or of epsilon^(1/3) times that of all values, or all gradients, if that is more.
  double share = 0;
  double units = 0;                         // the same in units of the last place of the larger of both numbers there
  DifferenceAt at = {};                     // where it is largest
  std::optional<DifferenceAt> first = {};   // of those that are not allowed
  std::optional<DifferenceAt> hidden = {};  // the same among hidden pairs, whose numbers reach no output
  [[nodiscard]] bool has_shape() const;
  [[nodiscard]] bool differs() const { return !has_shape() || first; }
};

struct Comparison {
  std::string ours, theirs;  // what they are called: files, or a run
  std::vector<ComparedTensor> tensors;
  std::vector<std::string> only_ours, only_theirs;

  [[nodiscard]] const ComparedTensor* first() const;  // that differs; null: none does
  [[nodiscard]] std::string headline() const;         // sentences
  [[nodiscard]] std::string text() const;             // headline, table, names that one side lacks
  [[nodiscard]] std::string json() const;             // a line for each tensor, then one of the whole
};

// Values in the order of `ours`, then gradients in the order of backward. Where the metadata of `ours` say that its pass
// was causal, pairs whose key comes after the query are hidden. FileError where no name is in both, or where the names do
// not fit them.
[[nodiscard]] Comparison compared(const std::string& ours_called, const SafetensorsFile& ours,
    const std::string& theirs_called, const SafetensorsFile& theirs, const ComparisonOptions& options);

// What a command line says of it: `names` is a file of JSON, {"their name": "our name"}.
struct ComparisonWords {
  std::string names;
  double tolerance = 0;
};
void declare_comparison(Fields& line, ComparisonWords& words);
[[nodiscard]] ComparisonOptions options_of(const Fields& line, const ComparisonWords& words);

}  // namespace whence
