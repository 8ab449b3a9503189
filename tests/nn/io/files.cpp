// Files: what the system refuses is said and leaves the old file; only files of ours are written to; hashes.
#include "nn/io/files.h"
#include "examples/whence/cli/json_lines.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <thread>

#include "examples/whence/cli/output_file.h"
#include "examples/whence/run/run_files.h"
#include "examples/whence/run/tensorboard.h"
#include "nn/io/safetensors.h"
#include "nn/io/sha256.h"
#include "tests/support/programs.h"
#include "tests/support/tensors.h"

namespace {

// The call that is to fail, for this thread, with the error: the n-th of that name from now on. 0: none.
struct Fault {
  const char* call = "";
  int countdown = 0, error = 0;
};
thread_local constinit Fault fault;
thread_local std::string renamed_last;  // by this thread: the name before

bool fails(const char* call) {
  if (fault.countdown == 0 || std::strcmp(fault.call, call) != 0 || --fault.countdown > 0) return false;
  errno = fault.error;
  return true;
}

}  // namespace

// What our own objects call in place of the C library's (--wrap of the linker, tests/CMakeLists.txt); others' code keeps
// its own.
extern "C" {
ssize_t __real_write(int descriptor, const void* bytes, std::size_t size);
int __real_fsync(int descriptor);
int __real_rename(const char* from, const char* to);
int __real_close(int descriptor);

ssize_t __wrap_write(int descriptor, const void* bytes, std::size_t size);
int __wrap_fsync(int descriptor);
int __wrap_rename(const char* from, const char* to);
int __wrap_close(int descriptor);

ssize_t __wrap_write(int descriptor, const void* bytes, std::size_t size) {
  return fails("write") ? -1 : __real_write(descriptor, bytes, size);
}
int __wrap_fsync(int descriptor) { return fails("fsync") ? -1 : __real_fsync(descriptor); }
int __wrap_rename(const char* from, const char* to) {
  renamed_last = from;
  return fails("rename") ? -1 : __real_rename(from, to);
}
int __wrap_close(int descriptor) {
  const int closed = __real_close(descriptor);
  return fails("close") ? -1 : closed;
}
}

namespace whence {
namespace {

namespace fs = std::filesystem;
using test::Scratch;

template <class Kind> std::string refusal(const std::function<void()>& work) {
  try {
    work();
  } catch (const Kind& problem) { return problem.what(); }
  return "";
}

std::size_t entries(const Scratch& scratch) {
  return static_cast<std::size_t>(std::distance(fs::directory_iterator(scratch.folder), fs::directory_iterator()));
}

}  // namespace

TEST_CASE("what the system refuses names the file and the reason, leaves the old file and no temporary one") {
  const Scratch scratch("refused");
  const std::string path = scratch / "file";
  const Tensor numbers = Tensor::ones({3});
  const std::pair<const char*, std::function<void()>> writers[] = {
      {"text", [&] { write_file(path, "new"); }}, {"tensors", [&] {
                                                     write_safetensors(path, {{{"x", numbers}}});
                                                   }}};
  for (const auto& writer : writers) {
    for (const Fault wanted :
        {Fault{"write", 1, ENOSPC}, Fault{"write", 1, EIO}, Fault{"fsync", 1, EIO}, Fault{"fsync", 1, ENOSPC},
            Fault{"close", 1, EIO}, Fault{"close", 1, ENOSPC}, Fault{"rename", 1, EIO}, Fault{"rename", 1, ENOSPC}}) {
      CAPTURE(writer.first);
      CAPTURE(wanted.call);
      write_file(path, "old");
      fault = wanted;
      const std::string message = refusal<SystemError>(writer.second);
      CHECK(fault.countdown == 0);
      fault = {};
      CHECK(message.starts_with(path + ": cannot "));
      CHECK(message.ends_with(std::strerror(wanted.error)));
      CHECK(read_file(path) == "old");
      CHECK(entries(scratch) == 1);
    }
  }
  fault = {"write", 1, EINTR};
  write_file(path, "whole");
  CHECK(read_file(path) == "whole");
  fault = {"fsync", 2, EIO};  // of the folder: the new file is there
  CHECK(refusal<SystemError>(writers[0].second).find("cannot sync") != std::string::npos);
  CHECK(read_file(path) == "new");
}

TEST_CASE("a log is written to a file of ours alone: no link is followed, no pipe waited for") {
  const Scratch scratch("log");
  const fs::path log = scratch / "metrics.jsonl";
  write_file(scratch / "precious", "precious");
  const auto refused = [&](const char* reason) {
    for (const JsonLog::Mode mode : {JsonLog::Mode::fresh, JsonLog::Mode::append}) {
      const std::string message = refusal<SystemError>([&] { JsonLog(log, mode).append({{"step", std::int64_t{1}}}); });
      CAPTURE(message);
      CHECK(message.find(log.string() + ": cannot write: ") == 0);
      CHECK(message.find(reason) != std::string::npos);
    }
    fs::remove(log);
  };
  REQUIRE(mkfifo(log.c_str(), 0600) == 0);
  refused("not a regular file");
  REQUIRE(mkfifo(log.c_str(), 0600) == 0);
  const int reader = ::open(log.c_str(), O_RDONLY | O_NONBLOCK);
  refused("not a regular file");
  ::close(reader);
  fs::create_symlink(scratch / "precious", log);
  refused("not a regular file");
  fs::create_hard_link(scratch / "precious", log);
  refused("with one name");
  fs::create_directory(log);
  refused("Is a directory");
  fs::remove(log);
  CHECK(read_file(scratch / "precious") == "precious");
  // TensorBoard's file, whose name has the second in it
  const auto now =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch());
  for (std::int64_t second = now.count(); second < now.count() + 20; ++second)
    fs::create_symlink(
        scratch / "precious", scratch / to_text("events.out.tfevents.", second, ".whence.", getpid(), ".1"));
  CHECK(
      refusal<SystemError>([&] { TensorBoardLog(scratch.folder, 1); }).find("not a regular file") != std::string::npos);
  CHECK(read_file(scratch / "precious") == "precious");
}

