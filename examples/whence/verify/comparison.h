// Compares two sets of named tensors in the order of the pass that made them: which differs first, where, and by how much.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "nn/io/safetensors.h"

namespace whence {

// Metadata key for a file's names in the order of the pass. The format itself sorts by name.
inline constexpr const char* order_key = "order";
void record_order(SafetensorsFile& file);
[[nodiscard]] bool records_order(const SafetensorsFile& file);

struct ComparisonOptions {
  // Largest share allowed. If unset: epsilon^(2/3) of the narrower dtype, which rounding does not reach, and the floor.
  // Whole numbers must be equal.
  std::optional<double> tolerance = {};
  std::map<std::string, std::string> names = {};  // their name: ours; also applies to gradient.THEIRS
};

struct DifferenceAt {
  Shape at;
  long double ours = 0, theirs = 0;  // hold every i64 and f64
};

struct ComparedTensor {
  std::string name, their_name;
  Shape shape = {}, their_shape = {};  // equal up to leading extents of 1, unless `differs`
  double largest = 0;                  // max |ours - theirs|, without hidden pairs
  double share = 0;                    // `largest` divided by our largest number
  bool by_floor = false;               // allowed only as at most epsilon times the largest of all values (or gradients)
  DifferenceAt at = {};                // of `largest`
  std::optional<DifferenceAt> first = {};   // first difference that is too large
  std::optional<DifferenceAt> hidden = {};  // the same among hidden pairs, which reach no output
  [[nodiscard]] bool has_shape() const;
  [[nodiscard]] bool differs() const { return !has_shape() || first; }
};

struct Comparison {
  std::string ours, theirs;  // names of both sides: files, or a run
  std::vector<ComparedTensor> tensors;
  std::vector<std::string> only_ours, only_theirs;

  [[nodiscard]] const ComparedTensor* first() const;  // first tensor that differs, or null
  [[nodiscard]] std::string headline() const;         // one or two sentences
  [[nodiscard]] std::string text() const;             // headline, table, names that only one side has
  [[nodiscard]] std::string json() const;             // a line for each tensor, then a summary line
};

// Compares values in the order of `ours`, then gradients in the order of backward. If the metadata of `ours` says causal,
// pairs whose key comes after the query are hidden. Throws FileError if no name is in both, or options.names does not
// fit.
[[nodiscard]] Comparison compared(const std::string& ours_called, const SafetensorsFile& ours,
    const std::string& theirs_called, const SafetensorsFile& theirs, const ComparisonOptions& options);

}  // namespace whence
