// Damaged results of a laboratory, locks of a dying one, and folders of runs.
#include <doctest/doctest.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "examples/whence/lab/axes.h"
#include "examples/whence/lab/figures.h"
#include "examples/whence/lab/plan.h"
#include "examples/whence/lab/run_mark.h"
#include "examples/whence/lab/tables.h"
#include "examples/whence/language/train_language.h"
#include "examples/whence/run/run_files.h"
#include "tests/reference.h"
#include "tests/scratch.h"
#include "tests/small_lab.h"

using namespace whence;
using test::lab, test::small_grid;

namespace {

namespace fs = std::filesystem;

// In the place of train's own check, which takes these options.
Settings as_typed(const std::vector<std::string>& words) {
  Settings values{{"accumulate", "1"}};
  for (std::size_t k = 0; k + 1 < words.size(); k += 2) values.emplace_back(words[k].substr(2), words[k + 1]);
  return values;
}

Grid planned(
    const std::string& task, const std::vector<std::string>& schemes, const std::string& set, fs::path folder) {
  return plan_grid({.task = task,
      .schemes = schemes,
      .seeds = 1,
      .axes = {},
      .settings = parse_settings("set", set),
      .folder = std::move(folder),
      .check = [task](const std::vector<std::string>& words) {
        return task == "lm" ? language::checked_options(words) : as_typed(words);
      }});
}

Machine machine(bool accept_damaged = false) {
  return {.jobs = 2, .program = test::program_folder() + "/whence", .quiet = true, .accept_damaged = accept_damaged};
}

void rewrite(const fs::path& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

// A task's grid of two runs and a text's of one, trained once; all figures that come of them.
struct Trained {
  test::Scratch scratch{"lab-damaged"};
  std::vector<Grid> grids;
  std::string figures;

  Trained() {
    std::ofstream text(scratch / "text.txt");
    for (int line = 0; line < 300; ++line) text << "line " << line * line << " of a text\n";
    text.close();
    const std::string sizes = "dim=8 layers=1 heads=2 length=8 steps=20 batch=2 log-every=5 ";
    grids.push_back(planned("flip_flop", {"alibi", "rope"}, sizes + "test-sequences=8", scratch / "task"));
    grids.push_back(planned("lm", {"rope"},
        sizes + "data=" + scratch / "text.txt" + " validation-windows=2 last=8 evaluate-to=2 evaluation-windows=2",
        scratch / "text"));
    figures = read();
  }
  // run_grids() of fresh grids: trains what is not done.
  std::string read(bool accept_damaged = false) const {
    std::vector<Grid> now = grids;
    run_grids(now, machine(accept_damaged));
    std::string all = curve_points({}, now).csv();
    for (const Grid& grid : now) {
      LongTables tables({}, grid.task == "lm");
      tables.add(Outcome(grid, ""));
      all += tables.scores.text() + tables.numbers.csv() + tables.runs.csv();
      for (const GridCell& cell : grid.cells) all += to_text(cell.processor_seconds, ' ', cell.code, '\n');
    }
    return all;
  }
  // As read(), but what it throws.
  std::string refusal() const {
    try {
      return to_text(read() == figures ? "the same figures" : "other figures");
    } catch (const InputError& error) { return error.what(); }
  }
  fs::path folder(std::size_t run) const { return run < 2 ? grids[0].cells[run].folder : grids[1].cells[0].folder; }

  // The marks as versions wrote them that had no checksums.
  void age() const {
    for (std::size_t run = 0; run < 3; ++run) {
      auto mark = nlohmann::json::parse(read_file(folder(run) / "lab_cell.json"));
      const RunMark read = read_mark(folder(run)).value();
      for (const auto& [file, hash] : read.hashes) mark.erase("SHA-256 of " + file);
      mark.erase("SHA-256");
      rewrite(folder(run) / "lab_cell.json", mark.dump() + "\n");
    }
  }
};

std::string replaced(std::string text, const std::string& what, const std::string& with) {
  const std::size_t at = text.find(what);
  return at == std::string::npos ? text : text.replace(at, what.size(), with);
}

}  // namespace

TEST_CASE("lab: one flipped bit in any file of a run is refused with the file's name") {
  const Trained trained;
  const char* wanted = std::getenv("WHENCE_PLACES");
  const int places = wanted ? std::atoi(wanted) : 150;
  std::vector<std::vector<std::string>> files;
  for (std::size_t run = 0; run < 3; ++run) {
    files.push_back({"lab_cell.json"});
    const RunMark mark = read_mark(trained.folder(run)).value();
    for (const auto& [name, hash] : mark.hashes)
      if (fs::file_size(trained.folder(run) / name) > 0) files.back().push_back(name);
    for (const char* name :
        {"run.json", "train.log", "weights.safetensors", "checkpoints/step-000020/weights.safetensors"})
      CHECK(std::ranges::count(files.back(), name) == 1);
  }
  std::mt19937_64 random(11);
  for (int place = 0; place < places; ++place) {
    const std::size_t run = static_cast<std::size_t>(place) % 3;
    const fs::path file = trained.folder(run) / files[run][random() % files[run].size()];
    const std::string whole = read_file(file);
    std::string text = whole;
    const std::size_t bit = random() % (8 * text.size());
    text[bit / 8] = static_cast<char>(text[bit / 8] ^ (1 << bit % 8));
    rewrite(file, text);
    CAPTURE(bit);
    const std::string said = trained.refusal();
    CHECK_MESSAGE(said.find(file.string() + ": ") != std::string::npos, said);
    rewrite(file, whole);
  }
  CHECK(trained.read() == trained.figures);
}

TEST_CASE("lab: checkpoints and weights of finished runs may be removed") {
  const Trained trained;
  fs::remove_all(trained.folder(1) / "checkpoints");
  fs::remove(trained.folder(1) / "weights.safetensors");
  CHECK(trained.refusal() == "the same figures");
}

TEST_CASE("lab: damaged files are refused by name, with checksums or without, and nothing is trained") {
  const Trained trained;
  struct Damage {
    const char *file, *what, *with;  // no `what`: all of it
    const char* said;                // of a version without checksums
  };
  const std::vector<Damage> damages{{"results.jsonl", "", "", "no line of test set"},
      {"results.jsonl", "", "{}\n", "no field 'test_set'"}, {"results.jsonl", "", "[1]\n", "an object required"},
      {"results.jsonl", "\"test_set\":\"dense\"", "\"test_set\":3", ": field 'test_set' of type number"},
      {"results.jsonl", "\"test_set\":\"dense\"", "\"test_set\":\"dnese\"", "no test set \"dnese\""},
      {"results.jsonl", "\"test_set\":\"dense\"", "\"test_set\":\"in distribution\"", "\"in distribution\" twice"},
      {"results.jsonl", "\"token_error_percent\":", "\"token_error_percent\":\"1\",\"x\":", "of type string"},
      {"results.jsonl", "\"token_error_percent\":", "\"token_error_percent\":-1,\"x\":", "a percentage required"},
      {"results.jsonl", "\"sequence_error_percent\":", "\"x\":", "no field 'sequence_error_percent'"},
      {"results.jsonl", "\"guess: ", "\"guess: x\":true,\"guess: ", "field 'guess: x' of type boolean"},
      {"results.jsonl", "}\n", "", "line 1: "}, {"metrics.jsonl", "", "", "no line"},
      {"metrics.jsonl", "\"step\":5", "\"step\":1e400", "line 1: "},
      {"metrics.jsonl", "\"step\":5", "\"step\":21", "1 to 20 required"},
      {"metrics.jsonl", "\"loss\":", "\"loss\":\"3\",\"x\":", "line 1: field 'loss' of type string"},
      {"metrics.jsonl", "\"seconds\":", "\"seconds\":[],\"x\":", "field 'seconds' of type array"},
      {"lab_cell.json", "", "", "empty"}, {"lab_cell.json", "", "{\"arguments\":3}", "no list of texts"},
      {"lab_cell.json", "\"done\":true", "\"done\":1", "field 'done' of type number"},
      {"lab_cell.json", "\"done\"", "\"dona\":1,\"done\"", "field \"dona\""}};
  for (const bool old : {false, true}) {
    if (old) trained.age();
    CHECK(trained.refusal() == "the same figures");
    for (const Damage& damage : damages) {
      const fs::path file = trained.folder(1) / damage.file;
      const std::string whole = read_file(file);
      rewrite(file, damage.what[0] == '\0' ? damage.with : replaced(whole, damage.what, damage.with));
      const std::string said = trained.refusal();
      CHECK_MESSAGE(said.starts_with("damaged: " + file.string() + ": "), said);
      CHECK_MESSAGE(said.find("--accept-damaged") != std::string::npos, said);
      CHECK_MESSAGE(said.find("json.exception") == std::string::npos, said);
      if (old) CHECK_MESSAGE(said.find(damage.said) != std::string::npos, said);
      rewrite(file, whole);
    }
    for (const char* name : {"results.jsonl", "metrics.jsonl"}) {  // gone; then a folder, a pipe and a link to nothing
      const fs::path file = trained.folder(2) / name, kept = trained.folder(2) / "kept";
      fs::rename(file, kept);
      for (int kind = 0; kind < 4; ++kind) {
        if (kind == 1) fs::create_directory(file);
        if (kind == 2) REQUIRE(mkfifo(file.c_str(), 0600) == 0);
        if (kind == 3) fs::create_symlink("nowhere", file);
        CHECK(trained.refusal().starts_with("damaged: " + file.string() + ": "));
        fs::remove(file);
      }
      fs::rename(kept, file);
    }
  }
  CHECK(trained.read() == trained.figures);
}

TEST_CASE("lab: a damaged mark of a run that is not done is refused too") {
  const Trained trained;
  const fs::path folder = trained.folder(0);
  auto mark = read_mark(folder).value();
  mark.done = false, mark.hashes.clear();
  write_mark(folder, mark);
  const fs::path file = folder / "lab_cell.json";
  rewrite(file, replaced(read_file(file), "\"processor_seconds\":0", "\"processor_seconds\":1"));
  CHECK(trained.refusal().starts_with("damaged: " + file.string() + ": line 1: the mark is not what its hash says"));
}

TEST_CASE("lab: --accept-damaged goes on, says which runs are not counted, and takes no figure from them") {
  std::filesystem::remove_all("accepted");
  REQUIRE(lab(small_grid, "accepted").code == 0);
  const std::string rope = read_file("accepted/rope.0/results.jsonl"), cope = "accepted/cope-p_max=8.0/lab_cell.json";
  rewrite("accepted/rope.0/results.jsonl", "");
  rewrite(cope, "");
  const test::Outcome refused = lab(small_grid, "accepted");
  CHECK(refused.code == 3);
  CHECK(std::count(refused.err.begin(), refused.err.end(), '\n') == 1);
  for (const std::string& file : {std::string("accepted/rope.0/results.jsonl"), cope})
    CHECK_MESSAGE(refused.err.find(file + ": ") != std::string::npos, refused.err);
  std::vector<std::string> accepting = small_grid;
  accepting.emplace_back("--accept-damaged");
  const test::Outcome accepted = lab(accepting, "accepted");
  CHECK(accepted.code == 0);
  CHECK(accepted.err.find("warning: accepted/rope.0 is damaged, not counted: ") != std::string::npos);
  CHECK(accepted.out.find("2 damaged, not counted, ") != std::string::npos);
  CHECK(accepted.out.find(", 1 damaged, not counted") != std::string::npos);  // behind the mean of the other seed
  CHECK(read_file("accepted/report.html").find("damaged, not counted") != std::string::npos);
  CHECK(read_file("accepted/rope.0/results.jsonl").empty());
  const auto runs = nlohmann::json::parse(read_file("accepted/lab.json"))["runs"];
  for (const auto& run : runs) {
    const bool damaged = !run["failure"].is_null();
    CHECK(damaged == (run["folder"] == "accepted/rope.0" || run["folder"] == "accepted/cope-p_max=8.0"));
    CHECK(run["results"].empty() == damaged);
  }
  std::filesystem::remove_all("accepted/cope-p_max=8.0");  // trained anew, as the refusal says
  rewrite("accepted/rope.0/results.jsonl", rope);
  CHECK(lab(small_grid, "accepted").code == 0);
}

TEST_CASE("lab: a run whose lock a dying process still holds is waited for, and taken over") {
  const test::Scratch scratch("lab-orphan");
  std::vector<Grid> grids{planned(
      "flip_flop", {"rope"}, "length=8 dim=8 layers=1 heads=2 steps=5 batch=2 test-sequences=4", scratch / "out")};
  const fs::path locks = grids[0].cells[0].folder / "checkpoints";
  fs::create_directories(locks);
  write_mark(grids[0].cells[0].folder, {.arguments = {"another"}, .code = ""});
  CHECK_THROWS_AS(run_grids(grids, machine()), DoesNotFit);
  fs::remove(grids[0].cells[0].folder / "lab_cell.json");
  CHECK_THROWS_AS(run_grids(grids, machine()), InputError);  // nobody's
  fs::remove_all(locks);
  std::vector<Grid> begun = grids;
  run_grids(begun, machine());
  fs::remove_all(grids[0].cells[0].folder / "results.jsonl");
  RunMark mark = read_mark(grids[0].cells[0].folder).value();
  mark.done = false, mark.hashes.clear();
  write_mark(grids[0].cells[0].folder, mark);
  const int lock = open((locks / "lock").c_str(), O_RDWR | O_CLOEXEC);
  REQUIRE(flock(lock, LOCK_EX | LOCK_NB) == 0);
  std::thread dying([lock] {
    usleep(700000);
    close(lock);
  });
  run_grids(grids, machine());
  dying.join();
  CHECK(grids[0].cells[0].failure == "");
  CHECK(grids[0].cells[0].scores.size() == 3);
}

TEST_CASE("lab: no two schemes have one folder, a minus sign is written out, and long names are cut") {
  const test::Scratch scratch("lab-names");
  std::string longer = "alibi";
  for (int k = 0; k < 24; ++k) longer += " + forgetting(bias=" + std::to_string(1 + k) + ".25)";
  const std::string other = replaced(longer, "bias=24", "bias=-24");
  const Grid grid = planned("flip_flop",
      {"forgetting(bias=1)", "forgetting(bias=-1)", "cdape(kerple, kernel=3) + rope", longer, other},
      "length=8 steps=1 batch=1", scratch / "out");
  std::vector<std::string> names;
  for (const GridCell& cell : grid.cells) names.push_back(cell.folder.filename());
  CHECK(names[0] == "forgetting-bias=1.0");
  CHECK(names[1] == "forgetting-bias=-1.0");
  CHECK(names[2] == "cdape-kerple,kernel=3-+rope.0");
  CHECK(names[3] != names[4]);
  CHECK((names[3].size() < 210 && names[3].starts_with("alibi+forgetting-bias=1.25-+forgetting-bias=2.25-+")));
}
