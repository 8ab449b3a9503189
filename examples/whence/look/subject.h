// The subject of `look`: a model, one sequence, and the loss on it.
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

#include "examples/whence/tasks/task.h"
#include "nn/transformer.h"

namespace whence::look {

struct SubjectOptions {
  std::string run;          // folder that `train` wrote; or a scheme, "cope(p_max=8)": a random model of two layers
  std::string text = {};    // file to read, for language models; empty: corpus.h, passage_to_read
  std::string prompt = {};  // text to read instead of a file
  std::string given = {};   // file of q, k and v, for a scheme
  std::string set = {};     // a test set of the task; empty: the first
  std::int64_t sample = 0;  // index of the sequence in that set
  std::int64_t length = 0;  // at most this many tokens; 0: the model's training length
  std::int64_t step = 0;    // of the checkpoint; 0: the final weights, or the last checkpoint
  bool untrained = false;   // use the initial weights. REQUIRES: begins_at_random(run)
  DType dtype = DType::f32;
  bool own_text = false;  // the command takes no text other than the run's own
  std::int64_t skip = 0;  // number of tokens of the text, or of sequences of a task, to skip
  index_t most_parameters = std::numeric_limits<index_t>::max();  // of the model; checked before it is made
};

// Queries, keys and values from a file, in place of those that the model computes.
struct Given {
  Tensor q, k, v;    // [1 h t d]
  Tensor cotangent;  // [1 h t d], the gradient of the output; ones if the file has none
  Tensor x;          // [1 t h*d], the input of attention; undefined if the file has none
};

// The model's answers at a token with a target.
struct Prediction {
  struct Answer {
    std::string text;
    double probability;
  };
  double loss;                    // -ln of the probability of `wanted`
  Answer wanted;                  // the target
  std::vector<Answer> likeliest;  // at most four, the likeliest first
};

// Returns the probabilities at a token, from logits [1 t answers].
[[nodiscard]] std::vector<double> probabilities_at(const Tensor& logits, index_t token);

struct Subject {
  std::string title;
  std::string label;    // short name when several are shown together: "step 500"
  std::string command;  // the command for this page: "whence look runs/a --step 500"
  std::vector<std::pair<std::string, std::string>> facts;
  std::string asks = {};  // sentences: what a sequence is, and what is asked
  std::shared_ptr<Transformer> model;
  Tensor tokens, targets;                           // i64 [1 t]; -1: no target
  std::vector<std::string> texts;                   // the tokens, as valid UTF-8
  std::vector<std::optional<std::string>> answers;  // the targets
  std::vector<std::string> outputs = {};            // all possible answers

  std::optional<Given> given = {};  // replaces q, k, v and x of the model

  // The graph of one pass: the scalar loss, and the logits of the answers [1 t answers]. With `given`, the loss is the sum of
  // output * cotangent, and there are no logits.
  struct Pass {
    Tensor loss, logits;
  };
  [[nodiscard]] Pass pass() const;
  // Returns a prediction for each token; empty for tokens without a target, and for all tokens with `given`.
  [[nodiscard]] std::vector<std::optional<Prediction>> predictions(const Tensor& logits) const;
  [[nodiscard]] DType dtype() const { return model->parameters().front().tensor.dtype(); }
  // Returns the same subject with a copy of the model, and of `given`, in f64.
  [[nodiscard]] Subject in_doubles() const;
};

// Reads a safetensors file with q, k and v, each [h t d] or [1 h t d]. Optional: cotangent of the same shape, and x, [t h*d]
// or [1 t h*d]. Throws InputError if a tensor is missing, unknown, of a wrong shape, or not finite.
[[nodiscard]] Given read_given(const std::string& file, DType dtype);

// Returns the sum of output * cotangent of the model's first layer, a scalar. The given tensors become leaves of the graph.
// REQUIRES: the output projection is the identity
[[nodiscard]] Tensor loss_of_given(const Transformer& model, const Given& given);

// Throws InputError if a model would have more than `most` parameters. They are counted without making the model.
void require_small(const TransformerOptions& model, index_t most);

// Returns the model on one sequence of a test set of the task. Throws InputError if it has no set of that name.
[[nodiscard]] Subject task_subject(std::shared_ptr<Transformer> model, const tasks::Task& task, std::uint64_t seed,
    std::int64_t sample, std::int64_t length = 0, const std::string& set = {});

// True if `run` is a folder. Otherwise it is read as a scheme.
[[nodiscard]] bool is_folder(const std::string& run);

// Returns the folders of a run's checkpoints, by step.
[[nodiscard]] std::map<std::int64_t, std::filesystem::path> checkpoints_of(const std::string& run);

// True if a run's initial weights are random, and not those of another run.
[[nodiscard]] bool begins_at_random(const std::string& run);

// Returns the model without a sequence. Throws InputError as subject_of does.
[[nodiscard]] std::shared_ptr<Transformer> model_of(const SubjectOptions& options);

// Throws InputError if the run cannot be read, is damaged, or does not have what `options` name.
[[nodiscard]] Subject subject_of(const SubjectOptions& options);

// Returns the bytes of the files that subject_of reads, by name. Of a text, the first 64 KiB.
[[nodiscard]] std::map<std::string, std::string> files_of(const SubjectOptions& options);

}  // namespace whence::look
