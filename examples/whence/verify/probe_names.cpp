#include "examples/whence/verify/probe_names.h"

#include <algorithm>

#include "nn/attention/attention.h"

namespace whence {
namespace {

const ProbeInfo* probe_named(const std::vector<ProbeInfo>& probes, const std::string& name) {
  const auto found = std::ranges::find(probes, name, &ProbeInfo::name);
  return found == probes.end() ? nullptr : &*found;
}

// Finds the probe that a scheme, or its base, registers for `path` within "position.": "cope.gates", "base.bias".
FoundProbe probe_in(const SchemeSpec& spec, std::string path) {
  const SchemeSpec* inner = &spec.part();
  if (const std::string name = inner->info().name + "."; path.starts_with(name)) path = path.substr(name.size());
  for (; inner->base() && path.starts_with("base."); path = path.substr(5)) inner = inner->base();
  return {inner, probe_named(inner->info().probes, path)};
}

}  // namespace

std::string name_in_attention(const std::string& path) {
  const std::string middle = ".attention.";
  const std::size_t at = path.find(middle);
  return at == std::string::npos ? path : path.substr(at + middle.size());
}

FoundProbe find_probe(const std::vector<SchemeSpec>& specs, std::string path) {
  if (const ProbeInfo* probe = probe_named(attention_probes(), path)) return {nullptr, probe};
  const bool shared = path.starts_with("shared.");
  if (shared) path = path.substr(7);
  if (!path.starts_with("position.")) return {};
  for (const bool as_said : {true, false})
    for (const SchemeSpec& spec : specs)
      if ((spec.shared() == shared) == as_said)
        if (const FoundProbe found = probe_in(spec, path.substr(9)); found.probe) return found;
  return {};
}

bool is_of_pairs(const std::vector<SchemeSpec>& specs, std::string name) {
  if (const std::string of = "gradient."; name.starts_with(of)) name = name.substr(of.size());
  name = name_in_attention(name);
  FoundProbe found = find_probe(specs, name);
  if (!found.probe) found = find_probe(specs, "position." + name);
  return found.probe && found.probe->axes.ends_with("i j");
}

}  // namespace whence
