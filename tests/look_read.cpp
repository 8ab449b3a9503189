// `whence look --read`: a text in the terminal.
#include <doctest/doctest.h>

#include <algorithm>

#include "examples/whence/cli/text.h"
#include "examples/whence/look/written.h"
#include "nn/io/safetensors.h"
#include "tests/look_subjects.h"
#include "tests/program_run.h"
#include "tests/scratch.h"

using namespace whence;
using namespace whence::look;
using namespace whence::test;

TEST_CASE("look: the text in a terminal, each token marked by what one query makes of it") {
  Subject subject = subject_with(small("cope(p_max=3)"), 7);
  subject.texts = {
      "one", " \x1b[2J", "\xE2\x80\xAE", "\xE6\xBC\xA2\xE5\xAD\x97", "\n", std::string(70, 'x'), "end\xFF"};
  Capture capture("*");
  capture.edit("blocks.1.attention.logits", [](const Tensor& logits) {
    std::vector<double> numbers(static_cast<std::size_t>(logits.numel()));
    for (std::size_t e = 0; e < numbers.size(); ++e) numbers[e] = std::log(static_cast<double>(e % 7) + 1e-3);
    return Tensor::of(numbers, logits.shape(), logits.dtype());
  });
  const Inspection inspection(subject);
  const std::string what = "pattern layer=1 head=1 i=5";
  const std::string text = text_read(inspection, what, {.columns = 40});
  // Row 5 goes up in proportion to the key: 0, 2, 4, 5, 7 and 9 of nine parts; token 6 is hidden.
  CHECK_MESSAGE(text.find("one \\x1b[2J\\u{202e}\xE6\xBC\xA2\xE5\xAD\x97\\n\n"
                          "0  2       4       5   7\n" +
                          std::string(40, 'x') + "\n9\n" + std::string(30, 'x') + "end\\xff\n9" + std::string(29, ' ') +
                          ".\n") != std::string::npos,
      text);
  CHECK(text.find("blocks.1.attention.pattern[0,1,5,all], query 5 ") != std::string::npos);
  CHECK(text.find("0 to 9 below a token: 0 to 0.3333; .: masked") != std::string::npos);
  for (const char* raw : {"\x1b", "\xE2\x80\xAE", "\xFF"}) CHECK(text.find(raw) == std::string::npos);
  std::istringstream lines(text.substr(text.find("\n\n") + 2));
  std::size_t shown = 0;
  for (std::string line; std::getline(lines, line) && !line.empty(); ++shown) CHECK(display_width(line) <= 40);
  CHECK(shown == 6);
  // The strongest first: keys 5 down to 0.
  std::vector<std::string> keys;
  for (std::string line; std::getline(lines, line);) keys.push_back(line.substr(0, 1));
  CHECK(keys == std::vector<std::string>{"j", "-", "5", "4", "3", "2", "1", "0"});

  const std::string colours = text_read(inspection, what, {.columns = 40, .colours = true});
  CHECK(colours.find("one\x1b[38;2;0;0;0;48;2;255;") != std::string::npos);  // nothing of the first token
  CHECK(colours.find("\\x1b[2J\x1b[0m") != std::string::npos);
  CHECK(colours.find("\x1b[2J") == std::string::npos);
  // Gradients have either sign: their marks are what the numbers say.
  for (const Quantity& quantity : inspection.quantities()) {
    if (quantity.path != "blocks.0.attention.position.gates") continue;
    const std::vector<double> all = quantity.gradient.to_vector();
    const std::vector<double> row(all.begin() + 49 + 35, all.begin() + 49 + 35 + 6);  // head 1, query 5
    double most = 0;
    for (const double number : row) most = std::max(most, std::abs(number));
    subject.texts.assign(7, "a");
    std::string marks;
    for (const double number : row) {
      const auto level = static_cast<int>(std::lround(9 * number / most));
      marks += level < 0 ? "abcdefghi"[-level - 1] : "0123456789"[level];
    }
    CHECK(marks.find_first_of("abcdefghi") != std::string::npos);
    const std::string gradient = text_read(inspection, "dLoss/dgates head=1 i=5", {.columns = 80});
    CHECK_MESSAGE(gradient.find("\naaaaaaa\n" + marks + ".\n") != std::string::npos, gradient);
  }
  const Subject alibi = subject_with(small("alibi"), 7);
  const Inspection plain(alibi);
  for (const auto& refusal : std::vector<std::pair<std::string, std::string>>{
           {"q head=1 i=3", "has axes b h i d; a quantity of pairs required"}, {"pattern head=1", "no i given"},
           {"pattern head=1 i=3 j=2", "j given; all of them are meant"}, {"pattern head=1 i=9", "i=9 given"},
           {"gates i=1", "'gates' in layer 0 given"}, {"dLoss/dbias head=1 i=3", "which no gradient is taken of"}}) {
    CAPTURE(refusal.first);
    const std::string refused = error_text([&] { (void)text_read(plain, refusal.first, {}); });
    CHECK_MESSAGE(refused.find("--read: ") == 0, refused);
    CHECK_MESSAGE(refused.find(refusal.second) != std::string::npos, refused);
  }
}
