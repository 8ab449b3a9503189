#include "nn/scheme.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "tensor/error.h"

namespace whence {
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

// The grammar of scheme.h, top down.
class SchemeParser {
 public:
  explicit SchemeParser(const std::string& text) : text_(text) {}

  std::vector<SchemeSpec> sum() {
    std::vector<SchemeSpec> specs;
    do {
      SchemeSpec spec = scheme(word("a scheme's name"), 1);
      for (const SchemeSpec& earlier : specs)
        if (earlier.part().info_ == spec.part().info_ && !(earlier.info_->takes_part && spec.info_->takes_part))
          refuse(spec.part().info_->name, " occurs twice in the sum; once required");
      specs.push_back(std::move(spec));
    } while (accept('+'));
    skip_spaces();
    if (next_ < text_.size()) wrong("'+', '(' or the end");
    for (const SchemeSpec& spec : specs)
      if (specs.size() > 1 && spec.info_->name == "none") refuse("none adds nothing to a sum; leave it out");
    return specs;
  }

 private:
  SchemeSpec scheme(const std::string& name, int depth) {
    if (depth > deepest_scheme)
      refuse("schemes nested more than ", deepest_scheme, " deep given; at most ", deepest_scheme, " required");
    SchemeSpec spec;
    spec.info_ = &scheme_named(name, text_);
    if (spec.info_->takes_part && depth > 1)
      refuse(name, " given inside another scheme; write it around that scheme, as in ", name, "(shifted(rope, by=1))");
    bool more = accept('(') && !accept(')');
    const bool open = more;
    for (bool first = true; more; first = false, more = accept(',')) {
      const std::string key = word(first && spec.info_->takes_base ? "a scheme or an option" : "an option's name");
      if (accept('='))
        option(spec, key);
      else if (first && spec.info_->takes_base)
        spec.base_.push_back(scheme(key, depth + 1));
      else
        wrong("'='");
    }
    if (open && !accept(')')) wrong("')'");
    if (spec.info_->takes_base && spec.base_.empty())
      refuse(spec.info_->name, " given without a scheme inside; one required, as in ", spec.info_->name, "(rope)");
    return spec;
  }

  void option(SchemeSpec& spec, const std::string& name) {
    const std::vector<SchemeOption>& options = spec.info_->options;
    const auto found = std::ranges::find(options, name, &SchemeOption::name);
    if (options.empty()) refuse("option '", name, "' given; ", spec.info_->name, " has no options");
    if (found == options.end()) {
      std::vector<std::string> known;
      for (const SchemeOption& option : options) known.push_back(option.name);
      refuse("'", name, "' is no option of ", spec.info_->name, did_you_mean(name, known));
    }
    const std::string value = word("a value");
    if (!found->fits(value))
      refuse(name, " is '", value, "'",
          found->kind == SchemeOption::Kind::word ? did_you_mean(value, found->choices)
                                                  : to_text("; ", found->allowed(), " required"));
    if (!spec.given_.emplace(name, value).second) refuse("option '", name, "' given twice");
  }

  // ---- Names, values and signs.

  bool accept(char sign) {
    skip_spaces();
    if (next_ == text_.size() || text_[next_] != sign) return false;
    ++next_;
    return true;
  }
  std::string word(const char* what) {
    skip_spaces();
    const std::size_t begin = next_;
    while (next_ < text_.size() && belongs_to_word(begin)) ++next_;
    if (next_ == begin) wrong(what);
    return text_.substr(begin, next_ - begin);
  }
  template <class... Parts> [[noreturn]] void refuse(const Parts&... parts) { refuse_scheme(text_, to_text(parts...)); }
  [[noreturn]] void wrong(const std::string& expected) {
    const std::string found = next_ < text_.size() ? to_text("'", text_[next_], "'") : std::string("the end");
    refuse("at character ", next_ + 1, ": ", found, " found; ", expected, " expected");
  }
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

SchemeArguments::SchemeArguments(const SchemeSpec& spec, SchemeSizes sizes)
    : spec_(spec), sizes_(sizes), values_(spec.given()) {
  for (const SchemeOption& option : spec.info().options) values_.emplace(option.name, option.default_text);
}
const std::string& SchemeArguments::word(const std::string& name) const {
  const auto value = values_.find(name);
  if (value != values_.end()) return value->second;
  std::vector<std::string> known;
  for (const SchemeOption& option : spec_.info().options) known.push_back(option.name);
  throw Error(to_text("scheme: option '", name, "' asked for; an option of ", spec_.info().name,
      " required: ", known.empty() ? "it registers none" : joined(known)));
}
index_t SchemeArguments::or_length(const std::string& name, const char* what) const {
  const index_t number = integer(name) ? integer(name) : sizes_.length;
  if (number < 1) {
    throw InputError(
        spec_.info().name, ": no ", what, " and a model without a training length given; one of them required");
  }
  return number;
}
void SchemeArguments::refuse_if_given(const std::string& name, const std::string& without_what) const {
  if (given(name))
    refuse_scheme(spec_.text(), to_text(name, " given; it has no effect ", without_what, "; leave it out"));
}
std::unique_ptr<PositionalScheme> SchemeArguments::base(index_t length) const {
  SchemeSizes sizes = sizes_;
  sizes.length = length;
  return spec_.base()->make(sizes);
}

bool SchemeSpec::shared() const {
  if (info_->shared) return info_->shared(SchemeArguments(*this, {}));
  return !base_.empty() && base_[0].shared();
}

void SchemeSizes::require_whole(const char* what) const {
  if (heads < 1 || dim < 1 || dim % heads)
    throw InputError(what, ": dim ", dim, " with ", heads, " heads given; dim must be a multiple of heads");
  if (kv_heads < 0 || heads % key_heads())
    throw InputError(what, ": kv_heads ", kv_heads, " with ", heads, " heads given; a divisor of heads required, or 0");
}

bool SchemeSpec::takes_part(const SchemeSizes& sizes) const {
  return !info_->takes_part || info_->takes_part(SchemeArguments(*this, sizes));
}

std::unique_ptr<PositionalScheme> SchemeSpec::make(const SchemeSizes& sizes) const {
  return info_->make(SchemeArguments(*this, sizes));
}

void require_last_once(const std::vector<std::string>& names, index_t layer) {
  if (std::ranges::count(names, names.back()) > 1)
    throw InputError("scheme: ", names.back(), " given twice in layer ", layer, "; once at most required");
}

SchemeList::SchemeList(const std::vector<SchemeSpec>& specs, const SchemeSizes& sizes, Owner owner) {
  std::vector<std::string> names;  // empty: not in this layer
  for (const SchemeSpec& spec : specs) {
    if (spec.shared() != (owner == Owner::model)) continue;
    schemes_.push_back(spec.make(sizes));
    names.push_back(spec.takes_part(sizes) ? spec.part().info().name : "");
    if (!names.back().empty()) require_last_once(names, sizes.layer);
    Stages stages;
    schemes_.back()->join(stages);
    if (owner == Owner::layer && !stages.embeds.empty()) {
      fail("scheme", names.back(),
          " is registered for each layer and embeds tokens, which happens once; shared required; correct its ",
          "registration");
    }
  }
  for (std::size_t k = 0; schemes_.size() > 1 && k < schemes_.size(); ++k)
    if (!names[k].empty()) child(names[k], *schemes_[k]);
}

std::vector<const PositionalScheme*> SchemeList::all() const {
  std::vector<const PositionalScheme*> result;
  for (const auto& scheme : schemes_) result.push_back(scheme.get());
  return result;
}

}  // namespace whence
