// The template of a user's own program, built as by a user: in another folder, against the installed library. Its scheme,
// op and task must be in all commands, together with whence's own.

#include "tests/support/programs.h"

using namespace whence::test;

namespace {

const std::string cmake = WHENCE_CMAKE, compiler = WHENCE_COMPILER;

Outcome well(const std::string& script) {
  const Outcome outcome = shell(script);
  REQUIRE_MESSAGE(outcome.code == 0, script, ": ", outcome.out, outcome.err);
  return outcome;
}

// True if these tools are there. Otherwise the case is skipped, and says so.
bool there(const std::string& tools) {
  const bool found = shell(tools).code == 0;
  if (!found) MESSAGE("SKIPPED: not all are there: ", tools, ": no program was built");
  return found;
}

void install() { (void)well(cmake + " --install " + program_folder() + " --prefix installed --component library"); }

std::string own(const std::string& arguments) { return well("built/whence " + arguments).out; }

}  // namespace

TEST_CASE("own program: built against an installed whence it has all commands, with its own scheme, op and task") {
  const Workplace here("own_program");
  if (!there(cmake + " --version && " + compiler + " --version")) return;
  install();
  (void)well(cmake +
             " -S installed/share/whence/own_program -B built -G '" WHENCE_GENERATOR
             "' -DCMAKE_PREFIX_PATH=$PWD/installed" +
             " -DCMAKE_CXX_COMPILER=" + compiler +
             " -DCMAKE_CXX_FLAGS='-Wall -Wextra -Wshadow -Wconversion -Wpedantic -Werror' && " + cmake +
             " --build built --parallel 2");
  CHECK(own("--help") == done("--help").out);
  CHECK(count(well("built/checks").out, " checks: ok\n") == 4);
  CHECK(has(own("schemes levelling"), "A_ij = S_ij - c_h softsign(r_h |i - j|)"));
  CHECK(has(shell("built/whence schemes leveling").err, "did you mean 'levelling'?"));
  CHECK(has(own("tasks"), "last_letter"));
  CHECK(has(own("gradcheck softsign 'levelling(rate=2) + rope'"), "\nok\n"));
  CHECK(has(own("conformance levelling --quiet"), ", 0 failed"));
  CHECK(has(own("probe --describe 'dape(levelling)'"), "rate"));

  const std::string trained = own("train last_letter --scheme levelling --steps 150 --out run --quiet");
  CHECK(has(trained, "written: run/"));
  CHECK_FALSE(has(trained, "no better than the best guess"));
  CHECK(has(own("look run --causes"), "position.bias"));
  (void)own("look run");
  CHECK(has(text_of("run/look.html"), "\"scheme_name\":\"levelling\""));
  (void)own("train flip_flop --scheme 'cope + levelling' --length 8 --dim 8 --layers 1 --heads 2 --steps 1 --quiet");
  CHECK(has(shell("sed -i 's/\"last_letter\",/\"flip_flop\",/' installed/share/whence/own_program/task.cpp && " +
                  cmake + " --build built --target whence && built/whence tasks")
                .err,
      "task 'flip_flop'"));
  CHECK(has(shell(program_folder() + "/whence look run").err, "task: 'last_letter' given"));
}

TEST_CASE("own program: a few lines of CMake link whence, fetched or installed") {
  const Workplace here("own_program_by_cmake");
  if (!there(cmake + " --version && " + compiler + " --version")) return;
  const auto built = [&](const std::string& folder, const std::string& found_by, const std::string& library) {
    (void)well("mkdir " + folder + " && cat >" + folder + "/CMakeLists.txt <<END\n" +
               "cmake_minimum_required(VERSION 3.22)\nproject(mine LANGUAGES CXX)\n" + found_by + "\n" +
               "add_executable(mine " + source_folder() + "/examples/minimal.cpp)\n" +
               "target_link_libraries(mine PRIVATE " + library + ")\nEND\n" + cmake + " -S " + folder + " -B " +
               folder + "/build -G '" WHENCE_GENERATOR "' -DCMAKE_CXX_COMPILER=" + compiler +
               " -DCMAKE_PREFIX_PATH=$PWD/installed && " + cmake + " --build " + folder + "/build --parallel 2");
    return well(folder + "/build/mine").out;
  };
  install();
  CHECK(has(built("package", "find_package(whence REQUIRED)", "whence::whence"), "\nstep 200  loss 0.0"));
  // The package may be used on another machine than the one that built it.
  CHECK(shell(R"(grep -rnE '["; ]/[a-z]' installed/lib*/cmake installed/lib*/*/cmake)").out == "");

  const std::string fetched = built("fetched",
      "include(FetchContent)\nFetchContent_Declare(whence SOURCE_DIR " + source_folder() +
          ")\nFetchContent_MakeAvailable(whence)",
      "whence::core");
  CHECK(has(fetched, "\nstep 200  loss 0.0"));
  CHECK(has(well("cat fetched/build/CMakeCache.txt").out, "CMAKE_BUILD_TYPE:STRING=\n"));  // theirs: none
  const std::string targets = "\n" + well(cmake + " --build fetched/build --target help").out;
  for (const char* name : {"minimal", "first", "language", "whence", "playground", "whence_tests"})
    CHECK_MESSAGE(!has(targets, std::string("\n") + name + ": "), name);
}

TEST_CASE("own program: each installed header of the program compiles alone, and pkg-config links all commands") {
  const Workplace here("own_program_by_pkg_config");
  if (!there("pkg-config --version && " + compiler + " --version")) return;
  install();
  (void)well(
      "export PKG_CONFIG_PATH=$(dirname $(find $PWD/installed -name whence-program.pc))\n"
      "cd installed/include/whence && for header in $(find examples -name '*.h'); do echo \"#include "
      "\\\"$header\\\"\"; done >all.cpp\n" +
      compiler + " -fsyntax-only all.cpp $(pkg-config --cflags whence-program)\n" + "cd - && " + compiler +
      " installed/share/whence/own_program/main.cpp -o program $(pkg-config --cflags --libs whence-program)");
  CHECK(well("./program --help").out == done("--help").out);
}

// README.md's line of g++, as printed, in a tree with sources and build folder.
TEST_CASE("own program: the README's line compiles examples/first.cpp against the build folder, with no installation") {
  const Workplace here("first_by_pkg_config");
  if (!there("pkg-config --version && g++ --version")) return;
  const auto lines = all_matches(text_of(source_folder() + "/README.md"), R"(^g\+\+ examples/first\.cpp .*$)");
  REQUIRE(lines.size() == 1);
  (void)well("mkdir build && ln -s " + source_folder() + "/examples . && ln -s " + program_folder() + " build/release");
  CHECK(well(lines[0][0]).out == well(program_folder() + "/examples/first").out);
}
