// Options as a table: each is declared once with name, default, range, unit and help, and bound to a variable. A
// command line, a run.json or Python sets them by name, as text; the text is read strictly, and refused in one line:
//   --layers: 0 given; 1 to 64 required; choose at least one layer
// Errors are InputError without the program's name, which run_main() adds in front. Nothing here prints.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace whence {

// The numbers that an option allows. Both ends are included unless the flags say otherwise.
template <class Number> struct Range {
  Number low = std::numeric_limits<Number>::lowest();
  Number high = std::numeric_limits<Number>::max();
  bool above_low = false;   // low itself is refused
  bool below_high = false;  // high itself is refused
};

// The words that describe an option.
struct OptionText {
  std::string help;                     // a few words
  std::string unit = {};                // "tokens", "seconds"; empty: a bare number
  std::string advice = {};              // what to do after a refusal; empty: the default is named
  std::string initial = {};             // the default's name if it is no value: "1/sqrt(d)"
  std::vector<std::string> known = {};  // for "did you mean"; others are allowed too
};

class Fields {
 public:
  // `program`: the program's name in errors: "whence train".
  explicit Fields(std::string program) : program_(std::move(program)) {}

  // Later options appear under this title in --help.
  Fields& heading(std::string title);

  // Each binds `--name` to a variable whose value at this moment is the default. The variable must outlive this object.
  template <class Integer>  // int, std::int64_t or std::uint64_t
  Fields& integer(const std::string& name, Integer* value, Range<Integer> range, OptionText text);
  Fields& number(const std::string& name, double* value, Range<double> range, OptionText text);
  Fields& text(const std::string& name, std::string* value, OptionText text);
  Fields& choice(const std::string& name, std::string* value, std::vector<std::string> choices, OptionText text);
  Fields& flag(const std::string& name, bool* value, OptionText text);
  // Takes words without an option, any number of them: "NAME..." in --help.
  Fields& names(std::string word, std::vector<std::string>* values, std::string help);

  // Tells users who try this option here where to find it: "write --set \"steps=...\"".
  Fields& elsewhere(std::string name, std::string advice);
  // Adds a command to "Examples", with its effect.
  Fields& example(std::string command, std::string meaning);
  // --help shows these options alone; --help all shows the others too.
  Fields& everyday(std::vector<std::string> names);

  // Gives a declared option another default, as text: "64". InputError as for a given value.
  Fields& set_default(const std::string& name, const std::string& value);
  // Gives the option this value. InputError if no such option exists, or the value is not allowed. A flag is "true" or "false".
  void set(const std::string& name, const std::string& value);

  // Puts words without an option before the present ones. InputError if none are allowed.
  void add_names(const std::vector<std::string>& names);

  [[nodiscard]] bool has(std::string_view name) const;
  // True if `--name` was set.
  [[nodiscard]] bool given(std::string_view name) const;
  // Returns every option in the order of declaration with its present value, as text that reads back as the same value.
  [[nodiscard]] std::vector<std::pair<std::string, std::string>> values() const;

  // Refuses a given option that would have no effect: "--p-max: 64 given; <why> required; leave it out".
  void refuse_unless(std::string_view name, bool has_effect, const std::string& required) const;
  // Refuses the value of an option for a reason that only the program knows.
  [[noreturn]] void refuse(std::string_view name, const std::string& required, const std::string& advice) const;
  // Refuses the option `name` if it leads to the file that `input` was read from.
  void refuse_onto(std::string_view name, const std::string& input) const;

 protected:
  // Takes a given text. Returns the problem, such as "0 given; 1 to 64 required"; empty: the value is good.
  using Assign = std::function<std::string(const std::string&)>;
  struct Option {
    std::string name;
    std::string argument_word;  // "N", "X", "TEXT"; empty: a flag, without a value
    OptionText text;
    std::string allowed;  // "1 to 64"; empty: anything
    Assign assign;
    std::function<std::string()> show;
    bool given = false;
    std::string heading = {};
  };

  [[nodiscard]] Option* find_option(std::string_view name);  // nullptr: none
  void assign(const Option& option, const std::string& value) const;
  [[noreturn]] void refuse_unknown(const std::string& name) const;  // "--layrs"
  [[nodiscard]] std::string see_help() const { return "see " + program_ + " --help"; }

  std::string program_, heading_ = "Options", names_word_, names_help_;
  std::vector<std::string>* names_ = nullptr;  // nullptr: no word without an option is allowed
  std::vector<Option> options_;
  std::vector<std::string> everyday_;  // empty: all of them
  std::vector<std::pair<std::string, std::string>> examples_, elsewhere_;

 private:
  Fields& add(Option option);
  template <class Number>
  Fields& add_number(const std::string& name, Number* value, const Range<Number>& range, OptionText text);
  [[nodiscard]] const Option& declared(std::string_view name) const;  // Error if there is none
};

}  // namespace whence
