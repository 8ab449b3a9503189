// All arithmetic survives a clock that does not move, a total of zero, and a first call at step zero.
#include "examples/whence/cli/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <iostream>

#include "examples/whence/cli/numbers.h"
#include "examples/whence/cli/text.h"

namespace whence {
namespace {

constexpr double plain_seconds = 10, rewriting_seconds = 0.1;  // between two lines

// Standard error's width, 80 if unknown; nothing unless it is a terminal that understands "\r".
Progress::Columns terminal_columns() {
  const char* const terminal = std::getenv("TERM");
  if (isatty(STDERR_FILENO) != 1 || !terminal || !*terminal || std::string_view(terminal) == "dumb") return {};
  return [] {
    winsize window = {};
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col > 0 ? window.ws_col : 80;
  };
}

}  // namespace

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Progress::Progress(std::string label, std::int64_t total, bool quiet, std::int64_t first_step)
    : Progress(std::move(label), total, quiet, first_step, std::cerr, terminal_columns(), steady_seconds) {}

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
  const bool first_on_terminal = columns_ && drawn_columns_ == 0;
  if (first_on_terminal || clock_() - drawn_at_ >= (columns_ ? rewriting_seconds : plain_seconds)) draw();
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

double Progress::elapsed() const { return std::max(0.0, clock_() - started_); }

// left = missing * (elapsed / done): unknown before the first step and before the clock moved
std::string Progress::left() const {
  const double done = static_cast<double>(std::max<std::int64_t>(step_ - first_step_, 0));
  const double missing = static_cast<double>(std::max<std::int64_t>(total_ - step_, 0)), seconds = elapsed();
  if (missing == 0) return time_text(0);
  return seconds > 0 && done > 0 ? time_text(missing * seconds / done) : "-";
}

// Lists the important parts first.
std::vector<std::string> Progress::parts() const {
  const double seconds = elapsed();
  std::vector<std::string> list = {label_ + ' ' + std::to_string(step_) + '/' + std::to_string(total_)};
  // Rounded down: 100 % is printed when all is done and not before.
  if (total_ > 0)
    list[0] += ' ' + fixed(std::floor(100.0 * static_cast<double>(step_) / static_cast<double>(total_)), 0) + " %";
  for (const auto& [name, value] : figures_) list.push_back(name + ' ' + (std::isnan(value) ? "nan" : digits(value)));
  list.push_back("left " + left());
  if (tokens_ > 0)
    list.push_back((seconds > 0 ? with_unit(static_cast<double>(tokens_) / seconds) : "-") + " tokens/s");
  list.push_back("elapsed " + time_text(seconds));
  return list;
}

// Keeps the parts that fit.
std::string Progress::line(std::size_t columns) const {
  std::string text;
  for (const std::string& part : parts()) {
    const std::string longer = text.empty() ? part : text + "  " + part;
    if (display_width(longer) > columns) return text.empty() ? cut_to_width(part, columns) : text;
    text = longer;
  }
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
