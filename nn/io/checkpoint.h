// Checkpoints: folders with everything that a run needs to continue as if it had never stopped.
//
//   ROOT/lock                              held by the only process that may save here
//   ROOT/step-000400/weights.safetensors   parameters by path; for a 16-bit model their f32 masters. Metadata: format,
//                                          step, seed, skipped steps, the caller's facts, the other file's seal
//   ROOT/step-000400/optimizer.safetensors moments as "first.PATH" and "second.PATH", if there are any. Metadata:
//                                          step
//
// Other programs can read both; `safe_open(file, "np").metadata()` prints the metadata in Python. Both have a seal
// (nn/io/files.h), so one flipped bit anywhere in a folder is noticed before anything is loaded.
//
// A folder is written under a temporary name, synced, and renamed. A kill at any time leaves the previous checkpoint
// complete.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "nn/io/safetensors.h"
#include "nn/layers/module.h"
#include "nn/training/optim.h"

namespace whence {

struct TrainingState {
  index_t step = 0;                               // training step
  std::uint64_t seed = 0;                         // all random streams of the run derive from it
  std::map<std::string, std::string> facts = {};  // the caller's: options, a hash of the data, ...
  index_t skipped = 0;                            // steps that left the weights unchanged

  index_t updates() const { return step - skipped; }  // the optimiser's count
};

// The right to save under a root, while the object lives.
class CheckpointFolder {
 public:
  // Makes the folder, locks it, and removes what interrupted saves left. Keeps the newest `keep` checkpoints; 0: all,
  // below 0: InputError. Throws SystemError if another process holds the lock or the folder cannot be written.
  explicit CheckpointFolder(const std::string& root, std::int64_t keep = 2);
  ~CheckpointFolder();
  CheckpointFolder(const CheckpointFolder&) = delete;
  CheckpointFolder& operator=(const CheckpointFolder&) = delete;

  // Returns the checkpoint's folder. `weights` are a module's parameters, or their masters. A checkpoint of the same
  // step is replaced. Throws Error unless the optimiser has taken state.updates() steps, NotFinite with the tensor's
  // name if a weight or moment is not finite, SystemError if writing fails. Earlier checkpoints are unchanged then.
  std::string save(
      const std::vector<Module::Parameter>& weights, const Optimizer& optimizer, const TrainingState& state) const;

 private:
  std::string root_;
  std::int64_t keep_;
  int lock_;
};

// Returns the folder of the checkpoint with the highest step; nothing if there is none, or no such root. SystemError if
// it cannot be listed.
std::optional<std::string> find_latest(const std::string& root);

// Returns the metadata of the weights, verified. Throws as read_safetensors does, FileError if the file belongs to no
// checkpoint, DoesNotFit if its format is another version.
TrainingState read_training_state(const std::string& folder);

// Restores a checkpoint, or its weights alone if `optimizer` is null. Everything is read and checked first. Throws as
// read_training_state does, and DoesNotFit with a list of all that does not fit; the weights and the optimiser are
// unchanged then. on_damage says which numbers are not finite.
TrainingState load_checkpoint(
    const std::string& folder, const std::vector<Module::Parameter>& weights, Optimizer* optimizer);

// Save and load the weights alone, as one file. They throw the errors of save and load_checkpoint. A file without a
// seal, from another program, is loaded with a note.
void save_weights(const std::string& path, const std::vector<Module::Parameter>& weights);
void load_weights(const std::string& path, const std::vector<Module::Parameter>& weights);

}  // namespace whence
