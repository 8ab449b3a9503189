// Damaged and changed files, by reader: refused in one line, or left out with a message.
#include <functional>
#include <regex>

#include "nn/io/safetensors.h"
#include "tensor/raw.h"
#include "tests/examples/cli/refused.h"
#include "tests/support/json.h"

using namespace whence;
using namespace whence::test;

namespace {

using Change = std::function<std::string(const std::string&)>;  // changes a file's bytes

Change all(const std::string& bytes) {
  return [=](const std::string&) { return bytes; };
}
Change cut(std::size_t left) {
  return [=](const std::string& bytes) { return bytes.substr(0, left); };
}
Change with_more(const std::string& end) {
  return [=](const std::string& bytes) { return bytes + end; };
}
Change last_bit_flipped() {
  return [](std::string bytes) {
    bytes.back() = static_cast<char>(bytes.back() ^ 1);
    return bytes;
  };
}
Change replaced(const std::string& what, const std::string& by) {
  return [=](std::string bytes) {
    const std::size_t at = bytes.find(what);
    REQUIRE_MESSAGE(at != std::string::npos, what);
    return bytes.replace(at, what.size(), by);
  };
}
Change json(const std::string& pointer, const nlohmann::json& value) {
  return [=](const std::string& bytes) {
    auto changed = json_of(bytes);
    changed[nlohmann::json::json_pointer(pointer)] = value;
    return changed.dump();
  };
}
Change both_schemes(const std::string& scheme) {
  return [=](const std::string& bytes) {
    return json("/facts/model.scheme", scheme)(json("/options/scheme", scheme)(bytes));
  };
}
// Changes an option in a run.json, also in the list of given options.
Change option(const std::string& name, const std::string& value) {
  return [=](const std::string& bytes) {
    auto changed = json_of(bytes);
    changed["options"][name] = value, changed["given"].push_back(name);
    return changed.dump();
  };
}
Change safetensors(const std::function<void(SafetensorsFile&)>& change) {
  return [=](const std::string& bytes) {
    write_file("changed", bytes);
    SafetensorsFile file = read_safetensors("changed");
    change(file);
    write_safetensors("changed", file);
    const std::string changed = text_of("changed");
    std::filesystem::remove("changed");
    return changed;
  };
}
Change without(const std::string& name) {
  return safetensors([=](SafetensorsFile& file) {
    REQUIRE(std::erase_if(file.tensors, [&](const auto& tensor) { return tensor.first == name; }) == 1);
  });
}
Change with(const std::string& name, const Tensor& tensor) {
  return safetensors([=](SafetensorsFile& file) {
    std::erase_if(file.tensors, [&](const auto& each) { return each.first == name; });
    file.tensors.emplace_back(name, tensor);
  });
}
Tensor ones(const Shape& shape, DType dtype = DType::f64) { return Tensor::ones(shape, dtype); }

void prepare() {
  const std::string tiny = " --dim 8 --layers 1 --heads 2 --batch 2 --quiet";
  std::string text, questions;
  for (int line = 0; line < 900; ++line) text += "the cat number " + std::to_string(line) + " sat\n\n\n\n";
  for (const char* file : {"text", "test"}) write_file(file, text);
  for (const char* answer : {"a", "b", "c", "d", "e", "f"})
    questions += std::string(R"({"question": "which", "answer": ")") + answer + "\"}\n";
  write_file("questions.jsonl", questions);
  // A run whose newest checkpoint is before its end.
  (void)done("train flip_flop --scheme cope --length 16 --test-sequences 2 --steps 6 --save-every 4 --out run" + tiny);
  std::filesystem::remove_all("run/checkpoints/step-000006");
  write_file("run/metrics.jsonl", "");
  (void)done(
      "train lm --scheme rope --data text --test-data test --length 16 --steps 2 --evaluate-to 1 --out lm" + tiny);
  (void)done("train questions.jsonl --steps 2 --out task" + tiny);
  const Tensor four = ones({2, 2, 5, 4}), heads = ones({2, 7, 4}, DType::f32);
  write_safetensors("in", {{{"q", four}, {"k", four}, {"v", four}, {"cotangent", four}, {"table", ones({4, 4})}}, {}});
  write_safetensors("drawn", {{{"q", four}, {"k", four}, {"v", four}}, {}});
  write_safetensors("qkv", {{{"q", heads}, {"k", heads}, {"v", heads}}, {}});
}

// A file, its change, its reader, and the refusal as in cli/refused.h, which names the file unless it begins with "...".
struct Damage {
  std::string file;
  Change change;
  std::string reader;
  int code;
  std::string says;
};

std::vector<Damage> damages() {
  const std::string look = "look run --numbers", step = look + " --step 4", resume = "train --resume --out run",
                    draw = "generate lm --tokens 1", one = "{\"question\": \"which\", \"answer\": \"g\"}\n",
                    probe = "probe --out out --scheme cope(p_max=3) --in in",
                    given = "look cope --out page.html --given qkv", weights = "run/weights.safetensors",
                    record = "run/run.json", text = "lm/run.json",
                    old = "run/checkpoints/step-000004/weights.safetensors",
                    table = "blocks.0.attention.position.table";
  return {
      {weights, cut(20), look, 3, "0 is 1744 but 12"},
      {weights, with(table, ones({3})), look, 7, "checkpoint: does not fit: " + table + " is f64 [3]"},
      {weights, with(table, Tensor::full({65, 4}, std::nan(""), DType::f32)), look, 3,
          table + " holds NaN or infinity"},
      {record, all("[1, 2]"), look, 3, "no record"},
      {record, replaced("\"version\": \"", "\"version\": \"9"), look, 3, "of version 90.1.0"},
      {record, replaced("\"dim\": 8", "\"dim\": 9"), look, 3, "its SHA-256"},
      {text, replaced("\"model.scheme\": \"rope", "\"model.scheme\": \"vope"), draw, 3, "scheme 'vope':"},
      {record, json("/options/dim", -8), look, 3, "--dim: -8 given"},
      {record, json("/options/dim", 1536), look, 3, "dim 1536 has"},
      {old, last_bit_flipped(), step, 3, "its SHA-256"},
      {old, last_bit_flipped(), resume, 3, "its SHA-256"},
      // run.json: what can be continued
      {record, json("/data", std::string(64, '0')), resume, 7, "...same data"},
      {record, option("out", "elsewhere"), resume, 3, "given: \"out\""},
      {record, option("scheme", "--out=elsewhere"), resume, 3, "scheme '--out=elsewhere':"},
      // data that are others now
      {"text", with_more("more"), "train --resume --out lm", 7, "...have SHA-256"},
      {text, both_schemes("absolute(rows=300000000)"), "train --resume --out lm", 7, "...dim 8 has"},
      {"test", with_more("more"), "train --resume --out lm", 7, "...have SHA-256"},
      {"questions.jsonl", with_more(one), "train --resume --out task --steps 4", 7, "...same"},
      // models to draw from, and of others
      {"lm/weights.safetensors", last_bit_flipped(), draw, 3, "its SHA-256"},
      {"in", without("k"), probe, 3, "[2,2,5,4]; there: \"cotangent\""},
      {"drawn", [](const std::string& bytes) { return bytes; },
          "probe --out out --scheme relative(rows=1000000000) --in drawn", 3, "missing: table [1000000000,4];"},
      {"in", with("tabel", ones({4, 4})), probe, 3, "tensor \"tabel\""},
      {"in", with("q", ones({2, 5, 8})), probe, 3, "tensor q: [2,5,8]"},
      {"in", with("k", ones({2, 2, 6, 4})), probe, 3, "k: [2,2,6,4] given; [2,2,5,4]"},
      {"in", with("q", ones({2, 2, 5, 4}, DType::i64)), probe, 3, "q: i64"},
      {"in", with("mask", ones({1, 1, 5, 5})), probe, 3, "mask: f64"},
      {"in", with("present", ones({5}, DType::boolean)), probe, 3, "present: [5] given; [2,5]"},
      {"in", with("present", Tensor::of({1, 1, 1, 1, 1, 1, 0, 1, 1, 1}, {2, 5}, DType::boolean)), probe, 3,
          "1 of sequence 1"},
      {"drawn", with("positions", ones({4})), "probe --out out --scheme rope --in drawn", 3, "[4] given; [5] or [2,5]"},
      {"drawn", with("drawn", Tensor::of({0, 2, 2, 6, 50}, {5}, DType::f64)),
          "probe --out out --scheme randomised(rope,length=64) --in drawn", 3, "tensor drawn: 2"},
      {"drawn", with("mask", ones({1, 2, 5, 5}, DType::boolean)),
          "probe --out out --init 1 --scheme cdape(alibi) --in drawn", 3, "[1,2,5,5] given; [1,1,5,5] or [2,1,5,5]"},
      {"qkv", with("k", ones({2, 6, 4}, DType::f32)), given, 3, "k is [1,2,6,4]"},
      {"qkv", with("v", Tensor::full({2, 7, 4}, INFINITY, DType::f32)), given, 3, "v holds"},
      {"qkv", with("k", Tensor::full({2, 7, 4}, 1e200, DType::f64)), given, 3, "as f32"},
  };
}

}  // namespace

TEST_CASE("damaged: a file that is cut, changed or of another run is refused by its name, and none becomes an option") {
  const Workplace here("damaged");
  prepare();
  for (const Damage& row : damages()) {
    CAPTURE(row.file);
    const bool there = std::filesystem::exists(row.file);
    const std::string whole = text_of(row.file);
    // A run.json that its owner changed has no seal.
    const bool unsealed = row.file.ends_with("run.json") && !row.says.starts_with("its SHA-256");
    write_file(
        row.file, row.change(unsealed ? std::regex_replace(whole, std::regex(",\n  \"seal\": \"\\w*\""), "") : whole));
    const bool named = !row.says.starts_with("...");
    const std::string error = check_refused({row.reader, row.code, row.says.substr(named ? 0 : 3)});
    if (named) CHECK_MESSAGE(has(error, row.file + ": "), error);
    if (there)
      write_file(row.file, whole);
    else
      std::filesystem::remove(row.file);
  }
}
