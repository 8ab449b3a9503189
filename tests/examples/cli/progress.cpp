// Output of programs: progress lines with a test clock, tables, CSV, JSON lines, output folders.
#include "examples/whence/cli/progress.h"
#include "examples/whence/cli/json_lines.h"
#include "examples/whence/cli/numbers.h"

#include <limits>
#include <sstream>

#include "examples/whence/cli/json.h"
#include "examples/whence/cli/text.h"
#include "examples/whence/report/table.h"
#include "examples/whence/run/run_files.h"
#include "nn/io/files.h"
#include "tensor/error.h"
#include "tests/support/json.h"

using namespace whence;
using test::Scratch;
namespace fs = std::filesystem;

namespace {

constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

// A job whose clock only moves on request.
struct Job {
  double now = 1000;
  std::ostringstream out;
  Progress progress;
  explicit Job(Progress::Columns columns = {}, std::int64_t total = 100, std::int64_t first = 0, bool quiet = false)
      : progress("train", total, quiet, first, out, std::move(columns), [this] { return now; }) {}

  void at(double seconds, std::int64_t step, double loss = 0.5) {
    now = 1000 + seconds;
    progress.update(step, 1000, {{"loss", loss}});
  }
};

Progress::Columns terminal(int columns) {
  return [columns] { return columns; };
}

}  // namespace

TEST_CASE("progress: plain lines at most every ten seconds, and the last state") {
  Job job;
  job.at(1, 10);
  job.at(9.9, 20);
  CHECK(job.out.str().empty());
  job.at(10, 25);
  CHECK(job.out.str() == "train 25/100 25 %  loss 0.5  left 0:30  300 tokens/s  elapsed 0:10\n");
  job.at(15, 50);
  job.at(25, 100, 0.0123456);
  job.progress.finish();
  job.progress.finish();
  CHECK(test::count(job.out.str(), "\n") == 2);
  CHECK(test::has(job.out.str(), "100/100 100 %  loss 0.01235"));
  Job resumed({}, 100, 50);
  resumed.at(10, 60);  // 10 steps in 10 s, 40 to go
  CHECK(test::has(resumed.out.str(), "left 0:40  100"));
}

TEST_CASE("progress: a terminal line rewrites itself, covers the longer one before and keeps the width") {
  Job job(terminal(80));
  job.at(1, 1, 0.123456);
  job.at(1.05, 2);  // too soon
  job.at(2, 2, 0.5);
  job.progress.finish();
  CHECK(job.out.str() ==
        "\rtrain 1/100 1 %  loss 0.1235  left 1:39  1.00k tokens/s  elapsed 0:01"
        "\rtrain 2/100 2 %  loss 0.5  left 1:38  1.50k tokens/s  elapsed 0:02   \n");
  for (const int columns : {0, 1, 2, 10, 20, 40, 60}) {
    Job narrow(terminal(columns));
    narrow.at(1, 1);
    CHECK(display_width(narrow.out.str().substr(1)) < static_cast<std::size_t>(std::max(columns, 2)));
  }
}

TEST_CASE("progress: a note gets its own line and the last state comes back; quiet prints nothing") {
  Job job(terminal(30));
  job.at(1, 1);
  job.progress.note("saved");
  job.progress.finish();
  CHECK(test::has(job.out.str(), "\rsaved\n\rtrain 1/100"));
  Job quiet(terminal(80), 100, 0, true);
  quiet.at(20, 1);
  quiet.progress.note("saved");
  quiet.progress.finish();
  CHECK(quiet.out.str().empty());
}

TEST_CASE("durations and rates") {
  for (const auto& [seconds, text] : std::vector<std::pair<double, const char*>>{{0, "0:00"}, {59.6, "1:00"},
           {3661, "1:01:01"}, {200000, "2d 07:33:20"}, {-1, "-"}, {not_a_number, "-"}, {1e300, "-"}})
    CHECK(time_text(seconds) == text);
  for (const auto& [rate, text] : std::vector<std::pair<double, const char*>>{{0, "0.00"}, {12.34, "12.3"},
           {999.6, "1.00k"}, {123456, "123k"}, {4.56e6, "4.56M"}, {std::numeric_limits<double>::infinity(), "-"}})
    CHECK(with_unit(rate) == text);
  CHECK(with_unit(1e30).ends_with("T"));
}

TEST_CASE("table: numbers to the right, widths by characters") {
  Table table({"scheme", "error %", "note"});
  table.row({"CoPE", "0.00", "a, \"b\""}).row({"Größe", "23.20", "日本"}).row({"none", "-", ""});
  CHECK(table.text() ==
        "scheme  error %  note\n"
        "------  -------  ------\n"
        "CoPE       0.00  a, \"b\"\n"
        "Größe     23.20  日本\n"
        "none          -\n");
  CHECK_THROWS_WITH_AS(table.row({"x"}), doctest::Contains("1 cells given; 3"), Error);
  CHECK(fixed(2.345678, 2) == "2.35");
  CHECK(fixed(-not_a_number, 2) == "-");
  CHECK(fixed(1e300, 3).size() == 305);
}

TEST_CASE("widths: combining, wide, and broken UTF-8") {
  CHECK(display_width("e\xCC\x81") == 1);
  CHECK(display_width("日本") == 4);
  CHECK(display_width("\xFF\xC3") == 2);
  CHECK(cut_to_width("日本", 3) == "日");
  CHECK(cut_to_width("abc", 0).empty());
}

TEST_CASE("JSONL log: cut back to a step, it keeps lines without one; the last line alone may be no JSON") {
  const Scratch folder("progress");
  const std::string log = folder / "log.jsonl", fine = "{\"step\":1}\n{\"event\": \"no step\"}\n";
  write_file(log, fine + "{\"step\":3}\nnoise\n");
  truncate_jsonl_after(log, 2);
  CHECK(read_file(log) == fine);
  write_file(log, "{\"step\":1}\nnoise\n{\"step\":2}\n");
  CHECK_THROWS_WITH_AS(truncate_jsonl_after(log, 9), doctest::Contains("line 2"), InputError);
  CHECK(read_file(log) == "{\"step\":1}\nnoise\n{\"step\":2}\n");
  const JsonLog fresh(log, JsonLog::Mode::fresh);
  fresh.append({{"step", std::int64_t{1}}});
  CHECK(read_file(log) == "{\"step\":1}\n");  // nothing of the log before; flushed while open
}

TEST_CASE("output folder: created, tried, or refused") {
  const Scratch folder("progress");
  const fs::path deep = folder.folder / "a" / "b";
  ensure_output_folder(deep);
  ensure_output_folder(deep);
  CHECK(fs::is_empty(deep));
  write_file(folder / "file", "x");
  for (const fs::path& refused :
      {folder.folder / "file/out", folder.folder / "file", fs::path(), fs::path("/proc/whence")})
    CHECK_THROWS_AS(ensure_output_folder(refused), InputError);
}
