// Safetensors: round trips, and the errors for damaged, hostile or foreign files.
#include "nn/io/safetensors.h"

#include <sys/stat.h>
#include <algorithm>
#include <cstring>

#include "nn/io/checkpoint.h"
#include "tests/support/notes.h"
#include "tests/support/programs.h"
#include "tests/support/tensors.h"

using namespace whence;
using namespace whence::test;

namespace {

namespace fs = std::filesystem;

void write_bytes(const std::string& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }

std::string framed(std::uint64_t length, const std::string& rest) {
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes + rest;
}

std::string with_header(const std::string& json, std::size_t data = 0) {
  return framed(json.size(), json + std::string(data, '\0'));
}

std::string entry(const std::string& shape, const std::string& offsets, const std::string& dtype = "F32") {
  return R"({"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
}

std::string one(const std::string& shape, const std::string& offsets, const std::string& dtype = "F32") {
  return R"({"x":)" + entry(shape, offsets, dtype) + "}";
}

SafetensorsFile small_file() {
  return {{{"weight", Tensor::of({1, 2, 3, 4, 5, 6}, {2, 3})}, {"flag", Tensor::of({1, 0, 1}, {3}, DType::boolean)}},
      {{"made", "by hand"}}};
}

// Returns the error of reading the file, or these bytes in it; empty if it is accepted.
std::string refusal(const std::string& path) {
  return error_text<FileError>([&] { (void)read_safetensors(path); });
}

std::string refusal(const std::string& path, const std::string& bytes) {
  write_bytes(path, bytes);
  return refusal(path);
}

void refuses(const Scratch& scratch, const std::string& bytes, const char* part) {
  const std::string message = refusal(scratch / "x", bytes);
  CHECK_MESSAGE(has(message, part), bytes.substr(0, 100), ": ", message);
}

}  // namespace

TEST_CASE("safetensors: every dtype and layout comes back bit by bit, in any order the same bytes") {
  const Scratch scratch("round");
  SafetensorsFile content{{}, {{"b", "2"}, {"a", "one \"quoted\" \n"}}};
  for (const DType dtype : {DType::f16, DType::bf16, DType::f32, DType::f64, DType::i32, DType::i64, DType::boolean})
    content.tensors.emplace_back(to_text("x.", dtype), Tensor::of({0, 1, 1, 0, 1, 0}, {2, 3}, dtype));
  content.tensors.emplace_back("none", Tensor::zeros({2, 0, 3}));
  content.tensors.emplace_back("scalar", Tensor::scalar(-0.0));
  content.tensors.emplace_back(
      "special", Tensor::of({std::nan(""), std::numeric_limits<double>::infinity(), 5e-324}, {3}, DType::f64));
  content.tensors.emplace_back("transposed", raw::transpose(Tensor::of({1, 2, 3, 4, 5, 6}, {2, 3})));
  write_safetensors(scratch / "a", content);
  const SafetensorsFile back = read_safetensors(scratch / "a");
  REQUIRE(back.tensors.size() == content.tensors.size());
  CHECK(back.metadata == Metadata{{"a", "one \"quoted\" \n"}, {"b", "2"}});
  for (const auto& found : back.tensors) {
    CAPTURE(found.first);
    const auto given =
        std::ranges::find_if(content.tensors, [&](const auto& other) { return other.first == found.first; });
    REQUIRE(given != content.tensors.end());
    CHECK(same_bits(found.second, given->second));
  }
  std::reverse(content.tensors.begin(), content.tensors.end());
  write_safetensors(scratch / "b", content);
  CHECK(text_of(scratch / "a") == text_of(scratch / "b"));
}

TEST_CASE("safetensors: the layout on disk") {
  const Scratch scratch("layout");
  const std::string seal = write_safetensors(scratch / "a", small_file()), bytes = text_of(scratch / "a");
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  CHECK(length == 240);  // 236 characters of JSON
  const std::string padding(4, ' ');
  CHECK(bytes.substr(8, length) == R"({"__metadata__":{"made":"by hand","whence.seal":")" + seal +
                                       R"("},"weight":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
                                       R"("flag":{"dtype":"BOOL","shape":[3],"data_offsets":[24,27]}})" +
                                       padding);
  CHECK(bytes.size() == 8 + length + 27);
  write_safetensors(scratch / "empty", {});
  CHECK(text_of(scratch / "empty").size() == 8 + 104);
  CHECK(read_safetensors(scratch / "empty").tensors.empty());
}

