// What `look` looks at: a model, one sequence, and the loss that is taken there.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "examples/whence/look/given.h"
#include "examples/whence/tasks/task.h"
#include "nn/transformer.h"

namespace whence::look {

struct SubjectOptions {
  std::string run;  // folder that `train` wrote; or a scheme, "cope(p_max=8)": a model of two layers, drawn at random
  std::string text =
      {};  // file to read, for language models; empty: of what the run set aside (corpus.h, passage_to_read)
  std::string prompt = {};     // to read in place of a file
  std::string given = {};      // file of q, k and v (given.h), for a scheme
  std::int64_t sample = 0;     // which sequence of the first test set, for tasks
  std::int64_t length = 0;     // tokens at most; 0: as many as the model was trained on
  std::int64_t step = 0;       // of the checkpoint; 0: the weights that training left, or the last checkpoint
  bool untrained = false;      // the weights that training began with. REQUIRES: begins_at_random(run)
  std::uint64_t seed = 0;      // of a model and a sequence that are drawn
  bool bidirectional = false;  // of a model that is drawn
  DType dtype = DType::f32;
  bool accept_damaged = false;  // weights whose checksums are wrong
  bool own_text = false;        // the command takes no text but the one that the run knows
  std::int64_t skip = 0;        // so many tokens further into the text; of a task, so many sequences further on
  index_t most_parameters = std::numeric_limits<index_t>::max();  // of the model; counted before it is made
};

// What the model answers at a token where a loss is taken.
struct Prediction {
  struct Answer {
    std::string text;
    double probability;
  };
  double loss;  // -ln of the probability of the wanted one
  Answer wanted;
  std::vector<Answer> likeliest;  // four at most, the likeliest first
};

// A token's logits, of [1 t answers], as probabilities.
[[nodiscard]] std::vector<double> probabilities_at(const Tensor& logits, index_t token);

struct Subject {
  std::string title;
  std::string label;    // one word or two, where several are shown at once: "step 500"
  std::string command;  // what shows it again: "whence look runs/a --step 500"
  std::vector<std::pair<std::string, std::string>> facts;
  std::string asks = {};  // what a sequence is, and what is asked: sentences
  std::shared_ptr<Transformer> model;
  Tensor tokens, targets;                           // i64 [1 t]; -1: no loss is taken there
  std::vector<std::string> texts;                   // of the tokens, valid UTF-8
  std::vector<std::optional<std::string>> answers;  // of the targets
  std::vector<std::string> outputs = {};            // the texts of all that it may answer

  std::optional<Given> given = {};  // takes the place of what the model makes of the tokens

  // The graph of one pass: the loss, a scalar, and the logits of the answers [1 t answers]. Of what is given the loss is
  // the sum of output times cotangent, and there are no logits.
  struct Pass {
    Tensor loss, logits;
  };
  [[nodiscard]] Pass pass() const;
  // One for each token; of those without a target, and of what is given, nothing.
  [[nodiscard]] std::vector<std::optional<Prediction>> predictions(const Tensor& logits) const;
  [[nodiscard]] DType dtype() const { return model->parameters().front().tensor.dtype(); }
};

// InputError where a model has more than `most` parameters, which are counted without making it.
void require_small(const TransformerOptions& model, index_t most);

// The model on one sequence of the task's first test set.
[[nodiscard]] Subject task_subject(std::shared_ptr<Transformer> model, const tasks::Task& task, std::uint64_t seed,
    std::int64_t sample, std::int64_t length = 0);

// Whether `run` is a folder; if not, it is read as a scheme.
[[nodiscard]] bool is_folder(const std::string& run);

// The folders of a run's checkpoints by their steps.
[[nodiscard]] std::map<std::int64_t, std::filesystem::path> checkpoints_of(const std::string& run);

// Whether a run's first weights are drawn by its seed, and not those of another run.
[[nodiscard]] bool begins_at_random(const std::string& run);

// The model alone, whatever it is to read. InputError as below.
[[nodiscard]] std::shared_ptr<Transformer> model_of(const SubjectOptions& options);

// InputError when the run cannot be read, is damaged, or does not have what is asked for.
[[nodiscard]] Subject subject_of(const SubjectOptions& options);

// The bytes of the files that subject_of reads, by their names; of a text its first 64 KiB.
[[nodiscard]] std::map<std::string, std::string> files_of(const SubjectOptions& options);

}  // namespace whence::look
