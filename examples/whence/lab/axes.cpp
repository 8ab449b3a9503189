#include "examples/whence/lab/axes.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "examples/whence/cli/numbers.h"
#include "examples/whence/cli/text.h"
#include "examples/whence/cli/words.h"
#include "nn/scheme.h"
#include "tensor/error.h"
#include "tensor/suggest.h"

namespace whence {
namespace {

// What each cell's own place in the grid decides, what lab decides for all, and what trains nothing.
void refuse_own(const std::string& option, const std::string& name) {
  static constexpr std::array<std::pair<const char*, const char*>, 14> own{{{"scheme", "write --schemes"},
      {"seed", "write --seeds, how many"}, {"out", "lab chooses that one"}, {"threads", "lab chooses that one"},
      {"device", "lab chooses that one; it has --device itself"}, {"resume", "lab chooses that one"},
      {"from", "lab chooses that one"}, {"quiet", "lab chooses that one"}, {"dump", "nothing would be trained"},
      {"dump-set", "nothing would be trained"}, {"describe", "nothing would be trained"},
      {"graph", "nothing would be trained"}, {"beside", "lab shows its runs beside each other itself"},
      {"help", "whence train TASK --help shows what there is"}}};
  for (const auto& [refused, why] : own)
    if (name == refused)
      throw InputError("--", option, ": ", name, " given; options other than ", name, " required; ", why);
}

std::string checked_axis_name(const std::string& typed) {
  const std::size_t dot = typed.find('.');
  if (dot == std::string::npos) {
    refuse_own("vary", typed);
    return typed;
  }
  const std::string scheme = typed.substr(0, dot), option = typed.substr(dot + 1);
  std::vector<std::string> names, options;
  for (const SchemeInfo& info : registered_schemes()) {
    names.push_back(info.name);
    if (info.name != scheme && !std::count(info.aliases.begin(), info.aliases.end(), scheme)) continue;
    for (const SchemeOption& known : info.options) options.push_back(known.name);
    if (std::count(options.begin(), options.end(), option)) return info.name + "." + option;
    const auto meant = nearest_name(option, options);
    throw InputError("--vary: ", in_quotes(typed), " given; an option of ", info.name, " required; ",
        meant ? to_text("did you mean ", info.name, ".", *meant, "?")
              : to_text("whence schemes ", info.name, " lists them"));
  }
  const auto meant = nearest_name(scheme, names);
  throw InputError("--vary: ", in_quotes(typed), " given; an option of train, or SCHEME.OPTION, required; ",
      meant ? to_text("did you mean ", *meant, ".", option, "?") : "whence schemes lists the schemes");
}

// True if values of that option of train are files and folders.
bool takes_paths(const std::string& name) {
  for (const char* known : {"data", "validation-data", "test-data", "tokeniser", "weights-of"})
    if (name == known) return true;
  return false;
}

bool same_value(const std::string& a, const std::string& b) {
  const auto x = parse_number<double>(a), y = parse_number<double>(b);
  return a == b || (x && y && *x == *y);
}

Axis parse_axis(const std::string& text) {
  const std::size_t equals = text.find('=');
  if (equals == 0 || equals == std::string::npos || text[0] == '-')
    throw InputError("--vary: ", in_quotes(text),
        " given; OPTION=VALUE,VALUE,... required, as in --vary length=64,128 or --vary cope.p_max=16,64");
  Axis axis{checked_axis_name(text.substr(0, equals)), {}};
  axis.values = (takes_paths(axis.name) ? path_list_of : list_of)(text.substr(equals + 1));
  if (axis.values.empty() || text.ends_with(',')) axis.values.emplace_back();  // which is refused
  for (auto value = axis.values.begin(); value != axis.values.end(); ++value) {
    if (value->empty())
      throw InputError("--vary: ", in_quotes(text), " given; a value between any two commas required");
    if (std::any_of(axis.values.begin(), value, [&](const std::string& other) { return same_value(other, *value); }))
      throw InputError("--vary: ", axis.name, " is to be ", *value, " twice; each value once required");
  }
  return axis;
}

// The text of one scheme, the axis' option set wherever it belongs.
std::string varied(const SchemeSpec& spec, const std::string& scheme, const std::string& option,
    const std::string& value, bool& found) {
  const bool here = spec.info().name == scheme;
  found = found || here;
  std::string inside = spec.base() ? varied(*spec.base(), scheme, option, value, found) : "";
  if (here && spec.given().contains(option)) {
    throw InputError("--vary: ", scheme, ".", option, " given, and ", spec.text(),
        " in --schemes gives it too; one of both required");
  }
  Settings given(spec.given().begin(), spec.given().end());
  if (here) given.emplace_back(option, value);
  for (const auto& [name, text] : given) inside += to_text(inside.empty() ? "" : ", ", name, "=", text);
  return inside.empty() ? spec.info().name : to_text(spec.info().name, "(", inside, ")");
}

}  // namespace

std::optional<std::pair<std::string, std::string>> Axis::inside_schemes() const {
  const std::size_t dot = name.find('.');
  if (dot == std::string::npos) return std::nullopt;
  return std::pair(name.substr(0, dot), name.substr(dot + 1));
}

std::vector<Axis> parse_axes(const std::vector<std::string>& texts) {
  std::vector<Axis> axes;
  for (const std::string& text : texts) {
    Axis axis = parse_axis(text);
    for (const Axis& other : axes)
      if (other.name == axis.name)
        throw InputError("--vary: ", axis.name, " given twice; each axis once required; put its values into one list");
    axes.push_back(std::move(axis));
  }
  return axes;
}

Settings parse_settings(const std::string& option, const std::string& text) {
  Settings settings;
  for (const Word& word : words_of(text, "--" + option)) {
    if (word.name.empty() || word.name[0] == '-')
      throw InputError("--", option, ": ", in_quotes(word.name.empty() ? word.value : word.name),
          " given; name=value for every option of train required, a value with blanks in quotes; as in --set "
          "'steps=300 data=\"my text.txt\"'");
    refuse_own(option, word.name);
    if (find_setting(settings, word.name))
      throw InputError("--", option, ": ", word.name, " given twice; once required");
    settings.emplace_back(word.name, word.value);
  }
  return settings;
}

std::optional<std::string> with_value(const std::string& scheme, const Axis& axis, const std::string& value) {
  const auto inside = axis.inside_schemes();
  if (!inside) throw Error("axis ", axis.name, ": an option of train, which no scheme has");
  bool found = false;
  std::string text;
  for (const SchemeSpec& spec : parse_schemes(scheme))
    text += (text.empty() ? "" : " + ") + varied(spec, inside->first, inside->second, value, found);
  if (!found) return std::nullopt;
  return canonical_text(parse_schemes(text));
}

const std::string* find_setting(const Settings& settings, const std::string& name) {
  const auto found = std::ranges::find(settings, name, &Settings::value_type::first);
  return found == settings.end() ? nullptr : &found->second;
}

void put_setting(Settings& settings, const std::string& name, const std::string& value) {
  const auto found = std::ranges::find(settings, name, &Settings::value_type::first);
  if (found == settings.end())
    settings.emplace_back(name, value);
  else
    found->second = value;
}

std::vector<std::string> arguments_of(const Settings& settings) {
  std::vector<std::string> arguments;
  for (const auto& [name, value] : settings) {
    arguments.push_back("--" + name);
    if (value != "true") arguments.push_back(value);
  }
  return arguments;
}

}  // namespace whence
