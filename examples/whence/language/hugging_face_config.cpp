#include "examples/whence/language/hugging_face_config.h"

#include <algorithm>
#include <cmath>

#include "examples/whence/cli/numbers.h"
#include "examples/whence/cli/text.h"
#include "nn/io/files.h"
#include "tensor/error.h"
#include "tensor/suggest.h"

namespace whence::language {
namespace {

// Kinds of rotation, rope_type, and how their numbers are called there and in our schemes. Where all speeds are divided
// by one factor, ours is `interpolated` around the rotation.
struct Field {
  const char *theirs, *ours;
};
struct RopeType {
  const char *name, *scheme;
  bool divided, scaled;  // by one factor; by an option scaling=NAME
  std::vector<Field> fields;
};
const Field factor{"factor", "factor"}, original{"original_max_position_embeddings", "original"};
const RopeType rope_types[] = {{"default", "rope", false, false, {}}, {"linear", "rope", true, false, {factor}},
    {"proportional", "rope", true, false, {factor}}, {"dynamic", "rope", false, true, {factor}},
    {"llama3", "rope", false, true,
        {factor, original, {"low_freq_factor", "low_freq_factor"}, {"high_freq_factor", "high_freq_factor"}}},
    {"longrope", "rope", false, true,
        {factor, original, {"short_factor", "short_factor"}, {"long_factor", "long_factor"}}},
    {"yarn", "yarn", false, false, {factor, original, {"beta_fast", "beta_fast"}, {"beta_slow", "beta_slow"}}}};

const RopeType* rope_type(const std::string& name) {
  const auto found = std::ranges::find(rope_types, name, &RopeType::name);
  return found == std::end(rope_types) ? nullptr : found;
}

// What a field that is not there says; nothing where it has to be.
std::optional<double> otherwise(
    const Config& config, const Config& rope, const std::string& type, const std::string& field, index_t length) {
  const double trained = config.number(original.theirs, rope.number(original.theirs, static_cast<double>(length)));
  if (field == original.theirs) return trained;
  if (field == "beta_fast") return 32;
  if (field == "beta_slow") return 1;
  if (field == factor.theirs && type == "proportional") return 1;
  if (field == factor.theirs && type == "longrope") return std::max(1.0, static_cast<double>(length) / trained);
  return std::nullopt;
}

std::string value_of(const Config& config, const Config& rope, const char* place, const RopeType& type,
    const char* field, index_t length) {
  if (field == std::string(original.theirs) && config.has(field)) return exact(config.json().number(field));
  if (!rope.has(field)) {
    const std::optional<double> number = otherwise(config, rope, type.name, field, length);
    if (!number) config.refuse(place, to_text(field));
    return exact(*number);
  }
  if (!rope.json().find(field)->as<Json::List>()) return exact(rope.json().number(field));
  return joined(rope.json().numbers(field), exact, ":");
}

// The type that writes this scheme, and the rotation inside, which is itself but for interpolation.
struct Written {
  const RopeType* type = nullptr;
  const SchemeSpec* rope = nullptr;
};
Written written_as(const SchemeSpec& scheme) {
  const std::string& name = scheme.info().name;
  if (name == "yarn") return {rope_type("yarn"), &scheme};
  const SchemeSpec& rope = name == "interpolated" ? *scheme.base() : scheme;
  if (rope.info().name != "rope") return {};
  const SchemeArguments arguments(rope, {});
  const std::string& scaling = arguments.word("scaling");
  if (arguments.number("keep") != 1)
    return {scaling == "none" && arguments.integer("width") == 0 ? rope_type("proportional") : nullptr, &rope};
  if (name == "interpolated") return {scaling == "none" ? rope_type("linear") : nullptr, &rope};
  return {scaling == "none" ? rope_type("default") : rope_type(scaling), &rope};
}

}  // namespace

void Config::refuse(const char* name, const std::string& required) const {
  const std::string found = has(name) ? in_quotes(json_.find(name)->line()) : "nothing";
  throw FileError(json_.place(), ": ", name, ": ", found, " found; ", required, " required");
}

std::string rope_scheme_of(const Config& config, index_t head_dim, index_t length) {
  const char* const place =
      config.has("rope_scaling") ? "rope_scaling" : "rope_parameters";  // older ones win, as there
  const Config rope(config.has(place) ? config.json().object(place) : Json(Json::Fields()));
  const RopeType* const type = rope_type(rope.word("rope_type", rope.word("type", "default")));
  if (!type) config.refuse(place, "rope_type " + joined(rope_types, &RopeType::name));
  std::vector<std::string> known{"rope_type", "type", "rope_theta", "partial_rotary_factor"};
  for (const Field& field : type->fields) known.emplace_back(field.theirs);
  for (const auto& [name, value] : rope.json().fields())
    if (!value.is_null() && !std::ranges::count(known, name))
      config.refuse(place, to_text(joined(known), " alone for ", type->name));
  const auto either = [&](const char* newer, const char* older, double preset) {
    return rope.number(newer, config.number(older, config.number(newer, preset)));
  };
  const double share = either("partial_rotary_factor", "rotary_pct", 0.25),
               base = either("rope_theta", "rotary_emb_base", 10000);
  config.require("rotary_emb_base", base >= 1 && base <= 1e12, "1 to 1e12");
  const double rotated = static_cast<double>(head_dim) * share;
  config.require("rotary_pct", rotated >= 1 && share <= 1, "a share of each head, one dimension or more,");
  const bool proportional = type == rope_type("proportional");
  std::vector<std::string> inside, outside;
  if (base != 10000) inside.push_back("base=" + exact(base));
  if (const auto width = static_cast<index_t>(rotated); width != head_dim && !proportional)
    inside.push_back(to_text("width=", width));
  if (proportional && share != 1) inside.push_back("keep=" + exact(share));
  if (type->scaled) inside.push_back(std::string("scaling=") + type->name);
  for (const Field& field : type->fields) {
    const std::string value = value_of(config, rope, place, *type, field.theirs, length);
    // 0 is our word for the training length, and one number ours for a factor of every pair.
    if (field.theirs == std::string(original.theirs) && number_in(value) == 0)
      (config.has(field.theirs) ? config : rope).refuse(field.theirs, "1 or more");
    if (std::string(field.theirs).ends_with("_factor") && type == rope_type("longrope") &&
        numbers_in(value).size() != static_cast<std::size_t>(rotated / 2))
      rope.refuse(field.theirs, to_text("a number for each of ", static_cast<index_t>(rotated / 2), " pairs"));
    (type->divided ? outside : inside).push_back(std::string(field.ours) + "=" + value);
  }
  if (type == rope_type("dynamic")) inside.push_back(to_text("original=", length));
  std::string text = type->scheme;
  if (!inside.empty()) text += "(" + joined(inside) + ")";
  if (!outside.empty() && outside[0] != "factor=1") text = "interpolated(" + text + ", " + outside[0] + ")";
  return text;
}

std::string rope_refusal(const SchemeSpec& scheme) {
  const Written as = written_as(scheme);
  if (!as.type)
    return "absolute, or rope (with keep over all dims of a head, or scaling=dynamic, llama3 or longrope), "
           "interpolated(rope) or yarn";
  const SchemeArguments arguments(*as.rope, {});
  if (arguments.word("layout") != "half") return "layout=half";
  return as.rope->info().name == "yarn" && arguments.yes("dynamic") ? "dynamic=no" : "";
}

void add_rope(Json& config, const SchemeSpec& scheme, const SchemeSizes& sizes) {
  const Written as = written_as(scheme);
  const SchemeArguments rope(*as.rope, sizes), outer(scheme, sizes);
  const double width = rope.number("width"), head_dim = static_cast<double>(sizes.head_dim());
  const double keep = as.type == rope_type("proportional") ? rope.number("keep") : 1;
  config.add("rotary_pct", keep * (width == 0 ? 1.0 : width / head_dim));
  config.add("rotary_emb_base", rope.number("base"));
  if (as.type == rope_type("default")) return;
  if (as.type == rope_type("dynamic") && rope.or_length("original", "original length") != sizes.length)
    throw InputError("convert: original ", rope.integer("original"), " in a model of ", sizes.length,
        " tokens given; one number for both required, as transformers has one");
  Json scaling{{"rope_type", as.type->name}};
  for (const auto& [theirs, ours] : as.type->fields) {
    const std::string name = ours;
    if (name == "original") {
      scaling.add(theirs, outer.or_length(name, "original length"));
    } else if (name == "short_factor" || name == "long_factor") {
      std::vector<double> numbers = outer.numbers(name);
      const auto pairs = static_cast<std::size_t>((width == 0 ? head_dim : width) / 2);
      if (numbers.size() == 1) numbers.resize(pairs, numbers[0]);
      scaling.add(theirs, numbers);
    } else if (!as.type->divided || &scheme != as.rope) {
      scaling.add(theirs, outer.number(name));
    }
  }
  config.add("rope_scaling", std::move(scaling));
}

}  // namespace whence::language
