// Looks inside one pass: explains a gradient, names the causes of zero gradients, and closes a gate.
#include <iostream>

#include "autograd/backward.h"
#include "autograd/inspect/explain.h"
#include "autograd/inspect/zeros.h"
#include "autograd/ops.h"
#include "nn/transformer.h"
#include "tensor/random.h"
#include "tensor/raw.h"

using namespace whence;

int main() {
  Transformer model({.vocabulary = 7,
      .length = 6,
      .dim = 16,
      .layers = 1,
      .heads = 1,
      .initialisation = Initialisation::ram,
      .scheme = "cope(p_max=3)"});
  model.initialise(0);
  model.to(DType::f64);
  for (const Module::Parameter& each : model.parameters())  // CoPE's table starts at 0, and then no gate has a gradient
    if (each.path.ends_with("table"))
      raw::copy_into(Tensor::normal(each.tensor.shape(), 0, 1, Stream(1, "table"), DType::f64), each.tensor);
  const Tensor tokens = Tensor::of({1, 5, 2, 0, 3, 6}, {1, 6}, DType::i64);
  const Tensor targets = Tensor::of({5, 2, 0, 3, 6, 1}, {1, 6}, DType::i64);
  const std::string position = "blocks.0.attention.position.";
  const Tape tape;             // records inputs and outputs of every op
  const Capture capture("*");  // captures every named tensor
  const Tensor loss = cross_entropy(model(tokens), targets);
  backward(loss, {}, {.keep_graph = true});
  std::vector<Place> places;
  for (const std::string& name : capture.names()) places.push_back(capture.place(name));

  const Shape at = {0, 0, 5, 4};  // [b h i j]: the last query's gate for the key before it
  const ExplainedGradient why = explain_gradient(tape, loss, capture.place(position + "gates"), at, places);
  std::cout << "d loss / d gates" << at << " = " << why.gradient << ", which is\n";
  for (const GradientTerm& term : why.terms)
    std::cout << "  " << term.gradient << " of " << term.name << term.at << " times " << term.derivative << '\n';

  std::cout << "d loss / d positions:\n" << why_zero(loss, capture.place(position + "positions"));

  const Tensor gates = capture[position + "gates"].value();
  Capture edited;
  const Tensor others = Tensor::ones(gates.shape(), DType::boolean);
  others.data<bool>()[34] = false;                                                    // [0, 0, 5, 4] of [1, 1, 6, 6]
  edited.edit("*.gates", [&](const Tensor& all) { return masked(all, others, 0); });  // closes that gate
  std::cout << "\nshut: by the gradient the loss changes by " << -why.gradient * gates.to_vector()[34]
            << ", and it does by " << cross_entropy(model(tokens), targets).item() - loss.item() << '\n';
}
