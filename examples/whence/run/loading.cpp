#include "examples/whence/run/loading.h"

#include <iostream>

#include "examples/whence/cli/text.h"

namespace whence {
namespace {

void say(const Trust& trust) {
  for (const std::string& note : trust.notes) std::cerr << "warning: " << one_line(note) << std::endl;
}

}  // namespace

void declare_accept_damaged(CommandLine& options, bool& accept_damaged) {
  options.flag("accept-damaged", &accept_damaged,
      {"load weights and checkpoints whose checksums are wrong, with a warning, in place of an error"});
}

TrainingState load(const std::string& checkpoint, const std::vector<Module::Parameter>& weights, Adam* optimizer,
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

}  // namespace whence
