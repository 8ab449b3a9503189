// The paths of probes: what a scheme, or attention itself, registered under them.
#pragma once

#include <string>
#include <vector>

#include "nn/scheme.h"

namespace whence {

// "position.gates" of "blocks.3.attention.position.gates"; elsewhere the whole path.
[[nodiscard]] std::string name_in_attention(const std::string& path);

// What attention, or a scheme in it (null: attention itself), registers for the path of a probe within attention:
// "scores", "position.cope.gates", "shared.position.bias". Nothing where none names it.
struct FoundProbe {
  const SchemeSpec* scheme = nullptr;
  const ProbeInfo* probe = nullptr;
};
[[nodiscard]] FoundProbe find_probe(const std::vector<SchemeSpec>& specs, std::string path);

// True if the last two axes of this tensor of `probe` or `look --numbers`, or of its gradient, are query and key.
[[nodiscard]] bool is_of_pairs(const std::vector<SchemeSpec>& specs, std::string name);

}  // namespace whence
