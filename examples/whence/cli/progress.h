// Progress of a long job: one line that rewrites itself on a terminal, and elsewhere a plain line now and then.
//   train 300/800 37 %  loss 0.312  left 0:42  12.3k tokens/s  elapsed 0:25
#pragma once

#include <cstdint>
#include <functional>
#include <iostream>
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
  static Columns of_terminal();           // standard error's; nothing unless it is a terminal that understands "\r"

  // A job of `total` steps, shown on `out`, or not at all. `first_step` of them are done already (a resumed run); rate
  // and time left count from here. Without columns the output gets plain lines.
  Progress(std::string label, std::int64_t total, bool quiet, std::int64_t first_step = 0,
      std::ostream& out = std::cerr, Columns columns = of_terminal(), Clock clock = steady_seconds);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // `step`: steps done in all; `tokens`: tokens since the last call; `figures`: such as {"loss", 0.3}.
  void update(std::int64_t step, std::int64_t tokens, std::vector<std::pair<std::string, double>> figures);

  // Prints a line above the rewriting one.
  void note(std::string_view text);

  // Prints the last state, whatever the interval, and ends the line. Later calls do nothing.
  void finish();

 private:
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