TEST_CASE("a temporary name that is taken is not written through") {
  const Scratch scratch("taken");
  write_file(scratch / "precious", "precious");
  const auto next_name = [] {
    const std::size_t dash = renamed_last.rfind('-') + 1;
    return renamed_last.substr(0, dash) + std::to_string(std::stoul(renamed_last.substr(dash)) + 1);
  };
  write_file(scratch / "file", "old");
  fs::create_hard_link(scratch / "precious", next_name());
  write_file(scratch / "file", "new");
  fs::create_symlink(scratch / "precious", next_name());
  write_file(scratch / "file", "newer");
  CHECK(read_file(scratch / "precious") == "precious");
  CHECK(read_file(scratch / "file") == "newer");
}

TEST_CASE("threads that write one file leave the whole of what one of them wrote, and nothing else") {
  const Scratch scratch("threads");
  const std::string path = scratch / "file";
  std::atomic<int> failed = 0;
  const auto write_often = [&](char letter) {
    try {
      for (int k = 0; k < 50; ++k) write_file(path, std::string(1 << 16, letter));
    } catch (const SystemError&) { ++failed; }
  };
  { const std::jthread a(write_often, 'a'), b(write_often, 'b'); }
  CHECK(failed == 0);
  const std::string text = read_file(path);
  CHECK(text == std::string(1 << 16, text.at(0)));
  CHECK(entries(scratch) == 1);
}

TEST_CASE("temporary files of dead processes are swept, and nothing else") {
  const Scratch scratch("sweep");
  const pid_t dead = fork();
  if (dead == 0) _exit(0);
  REQUIRE(waitpid(dead, nullptr, 0) == dead);
  const pid_t ours = ::getpid(), living = ::getppid();
  std::vector<std::string> kept, swept;
  for (const auto& [stem, count] : {std::pair("best.safetensors.tmp-", "-0"), std::pair("run.json.tmp-", "-17"),
           std::pair(".written-by-1.tmp-", "-0"), std::pair(".written-by-", "")}) {
    swept.push_back(to_text(stem, dead, count)), swept.push_back(to_text(stem, ours, count));
    for (const std::string& end : {to_text(living), to_text(1), to_text(0, dead), to_text(dead, 'x'), to_text(-1),
             std::string(), std::string("99999999999")})
      kept.push_back(stem + end + count);
  }
  kept.push_back(to_text(".tmp-", dead, "-0")), kept.push_back(to_text("written-by-", dead));
  kept.push_back(to_text("a.tmp-", dead)), kept.push_back(to_text("a.tmp-", dead, "-x"));
  for (const auto& names : {kept, swept})
    for (const std::string& name : names) write_file(scratch / name, "");
  kept.push_back(to_text("folder.tmp-", dead, "-0")), fs::create_directory(scratch / kept.back());
  kept.push_back(to_text("link.tmp-", dead, "-0")), fs::create_symlink("folder", scratch / kept.back());
  remove_leftovers(scratch.folder.string());
  for (const std::string& name : swept) CHECK_FALSE(fs::exists(fs::symlink_status(scratch / name)));
  for (const std::string& name : kept) CHECK_MESSAGE(fs::exists(fs::symlink_status(scratch / name)), name);
}

