// Progress of a long job: one line that rewrites itself on a terminal, and elsewhere a plain line now and then.
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

// Returns seconds of a clock that never goes back.
[[nodiscard]] double steady_seconds();

class Progress {
 public:
  using Clock = std::function<double()>;  // seconds
  using Columns = std::function<int()>;   // a terminal's width, read at each drawing because people resize windows

  // A job of `total` steps, shown on standard error, or not at all. `first_step` of them are done already (a resumed
  // run); rate and time left count from here.
  Progress(std::string label, std::int64_t total, bool quiet, std::int64_t first_step = 0);
  // The same, shown elsewhere. Without columns the output is not a terminal that understands "\r", and gets plain lines.
  Progress(std::string label, std::int64_t total, bool quiet, std::int64_t first_step, std::ostream& out,
      Columns columns, Clock clock);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // `step`: steps done in all; `tokens`: tokens since the last call; `figures`: such as {"loss", 0.3}.
  void update(std::int64_t step, std::int64_t tokens, std::vector<std::pair<std::string, double>> figures);

  // Returns "0:42", or "-" as long as nothing is known.
  [[nodiscard]] std::string left() const;

  // Prints a line above the rewriting one.
  void note(std::string_view text);

  // Prints the last state, whatever the interval, and ends the line. Later calls do nothing.
  void finish();

 private:
  [[nodiscard]] double elapsed() const;
  [[nodiscard]] std::vector<std::string> parts() const;
  [[nodiscard]] std::string line(std::size_t columns) const;
  void draw();

  std::string label_;
  std::int64_t total_, first_step_, step_, tokens_ = 0;
  std::vector<std::pair<std::string, double>> figures_;
  bool quiet_, waits_ = false;  // a state not drawn yet
  std::ostream& out_;
  Columns columns_;
  Clock clock_;
  double started_, drawn_at_;
  std::size_t drawn_columns_ = 0;  // of the line that is on the terminal
};

}  // namespace whence
