#include "nn/scheme.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>

#include "tensor/error.h"
#include "tensor/suggest.h"

namespace whence {
namespace {

SchemeRegistry& registry() {
  static SchemeRegistry schemes;
  return schemes;
}

[[noreturn]] void refuse(const std::string& text, const std::string& message) {
  throw InputError("scheme '", text, "': ", message);
}

std::string did_you_mean(const std::string& word, const std::vector<std::string>& known) {
  if (const auto nearest = nearest_name(word, known)) return "; did you mean '" + *nearest + "'?";
  std::string list;
  for (const std::string& name : known) list += (list.empty() ? "" : ", ") + name;
  return "; known: " + list;
}

const SchemeInfo& find_scheme(const std::string& text, const std::string& name) {
  std::vector<std::string> known;
  for (const auto& [registered, info] : registry().all()) {
    if (registered == name || std::count(info.aliases.begin(), info.aliases.end(), name)) return info;
    known.push_back(registered);
  }
  refuse(text, to_text("'", name, "' is no scheme", did_you_mean(name, known)));
}

const SchemeOption& find_option(const std::string& text, const SchemeInfo& info, const std::string& name) {
  std::vector<std::string> known;
  for (const SchemeOption& option : info.options) {
    if (option.name == name) return option;
    known.push_back(option.name);
  }
  if (known.empty()) refuse(text, to_text("option '", name, "' given; ", info.name, " has no options"));
  refuse(text, to_text("'", name, "' is no option of ", info.name, did_you_mean(name, known)));
}

double number_of(const std::string& value) {
  double number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  return error == std::errc() && end == value.data() + value.size() ? number : std::nan("");
}

void check_value(const std::string& text, const SchemeOption& option, const std::string& value) {
  if (option.kind == SchemeOption::Kind::word) {
    if (std::count(option.choices.begin(), option.choices.end(), value)) return;
    refuse(text, to_text(option.name, " is '", value, "'", did_you_mean(value, option.choices)));
  }
  const double number = number_of(value);
  const bool whole = option.kind != SchemeOption::Kind::integer || number == std::floor(number);
  if (std::isnan(number) || !whole || number < option.low || number > option.high) {
    refuse(text, to_text(option.name, " is '", value, "'; ",
                     option.kind == SchemeOption::Kind::integer ? "a whole number" : "a number", " in [", option.low,
                     ", ", option.high, "] required"));
  }
}

// Splits a text into names, values and signs; remembers where it stands for errors.
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
    refuse(text_, to_text("at character ", next_ + 1, ": ", found, " found; ", expected, " expected"));
  }

 private:
  void skip_spaces() {
    while (next_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[next_]))) ++next_;
  }
  // Letters, digits, '_' and '.'; a sign only in front of a number or of its exponent ("-1e+4").
  bool belongs_to_word(std::size_t begin) const {
    const char c = text_[next_];
    if (std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.') return true;
    if (c != '-' && c != '+') return false;
    if (next_ == begin) return c == '-';
    const bool number = std::isdigit(static_cast<unsigned char>(text_[begin])) || text_[begin] == '-';
    return number && (text_[next_ - 1] == 'e' || text_[next_ - 1] == 'E');
  }

  const std::string& text_;
  std::size_t next_ = 0;
};

}  // namespace

namespace option {

SchemeOption integer(std::string name, index_t preset, Range range, std::string help) {
  return {std::move(name), SchemeOption::Kind::integer, to_text(preset), range.low, range.high, {}, std::move(help)};
}
SchemeOption number(std::string name, double preset, Range range, std::string help) {
  return {std::move(name), SchemeOption::Kind::number, to_text(preset), range.low, range.high, {}, std::move(help)};
}
SchemeOption words(std::string name, std::vector<std::string> choices, std::string help) {
  return {std::move(name), SchemeOption::Kind::word, choices.at(0), 0, 0, choices, std::move(help)};
}
SchemeOption yes_no(std::string name, std::string help) {
  return words(std::move(name), {"no", "yes"}, std::move(help));
}

}  // namespace option

