#include "examples/whence/run/loading.h"

#include <filesystem>
#include <iostream>
#include <set>

#include "examples/whence/cli/text.h"
#include "examples/whence/machine/memory_plan.h"
#include "nn/io/files.h"
#include "tensor/error.h"

namespace whence {
namespace {

const bool notes_are_printed = [] {
  on_damage.say = [said = std::set<std::string>()](const std::string& note) mutable {
    if (said.insert(note).second) std::cerr << "warning: " << one_line(note) << std::endl;
  };
  return true;
}();

}  // namespace

void declare_accept_damaged(Fields& options) {
  on_damage.accept = false;
  options.flag("accept-damaged", &on_damage.accept,
      {"load weights and checkpoints whose checksums are wrong, with a warning, in place of an error"});
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
