// `whence look SCHEME --given`: attention on queries, keys and values of a file.
#include <map>

#include "examples/whence/look/tables.h"
#include "nn/io/safetensors.h"
#include "tests/examples/look/subjects.h"

using namespace whence;
using namespace whence::look;
using namespace whence::test;

namespace {

// The gradients of BareAttention with the parameters of `subject`, by "q", "k" and "v"; its loss under "".
std::map<std::string, Tensor> bare_gradients(const std::string& text, const Subject& subject) {
  const Given& given = *subject.given;
  const index_t heads = given.q.size(1), length = given.q.size(2), dim = heads * given.q.size(3);
  const BareAttention bare(text, {dim, heads, length});
  for (const Module::Parameter& parameter : bare.root().parameters()) {
    bool found = false;
    for (const Module::Parameter& other : subject.model->parameters()) {
      if (other.path != "position." + parameter.path && other.path != "blocks.0.attention.position." + parameter.path)
        continue;
      raw::copy_into(other.tensor.detach(), parameter.tensor);
      found = true;
    }
    REQUIRE(found);
  }
  const Tensor q = requires_grad(given.q.detach()), k = requires_grad(given.k.detach()),
               v = requires_grad(given.v.detach());
  const Tensor x = given.x.defined() ? given.x.detach() : Tensor();
  const Tensor output = bare.run({x, q, k, v, Sequence::run(length)}, Executor::reference).output;
  const Tensor loss = sum(output * given.cotangent);
  const std::vector<Tensor> gradients = grad(loss, {}, {q, k, v}, {.allow_unused = true});
  return {{"", loss.detach()}, {"q", gradients[0]}, {"k", gradients[1]}, {"v", gradients[2]}};
}

}  // namespace

TEST_CASE("look: queries, keys and values that are given, under every scheme of attention") {
  const Scratch scratch("given");
  const std::string file = scratch / "qkv.safetensors";
  int compared = 0;
  for (const std::string& text : promised_texts()) {
    const BareAttention bare(text, {8, 2, 7});
    if (!bare.attends() || bare.embeds()) continue;
    CAPTURE(text);
    SafetensorsFile content{{{"q", normal({2, 7, 4}, 1)}, {"k", normal({1, 2, 7, 4}, 2)}, {"v", normal({2, 7, 4}, 3)},
                                {"cotangent", normal({2, 7, 4}, 4)}},
        {}};
    if (bare.reads_x()) content.tensors.emplace_back("x", normal({7, 8}, 5));
    write_safetensors(file, content);
    SubjectOptions options;
    options.run = text, options.given = file, options.dtype = DType::f64;
    const Subject subject = subject_of(options);
    const Inspection inspection(subject);
    for (const PathsTo& to : inspection.paths()) CHECK(to.difference < 1e-12);
    check_quantities(inspection);
    check_causes(inspection);
    if (bare.claims().drawn_each_step) continue;  // the draw depends on the scheme's path, which differs there
    const auto expected = bare_gradients(text, subject);
    CHECK(std::abs(inspection.loss() - expected.at("").item()) < 1e-12);
    for (const Quantity& quantity : inspection.quantities()) {
      if (quantity.name != "q" && quantity.name != "k" && quantity.name != "v") continue;
      CAPTURE(quantity.name);
      const Tensor& gradient = expected.at(quantity.name);
      CHECK(gradient.defined() == quantity.gradient.defined());
      if (!gradient.defined()) continue;
      CHECK(distance(quantity.gradient, gradient) < 1e-12);
      ++compared;
    }
  }
  CHECK(compared >= 423);
}

TEST_CASE("look: queries, keys and values that are given are looked at as a model is") {
  const Scratch scratch("given");
  const std::string file = scratch / "qkv.safetensors", page = scratch / "look.html", given = " --given " + file;
  const auto drawn = [](std::uint64_t seed) { return normal({2, 7, 4}, seed, DType::f32); };
  write_safetensors(file, {{{"q", drawn(0)}, {"k", drawn(1)}, {"v", drawn(2)}}, {}});
  (void)done("look cope(p_max=3) --beside alibi --out " + page + given);
  CHECK(has(text_of(page), "class=\"look-beside\""));
  CHECK(has(done("look cope --explain 'dLoss/doutput head=1 i=3 d=2'" + given).out,
      "dLoss/d blocks.0.attention.output[0,1,3,2] = 1\n"));
}
