// Options of programs: reading, refusals and their words, exit codes, interrupts.
#include "examples/whence/cli/fields.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <filesystem>
#include <iostream>
#include <limits>
#include <new>
#include <sstream>

#include "examples/whence/cli/numbers.h"
#include "examples/whence/cli/run_main.h"
#include "examples/whence/cli/text.h"
#include "nn/io/files.h"
#include "tests/support/has.h"

using namespace whence;

namespace {

struct Sample {
  int layers = 4;
  std::uint64_t seed = 0;
  double lr = 0.0003;
  std::string scheme = "cope", out, targets = "clean";
  bool quiet = false;
  CommandLine line{"flip_flop", "trains a decoder on the flip-flop task"};

  Sample() {
    line.heading("Model")
        .integer("layers", &layers, {1, 64}, {"blocks of the decoder", "blocks", "choose at least one layer"})
        .text("scheme", &scheme, {"positional scheme"})
        .heading("Training")
        .number("lr", &lr, {0, 10, true}, {"learning rate at its highest"})
        .integer<std::uint64_t>("seed", &seed, {}, {"of every random number"})
        .choice("targets", &targets, {"clean", "all"}, {"where the loss is taken"})
        .text("out", &out, {"folder for the results"})
        .flag("quiet", &quiet, {"no progress line"})
        .example("flip_flop --scheme rope --out runs/rope", "trains RoPE");
  }

  std::optional<std::string> parse(const std::vector<std::string>& words) { return line.parse(words); }
};

// Returns the error for the arguments, or "accepted".
std::string refusal(const std::vector<std::string>& arguments) {
  Sample sample;
  try {
    (void)sample.parse(arguments);
  } catch (const InputError& error) { return error.what(); }
  return "accepted";
}

struct Outcome {
  int code;
  std::string message;
};

Outcome outcome(const std::function<int()>& body) {
  std::ostringstream caught;
  std::streambuf* const before = std::cerr.rdbuf(caught.rdbuf());
  const int code = run_main("flip_flop", body);
  std::cerr.rdbuf(before);
  return {code, caught.str()};
}

// Returns the end of a child process that runs this and exits with its result.
int status_of_child(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}

}  // namespace

TEST_CASE("command line: values are read and the defaults stay") {
  Sample sample;
  REQUIRE_FALSE(sample.parse(
      {"--layers", "2", "--lr=1e-3", "--quiet", "--targets", "all", "--seed", "18446744073709551615", "--out=--help"}));
  CHECK(sample.layers == 2);
  CHECK(sample.lr == 1e-3);
  CHECK(sample.quiet);
  CHECK(sample.targets == "all");
  CHECK(sample.seed == std::numeric_limits<std::uint64_t>::max());
  CHECK(sample.scheme == "cope");
  CHECK(sample.out == "--help");
  CHECK(sample.line.given("layers"));
  CHECK_FALSE(sample.line.given("scheme"));
  CHECK(sample.line.values()[2] == std::pair<std::string, std::string>("lr", "0.001"));
}

TEST_CASE("what is refused: the option, what was given and what is required are named") {
  CHECK(refusal({"--layers", "0"}) == "--layers: 0 given; 1 to 64 required; choose at least one layer");
  CHECK(
      refusal({"--targets", "clear"}) == "--targets: \"clear\" given; one of clean, all required; did you mean clean?");
  const std::pair<std::vector<std::string>, const char*> rows[] = {{{"--layers", "3abc"}, "--layers: \"3abc\""},
      {{"--lr", "nan"}, "--lr: \"nan\""}, {{"--lr", "0"}, "--lr: 0 given"}, {{"--seed", "-1"}, "--seed: \"-1\""},
      {{"--targets", "x;y;z"}, "--targets: \"x;y;z\""}, {{"--layer", "3"}, "mean --layers?"},
      {{"--lyaers=3"}, "mean --layers?"}, {{"--zzzzzz"}, "--zzzzzz: unknown"}, {{"-x"}, "-x: unknown"},
      {{"--layers", "2", "--layers", "2"}, "--layers: given twice"}, {{"--quiet", "--quiet"}, "--quiet: given twice"},
      {{"--quiet=no"}, "--quiet: \"no\""}, {{"train"}, "\"train\": given"}, {{"--", "train"}, "\"train\": given"},
      {{"--out"}, "--out: no value"}, {{"--out", "--quiet"}, "before --quiet"}, {{"--scheme", ""}, "--scheme: \"\""}};
  for (const auto& [given, part] : rows) CHECK_MESSAGE(test::has(refusal(given), part), part);
}

