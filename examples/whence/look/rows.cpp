#include "examples/whence/look/rows.h"

#include <algorithm>

#include "autograd/backward.h"
#include "autograd/inspect/capture.h"
#include "autograd/recording.h"
#include "nn/attention/plan.h"
#include "tensor/error.h"
#include "tensor/raw.h"

namespace whence::look {
namespace {

std::string attention_of(index_t layer) { return to_text("blocks.", layer, ".attention"); }

// Returns full names: a pattern with '*' would make attention run in its composed form.
std::vector<std::string> operands_of(index_t layers) {
  std::vector<std::string> names;
  for (index_t layer = 0; layer < layers; ++layer)
    for (const char* name : {".x", ".q", ".k", ".v", ".output"}) names.push_back(attention_of(layer) + name);
  return names;
}

void clear_gradients(const Transformer& model) {
  for (const Module::Parameter& parameter : model.parameters())
    if (!parameter.frozen) clear_gradient(parameter.tensor);
}

Tensor new_leaf(const Tensor& value) { return requires_grad(value.detach()); }

}  // namespace

bool Rows::take(const Subject& subject) {
  return std::ranges::all_of(subject.model->attention(0).stages().schemes,
      [](const PositionalScheme* scheme) { return scheme->claims().row_local; });
}

Rows::Rows(const Subject& subject, bool gradients) : subject_(subject), specs_(parse_schemes(subject.model->scheme())) {
  const index_t layers = subject.model->options().layers;
  if (!take(subject))
    throw InputError("", subject.tokens.numel(), " tokens of ", subject.model->scheme(),
        " given; its rows depend on each other, so that the page needs all of them; fewer tokens required: --length");
  const RecordingScope recording(gradients);
  Capture capture(operands_of(layers));
  const Subject::Pass pass = subject.pass();
  loss_ = pass.loss.item(), predictions_ = subject.predictions(pass.logits);
  capture.stop();
  if (gradients) {
    backward(pass.loss);
    clear_gradients(*subject.model);
  }
  for (index_t layer = 0; layer < layers; ++layer) {
    const auto seen = [&](const char* name) -> const Probed& { return capture[attention_of(layer) + name]; };
    layers_.push_back(
        {seen(".x").value(), seen(".q").value(), seen(".k").value(), seen(".v").value(), seen(".output").gradient()});
  }
}

// Runs the composed form, with every probe, for query rows [begin, end) of `inputs`: [b h end-begin d]. Keys that none of
// these rows sees are left out. REQUIRES: every scheme is row local
static Tensor composed_rows(const Attention& attention, const AttendInputs& inputs, index_t begin, index_t end) {
  const Scope scope(attention.path());
  const AttendContext all = rotated_context(inputs, attention.stages());
  return attend_rows(rows_of(all, attention.stages(), begin, end), attention.stages());
}

std::vector<Quantity> Rows::of(index_t layer, index_t begin, index_t end, bool gradients) const {
  const Layer& from = layers_.at(static_cast<std::size_t>(layer));
  AttendInputs inputs{
      from.x, from.query, from.key, from.value, Sequence::run(from.query.size(2), subject_.model->options().causal)};
  const bool differentiated = gradients && from.gradient_of_output.defined();
  if (differentiated)
    inputs.query = new_leaf(from.query), inputs.key = new_leaf(from.key), inputs.value = new_leaf(from.value);
  const RecordingScope recording(differentiated);
  Capture capture(attention_of(layer) + ".*");
  const Tensor output = composed_rows(subject_.model->attention(layer), inputs, begin, end);
  capture.stop();
  if (differentiated) {
    backward(output, raw::slice(from.gradient_of_output, 2, begin, end));
    clear_gradients(*subject_.model);
  }
  return quantities_of(capture, specs_);
}

}  // namespace whence::look