void SchemeRegistry::add(SchemeInfo info, const Site& at) {
  std::vector<std::string> names = info.aliases;
  names.push_back(info.name);
  for (const std::string& name : names) {
    const auto [earlier, first] = places_.emplace(name, at);
    if (!first && clash_.empty()) {
      clash_ = to_text("scheme: '", name, "' is registered at ", to_string(earlier->second), " and at ", to_string(at),
          "; one scheme per name and alias required; rename one of them");
    }
  }
  schemes_.emplace(info.name, std::move(info));
}
const std::map<std::string, SchemeInfo>& SchemeRegistry::all() const {
  if (!clash_.empty()) throw Error(clash_);
  return schemes_;
}

RegisterScheme::RegisterScheme(SchemeInfo info, const Site& at) { registry().add(std::move(info), at); }

std::vector<SchemeInfo> registered_schemes() {
  std::vector<SchemeInfo> all;
  for (const auto& [name, info] : registry().all()) all.push_back(info);
  return all;
}

SchemeArguments::SchemeArguments(const SchemeSpec& spec, SchemeSizes sizes)
    : spec_(spec), sizes_(sizes), values_(spec.given()) {
  for (const SchemeOption& option : spec.info().options) values_.emplace(option.name, option.default_text);
}
index_t SchemeArguments::integer(const std::string& name) const {
  return static_cast<index_t>(number_of(values_.at(name)));
}
double SchemeArguments::number(const std::string& name) const { return number_of(values_.at(name)); }
const std::string& SchemeArguments::word(const std::string& name) const { return values_.at(name); }
bool SchemeArguments::given(const std::string& name) const { return spec_.given().contains(name); }
void SchemeArguments::refuse_if_given(const std::string& name, const std::string& without_what) const {
  if (given(name)) refuse(spec_.text(), to_text(name, " given; it has no effect ", without_what, "; leave it out"));
}
std::unique_ptr<PositionalScheme> SchemeArguments::base() const { return base(sizes_.length); }
std::unique_ptr<PositionalScheme> SchemeArguments::base(index_t length) const {
  SchemeSizes sizes = sizes_;
  sizes.length = length;
  return spec_.base()->make(sizes);
}

// The grammar of scheme.h, top down.
class SchemeParser {
 public:
  explicit SchemeParser(const std::string& text) : text_(text), reader_(text) {}

  std::vector<SchemeSpec> sum() {
    std::vector<SchemeSpec> specs;
    do {
      SchemeSpec spec = scheme(reader_.word("a scheme's name"), 1);
      for (const SchemeSpec& earlier : specs)
        if (earlier.info_ == spec.info_)
          refuse(text_, to_text(spec.info_->name, " stands in the sum twice; once is what adds a position"));
      specs.push_back(std::move(spec));
    } while (reader_.accept('+'));
    if (!reader_.at_end()) reader_.wrong("'+', '(' or the end");
    for (const SchemeSpec& spec : specs)
      if (specs.size() > 1 && spec.info_->name == "none") refuse(text_, "none adds nothing to a sum; leave it out");
    return specs;
  }

 private:
  SchemeSpec scheme(const std::string& name, int depth) {
    if (depth > deepest_scheme)
      refuse(text_, to_text("schemes inside each other more than ", deepest_scheme, " deep given; at most ",
                        deepest_scheme, " required"));
    SchemeSpec spec;
    spec.info_ = &find_scheme(text_, name);
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
      refuse(text_, to_text(spec.info_->name, " given without a scheme inside; one required, as in ", spec.info_->name,
                        "(rope)"));
    }
    return spec;
  }

  void option(SchemeSpec& spec, const std::string& name) {
    const SchemeOption& option = find_option(text_, *spec.info_, name);
    const std::string value = reader_.word("a value");
    check_value(text_, option, value);
    if (!spec.given_.emplace(option.name, value).second)
      refuse(text_, to_text("option '", option.name, "' given twice"));
  }

  const std::string& text_;
  Reader reader_;
};

std::vector<SchemeSpec> parse_schemes(const std::string& text) { return SchemeParser(text).sum(); }

