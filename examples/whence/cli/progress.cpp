// All arithmetic survives a clock that does not move, a total of zero, and a first call at step zero.
#include "examples/whence/cli/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>

#include "examples/whence/cli/numbers.h"
#include "examples/whence/cli/text.h"
#include "tensor/error.h"

namespace whence {

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Progress::Columns Progress::of_terminal() {
  const char* const terminal = std::getenv("TERM");
  if (isatty(STDERR_FILENO) != 1 || !terminal || !*terminal || std::string_view(terminal) == "dumb") return {};
  return [] {
    winsize window = {};
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col > 0 ? window.ws_col : 80;
  };
}

Progress::Progress(std::string label, std::int64_t total, bool quiet, std::int64_t first_step, std::ostream& out,
    Columns columns, Clock clock)
    : label_(std::move(label)),
      total_(total),
      first_step_(first_step),
      step_(first_step),
      quiet_(quiet),
      out_(out),
      columns_(std::move(columns)),
      clock_(std::move(clock)),
      started_(clock_()),
      drawn_at_(started_) {}

// An exception may be on its way: leave the terminal at the start of a line, so that the error message gets its own.
Progress::~Progress() {
  if (drawn_columns_ > 0) out_ << '\n' << std::flush;
}

void Progress::update(std::int64_t step, std::int64_t tokens, std::vector<std::pair<std::string, double>> figures) {
  step_ = step;
  tokens_ += tokens;
  figures_ = std::move(figures);
  waits_ = true;
  const double interval = columns_ ? 0.1 : 10;
  if ((columns_ && drawn_columns_ == 0) || clock_() - drawn_at_ >= interval) draw();
}

void Progress::note(std::string_view text) {
  if (quiet_) return;
  if (drawn_columns_ > 0) {
    out_ << '\r' << std::string(drawn_columns_, ' ') << '\r';
    drawn_columns_ = 0;
    waits_ = true;  // finish() shows the last state again
  }
  out_ << message_line(text) << '\n' << std::flush;
}

void Progress::finish() {
  if (waits_) draw();
  if (drawn_columns_ > 0) out_ << '\n' << std::flush;
  drawn_columns_ = 0;
}

// Keeps the parts that fit, the important ones first.
std::string Progress::line(std::size_t columns) const {
  const double seconds = std::max(0.0, clock_() - started_), done = static_cast<double>(step_ - first_step_),
               missing = static_cast<double>(std::max<std::int64_t>(total_ - step_, 0));
  std::vector<std::string> parts = {to_text(label_, ' ', step_, '/', total_)};
  if (total_ > 0) parts[0] += to_text(' ', 100 * step_ / total_, " %");  // rounded down: 100 % when all is done
  for (const auto& [name, value] : figures_) parts.push_back(name + ' ' + (std::isnan(value) ? "nan" : digits(value)));
  const double left = missing == 0 ? 0 : seconds > 0 && done > 0 ? missing * seconds / done : -1;  // unknown before
  parts.push_back("left " + time_text(left));
  if (tokens_ > 0) parts.push_back(with_unit(static_cast<double>(tokens_) / seconds) + " tokens/s");
  parts.push_back("elapsed " + time_text(seconds));
  std::string text = cut_to_width(parts[0], columns);
  for (std::size_t k = 1; k < parts.size() && display_width(text + "  " + parts[k]) <= columns; ++k)
    text += "  " + parts[k];
  return text;
}

void Progress::draw() {
  if (quiet_) return;
  drawn_at_ = clock_();
  waits_ = false;
  if (!columns_) {
    out_ << line(1000) << '\n' << std::flush;
    return;
  }
  // The last column stays free: many terminals begin a new line once it is filled.
  const auto columns = static_cast<std::size_t>(std::max(columns_(), 2) - 1);
  const std::string text = line(columns);
  const std::size_t width = display_width(text);
  // Blanks cover the rest of the longer line before, as far as the window still reaches.
  const std::size_t covered = std::min(drawn_columns_, columns);
  out_ << '\r' << text << std::string(covered > width ? covered - width : 0, ' ') << std::flush;
  drawn_columns_ = width;
}

}  // namespace whence