TEST_CASE("numbers are read strictly") {
  for (const char* bad : {"", " 3", "3 ", "+3", "0x10", "1e3", "3.0", "99999999999999999999", "--3", "3,4", "٣"})
    CHECK_MESSAGE(refusal({"--layers=" + std::string(bad)}) != "accepted", bad);
  for (const char* bad : {"inf", "-inf", "NaN", "1e999", "1e-999", "0x1p3", "1..2", "1e", ".", "1_000", "1,5"})
    CHECK_MESSAGE(refusal({"--lr=" + std::string(bad)}) != "accepted", bad);
  CHECK(parse_number<double>("-2.5e-3") == -2.5e-3);
  CHECK((exact(0.0003) == "0.0003" && exact(1e-8) == "1e-08"));
  CHECK(parse_number<double>(exact(0.1 + 0.2)) == 0.1 + 0.2);
  CHECK((parse_number<int>("-7") == -7 && !parse_number<int>("2147483648")));
  CHECK(parse_number<std::int64_t>("2147483648") == 2147483648);
}

TEST_CASE("command line: a refusal stays on one line") {
  CHECK(refusal({"--layers", "1\n2\x1b[31m"}).find_first_of("\n\x1b") == std::string::npos);
  CHECK(refusal({"--a\nb"}).find('\n') == std::string::npos);
  CHECK(refusal({std::string(100000, 'x')}).size() < 300);
}

TEST_CASE("a useless option is refused, and only when it was given") {
  Sample given, absent;
  REQUIRE_FALSE(given.parse({"--scheme", "rope"}));
  REQUIRE_FALSE(absent.parse({}));
  CHECK_NOTHROW(absent.line.refuse_unless("scheme", false, "--layers above 0"));
  CHECK_NOTHROW(given.line.refuse_unless("scheme", true, "--layers above 0"));
  CHECK_THROWS_WITH_AS(given.line.refuse_unless("scheme", false, "--layers above 0"),
      "--scheme: rope given; it has no effect without --layers above 0; leave it out", InputError);
}

