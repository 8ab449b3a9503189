// Loading as programs do it: what is to be known of the files goes to stderr, a line each, and --accept-damaged goes on
// with files whose checksums are wrong.
#pragma once

#include <string>
#include <vector>

#include "examples/whence/cli/fields.h"
#include "nn/io/checkpoint.h"
#include "nn/transformer.h"

namespace whence {

void declare_accept_damaged(Fields& options, bool& accept_damaged);

// load_checkpoint and load_weights of nn/io/checkpoint.h, and what they throw.
TrainingState load(const std::string& checkpoint, const std::vector<Module::Parameter>& weights, Optimizer* optimizer,
    bool accept_damaged);
void load(const std::string& file, const std::vector<Module::Parameter>& weights, bool accept_damaged);

// Before anything of the model is made: FileError where one of these sizes and this scheme, which `place` names, has more
// parameters than the file of its weights has room for; OutOfMemory where it is more than is free; InputError as from
// Transformer.
void require_room_for(const TransformerOptions& model, const std::string& place, const std::string& weights);

}  // namespace whence