std::string SchemeSpec::text() const {
  std::string inside = base_.empty() ? "" : base_[0].text();
  for (const SchemeOption& option : info_->options) {
    const auto given = given_.find(option.name);
    if (given != given_.end()) inside += (inside.empty() ? "" : ", ") + option.name + "=" + given->second;
  }
  return inside.empty() ? info_->name : info_->name + "(" + inside + ")";
}

bool SchemeSpec::shared() const {
  if (info_->shared) return info_->shared(SchemeArguments(*this, {}));
  return !base_.empty() && base_[0].shared();
}

std::unique_ptr<PositionalScheme> SchemeSpec::make(const SchemeSizes& sizes) const {
  return info_->make(SchemeArguments(*this, sizes));
}

std::string canonical_text(const std::vector<SchemeSpec>& specs) {
  std::string text;
  for (const SchemeSpec& spec : specs) text += (text.empty() ? "" : " + ") + spec.text();
  return text;
}

SchemeList::SchemeList(const std::vector<SchemeSpec>& specs, const SchemeSizes& sizes, Part part) {
  std::vector<std::string> names;
  for (const SchemeSpec& spec : specs) {
    if (spec.shared() != (part == Part::shared)) continue;
    schemes_.push_back(spec.make(sizes));
    names.push_back(spec.info().name);
    Stages stages;
    schemes_.back()->join(stages);
    if (part == Part::each_layer && !stages.embeds.empty()) {
      fail("scheme", names.back(),
          " is registered for each layer and embeds tokens, which happens once; shared required; correct its ",
          "registration");
    }
  }
  for (std::size_t k = 0; schemes_.size() > 1 && k < schemes_.size(); ++k) child(names[k], *schemes_[k]);
}

std::vector<const PositionalScheme*> SchemeList::all() const {
  std::vector<const PositionalScheme*> result;
  for (const auto& scheme : schemes_) result.push_back(scheme.get());
  return result;
}

std::optional<FoundProbe> find_probe(const std::vector<SchemeSpec>& specs, const std::string& path) {
  const std::string within = path.starts_with("shared.") ? path.substr(7) : path,
                    name = path.substr(path.rfind('.') + 1);
  const auto found_in = [&](const SchemeSpec& spec, std::string rest) -> std::optional<FoundProbe> {
    const SchemeSpec* inner = &spec;
    if (rest.starts_with(spec.info().name + ".")) rest = rest.substr(spec.info().name.size() + 1);
    for (; inner->base() && rest.starts_with("base."); rest = rest.substr(5)) inner = inner->base();
    if (rest != name) return std::nullopt;
    for (const ProbeInfo& probe : inner->info().probes)
      if (probe.name == name) return FoundProbe{inner, &probe};
    return std::nullopt;
  };
  if (!within.starts_with("position.")) return std::nullopt;
  const bool shared = within.size() < path.size();
  for (const bool as_said : {true, false}) {
    for (const SchemeSpec& spec : specs) {
      if ((spec.shared() == shared) != as_said) continue;
      if (auto found = found_in(spec, within.substr(9))) return found;
    }
  }
  return std::nullopt;
}

std::string describe_schemes(const std::vector<std::string>& names) {
  std::vector<std::string> wanted;
  for (const std::string& name : names) wanted.push_back(find_scheme(name, name).name);
  std::ostringstream out;
  for (const auto& [name, info] : registry().all()) {
    if (!wanted.empty() && !std::count(wanted.begin(), wanted.end(), name)) continue;
    out << name << ": " << info.title << " (" << info.paper << ")\n    " << info.equation << '\n';
    for (const SchemeOption& option : info.options) {
      out << "    " << option.name << "=" << option.default_text << "  " << option.help;
      if (option.kind == SchemeOption::Kind::word)
        for (std::size_t k = 0; k < option.choices.size(); ++k) out << (k ? " | " : "; one of ") << option.choices[k];
      else
        out << "; in [" << option.low << ", " << option.high << "]";
      out << '\n';
    }
  }
  return out.str();
}

}  // namespace whence