TEST_CASE("help states defaults, ranges, units and examples") {
  Sample sample;
  const auto page = sample.parse({"--help", "--layers", "0"});
  REQUIRE(page);
  CHECK(*page == sample.line.help());
  CHECK(page->starts_with(R"(flip_flop: trains a decoder on the flip-flop task

Usage: flip_flop [options]

Model:
  --layers N            blocks of the decoder (1 to 64 blocks; default 4)
  --scheme TEXT         positional scheme (default cope)

Training:
  --lr X                learning rate at its highest (above 0 and at most 10;
                        default 0.0003)
  --seed N              of every random number (at least 0; default 0)
  --targets NAME        where the loss is taken (clean, all; default clean)
  --out TEXT            folder for the results (no default)
  --quiet               no progress line (default off)

About:
)"));
  test::says(
      *page, {"\nExamples:\n  flip_flop --scheme rope --out runs/rope\n      trains RoPE\n", "\nExit codes: 0 done, "});
  CHECK(Sample().parse({"-h"}) == page);
  CHECK(Sample().parse({"--version"}) == "flip_flop " WHENCE_VERSION "\n");
}

TEST_CASE("run_main: one line and the right exit code") {
  CHECK(outcome([] { return 0; }).code == 0);
  CHECK(outcome([]() -> int { throw InputError("--layers: 0"); }).message == "flip_flop: --layers: 0\n");
  CHECK(outcome([]() -> int { throw Error("a\nb"); }).message == "flip_flop: a\\nb\n");
  CHECK(outcome([]() -> int { throw 3; }).code == 1);
  const auto code = [](auto thrown) { return outcome([&]() -> int { throw thrown; }).code; };
  CHECK((code(Error("x")) == 1 && code(std::logic_error("x")) == 1));
  CHECK(code(InputError("x")) == 2);
  CHECK(code(FileError("x")) == 3);
  CHECK((code(SystemError("x")) == 4 && code(std::filesystem::filesystem_error("x", std::error_code())) == 4));
  CHECK((code(OutOfMemory("x", {})) == 5 && code(std::bad_alloc()) == 5));
  CHECK(code(NotFinite("x")) == 6);
  CHECK(code(DoesNotFit("x")) == 7);
  CHECK(code(Interrupted("interrupted: saved at step 3")) == 130);
}

TEST_CASE("run_main: a closed pipe is quiet; a full disk and a file beyond its limit are errors, never a signal") {
  const auto print_to = [](const std::function<int()>& open_output, int result = 0) {
    const int status = status_of_child([&] {
      dup2(open_output(), STDOUT_FILENO);
      std::fclose(stderr);
      return outcome([result] {
        for (int i = 0; i < 20000; ++i) std::cout << "a line of results\n";
        return result;
      }).code;
    });
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  };
  const auto broken_pipe = [] {
    int ends[2] = {};
    if (pipe(ends) != 0) return -1;
    close(ends[0]);
    return ends[1];
  };
  CHECK(print_to(broken_pipe) == 0);
  for (const int result : {0, 1}) CHECK(print_to([] { return fileno(std::fopen("/dev/full", "w")); }, result) == 4);
  // `ulimit -f`: its signal would end the program silently.
  CHECK(print_to([] {
    const rlimit limit = {4096, 4096};
    setrlimit(RLIMIT_FSIZE, &limit);
    return fileno(std::tmpfile());
  }) == 4);
  CHECK(print_to([] { return fileno(std::fopen("/dev/null", "w")); }) == 0);
}

TEST_CASE("run_main: no file takes the number of a standard stream that is closed") {
  CHECK(status_of_child([] {
    for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) close(descriptor);
    return run_main("flip_flop", [] {
      std::cout << "a line of results\n";
      return open("/dev/null", O_WRONLY) > STDERR_FILENO ? 0 : 9;
    });
  }) == 0);
}

TEST_CASE("text of others cannot act on a terminal: written out, on one line, at most 500 characters of an error") {
  struct Case {
    const char *given, *line;
  };
  for (const Case& each : {Case{"a\x1b[2J\a\r", "a\\x1b[2J\\x07\\x0d"}, Case{"\x7f\n\t", "\\x7f\\n\\t"},
           Case{"\x9b\x31m", "\\x9b1m"}, Case{"\xc2\x9b", "\\u{9b}"}, Case{"\xe2\x80\xae", "\\u{202e}"},
           Case{"\xe2\x81\xa6", "\\u{2066}"}, Case{"\xe2\x80\x8f", "\\u{200f}"}, Case{"\xe2\x80\xa8", "\\u{2028}"},
           Case{"\xff\xc3", "\\xff\\xc3"}, Case{"h\u00e4ll \u732b", "h\u00e4ll \u732b"}})
    CHECK(one_line(each.given) == each.line);
  CHECK(terminal_text("a\tb\nc\x1b\n") == "a\tb\nc\\x1b\n");

  const std::string all(std::size_t{10} << 20, 'x'),
      message = outcome([&]() -> int { throw FileError("front ", all, " end"); }).message;
  CHECK(message.starts_with("flip_flop: front"));
  CHECK(message.ends_with("xx end\n"));
  CHECK(message.size() == 500);
  CHECK(message.find("xx...xx") != std::string::npos);
  std::string wide;
  for (int k = 0; k < 600; ++k) wide += "\u732b";
  CHECK(message_line(wide).size() == 3 * 248 * 2 + 3);
  CHECK(message_line(wide.substr(0, 1500)) == wide.substr(0, 1500));
}
