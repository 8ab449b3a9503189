// `whence look` on runs that are damaged or of another version.
#include <doctest/doctest.h>

#include <fstream>

#include "nn/io/safetensors.h"
#include "tensor/error.h"
#include "tests/examples/look/subjects.h"

using namespace whence;
using namespace whence::look;
using namespace whence::test;

TEST_CASE("look: a run that is damaged or of another version is refused with the reason, and nothing is written") {
  namespace fs = std::filesystem;
  const Scratch scratch("damaged");
  const fs::path run = scratch / "run", weights = run / "weights.safetensors", record = run / "run.json",
                 old = run / "checkpoints/step-000002/weights.safetensors";
  train_flip_flop(run, "--steps 4");
  const auto write = [](const fs::path& file, const std::string& bytes) {
    std::ofstream(file, std::ios::binary | std::ios::trunc) << bytes;
  };
  const auto replaced = [](std::string text, const std::string& what, const std::string& by) {
    const std::size_t at = text.find(what);
    REQUIRE(at != std::string::npos);
    return text.replace(at, what.size(), by);
  };
  const auto files = [&] {
    std::map<std::string, std::string> all;
    for (const auto& entry : fs::recursive_directory_iterator(run))
      if (entry.is_regular_file()) all[entry.path()] = text_of(entry.path());
    return all;
  };
  const std::string whole = text_of(weights), said = text_of(record);
  const SafetensorsFile content = read_safetensors(weights), then = read_safetensors(old);
  const auto changed = [&](SafetensorsFile other, const std::function<void(SafetensorsFile&)>& change) {
    change(other);
    const std::string place = scratch / "other";
    write_safetensors(place, other);
    return text_of(place);
  };
  const auto with = [&](const std::function<void(SafetensorsFile&)>& change) { return changed(content, change); };
  const std::string first = content.tensors[0].first;
  struct Damage {
    fs::path file;
    std::string bytes, reason;
    std::vector<std::string> arguments = {};
  };
  const std::vector<std::string> step{"--step", "2"};
  for (const Damage& damage : std::vector<Damage>{{weights, "", "0 bytes; 8 bytes of header length"},
           {weights, whole.substr(0, whole.size() - 5), "safetensors"},
           {weights, whole.substr(0, 20), "is the file cut off?"},
           {weights, replaced(whole, "{\"", "{\xFF"), "safetensors"},
           {weights, replaced(whole, "F32", "F99"), "safetensors"},
           {weights, std::string(8, '\xFF') + whole.substr(8), "header length at byte 0"},
           {weights, replaced(whole, "data_offsets\":[", "data_offsets\":[9"), "safetensors"},
           {weights, with([](SafetensorsFile& file) { file.tensors[0].second = Tensor::ones({3}); }),
               first + " is f32 [3]"},
           {weights, with([](SafetensorsFile& file) { file.tensors.erase(file.tensors.begin()); }), "lacks " + first},
           {weights, with([](SafetensorsFile& file) { file.tensors.emplace_back("more", Tensor::ones({3})); }),
               "has more [3]"},
           {weights, with([](SafetensorsFile& file) {
              file.tensors[0].second = Tensor::full(file.tensors[0].second.shape(), std::nan(""));
            }),
               first + " holds NaN or infinity"},
           {record, "", "no record of a run"}, {record, said.substr(0, said.size() / 2), "no record of a run"},
           {record, "[1, 2]", "no record of a run"},
           {record, replaced(said, "\"version\": \"", "\"version\": \"9"), "is of version 90.1.0"},
           {record, replaced(said, "flip_flop", "flop_flip"), "flop_flip"},
           {record, replaced(said, "\"dim\": 8", "\"dim\": -8"), "--dim: -8 given"},
           {record, replaced(said, "\"dim\": 8", "\"dim\": 16"), "does not fit"},
           {record, replaced(said, "\"dim\": 8", "\"dim\": 1536"), "a model of 1 layers of dim 1536 has at least "},
           {record, replaced(said, "\"scheme\": \"cope\"", "\"scheme\": \"hope\""), "hope"},
           {record, replaced(said, "\"heads\": 2", "\"heads\": 3"), "3"},
           {old, changed(then, [](SafetensorsFile& file) { file.metadata["whence.format"] = "9"; }),
               "this build reads format", step},
           {old, whole.substr(0, 100), "safetensors", step},
           {old, replaced(text_of(old), "whence.seed\":\"0", "whence.seed\":\"1"), "is damaged: its SHA-256 is ", step},
           {old, whole, "lacks metadata whence.format", step}}) {
    CAPTURE(damage.file.string());
    CAPTURE(damage.reason);
    const std::string before = text_of(damage.file);
    REQUIRE(before != damage.bytes);
    write(damage.file, damage.bytes);
    const auto kept = files();
    for (const std::vector<std::string>& kind : {std::vector<std::string>{"--numbers"}, {"--causes"}}) {
      std::vector<std::string> arguments{run};
      for (const auto* more : {&damage.arguments, &kind}) arguments.insert(arguments.end(), more->begin(), more->end());
      const Outcome refused = look_at(scratch, arguments);
      const auto says = [&](const char* words) { return refused.err.find(words) != std::string::npos; };
      const bool misfit = says("does not fit") || says("this build reads");
      CHECK(refused.code == (misfit ? 7 : 3));
      CHECK_MESSAGE(refused.err.find(damage.reason) != std::string::npos, refused.err);
      const bool named = refused.err.find(damage.file.string()) != std::string::npos ||
                         refused.err.find(damage.file.parent_path().string() + ": ") != std::string::npos ||
                         (damage.file == record && refused.err.find(weights.string()) != std::string::npos);
      CHECK_MESSAGE(named, refused.err);
      CHECK(std::ranges::count(refused.err, '\n') == (says("warning: ") ? 2 : 1));  // NaN is warned of, and not drawn
      CHECK(refused.out.empty());
      CHECK(files() == kept);
    }
    write(damage.file, before);
  }
  CHECK(look_at(scratch, {run, "--causes"}).code == 0);
  CHECK(look_at(scratch, {run, "--causes", "--step", "2"}).code == 0);
}
