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
#include "tests/support/json.h"
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

TEST_CASE("convert: rotations that configurations stretch or thin out become schemes, and come back from us") {
  const Scratch scratch("convert-rope");
  const auto lists = [](const char* name) { return nlohmann::json{{name, {1.0, 2.5}}}; };
  nlohmann::json longrope{{"rope_type", "longrope"}, {"factor", 4.0}, {"original_max_position_embeddings", 8},
      {"partial_rotary_factor", 1.0}};
  longrope.update(lists("short_factor")), longrope.update(lists("long_factor"));
  const std::pair<nlohmann::json, std::string> rotations[] = {
      {{{"rope_type", "linear"}, {"factor", 2.0}}, "interpolated(rope(width=2), factor=2)"},
      {{{"rope_type", "proportional"}, {"partial_rotary_factor", 0.5}}, "rope(keep=0.5)"},
      {{{"rope_type", "proportional"}, {"partial_rotary_factor", 0.5}, {"factor", 3.0}},
          "interpolated(rope(keep=0.5), factor=3)"},
      {{{"type", "dynamic"}, {"factor", 3.0}, {"rope_theta", 500.0}},
          "rope(base=500, width=2, scaling=dynamic, factor=3, original=16)"},
      {{{"rope_type", "llama3"}, {"factor", 8.0}, {"low_freq_factor", 1.0}, {"high_freq_factor", 4.0}},
          "rope(width=2, scaling=llama3, factor=8, original=16, low_freq_factor=1, high_freq_factor=4)"},
      {longrope, "rope(scaling=longrope, factor=4, original=8, short_factor=1:2.5, long_factor=1:2.5)"},
      {{{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 4}},
          "yarn(factor=4, original=4, beta_fast=32, beta_slow=1, width=2)"}};
  for (const char* place : {"rope_parameters", "rope_scaling"})
    for (const auto& each : rotations) {
      const auto& rope = each.first;
      const std::string& text = each.second;
      CAPTURE(rope.dump());
      const std::string theirs = scratch / "theirs", back = scratch / "back";
      fs::create_directories(back);
      fs::copy(golden("gpt_neox"), theirs, fs::copy_options::recursive | fs::copy_options::overwrite_existing);
      auto config = json_of(text_of(theirs + "/config.json"));
      config.erase("rope_parameters"), config["rotary_pct"] = 0.5;
      config[place] = rope;
      std::ofstream(theirs + "/config.json") << config.dump();
      const ForeignModel read = read_hugging_face(theirs);
      CHECK(Transformer(read.options).scheme() == text);
      Transformer model(read.options);
      model.initialise(1);
      write_hugging_face(back, read.options, model.parameters());
      CHECK(Transformer(read_hugging_face(back).options).scheme() == text);
    }
  const auto refusal = [&](const std::string& scheme) {
    TransformerOptions options = read_hugging_face(golden("gpt_neox")).options;
    options.scheme = scheme;
    const Transformer model(options);
    return error_text([&] { write_hugging_face(scratch / "back", options, model.parameters()); });
  };
  for (const char* scheme : {"rope(scaling=ntk)", "interpolated(rope(scaling=ntk), factor=2)", "window(rope)", "alibi",
           "rope(keep=0.5, width=4)"})
    CHECK(has(refusal(scheme), "absolute, or rope (with keep over all dims of a head, or scaling=dynamic, "));
  CHECK(has(refusal("yarn(dynamic=yes)"), "dynamic=no"));
  CHECK(has(refusal("rope(layout=interleaved)"), "layout=half"));
  CHECK(has(refusal("rope(scaling=dynamic, original=7)"), "original 7 in a model of 16 tokens given"));
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
