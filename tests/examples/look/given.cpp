// `whence look SCHEME --given`: attention on queries, keys and values of a file.
#include <doctest/doctest.h>

#include <map>

#include "autograd/backward.h"
#include "autograd/ops.h"
#include "examples/whence/look/tables.h"
#include "examples/whence/verify/bare_attention.h"
#include "examples/whence/verify/scheme_texts.h"
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
  const Tensor output = bare.run({x, q, k, v, Sequence::run(length)}, reference_executor()).output;
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
    for (const WaysTo& to : inspection.ways()) CHECK(to.difference < 1e-12);
    check_quantities(inspection);
    check_reasons(inspection);
    if (bare.claims().drawn_each_step) continue;  // by the scheme's path, which is another there
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
  CHECK(compared > 150);
}

TEST_CASE("look: what is given is refused where it does not fit, and looked at as a model is") {
  const Scratch scratch("given");
  const std::string file = scratch / "qkv.safetensors";
  const auto ones = [](const Shape& shape, DType dtype = DType::f32) { return Tensor::ones(shape, dtype); };
  using Tensors = std::vector<std::pair<std::string, Tensor>>;
  const Tensors good{{"q", ones({2, 7, 4})}, {"k", ones({2, 7, 4})}, {"v", ones({2, 7, 4})}};
  const auto with = [&](const std::string& name, const Tensor& tensor) {
    Tensors changed;
    for (const auto& each : good)
      if (each.first != name) changed.push_back(each);
    if (tensor.defined()) changed.emplace_back(name, tensor);
    return changed;
  };
  const auto look = [&](const std::vector<std::string>& arguments) { return look_at(scratch, arguments); };
  Tensor infinite = ones({2, 7, 4});
  infinite.data<float>()[3] = std::numeric_limits<float>::infinity();
  for (const auto& refusal : std::vector<std::tuple<Tensors, std::string, std::string>>{
           {with("v", {}), "cope", "no tensor v"}, {with("k", ones({2, 6, 4})), "cope", "k is [1,2,6,4]"},
           {with("q", ones({7, 4})), "cope", "q is [7,4]; [heads, tokens, dims] required"},
           {with("q", ones({2, 2, 7, 4})), "cope", "q is [2,2,7,4]"},
           {with("v", ones({2, 7, 4}, DType::i64)), "cope", "v is i64; floating numbers required"},
           {with("v", infinite), "cope", "v holds NaN or infinity"},
           {with("k", Tensor::full({2, 7, 4}, 1e200, DType::f64)), "cope", "k holds NaN or infinity as f32"},
           {with("w", ones({1})), "cope", "a tensor w found"},
           {with("cotangent", ones({2, 7, 3})), "cope", "cotangent is [1,2,7,3]"},
           {with("x", ones({7, 7})), "cope", "x is [1,7,7]"}, {good, "forgetting", "no tensor x"},
           {good, "sinusoidal", "adds to x alone"}}) {
    CAPTURE(std::get<2>(refusal));
    write_safetensors(file, {std::get<0>(refusal), {}});
    const Outcome refused = look({std::get<1>(refusal), "--given", file, "--out", scratch / "refused.html"});
    CHECK(refused.code == (std::get<1>(refusal) == "sinusoidal" ? 2 : 3));
    CHECK_MESSAGE(refused.err.find(std::get<2>(refusal)) != std::string::npos, refused.err);
    CHECK_FALSE(std::filesystem::exists(scratch / "refused.html"));
  }
  std::ofstream(scratch / "text") << "no tensors";
  CHECK(look({"cope", "--given", scratch / "text", "--causes"}).err.find("safetensors: ") != std::string::npos);
  CHECK(look({"cope", "--given", scratch / "none", "--causes"}).code == 4);

  Tensors drawn;
  for (const auto& [name, tensor] : good) drawn.emplace_back(name, normal({2, 7, 4}, drawn.size(), DType::f32));
  write_safetensors(file, {drawn, {}});
  CHECK(look({"cope", "--given", file, "--length", "3"}).err.find("--length") != std::string::npos);
  const Outcome page =
      look({"cope(p_max=3)", "--given", file, "--out", scratch / "look.html", "--beside", "alibi", "--edits", "2"});
  CHECK_MESSAGE(page.code == 0, page.err);
  CHECK(text_of(scratch / "look.html").find("class=\"look-beside\"") != std::string::npos);
  for (const char* what : {"--causes", "--ways"}) CHECK(look({"cope", "--given", file, what}).code == 0);
  const Outcome number = look({"cope", "--given", file, "--explain", "dLoss/doutput head=1 i=3 d=2"});
  CHECK_MESSAGE(number.out.find("dLoss/d blocks.0.attention.output[0,1,3,2] = 1\n") != std::string::npos, number.out);
  const Outcome edit = look({"cope", "--given", file, "--edit", "blocks.0.attention.v *= 1.5"});
  CHECK(edit.code == 0);
}
