#include "examples/whence/run/loading.h"

#include <filesystem>
#include <iostream>

#include "examples/whence/cli/text.h"
#include "examples/whence/machine/memory_plan.h"
#include "tensor/error.h"

namespace whence {
namespace {

void say(const Trust& trust) {
  for (const std::string& note : trust.notes) std::cerr << "warning: " << one_line(note) << std::endl;
}

}  // namespace

void declare_accept_damaged(Fields& options, bool& accept_damaged) {
  options.flag("accept-damaged", &accept_damaged,
      {"load weights and checkpoints whose checksums are wrong, with a warning, in place of an error"});
}

TrainingState load(const std::string& checkpoint, const std::vector<Module::Parameter>& weights, Optimizer* optimizer,
    bool accept_damaged) {
  Trust trust{accept_damaged};
  const TrainingState state = load_checkpoint(checkpoint, weights, optimizer, &trust);
  say(trust);
  return state;
}

void load(const std::string& file, const std::vector<Module::Parameter>& weights, bool accept_damaged) {
  Trust trust{accept_damaged};
  load_weights(file, weights, &trust);
  say(trust);
}

void require_room_for(const TransformerOptions& model, const std::string& place, const std::string& weights) {
  std::error_code none;  // loading reports the fault later
  const std::uintmax_t bytes = std::filesystem::file_size(weights, none);
  constexpr double few = 1 << 22;  // a smaller model is built at once, and compared with the file's names and shapes
  const auto require = [&](double parameters) {
    if (!none && parameters >= few && 2 * parameters > static_cast<double>(bytes))  // at least 16 bits each
      throw FileError(place, ": a model of ", model.layers, " layers of dim ", model.dim, " has at least ", parameters,
          " parameters; ", weights, " has ", bytes, " bytes; the sizes of its weights required; is the file damaged?");
  };
  require(fewest_parameters(model));
  require(static_cast<double>(planned_parameters(model)));
  require_memory(model, Device::cpu(), 1);
}

}  // namespace whence
