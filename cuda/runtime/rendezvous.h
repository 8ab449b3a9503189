// Where ranks that have no way to each other yet get what rank 0 knows.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "tensor/ranks/communicator.h"

namespace whence {

// Rank 0's bytes, in place on all others. `where` is HOST:PORT, on which rank 0 listens, or the path of a file in a
// folder that all see, with a '/' in it; of files beside it, which are gone afterwards. Ranks may come in any order.
// InputError for another `where`, or two ranks of one number; LostRank (tensor/ranks/communicator.h) when not all come
// within `limit` seconds.
void meet(const std::string& where, const Launch& launch, double limit, std::span<std::byte> bytes);

}  // namespace whence