TEST_CASE("names with blanks, line ends and 255 bytes are written, or refused by the system") {
  const Scratch scratch("names");
  for (const std::string& name : {std::string("a b"), std::string("a\nb"), std::string("naïve"), std::string("-")}) {
    write_file(scratch / name, name);
    CHECK(read_file(scratch / name) == name);
  }
  CHECK(refusal<SystemError>([&] { write_file(scratch / std::string(255, 'n'), "x"); }).find("File name too long") !=
        std::string::npos);
  CHECK(entries(scratch) == 4);
}

TEST_CASE("JSON with a NUL, nested deeper than anyone writes, or with a field twice is refused") {
  const auto message = [](const std::string& text) {
    return refusal<FileError>([&] { (void)Json::read(text, "a.json"); });
  };
  const auto nested = [](std::size_t lists) {
    return R"({"a":)" + std::string(lists, '[') + std::string(lists, ']') + "}";
  };
  for (const std::string& fine : {std::string("{}"), std::string(R"({"a": "[[[[ \" {{{{ \\"})"), nested(63)})
    CHECK(message(fine).empty());
  CHECK(message(std::string("{}\0garbage", 10)) ==
        "a.json: holds a NUL at byte 2; JSON text required; is the file damaged?");
  CHECK(message(nested(64)).find("nests deeper than 64 levels") != std::string::npos);
  for (const char* opening : {"{\"a\":[", "{\"a\":"}) {
    std::string deep;
    for (int i = 0; i < 100'000; ++i) deep += opening;
    CHECK(message(deep).find("nests deeper than 64 levels") != std::string::npos);
  }
  CHECK(message(R"({"a":{"b":1,"b":2}})") == "a.json: a: field 'b' given twice; once required");
  CHECK(message(R"({"a":[0,{"b":1,"b":2}]})") == "a.json: a 1: field 'b' given twice; once required");
  CHECK(message("[1]") == "a.json: no object; a JSON object required");
  CHECK(message("") == "a.json: no JSON, from its byte 1 on; one whole object required");
  CHECK(message(R"({"a":1e999})") == "a.json: a number beyond what a computer's numbers hold, at byte 10");
}

TEST_CASE("JSON is read strictly: what is missing or something else is refused with its place and name") {
  const Json page = Json::read(
      R"({"t":"x","n":3,"x":0.5,"no":null,"yes":true,"l":["a","b"],"m":[1,null],"o":{"n":7},"all":[{"k":1},{}],"big":18446744073709551615})",
      "a.json");
  CHECK(page.text("t") == "x");
  CHECK(page.whole("n", 1, 3) == 3);
  CHECK(page.number("n") == 3);
  CHECK(page.number("x") == 0.5);
  CHECK(std::isnan(page.number("no")));
  CHECK(page.truth("yes"));
  CHECK(page.texts("l") == std::vector<std::string>{"a", "b"});
  CHECK(page.numbers("m")[0] == 1);
  CHECK(page.object("o").whole("n") == 7);
  CHECK(page.objects("all")[0].whole("k") == 1);
  CHECK(page.number("big") == 18446744073709551615.0);
  const std::pair<std::function<void()>, const char*> refusals[] = {
      {[&] { (void)page.text("u"); }, "a.json: no field 'u'; a text of that name required"},
      {[&] { (void)page.text("n"); }, "a.json: field 'n' is a whole number; a text required"},
      {[&] { (void)page.whole("x"); }, "a.json: field 'x' is a number; a whole number required"},
      {[&] { (void)page.whole("big"); }, "a.json: field 'big' is a whole number beyond 2^63; a whole number required"},
      {[&] { (void)page.whole("n", 4, 9); }, "a.json: field 'n' is 3; 4 to 9 required"},
      {[&] { (void)page.number("t"); }, "a.json: field 't' is a text; a number required"},
      {[&] { (void)page.truth("no"); }, "a.json: field 'no' is null; true or false required"},
      {[&] { (void)page.texts("m"); }, "a.json: field 'm' is a list; a list of texts required"},
      {[&] { (void)page.objects("l"); }, "a.json: field 'l' is a list; a list of objects required"},
      {[&] { (void)page.object("o").text("n"); }, "a.json: o: field 'n' is a whole number; a text required"},
      {[&] { (void)page.objects("all")[1].whole("k"); },
          "a.json: all 1: no field 'k'; a whole number of that name required"}};
  for (const auto& [reads, message] : refusals) CHECK(refusal<FileError>(reads) == message);
}

TEST_CASE("JSON is written byte for byte as the library prints it: odd strings, numbers, and nesting") {
  using nlohmann::ordered_json;
  using Handler = ordered_json::error_handler_t;
  std::vector<std::string> texts{"", "a\"b\\c/", "n\u00e9e", "\xF0\x9F\x8E\xB2", "\xEF\xBF\xBF", "\x7F",
      std::string("\0\x01\x1F", 3), "\xFF", "a\xC3", "\xC3(", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xC0\xAF",
      "\xE2\x28\xA1", "line\nend\r\t\b\f", std::string(600, '\xE9')};
  for (int byte = 0; byte < 256; ++byte) texts.push_back(std::string("x") + static_cast<char>(byte) + "y");
  const std::vector<double> numbers{0, -0.0, 1, -1, 0.1, 1e15, 1e16, 123456789012345680.0, 1e-5, 5e-324,
      1.7976931348623157e308, 3e-4, 2.5, 1.0 / 3, std::numeric_limits<double>::quiet_NaN(),
      std::numeric_limits<double>::infinity()};
  ordered_json library = ordered_json::object(), library_list = ordered_json::array();
  Json ours;
  Json::List list;
  const auto add = [&](const auto& value) {
    const std::string name = std::to_string(list.size());
    library[name] = value, library_list.push_back(value);
    ours.add(name, value), list.push_back(value);
  };
  for (const std::string& text : texts) add(text);
  for (const double number : numbers) add(number);
  for (const bool truth : {true, false}) add(truth);
  for (const std::int64_t whole : {INT64_MIN, std::int64_t{-1}, INT64_MAX}) add(whole);
  add(UINT64_MAX);
  library["none"] = ordered_json::object(), ours.add("none", Json::Fields());
  library["no list"] = ordered_json::array(), ours.add("no list", Json::List());
  library["list"] = library_list, ours.add("list", list);
  library["inner"] = ordered_json(library), ours.add("inner", Json(ours));
  CHECK(ours.line() == library.dump(-1, ' ', false, Handler::replace));
  CHECK(ours.line(Json::Utf8::escaped) == library.dump(-1, ' ', true, Handler::replace));
  for (const int blanks : {1, 2})
    CHECK(ours.page(static_cast<std::size_t>(blanks)) == library.dump(blanks, ' ', false, Handler::replace));
  CHECK_THROWS_WITH_AS(
      (void)Json(std::string("\xFF")).line(Json::Utf8::refused), doctest::Contains("UTF-8 required"), InputError);
}

TEST_CASE("SHA-256: the standard's examples, however the bytes come") {
  CHECK(sha256("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(sha256("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(sha256(std::string(1000000, 'a')) == "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  std::string text;
  for (std::size_t size = 0; size < 400; ++size, text += static_cast<char>(size * 37)) {
    Sha256 in_parts;
    in_parts.add(text.substr(0, size / 3)), in_parts.add(text.substr(size / 3));
    CHECK(in_parts.hexadecimal() == sha256(text));
  }
  CHECK(is_sha256(sha256(text)));
  for (const std::string& other :
      {std::string(), std::string(63, 'a'), std::string(65, 'a'), std::string(64, 'g'), std::string(64, 'A')})
    CHECK_FALSE(is_sha256(other));
}

}  // namespace whence
