// Checkpoints: folders with everything that a run needs to go on as if it had never stopped.
//
//   ROOT/lock                              held by the one process that may save here
//   ROOT/step-000400/weights.safetensors   parameters by path; of a 16-bit model their f32 masters. Metadata: format,
//                                          step, seed, skipped steps, the caller's facts, the other file's seal
//   ROOT/step-000400/optimizer.safetensors moments as "first.PATH" and "second.PATH", where there are any. Metadata:
//                                          step
//
// Both are readable by anyone; `safe_open(file, "np").metadata()` prints the metadata in Python. Both have a seal
// (nn/io/safetensors.h), so that one flipped bit anywhere in a folder is noticed before anything is loaded.
//
// A folder is written under a temporary name, synced, and renamed. Whenever the process is killed, the
// previous checkpoint is complete.
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
  index_t step = 0;                               // of the training
  std::uint64_t seed = 0;                         // what all streams of the run are made from
  std::map<std::string, std::string> facts = {};  // the caller's: options, a hash of the data, ...
  index_t skipped = 0;                            // of the steps, those that left the weights as they were

  index_t updates() const { return step - skipped; }  // what the optimiser counts
};

// The right to save under a root, for as long as the object lives.
class CheckpointFolder {
 public:
  // Makes the folder, locks it, and removes what interrupted saves left. Keeps the newest `keep` checkpoints; 0: all,
  // below 0: InputError. Throws SystemError when another process holds the lock or the place cannot be written.
  explicit CheckpointFolder(const std::string& root, std::int64_t keep = 2);
  ~CheckpointFolder();
  CheckpointFolder(const CheckpointFolder&) = delete;
  CheckpointFolder& operator=(const CheckpointFolder&) = delete;

  // Returns the checkpoint's folder. `weights` are a module's parameters, or their masters. A checkpoint of the same
  // step is replaced. Throws Error unless the optimiser has taken state.updates() steps, NotFinite naming the tensor
  // when a weight or moment is not finite, SystemError when writing fails; earlier checkpoints are then unchanged.
  std::string save(
      const std::vector<Module::Parameter>& weights, const Optimizer& optimizer, const TrainingState& state) const;

 private:
  void remove_half_saved() const;
  void remove_old(const std::string& newest) const;

  std::string root_;
  std::int64_t keep_;
  int lock_;
};

// The folder of the checkpoint with the highest step, or nothing when there is none, or no such root. SystemError when
// it cannot be listed.
std::optional<std::string> find_latest(const std::string& root);

// What the weights' metadata hold, proven. Throws as read_safetensors does, FileError when the file is no checkpoint's,
// DoesNotFit when its format is another version's.
TrainingState read_training_state(const std::string& folder, Trust* trust = nullptr);

// Restores a checkpoint, or its weights alone when `optimizer` is null. Everything is read and checked first: what
// read_training_state throws, and DoesNotFit, which lists what does not fit; the weights and the optimiser are then
// unchanged. `trust` gets notes of what was damaged and accepted, and of numbers that are not finite.
TrainingState load_checkpoint(const std::string& folder, const std::vector<Module::Parameter>& weights,
    Optimizer* optimizer, Trust* trust = nullptr);

// The weights alone, as one file. They throw what save and load_checkpoint do. A file without a seal, as others write
// it, is loaded with a note.
void save_weights(const std::string& path, const std::vector<Module::Parameter>& weights);
void load_weights(const std::string& path, const std::vector<Module::Parameter>& weights, Trust* trust = nullptr);

}  // namespace whence
