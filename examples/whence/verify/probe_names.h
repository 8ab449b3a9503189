// Paths of probes, and the probes that a scheme or attention itself registered under them.
#pragma once

#include <string>
#include <vector>

#include "nn/scheme.h"

namespace whence {

// Returns "position.gates" of "blocks.3.attention.position.gates"; the whole path outside attention.
[[nodiscard]] std::string name_in_attention(const std::string& path);

// A registered probe, by its path within attention: "scores", "position.cope.gates", "shared.position.bias". scheme is
// null if it is attention's own; probe is null if none has this path.
struct FoundProbe {
  const SchemeSpec* scheme = nullptr;
  const ProbeInfo* probe = nullptr;
};
[[nodiscard]] FoundProbe find_probe(const std::vector<SchemeSpec>& specs, std::string path);

// True if the last two axes of this tensor of `probe` or `look --numbers`, or of its gradient, are query and key.
[[nodiscard]] bool is_of_pairs(const std::vector<SchemeSpec>& specs, std::string name);

}  // namespace whence
