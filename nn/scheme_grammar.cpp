#include "nn/scheme_grammar.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "nn/scheme_registry.h"
#include "tensor/suggest.h"

namespace whence {
namespace {

const SchemeOption& find_option(const std::string& text, const SchemeInfo& info, const std::string& name) {
  std::vector<std::string> known;
  for (const SchemeOption& option : info.options) {
    if (option.name == name) return option;
    known.push_back(option.name);
  }
  if (known.empty()) refuse_scheme(text, to_text("option '", name, "' given; ", info.name, " has no options"));
  refuse_scheme(text, to_text("'", name, "' is no option of ", info.name, did_you_mean(name, known)));
}

void check_value(const std::string& text, const SchemeOption& option, const std::string& value) {
  if (option.fits(value)) return;
  refuse_scheme(text, to_text(option.name, " is '", value, "'",
                          option.kind == SchemeOption::Kind::word ? did_you_mean(value, option.choices)
                                                                  : to_text("; ", option.allowed(), " required")));
}

// Splits a text into names, values and signs; remembers the position for errors.
class Reader {
 public:
  explicit Reader(const std::string& text) : text_(text) {}

  bool at_end() {
    skip_spaces();
    return next_ == text_.size();
  }
  bool accept(char sign) {
    skip_spaces();
    if (next_ == text_.size() || text_[next_] != sign) return false;
    ++next_;
    return true;
  }
  void expect(char sign) {
    if (!accept(sign)) wrong(std::string("'") + sign + "'");
  }
  std::string word(const char* what) {
    skip_spaces();
    const std::size_t begin = next_;
    while (next_ < text_.size() && belongs_to_word(begin)) ++next_;
    if (next_ == begin) wrong(what);
    return text_.substr(begin, next_ - begin);
  }
  [[noreturn]] void wrong(const std::string& expected) {
    const std::string found = next_ < text_.size() ? to_text("'", text_[next_], "'") : std::string("the end");
    refuse_scheme(text_, to_text("at character ", next_ + 1, ": ", found, " found; ", expected, " expected"));
  }

 private:
  void skip_spaces() {
    while (next_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[next_]))) ++next_;
  }
  // True for letters, digits, '_', '.' and ':'; a sign only before a number or its exponent ("-1e+4").
  bool belongs_to_word(std::size_t begin) const {
    const char c = text_[next_];
    if (std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.' || (c == ':' && next_ > begin)) return true;
    if (c != '-' && c != '+') return false;
    if (next_ == begin) return c == '-';
    const bool number = std::isdigit(static_cast<unsigned char>(text_[begin])) || text_[begin] == '-';
    return number && (text_[next_ - 1] == 'e' || text_[next_ - 1] == 'E');
  }

  const std::string& text_;
  std::size_t next_ = 0;
};

}  // namespace

double number_in(const std::string& text) {
  const char* const last = text.data() + text.size();
  double number = 0;
#ifdef __cpp_lib_to_chars
  const auto [end, error] = std::from_chars(text.data(), last, number);
  return error == std::errc() && end == last ? number : std::nan("");
#else  // libc++ before 20; strtod also takes blanks, a plus and hexadecimal digits
  if (text.empty() || text[0] <= ' ' || text[0] == '+' || text.find_first_of("xX") != text.npos) return std::nan("");
  char* end = nullptr;
  number = std::strtod(text.c_str(), &end);
  return end == last ? number : std::nan("");
#endif
}

std::vector<double> numbers_in(const std::string& text) {
  std::vector<double> numbers;
  std::size_t begin = 0;
  for (std::size_t end = 0; end < text.size(); begin = end + 1) {
    end = std::min(text.find(':', begin), text.size());
    numbers.push_back(number_in(text.substr(begin, end - begin)));
  }
  return numbers;
}

bool SchemeOption::fits(const std::string& value) const {
  if (kind == Kind::word) return std::ranges::count(choices, value) > 0;
  const std::vector<double> numbers = numbers_in(value);
  return (kind == Kind::numbers || numbers.size() == 1) && std::ranges::all_of(numbers, [&](double x) {
    return x >= low && x <= high && (kind != Kind::integer || x == std::floor(x));
  });
}

