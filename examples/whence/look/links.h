// Which number of a pass feels which other one next, and how much: derivatives between neighbouring quantities of one
// layer, for the page, where any number is worked out at a click. Found by moving quantities (autograd/inspect/explain.h) along
// many elements at once, as far as that tells them apart, which is measured each time and not believed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "examples/whence/look/inspection.h"

namespace whence::look {

// Of elements of `from` and `to`, row-major: d to[b] / d from[a], along ways that pass no other quantity.
struct Link {
  index_t layer;
  std::string from, to;  // names within attention: "position.gates"
  std::vector<std::uint32_t> a, b;
  std::vector<double> derivative;  // not 0
};

struct Links {
  std::vector<Link> all;
  std::vector<std::vector<index_t>> rows;  // by layer: the queries whose links are all here
  // Layer and name of those whose gradient is not the sum over their links: in this precision, or in any.
  std::vector<std::pair<index_t, std::string>> left_out;
};

// Those of the queries whose logits have the largest gradients, as many as fit into `bytes`. Left out: what leads from
// x to queries, keys and values, which is a product with a whole matrix; and what mixes rows. None of a text that is
// too long to find them in a few seconds.
[[nodiscard]] Links links_of(const Inspection& inspection, double bytes);

}  // namespace whence::look