TEST_CASE("safetensors cut off at any length are refused") {
  const Scratch scratch("cut");
  write_safetensors(scratch / "whole", small_file());
  const std::string bytes = text_of(scratch / "whole");
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    CAPTURE(length);
    CHECK(refusal(scratch / "cut", bytes.substr(0, length)).starts_with(scratch / "cut" + ": safetensors: "));
  }
  CHECK(refusal(scratch / "cut", bytes).empty());
  CHECK(has(refusal(scratch / "cut", bytes + "x"), "nothing after"));
}

TEST_CASE("a header length beyond the file is refused before it is allocated") {
  const Scratch scratch("length");
  const std::pair<std::string, const char*> rows[] = {{"", "0 bytes; 8 bytes"}, {framed(2, ""), "8 bytes; 8 bytes"},
      {framed(0, "{}"), "byte 0 is 0; 2"}, {framed(7, "{}"), "0 is 7 but 2"}, {framed(1, "{}"), "2 or more"},
      {framed((1ull << 63) - 1, "{}"), "at most 100000000"}, {framed(~0ull, "{}"), "byte 0 is 18446744073709551615"},
      {framed(100'000'001, "{}"), "at most 100000000"}, {framed(100'000'000, "{}"), "file cut"},
      {framed(2, "[]"), "byte 8 does"}, {framed(4, "{} x"), "its byte 4"}, {framed(3, "{\"a"), "no JSON"}};
  for (const auto& [bytes, part] : rows) refuses(scratch, bytes, part);
}

TEST_CASE("headers of another form, and dimensions that are no counts, are refused") {
  const Scratch scratch("form");
  const std::string good = entry("[1]", "[0,4]");
  CHECK(refusal(scratch / "x", with_header("{\"x\":" + good + "}", 4)).empty());
  CHECK(refusal(scratch / "x", with_header(one("[]", "[0,4]"), 4)).empty());
  for (const auto& [metadata, part] : {std::pair(R"({"a":1})", "'a' is 1"), {R"({"a":{"b":"c"}})", "field 'a'"},
           {R"([])", "'__metadata__' is"}, {R"({},"__metadata__":{})", "field '__metadata__'"}})
    refuses(scratch, with_header(to_text(R"({"__metadata__":)", metadata, "}")), part);
  const std::pair<std::string, const char*> rows[] = {{"{\"x\":" + good + ",\"x\":" + good + "}", "field 'x'"},
      {R"({"x":{"dtype":"F32","shape":[1]}})", "field 'data_offsets'"},
      {R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"more":1}})", "field 'more'"},
      {R"({"x":null})", "'x' is"}, {R"({"x":{"dtype":["F32"],"shape":[1],"data_offsets":[0,4]}})", "field 'dtype'"},
      {one("1", "[0,4]"), "field 'shape'"}, {one("[[1]]", "[0,4]"), "shape holds"},
      {one("[true]", "[0,4]"), "shape holds"}, {one("[-1]", "[0,4]"), "shape holds -1"},
      {one("[1.5]", "[0,4]"), "shape holds 1.5"},
      {one("[18446744073709551616]", "[0,4]"), "holds 1.8446744073709552e+19"},
      {one("[\"1\"]", "[0,4]"), "shape holds \"1\""}, {one("[1]", "[0]"), "another length"},
      {one("[1]", "[0,4,8]"), "data_offsets has"}, {one("[1,1,1,1,1,1,1]", "[0,4]"), "shape has"},
      {"{\"\xFF\":" + good + "}", "no JSON"}, {"{\"x\":" + good + "}" + std::string("\0garbage", 8), "header: holds"},
      {R"({"a\u0000b":)" + good + "}", "called 'a?b'"}, {R"({"../x":)" + good + "}", "called '../x'"},
      {one("[1]", "[0,4]", std::string(10'000'000, 'A')), "dtype 'AAAA"}};
  for (const auto& [json, part] : rows) refuses(scratch, with_header(json, 4), part);
  std::string deep = R"({"x":)";
  for (int i = 0; i < 1'000'000; ++i) deep += R"({"a":)";
  refuses(scratch, with_header(deep, 4), "field 'a'");
}