std::string SchemeOption::allowed() const {
  if (kind == Kind::word) return "one of " + joined(choices);
  return to_text(kind == Kind::integer   ? "a whole number"
                 : kind == Kind::numbers ? "numbers with a colon between two, each"
                                         : "a number",
      " in [", low, ", ", high, "]");
}

// The grammar of scheme_grammar.h, top down.
class SchemeParser {
 public:
  explicit SchemeParser(const std::string& text) : text_(text), reader_(text) {}

  std::vector<SchemeSpec> sum() {
    std::vector<SchemeSpec> specs;
    do {
      SchemeSpec spec = scheme(reader_.word("a scheme's name"), 1);
      for (const SchemeSpec& earlier : specs)
        if (earlier.part().info_ == spec.part().info_ && !(earlier.info_->takes_part && spec.info_->takes_part))
          refuse_scheme(text_, to_text(spec.part().info_->name, " occurs twice in the sum; once required"));
      specs.push_back(std::move(spec));
    } while (reader_.accept('+'));
    if (!reader_.at_end()) reader_.wrong("'+', '(' or the end");
    for (const SchemeSpec& spec : specs)
      if (specs.size() > 1 && spec.info_->name == "none")
        refuse_scheme(text_, "none adds nothing to a sum; leave it out");
    return specs;
  }

 private:
  SchemeSpec scheme(const std::string& name, int depth) {
    if (depth > deepest_scheme)
      refuse_scheme(text_,
          to_text("schemes nested more than ", deepest_scheme, " deep given; at most ", deepest_scheme, " required"));
    SchemeSpec spec;
    spec.info_ = &scheme_named(name, text_);
    if (spec.info_->takes_part && depth > 1)
      refuse_scheme(text_, to_text(name, " given inside another scheme; write it around that scheme, as in ", name,
                               "(shifted(rope, by=1))"));
    bool more = reader_.accept('(') && !reader_.accept(')');
    const bool open = more;
    for (bool first = true; more; first = false, more = reader_.accept(',')) {
      const std::string word =
          reader_.word(first && spec.info_->takes_base ? "a scheme or an option" : "an option's name");
      if (reader_.accept('='))
        option(spec, word);
      else if (first && spec.info_->takes_base)
        spec.base_.push_back(scheme(word, depth + 1));
      else
        reader_.wrong("'='");
    }
    if (open) reader_.expect(')');
    if (spec.info_->takes_base && spec.base_.empty()) {
      refuse_scheme(text_, to_text(spec.info_->name, " given without a scheme inside; one required, as in ",
                               spec.info_->name, "(rope)"));
    }
    return spec;
  }

  void option(SchemeSpec& spec, const std::string& name) {
    const SchemeOption& option = find_option(text_, *spec.info_, name);
    const std::string value = reader_.word("a value");
    check_value(text_, option, value);
    if (!spec.given_.emplace(option.name, value).second)
      refuse_scheme(text_, to_text("option '", option.name, "' given twice"));
  }

  const std::string& text_;
  Reader reader_;
};

std::vector<SchemeSpec> parse_schemes(const std::string& text) { return SchemeParser(text).sum(); }

const SchemeSpec& SchemeSpec::part() const { return info_->takes_part ? base_[0] : *this; }

std::string SchemeSpec::text() const {
  std::string inside = base_.empty() ? "" : base_[0].text();
  for (const SchemeOption& option : info_->options) {
    const auto given = given_.find(option.name);
    if (given != given_.end()) inside += (inside.empty() ? "" : ", ") + option.name + "=" + given->second;
  }
  return inside.empty() ? info_->name : info_->name + "(" + inside + ")";
}

std::string canonical_text(const std::vector<SchemeSpec>& specs) { return joined(specs, &SchemeSpec::text, " + "); }

}  // namespace whence
