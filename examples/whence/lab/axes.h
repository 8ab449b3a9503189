// What a laboratory varies: options of `train`, and options inside the texts of schemes.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace whence {

using Settings = std::vector<std::pair<std::string, std::string>>;  // options of train by name, without "--"

struct Axis {
  std::string name;                 // "variables"; inside schemes: "cope.p_max", with the scheme's registered name
  std::vector<std::string> values;  // as typed, no two the same

  // The scheme and its option, where the axis is of schemes.
  [[nodiscard]] std::optional<std::pair<std::string, std::string>> inside_schemes() const;
};

// Each text as "variables=1,3,5" or "cope.p_max=16,64". InputError for an axis without values, a value or an axis given
// twice, an option that the laboratory chooses itself, and a scheme or an option of it that is not known.
[[nodiscard]] std::vector<Axis> parse_axes(const std::vector<std::string>& texts);

// "steps=300 data='my text.txt'" as names and values, those with blanks in quotes of either kind. InputError as above,
// and for quotes that do not close; `option` is the name of the option that holds the text.
[[nodiscard]] Settings parse_settings(const std::string& option, const std::string& text);

// The scheme's text with the axis' option set wherever the axis' scheme stands in it, in a sum or inside another;
// nothing where it stands nowhere. InputError when the text gives the option already, or when the value is out of
// range.
[[nodiscard]] std::optional<std::string> with_value(
    const std::string& scheme, const Axis& axis, const std::string& value);

[[nodiscard]] const std::string* find_setting(const Settings& settings, const std::string& name);  // nullptr: not there
void put_setting(Settings& settings, const std::string& name, const std::string& value);  // in place of another
// "--steps" "300"; an option without a value, which is set to "true", stands alone.
[[nodiscard]] std::vector<std::string> arguments_of(const Settings& settings);

}  // namespace whence
