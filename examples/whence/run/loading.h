// Loading for programs: notes about the files go to stderr, a line each, and --accept-damaged accepts files whose
// checksums are wrong.
#pragma once

#include <string>
#include <vector>

#include "examples/whence/cli/fields.h"
#include "nn/io/checkpoint.h"
#include "nn/transformer.h"

namespace whence {

void declare_accept_damaged(Fields& options, bool& accept_damaged);

// As load_checkpoint and load_weights of nn/io/checkpoint.h, with the same errors.
TrainingState load(const std::string& checkpoint, const std::vector<Module::Parameter>& weights, Optimizer* optimizer,
    bool accept_damaged);
void load(const std::string& file, const std::vector<Module::Parameter>& weights, bool accept_damaged);

// Checks before any part of the model is made: FileError if a model of these sizes and this scheme, which `place`
// names, has more parameters than the weights' file has room for; OutOfMemory if they take more than is free;
// InputError as from Transformer.
void require_room_for(const TransformerOptions& model, const std::string& place, const std::string& weights);

}  // namespace whence
