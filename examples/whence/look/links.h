// Derivatives between neighbouring quantities of one layer. With them the page explains any number at a click. They are found
// by forward differentiation (autograd/inspect/explain.h) along many elements at once. Each result is checked, because
// this is valid only if the moved elements affect different outputs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "examples/whence/look/inspection.h"

namespace whence::look {

// Derivatives of elements of `to` by elements of `from`, along paths that pass no other quantity.
struct Link {
  struct Entry {
    std::uint32_t a, b;  // elements of `from` and of `to`, row-major
    double derivative;   // d to[b] / d from[a], not 0
    index_t query;       // query of b; -1: b belongs to no single query
  };
  index_t layer;
  std::string from, to;  // names within attention: "position.gates"
  std::vector<Entry> entries;
};

struct Links {
  std::vector<Link> all;
  std::vector<std::vector<index_t>> rows;  // for each layer, the queries whose links are all present
  // Layer and name of quantities whose gradient is not the sum over their links, in this precision or in any.
  std::vector<std::pair<index_t, std::string>> left_out;
};

// Returns the links of the queries whose logits have the largest gradients, up to `bytes`. Links from x to queries, keys and
// values are left out, because they are products with a whole matrix. So are links that mix rows. Returns none if the text
// is too long to find them in a few seconds.
[[nodiscard]] Links links_of(const Inspection& inspection, double bytes);

}  // namespace whence::look
