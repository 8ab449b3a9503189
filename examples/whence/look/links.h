// Which number of a pass feels which other one next, and how much: derivatives between neighbouring quantities of one
// layer, for the page, where any number is worked out at a click. Found by moving quantities (autograd/inspect/explain.h) along
// many elements at once, as far as that tells them apart, which is measured each time and not believed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "examples/whence/look/inspection.h"

namespace whence::look {

// How elements of `to` move with elements of `from`, along paths that pass no other quantity.
struct Link {
  struct Entry {
    std::uint32_t a, b;  // of `from` and of `to`, row-major
    double derivative;   // d to[b] / d from[a], not 0
    index_t query;       // that b belongs to; -1: none, so that it belongs to all
  };
  index_t layer;
  std::string from, to;  // names within attention: "position.gates"
  std::vector<Entry> entries;
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
