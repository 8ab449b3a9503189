// The options of a command: declared once with name, default, range, unit and help; read strictly; refused in one line.
//   flip_flop: --layers: 0 given; 1 to 64 required; choose at least one layer
// Errors are InputError without the program's name, which run_main() puts in front. Nothing here ends the program.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace whence {

// What an option may be. The ends belong to the range unless the flags say otherwise.
template <class Number> struct Range {
  Number low = std::numeric_limits<Number>::lowest();
  Number high = std::numeric_limits<Number>::max();
  bool above_low = false;   // low itself is refused
  bool below_high = false;  // high itself is refused
};

// What an option says about itself.
struct OptionText {
  std::string help;                     // what it is, in a few words
  std::string unit = {};                // "tokens", "seconds"; empty: a bare number
  std::string advice = {};              // what to do when it was refused; empty: the default is named
  std::string initial = {};             // what the default is called where it is no value: "1/sqrt(d)"
  std::vector<std::string> known = {};  // values that a shell can complete; others are no error
};

// One declaration gives the text that --help prints below an option and the current values as text.
class CommandLine {
 public:
  // `words`: what was typed behind the program's name.
  CommandLine(std::string program, std::string purpose, std::vector<std::string> words = {});
  [[nodiscard]] const std::vector<std::string>& words() const { return words_; }

  // Options declared after it stand under this title in --help.
  CommandLine& heading(std::string title);

  // Each binds `--name` to a variable whose value at this moment is the default. The variable must outlive this object.
  template <class Integer>  // int, std::int64_t or std::uint64_t
  CommandLine& integer(const std::string& name, Integer* value, Range<Integer> range, OptionText text);
  CommandLine& number(const std::string& name, double* value, Range<double> range, OptionText text);
  CommandLine& text(const std::string& name, std::string* value, OptionText text);
  // May stand several times; each adds to the list.
  CommandLine& texts(const std::string& name, std::vector<std::string>* values, OptionText text);
  CommandLine& choice(const std::string& name, std::string* value, std::vector<std::string> choices, OptionText text);
  CommandLine& flag(const std::string& name, bool* value, OptionText text);

  // Gives a declared option another default, before anything is parsed: as text, "64". InputError as for a typed value.
  CommandLine& set_default(const std::string& name, const std::string& value);
  // --help shows these options alone, and --help all the others too.
  CommandLine& everyday(std::vector<std::string> names);

  // Words on the command line without an option, as many as are given: "NAME..." in --help.
  CommandLine& names(
      std::string word, std::vector<std::string>* values, std::string help, std::vector<std::string> known = {});

  // What to say about an option that people expect here and that is elsewhere: "write --set \"steps=...\"".
  CommandLine& elsewhere(std::string name, std::string advice);

  // A command to show under "Examples", with what it does.
  CommandLine& example(std::string command, std::string meaning);

  // Reads the words into the variables. Returns a page to print before ending with 0 (--help, --version, the answer to
  // --complete), or nothing: go on.
  [[nodiscard]] std::optional<std::string> parse(const std::vector<std::string>& words);
  // Reads words(), and prints such a page: true when there was one.
  [[nodiscard]] bool shows_page();

  // Was `--name` on the command line?
  [[nodiscard]] bool given(std::string_view name) const;

  // Refuses a given option that would do nothing: "--p-max: 64 given; <why> required; leave it out".
  void refuse_unless(std::string_view name, bool has_effect, const std::string& required) const;

  // Refuses the value of an option for a reason that only the program knows.
  [[noreturn]] void refuse(std::string_view name, const std::string& required, const std::string& advice) const;

  // Refuses the option `name` where it leads to the file that `input` was read from.
  void refuse_onto(std::string_view name, const std::string& input) const;

  // Every option in the order of declaration with its value now, as text that reads back as the same value.
  [[nodiscard]] std::vector<std::pair<std::string, std::string>> values() const;

  [[nodiscard]] std::string help(bool all = false) const;

  // `--complete`, hidden, stands before the last word. It asks what may stand in the place of that word, one a line.
  static constexpr const char* complete = "--complete";

 private:
  // Takes what was typed. The problem, such as "0 given; 1 to 64 required", or empty when the value was good.
  using Assign = std::function<std::string(const std::string&)>;

  struct Option {
    std::string name;
    std::string argument_word;  // "N", "X", "TEXT"; empty: a flag, which takes no value
    OptionText text;
    std::string allowed;  // "1 to 64"; empty: anything
    Assign assign;
    std::function<std::string()> show;
    bool repeats = false, given = false;
    std::string heading = {};
  };

  CommandLine& add(Option option);
  template <class Number>
  CommandLine& add_number(const std::string& name, Number* value, const Range<Number>& range, OptionText text);
  [[nodiscard]] const Option& find(std::string_view name) const;
  [[nodiscard]] std::string candidates(const std::string& previous) const;
  void take_names(const std::vector<std::string>& others) const;
  [[noreturn]] void refuse_unknown(const std::string& word) const;
  void read(Option& option, const std::string& value, bool apart) const;
  void assign(const Option& option, const std::string& value) const;
  [[nodiscard]] std::string describe(const Option& option) const;
  [[nodiscard]] std::string see_help() const { return "see " + program_ + " --help"; }

  std::string program_, purpose_, heading_ = "Options", names_word_, names_help_;
  std::vector<std::string> words_;
  std::vector<std::string>* names_ = nullptr;  // nullptr: nothing may stand without an option
  std::vector<std::string> known_names_;
  std::vector<Option> options_;
  std::vector<std::string> everyday_;  // empty: all of them
  std::vector<std::pair<std::string, std::string>> examples_, elsewhere_;
};

}  // namespace whence
