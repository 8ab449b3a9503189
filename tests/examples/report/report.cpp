// Pages: no text can break out of its place.
#include "examples/whence/report/encode.h"
#include "examples/whence/report/table.h"
#include "tests/support/programs.h"

using namespace whence;
using namespace whence::report;
using test::count, test::has;

TEST_CASE("report: hostile text stays text, and nothing refers to the outside") {
  const std::string evil = "</script><script>alert(1)</script><!-- & \"quoted\" 'single' \xFF\xFE";
  const std::string table = Table({evil, evil}).row({evil, evil}).html();
  const std::string text = document(evil, "", table, "<script>" + safe_in_script("\"" + evil + "\"") + "</script>");
  CHECK((count(text, "<script") == 1 && count(text, "</script") == 1));
  CHECK(has(text, "default-src 'none'"));
  for (const char* part : {"<!--", "http://", "https://", "//cdn", " src=", " href=", "@import", "url(", "fetch("})
    CHECK_FALSE_MESSAGE(has(text, part), part);
}

TEST_CASE("report: escape and base64") {
  CHECK(escape("<a href=\"x\">'&'</a>") == "&lt;a href=&quot;x&quot;&gt;&#39;&amp;&#39;&lt;/a&gt;");
  CHECK(escape("\xC3\xA9 \xE6\x97\xA5") == "\xC3\xA9 \xE6\x97\xA5");
  CHECK(escape("a\xC3") == "a\xEF\xBF\xBD");    // a cut sequence
  CHECK(escape("\x01\n") == "\xEF\xBF\xBD\n");  // a control character
  const std::vector<std::pair<std::string, std::string>> rfc4648 = {{"", ""}, {"f", "Zg=="}, {"fo", "Zm8="},
      {"foo", "Zm9v"}, {"foob", "Zm9vYg=="}, {"fooba", "Zm9vYmE="}, {"foobar", "Zm9vYmFy"}};
  for (const auto& [plain, coded] : rfc4648)
    CHECK(base64(std::vector<std::uint8_t>(plain.begin(), plain.end())) == coded);
}
