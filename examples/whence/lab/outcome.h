// What came out of a grid: its cells by place, one measure of them, and what it is compared with.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "examples/whence/cli/statistics.h"
#include "examples/whence/lab/grid.h"
#include "examples/whence/tasks/task.h"

namespace whence {

inline constexpr int seeds_for_a_test = 3;  // Welch's, on both sides

// Cells that differ in the seed alone.
struct Group {
  std::map<std::string, std::string> place;  // as of its cells, without the seed
  std::vector<const GridCell*> cells;
  const GridCell& first() const { return *cells[0]; }
};

struct Outcome {
  // `wanted`: a name of RunFigures::Score::measures; empty: the task's own, or what lm's runs can be compared by.
  // REQUIRES: the grid outlives it.
  Outcome(const Grid& of, const std::string& wanted);

  const Grid& grid;
  std::string measure;  // lower is better, but of Delta-P
  int digits = 2;       // after the point that are worth reading
  std::vector<Group> groups;
  std::vector<std::string> sets;  // that any cell was tested on; not empty
  std::vector<std::string> rows;  // worth one: all sets, or their average alone where a task has many, such as lengths

  // Of one run on one set, or on the average of all; nothing where it was not tested so.
  std::optional<double> value(const GridCell& cell, const std::string& set) const;
  // Of those that were, one number each.
  std::vector<double> values(const std::vector<const GridCell*>& cells, const std::string& set) const;
  double best_guess(const Group& group, const std::string& set) const;  // nan: none is known
  // Of the task with the options that this group varies, and its defaults otherwise: those that the figures are for.
  std::optional<tasks::PaperFigure> paper(const Group& group, const std::string& set) const;

  // "0.31 (0.02)"; "failed" where all cells did; "0.31, 1 failed".
  std::string text(const std::vector<const GridCell*>& cells, const std::string& set) const;

 private:
  bool is_average(const std::string& set) const { return std::ranges::count(sets, set) == 0; }
  // Over what counts for the set; nothing where nothing does.
  std::optional<double> mean(const GridCell& cell, const std::string& set,
      const std::function<double(const RunFigures::Score&)>& number) const;
};

// "0.31 (0.02)", or the mean alone of one value.
[[nodiscard]] std::string mean_and_deviation(const Summary& found, int digits);

// Items by what `key` gives of them, in the order in which these first appear.
template <class Item, class Key> auto parts_by(const std::vector<Item>& items, const Key& key) {
  std::vector<std::pair<std::decay_t<std::invoke_result_t<Key, const Item&>>, std::vector<const Item*>>> parts;
  for (const Item& item : items) {
    const auto value = std::invoke(key, item);
    auto part = std::ranges::find_if(parts, [&](const auto& each) { return each.first == value; });
    if (part == parts.end()) part = parts.insert(part, {value, {}});
    part->second.push_back(&item);
  }
  return parts;
}

}  // namespace whence
