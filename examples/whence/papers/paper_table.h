// The tables and figures of the papers as data, read from text that looks like the paper's table (papers/*.table): what
// each asks, how it is had here, and what the paper printed.
#pragma once

#include <algorithm>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace whence::papers {

enum class Kind {
  compared,   // trained, and ours stands beside the paper's figures
  commanded,  // other commands of whence show it: from a model that is trained first, or from none
  not_ours    // needs other people's models, data or services
};

// Which text of the user a language model reads.
enum class Reads { nothing, text, code };

struct Preset {
  std::string name;                       // "mini", "small" or "paper"
  std::string lab = {};                   // lab's own preset
  std::string set = {};                   // and its --set
  std::string why = {};                   // reasons of what is neither the paper's nor obvious
  std::vector<std::string> schemes = {};  // in place of the table's; other methods have no numbers here
  std::vector<std::string> tasks = {};    // likewise
  int seeds = 3;
};

using AxisValues = std::vector<std::pair<std::string, std::string>>;  // axes and their values

struct Method {
  std::string name;    // as the paper has it
  std::string scheme;  // as it stands in the grid
  AxisValues at = {};
};

// Where a column's numbers lie in the grid.
struct Column {
  std::string name;       // as the paper has it
  std::string task = {};  // empty: the table's only one
  std::string set = {};   // the test set; "average": of all of them; empty: what follows
  int times = 0;          // perplexity at so many times the training length
  int step = 0;           // the validation after so many steps
  AxisValues at = {};
};

struct Printed {
  std::string method, column;  // by name
  double mean;
  double deviation = std::numeric_limits<double>::quiet_NaN();  // nan: not printed
};

struct Claim {
  std::string better, worse;  // methods
  std::string column;
};

struct PaperTable {
  std::string name;        // as it is typed: "cope/table3"
  std::string what = {};   // in a few words
  std::string place = {};  // "Table 3, 9; section 5.3"
  Kind kind = Kind::not_ours;
  std::string note = {};  // what a reader of the result should know

  // Of what is trained, in the words of `lab`.
  std::vector<std::string> tasks = {};    // or lm alone
  std::vector<std::string> schemes = {};  // canonical
  std::vector<std::string> vary = {};
  bool same_tokens = false;
  Reads reads = Reads::nothing;
  std::vector<Preset> presets = {};
  std::vector<Method> methods = {};
  std::vector<Column> columns = {};
  std::vector<Printed> printed = {};
  std::vector<Claim> claims = {};
  std::string measure = {};  // of lab's; empty: the task's own, or perplexity
  bool higher_is_better = false;

  // Run after the training, in this order, as words behind `whence`. RUN stands for the folder of the grid's first run,
  // TEXT and CODE for the user's files, OUT for the folder of the results.
  std::vector<std::string> commands = {};
};

// The one of that name; nullptr: none.
template <class Item> const Item* find_named(const std::vector<Item>& items, const std::string& name) {
  const auto found = std::ranges::find(items, name, &Item::name);
  return found == items.end() ? nullptr : &*found;
}

struct Papers {
  std::vector<std::pair<std::string, std::string>> titles = {};  // by what names of tables begin with: "cope"
  std::vector<PaperTable> tables = {};
  std::map<std::string, std::string> texts = {};          // what `let` named, for "$NAME"
  std::map<std::string, std::vector<Preset>> sizes = {};  // what `sizes` named
};
// Adds the tables of a text, which may refer to those before it. FileError "cope.table: line 12: ..." with what was
// expected. papers/README.md has the form.
void read_tables(const std::string& file, std::string_view text, Papers& papers);

// Those that this program was built with.
[[nodiscard]] const Papers& all_papers();
// Error where there is none.
[[nodiscard]] const PaperTable& table_named(const std::string& name);

}  // namespace whence::papers
