// The README's first program: it is the one in examples/, and it learns.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <regex>

#include "tests/program_run.h"
#include "tests/scratch.h"

using namespace whence::test;

TEST_CASE("the README prints examples/minimal.cpp, which is short") {
  const std::string program = text_of(source_folder() + "/examples/minimal.cpp");
  CHECK(text_of(source_folder() + "/README.md").find("```cpp\n" + program + "```\n") != std::string::npos);
  CHECK(std::count(program.begin(), program.end(), '\n') <= 40);
}

TEST_CASE("the smallest program: the loss falls, and a gate has a gradient") {
  const Scratch scratch("minimal");
  REQUIRE(std::system((program_folder() + "/examples/minimal >" + (scratch / "out")).c_str()) == 0);
  const std::string out = text_of(scratch / "out");
  std::vector<double> losses;
  const std::regex step(R"(step \d+  loss (\S+))"), number(R"(-?\d+(\.\d+)?(e-?\d+)?)");
  for (auto match = std::sregex_iterator(out.begin(), out.end(), step); match != std::sregex_iterator(); ++match)
    losses.push_back(std::stod((*match)[1]));
  REQUIRE(losses.size() == 4);
  CHECK(std::is_sorted(losses.rbegin(), losses.rend()));
  CHECK(losses.back() < 0.1);
  const auto shape = out.find("tensor f32 [1,8,8] cpu\n");
  REQUIRE(shape != std::string::npos);
  const std::string numbers = out.substr(out.find('\n', shape));
  double largest = 0;
  for (auto match = std::sregex_iterator(numbers.begin(), numbers.end(), number); match != std::sregex_iterator();
       ++match)
    largest = std::max(largest, std::abs(std::stod((*match)[0])));
  CHECK(largest > 0);
}