TEST_CASE("a header of a million names is refused in one line of 500 characters at most") {
  const Scratch scratch("bomb");
  std::string json = "{";
  for (int i = 0; i < 1'000'000; ++i) json += to_text(i ? "," : "", "\"", std::string(40, 'n'), i, "\":0");
  std::string message = refusal(scratch / "x", with_header(json + "}"));
  CHECK(has(message, "0; an object"));
  json = "{";
  for (int i = 0; i < 50'000; ++i) json += to_text(i ? "," : "", "\"", i, "\":", entry("[0]", "[0,0]"));
  write_bytes(scratch / "x", with_header(json + "}"));
  const Tensor weight = Tensor::zeros({1});
  for (const std::string& name : {std::string("w"), std::string(100'000, 'w')}) {
    Module::Parameter wanted{};
    wanted.path = name, wanted.tensor = weight;
    message = error_text<DoesNotFit>([&] { load_weights(scratch / "x", {wanted}); });
    CAPTURE(message);
    CHECK((has(message, "lacks w") && has(message, "49996 more")));
    CHECK(message.size() < 500 + scratch.folder.string().size());
  }
}

TEST_CASE("the seal is what anyone can compute, and notices every flipped bit and two swapped tensors") {
  const Scratch scratch("sealed");
  SafetensorsFile content = small_file();
  content.tensors.emplace_back("Bias", Tensor::of({6, 5, 4, 3, 2, 1}, {2, 3}));
  content.metadata.emplace("odd", "\"whence.seal\":\"\x1F");  // no seal, and a byte that is written as \u001f
  const std::string path = scratch / "whole", seal = write_safetensors(path, content), bytes = text_of(path);
  std::string without = bytes;
  CHECK(sha256(without.replace(bytes.find(seal), 64, 64, '0')) == seal);
  CHECK(read_safetensors(path).seal == seal);
  CHECK(read_safetensors(path).metadata == content.metadata);
  content.metadata.emplace("whence.seal", seal);
  CHECK_THROWS_WITH_AS(write_safetensors(path, content), doctest::Contains("metadata whence.seal"), Error);
  CHECK(text_of(path) == bytes);
  for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    const FlippedBit flipped(path, bit);
    if (refusal(path).empty()) CHECK_MESSAGE(read_safetensors(path).seal.empty(), bit);  // a bit of the seal's name
  }
  std::string swapped = bytes;
  const auto begin = swapped.end() - 51;
  std::swap_ranges(begin, begin + 24, begin + 24);
  const std::string message = refusal(scratch / "swapped", swapped);
  CHECK((message.starts_with(scratch / "swapped" + ": is damaged") && has(message, seal)));
  const Notes accepted(true);
  CHECK(read_safetensors(scratch / "swapped").tensors.size() == 3);
  REQUIRE(accepted.notes.size() == 1);
  CHECK(accepted.notes[0].starts_with(message.substr(0, message.find("; restore it"))));
  write_bytes(scratch / "cut", bytes.substr(0, bytes.size() - 1));
  CHECK_THROWS_WITH_AS((void)read_safetensors(scratch / "cut"), doctest::Contains("file cut"),
      FileError);  // no form, no numbers
}

TEST_CASE("shapes that overflow, and data that overlap or leave holes, are refused") {
  const Scratch scratch("data");
  const auto two = [](const std::string& first, const std::string& second) {
    return "{\"a\":" + first + ",\"b\":" + second + "}";
  };
  struct Row {
    std::string json;
    std::size_t data;
    const char* part;
  };
  for (const Row& row : std::vector<Row>{{one("[4294967296,4294967296]", "[0,0]"), 0, "at extent 4294967296"},
           {one("[4611686018427387904,8,0]", "[0,0]"), 0, "overflow at"},
           {one("[0,4611686018427387904,8]", "[0,0]"), 0, "overflow at"},
           {one("[18446744073709551615]", "[0,0]"), 0, "shape holds 18446744073709551615"},
           {one("[2]", "[0,4]"), 4, "has 4 bytes; 8"}, {one("[1]", "[0,4]"), 8, "4 of 8 data"},
           {one("[1]", "[4,8]"), 8, "begins at 4"}, {one("[1]", "[4,0]"), 4, "from 4 to 0"},
           {one("[1]", "[0,4]"), 0, "begin <= end <= 0"}, {one("[1]", "[0,1]", "U8"), 1, "'U8'; F16"},
           {one("[1]", "[18446744073709551612,18446744073709551615]"), 4, "data_offsets holds 18446744073709551612"},
           {two(entry("[2]", "[0,8]"), entry("[2]", "[4,12]")), 12, "begins at 4"},
           {two(entry("[1]", "[0,4]"), entry("[1]", "[0,4]")), 4, "neither hole"},
           {two(entry("[1]", "[0,4]"), entry("[1]", "[8,12]")), 12, "neither hole"}})
    refuses(scratch, with_header(row.json, row.data), row.part);
  write_bytes(scratch / "x", framed(one("[2]", "[0,2]", "BOOL").size(), one("[2]", "[0,2]", "BOOL") + "\x01\x07"));
  CHECK_THROWS_WITH_AS((void)read_safetensors(scratch / "x"), doctest::Contains("7 at element 1"), FileError);
  const std::string empties =
      "{\"b\":" + entry("[1]", "[0,4]") + ",\"a\":" + entry("[0]", "[4,4]") + ",\"c\":" + entry("[3,0]", "[0,0]") + "}";
  write_bytes(scratch / "x", with_header(empties, 4));
  CHECK(read_safetensors(scratch / "x").tensors.size() == 3);
  const std::string unaligned = "{\"a\":" + entry("[1]", "[0,1]", "BOOL") + ",\"b\":" + entry("[1]", "[1,5]") + "}";
  write_bytes(scratch / "x", framed(unaligned.size(), unaligned + std::string("\1\0\0\x80\x3F", 5)));
  CHECK(read_safetensors(scratch / "x").tensors[1].second.item() == 1);  // copied from the file's memory
}

TEST_CASE("other formats are named, and only regular files are read") {
  const Scratch scratch("foreign");
  const std::string rest(64, '\x11');
  refuses(scratch, "PK\x03\x04" + rest, "zip archive");
  refuses(scratch, "\x80\x02}q" + rest, "Python pickle");
  refuses(scratch, "GGUF" + rest, "GGUF file");
  refuses(scratch, "\x89HDF\r\n\x1a\n" + rest, "HDF5 file");
  REQUIRE(mkfifo((scratch / "pipe").c_str(), 0600) == 0);
  for (const std::string& path :
      {scratch.folder.string(), std::string("/dev/zero"), scratch / "missing", scratch / "pipe"})
    CHECK_THROWS_WITH_AS((void)read_safetensors(path), doctest::Contains(path.c_str()), SystemError);
}

TEST_CASE("a write that fails leaves the old file and nothing else") {
  const Scratch scratch("fail");
  write_safetensors(scratch / "a", small_file());
  const std::string before = text_of(scratch / "a");
  const Tensor x = Tensor::ones({2});
  for (const auto& tensors : std::vector<NamedTensors>{
           {{"x", x}, {"x", x}}, {{"__metadata__", x}}, {{"\xFF", x}}, {{"x", Tensor::zeros({1}, DType::dual)}}})
    CHECK_THROWS_AS(write_safetensors(scratch / "a", {tensors, {}}), Error);
  for (const std::string& path : {scratch / "no/such/folder", std::string("/dev/null"), scratch.folder.string()})
    CHECK_THROWS_AS(write_safetensors(path, small_file()), InputError);
  CHECK(text_of(scratch / "a") == before);
  CHECK(std::distance(fs::directory_iterator(scratch.folder), fs::directory_iterator()) == 1);
}
