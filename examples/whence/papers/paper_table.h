// The tables and figures of the papers as data: what each asks, how it is had here, and what the paper printed. One
// file for each paper.
#pragma once

#include <limits>
#include <string>
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

// What `lab` trains for a table, in its words.
struct GridText {
  std::vector<std::string> tasks = {};  // or lm alone
  std::string schemes = {};
  std::vector<std::string> vary = {};
  bool same_tokens = false;
  Reads reads = Reads::nothing;
};

struct Preset {
  std::string name;                     // "mini", "small" or "paper"
  std::string lab;                      // lab's own preset
  std::string set;                      // and its --set
  std::string why = {};                 // reasons of what is neither the paper's nor obvious
  std::string schemes = {};             // in place of the grid's; other methods have no numbers here
  std::vector<std::string> tasks = {};  // likewise
  int seeds = 3;
  std::vector<std::pair<std::string, std::string>> own = {};  // more of --set for single tasks
};

struct Method {
  std::string name;                                          // as the paper has it
  std::string scheme;                                        // as it stands in the grid
  std::vector<std::pair<std::string, std::string>> at = {};  // axes and their values
};

// Where a column's numbers lie in the grid.
struct Column {
  std::string name;       // as the paper has it
  std::string task = {};  // empty: the grid's only one
  std::string set = {};   // the test set; "average": of all of them; empty: what follows
  int times = 0;          // perplexity at so many times the training length
  int step = 0;           // the validation after so many steps
  std::vector<std::pair<std::string, std::string>> at = {};  // axes and their values
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
  std::string name;   // as it is typed: "cope/table3"
  std::string what;   // in a few words
  std::string place;  // "Table 3, 9; section 5.3"
  Kind kind;
  std::string note = {};  // what a reader of the result should know

  // Of what is trained.
  GridText grid = {};
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

[[nodiscard]] const std::vector<PaperTable>& cope_tables();     // arXiv:2405.18719
[[nodiscard]] const std::vector<PaperTable>& dape_tables();     // arXiv:2405.14722
[[nodiscard]] const std::vector<PaperTable>& dape_v2_tables();  // arXiv:2410.04798

}  // namespace whence::papers
