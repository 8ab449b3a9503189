// How far a long job is: one line that rewrites itself on a terminal, and elsewhere a plain line now and then.
//   train 300/800 37 %  loss 0.312  left 0:42  12.3k tokens/s  elapsed 0:25
#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace whence {

// Seconds on a clock that never goes back.
[[nodiscard]] double steady_seconds();

struct ProgressStyle {
  bool quiet = false;                 // print nothing at all
  bool rewriting = false;             // a terminal that understands "\r"
  std::function<int()> columns = {};  // width of that terminal, asked at each drawing because people resize windows
  double plain_interval = 10;         // seconds between plain lines
  double rewrite_interval = 0.1;      // seconds between rewritings

  // What suits standard error as it is now: TERM=dumb and anything that is no terminal get plain lines. Colours and
  // escape sequences are never written, so NO_COLOR needs no care.
  static ProgressStyle for_standard_error(bool quiet);
};

class Progress {
 public:
  using Clock = std::function<double()>;  // seconds

  // A job of `total` steps. `first_step` of them are done already (a resumed run); rate and time left count from here.
  Progress(std::string label, std::int64_t total, std::int64_t first_step, ProgressStyle style, std::ostream& out,
      Clock clock = steady_seconds);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // `step` steps are done in all; `tokens` more tokens were seen since the last call; `figures` such as {"loss", 0.3}.
  void update(std::int64_t step, std::int64_t tokens, std::vector<std::pair<std::string, double>> figures);

  // "0:42", or "-" as long as nothing is known.
  [[nodiscard]] std::string left() const;

  // A line of its own, above the rewriting one.
  void note(std::string_view text);

  // Prints the last state, whatever the interval, and ends the line. Called once; later calls do nothing.
  void finish();

 private:
  [[nodiscard]] std::string left_after(double elapsed) const;
  [[nodiscard]] std::vector<std::string> parts(double elapsed) const;
  [[nodiscard]] std::string line(double elapsed, std::size_t columns) const;
  void draw(double now);
  void erase();

  std::string label_;
  std::int64_t total_, first_step_, step_, tokens_ = 0;
  std::vector<std::pair<std::string, double>> figures_;
  ProgressStyle style_;
  std::ostream& out_;
  Clock clock_;
  double started_, drawn_at_;
  std::size_t drawn_columns_ = 0;  // of the line that now stands on the terminal
  bool updated_ = false, drawn_ = false, finished_ = false;
};

}  // namespace whence
