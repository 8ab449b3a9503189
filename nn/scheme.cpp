#include "nn/scheme.h"

#include <algorithm>

#include "tensor/error.h"
#include "tensor/suggest.h"

namespace whence {

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
