// Weights in and out: files that PyTorch wrote, with its logits; round trips to the bit; what is refused; trainings
// that begin with the weights of another scheme's.
#include <doctest/doctest.h>
#include <filesystem>
#include <fstream>
#include <map>

#include "autograd/recording.h"
#include "examples/whence/language/first_weights.h"
#include "examples/whence/language/hugging_face.h"
#include "nn/io/safetensors.h"
#include "tests/support/programs.h"
#include "tests/support/tensors.h"

using namespace whence;
using namespace whence::language;
using namespace whence::test;
namespace fs = std::filesystem;

namespace {

// examples/whence/verify/hugging_face.py --golden made them.
std::string golden(const std::string& name) {
  return source_folder() + "/tests/examples/language/hugging_face/" + name;
}

std::string bytes_of(const Tensor& x) {
  return {reinterpret_cast<const char*>(x.bytes()), static_cast<std::size_t>(x.numel()) * size_of(x.dtype())};
}

}  // namespace

TEST_CASE("convert: models that PyTorch wrote give its logits, and come back from us with the same bits") {
  const Scratch scratch("convert-golden");
  for (const std::string name : {"gpt2", "gpt_neox"}) {
    CAPTURE(name);
    const ForeignModel theirs = read_hugging_face(golden(name));
    const Transformer model(theirs.options);
    (void)take_weights(theirs.weights, model.parameters(), "test");
    const SafetensorsFile said = read_safetensors(golden(name) + "/logits.safetensors");
    Tensor tokens, wanted;
    for (const auto& [tensor_name, tensor] : said.tensors) (tensor_name == "tokens" ? tokens : wanted) = tensor;
    const NoGrad no_grad;
    CHECK(distance(model(tokens), wanted) < 1e-5);
    CHECK(largest(wanted) > 0.1);

    const std::string back = scratch / name;
    fs::create_directories(back);
    write_hugging_face(back, theirs.options, model.parameters());
    const ForeignModel again = read_hugging_face(back);
    REQUIRE(again.weights.size() == theirs.weights.size());
    for (std::size_t k = 0; k < again.weights.size(); ++k) {
      CHECK(again.weights[k].first == theirs.weights[k].first);
      CHECK(bytes_of(again.weights[k].second) == bytes_of(theirs.weights[k].second));
    }
    // And theirs are those of the file that PyTorch wrote.
    const SafetensorsFile one = read_safetensors(golden(name) + "/model.safetensors"),
                          two = read_safetensors(back + "/model.safetensors");
    for (const auto& ours : two.tensors)
      for (const auto& other : one.tensors)
        if (ours.first == other.first) CHECK_MESSAGE(bytes_of(ours.second) == bytes_of(other.second), ours.first);
  }
}

TEST_CASE("convert: a run of ours becomes theirs and a run again, with its logits; a training begins with any") {
  const Scratch scratch("convert-run");
  std::ofstream text(scratch / "text.txt");
  for (int i = 0; i < 400; ++i) text << "the cat number " << i << " sat on mat " << i * 7 % 13 << ".\n";
  text.close();
  const auto train = [&](const std::string& more) {
    return done("train " + scratch / "text.txt" +
                " --length 16 --dim 16 --layers 1 --heads 2 --batch 2 --evaluate-to 1 --quiet " + more);
  };
  const std::string rope = scratch / "rope", theirs = scratch / "theirs", again = scratch / "again",
                    drope = scratch / "drope", cope = scratch / "cope";
  (void)train("--scheme rope --steps 6 --out " + rope);
  (void)done("convert " + rope + " --out " + theirs);
  (void)done("convert " + theirs + " --out " + again);
  const auto tensors = [](const std::string& file) {
    std::map<std::string, std::string> found;
    const SafetensorsFile read = read_safetensors(file);
    for (const auto& [name, tensor] : read.tensors) found[name] = bytes_of(tensor);
    return found;
  };
  CHECK(tensors(rope + "/weights.safetensors") == tensors(again + "/weights.safetensors"));
  CHECK(ran("convert " + rope + " --out " + again).code == 2);  // it holds a model
  (void)done("generate --prompt 'the cat' --tokens 8 " + again);
  std::ofstream(scratch / "read") << "the cat sat on the mat";
  (void)done("look " + again + " --causes --text " + scratch / "read");
  CHECK(has(done("look " + rope + " --causes").out, "text " + scratch / "text.txt"));  // its own
  CHECK(has(done("look " + rope + " --causes --prompt 'the cat sat'").out, "tokens 10; text the cat sat"));

  const std::string none = "--scheme none --steps 4 --warm-up 0 --weights-of ";
  const Outcome dropped = train(none + rope + " --save-every 2 --out " + drope);
  CHECK_MESSAGE(has(dropped.out, "; dropped: none; new: none"), dropped.out);
  (void)train(none + again + " --processes 2 --out " + scratch / "same");
  const Outcome added = train("--scheme cope(p_max=4) --steps 2 --weights-of " + theirs + " --out " + cope);
  CHECK_MESSAGE(has(added.out, "new: blocks.0.attention.position.table"), added.out);
  // Gone on with where the folder is no more.
  fs::rename(rope, scratch / "moved");
  (void)done("train --resume --steps 6 --out " + drope);
  CHECK(ran("train lm --dim 32 --heads 2 --layers 1 --data " + scratch / "text.txt" + " " + none + again + " --out " +
            scratch / "unfit")
            .code == 2);
  const Outcome without = train(none + cope + " --out " + scratch / "dropped");
  CHECK_MESSAGE(has(without.out, "dropped: blocks.0.attention.position.table"), without.out);
}
