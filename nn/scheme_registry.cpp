#include "nn/scheme_registry.h"

#include <algorithm>

#include "tensor/error.h"

namespace whence {
namespace {

SchemeRegistry& registry() {
  static SchemeRegistry schemes;
  return schemes;
}

}  // namespace

// Returns the registration's fault, or empty.
static std::string fault_of(const SchemeInfo& info) {
  if (!info.make) return "no make given; a function that makes the scheme required";
  for (const SchemeOption& option : info.options) {
    if (option.name.empty() ||
        option.name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") != std::string::npos)
      return to_text("option '", option.name, "' given; a name of small letters, digits and _ required");
    if (std::ranges::count(info.options, option.name, &SchemeOption::name) > 1)
      return to_text("option '", option.name, "' given twice; one of a name required");
    if (option.kind == SchemeOption::Kind::word && option.choices.empty())
      return to_text("option '", option.name, "': no choice given; one or more required");
    if (!option.fits(option.default_text))
      return to_text(
          "option '", option.name, "': default '", option.default_text, "' given; ", option.allowed(), " required");
  }
  return {};
}

void SchemeRegistry::add(SchemeInfo info, const Site& site) {
  std::vector<std::string> names = info.aliases;
  names.push_back(info.name);
  for (const std::string& name : names) {
    const auto [earlier, first] = places_.emplace(name, site);
    if (!first && clash_.empty()) {
      clash_ = to_text("scheme: '", name, "' is registered at ", to_string(earlier->second), " and at ",
          to_string(site), "; one scheme per name and alias required; rename one of them");
    }
  }
  if (const std::string fault = fault_of(info); !fault.empty() && clash_.empty())
    clash_ = to_text("scheme: '", info.name, "', registered at ", to_string(site), ": ", fault);
  schemes_.emplace(info.name, std::move(info));
}
const std::map<std::string, SchemeInfo>& SchemeRegistry::all() const {
  if (!clash_.empty()) throw Error(clash_);
  return schemes_;
}

RegisterScheme::RegisterScheme(SchemeInfo info, const Site& site) { registry().add(std::move(info), site); }

std::vector<SchemeInfo> registered_schemes() {
  std::vector<SchemeInfo> all;
  for (const auto& [name, info] : registry().all()) all.push_back(info);
  return all;
}

const SchemeInfo& scheme_named(const std::string& name, const std::string& in_text) {
  std::vector<std::string> known;
  for (const auto& [registered, info] : registry().all()) {
    if (registered == name || std::count(info.aliases.begin(), info.aliases.end(), name)) return info;
    known.push_back(registered);
  }
  refuse_scheme(in_text, to_text("'", name, "' is no scheme", did_you_mean(name, known)));
}

void refuse_scheme(const std::string& text, const std::string& message) {
  throw InputError("scheme '", text, "': ", message);
}

std::string did_you_mean(const std::string& word, const std::vector<std::string>& known) {
  if (const auto nearest = nearest_name(word, known)) return "; did you mean '" + *nearest + "'?";
  return "; known: " + joined(known);
}

}  // namespace whence
