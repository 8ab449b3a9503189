// Options as a table: each is declared once with name, default, range, unit and help, and bound to a variable. A
// command line, a run.json or Python sets them by name, as text; the text is read strictly, and refused in one line:
//   --layers: 0 given; 1 to 64 required; choose at least one layer
// Errors are InputError without the program's name, which run_main() adds in front.
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

// The numbers that an option allows. Both ends are included unless the flags say otherwise.
template <class Number> struct Range {
  Number low = std::numeric_limits<Number>::lowest();
  Number high = std::numeric_limits<Number>::max();
  bool above_low = false;   // low itself is refused
  bool below_high = false;  // high itself is refused
};

struct OptionText {
  std::string help;                     // a few words
  std::string unit = {};                // "tokens", "seconds"; empty: a bare number
  std::string advice = {};              // what to do after a refusal; empty: the default is named
  std::string initial = {};             // the default's name if it is no value: "1/sqrt(d)"
  std::vector<std::string> known = {};  // for "did you mean"; others are allowed too
};

class Fields {
 public:
  using Names = std::vector<std::string>;
  using Pairs = std::vector<std::pair<std::string, std::string>>;

  // `program`: the program's name in errors: "whence train".
  explicit Fields(std::string program) : program_(std::move(program)) {}

  // Later options appear under this title in --help.
  Fields& heading(std::string title) { return heading_ = std::move(title), *this; }

  // Each binds `--name` to a variable whose value at this moment is the default. The variable must outlive this object.
  template <class Number>  // int, std::int64_t, std::uint64_t or double
  Fields& integer(const std::string& name, Number* value, Range<Number> range, OptionText text);
  Fields& number(const std::string& name, double* value, Range<double> range, OptionText text) {
    return integer(name, value, range, std::move(text));
  }
  Fields& text(const std::string& name, std::string* value, OptionText text) {
    return choice(name, value, {}, std::move(text));
  }
  Fields& choice(const std::string& name, std::string* value, Names choices, OptionText text);
  Fields& flag(const std::string& name, bool* value, OptionText text);
  // Takes words without an option, any number of them: "NAME..." in --help.
  Fields& names(const std::string& word, Names* values, const std::string& help) {
    return names_word_ = word, names_help_ = help, names_ = values, *this;
  }

  // Adds a command to "Examples", with its effect.
  Fields& example(std::string command, std::string meaning) { return examples_.emplace_back(command, meaning), *this; }
  // --help shows these options alone; --help all shows the others too.
  Fields& everyday(Names names) { return everyday_ = std::move(names), *this; }

  // Gives a declared option another default, as text: "64". InputError as for a given value.
  Fields& set_default(const std::string& name, const std::string& value);
  // Gives the option this value. InputError if no such option exists, or the value is not allowed. A flag is "true" or "false".
  void set(const std::string& name, const std::string& value);
  // Puts words without an option before the present ones. InputError if none are allowed.
  void add_names(const Names& names);

  [[nodiscard]] bool has(std::string_view name) const { return find(name) != nullptr; }
  [[nodiscard]] bool given(std::string_view name) const { return declared(name).given; }  // true if it was set
  // Returns every option in the order of declaration with its present value, as text that reads back as the same value.
  [[nodiscard]] Pairs values() const;

  // Refuses a given option that would have no effect: "--p-max: 64 given; <why> required; leave it out".
  void refuse_unless(std::string_view name, bool has_effect, const std::string& required) const;
  // Refuses the value of an option for a reason that only the program knows.
  [[noreturn]] void refuse(std::string_view name, const std::string& required, const std::string& advice) const;

 protected:
  struct Option {
    std::string name, argument_word;  // "N", "X", "TEXT"; empty: a flag, without a value
    OptionText text;
    std::string allowed;                                    // "1 to 64"; empty: anything
    std::function<std::string(const std::string&)> assign;  // returns the problem: "0 given; 1 to 64 required"
    std::function<std::string()> show;
    std::string heading = {};
    bool given = false;
  };

  [[nodiscard]] const Option* find(std::string_view name) const;    // nullptr: none
  [[noreturn]] void refuse_unknown(const std::string& name) const;  // "--layrs"
  [[nodiscard]] std::string see_help() const { return "see " + program_ + " --help"; }

  std::string program_, heading_ = "Options", names_word_, names_help_;
  Names* names_ = nullptr;  // nullptr: no word without an option is allowed
  std::vector<Option> options_;
  Names everyday_;  // empty: all of them
  Pairs examples_;

 private:
  Fields& add(Option option);
  [[nodiscard]] const Option& declared(std::string_view name) const;  // Error if there is none
  Option& assign(const std::string& name, const std::string& value);  // refuses both
};

// Words that set options, and the --help page that the same declarations give.
class CommandLine : public Fields {
 public:
  // `words`: those after the program's name.
  CommandLine(std::string program, std::string purpose, Names words = {})
      : Fields(std::move(program)), purpose_(std::move(purpose)), words_(std::move(words)) {}
  [[nodiscard]] const Names& words() const { return words_; }

  // Reads the words into the variables. Returns a page to print before ending with 0 (--help, --version),
  // or nothing. A typed value replaces one that was set before.
  [[nodiscard]] std::optional<std::string> parse(const Names& words);
  [[nodiscard]] bool shows_page();  // reads words(), and prints such a page: true if there was one
  [[nodiscard]] std::string help(bool all = false) const;

 private:
  std::string purpose_;
  Names words_;
};

}  // namespace whence
