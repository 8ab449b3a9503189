// Loading for programs: notes about files go to stderr, a line each and once, and --accept-damaged accepts those whose
// checksums are wrong (nn/io/files.h).
#pragma once

#include <string>

#include "examples/whence/cli/fields.h"
#include "nn/transformer.h"

namespace whence {

void declare_accept_damaged(Fields& options);

// Checks before any part of the model is made: FileError if a model of these sizes and this scheme, which `place`
// names, has more parameters than the weights' file has room for; OutOfMemory if they take more than is free;
// InputError as from Transformer.
void require_room_for(const TransformerOptions& model, const std::string& place, const std::string& weights);

}  // namespace whence
