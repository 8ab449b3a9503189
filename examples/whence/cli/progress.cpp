// All arithmetic survives a clock that stands still, a total of zero, and a first call at step zero.
#include "examples/whence/cli/progress.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <ostream>

#include "examples/whence/cli/numbers.h"
#include "examples/whence/cli/terminal.h"
#include "examples/whence/cli/text.h"

namespace whence {
double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

ProgressStyle ProgressStyle::for_standard_error(bool quiet) {
  ProgressStyle style;
  style.quiet = quiet;
  style.rewriting = on_terminal(STDERR_FILENO);
  style.columns = [] { return terminal_columns(STDERR_FILENO); };
  return style;
}

Progress::Progress(
    std::string label, std::int64_t total, std::int64_t first_step, ProgressStyle style, std::ostream& out, Clock clock)
    : label_(std::move(label)),
      total_(total),
      first_step_(first_step),
      step_(first_step),
      style_(std::move(style)),
      out_(out),
      clock_(std::move(clock)),
      started_(clock_()),
      drawn_at_(started_) {}

// An exception may pass by: leave the terminal at the start of a line, so that the error message gets its own.
Progress::~Progress() {
  if (drawn_columns_ > 0) out_ << '\n' << std::flush;
}

void Progress::update(std::int64_t step, std::int64_t tokens, std::vector<std::pair<std::string, double>> figures) {
  step_ = step;
  tokens_ += tokens;
  figures_ = std::move(figures);
  updated_ = true;
  drawn_ = false;
  const double now = clock_();
  const double interval = style_.rewriting ? style_.rewrite_interval : style_.plain_interval;
  const bool first_on_terminal = style_.rewriting && drawn_columns_ == 0;
  if (first_on_terminal || now - drawn_at_ >= interval) draw(now);
}

void Progress::note(std::string_view text) {
  if (style_.quiet) return;
  erase();
  out_ << message_line(text) << '\n' << std::flush;
}

void Progress::finish() {
  if (finished_) return;
  finished_ = true;
  if (updated_ && !drawn_) draw(clock_());
  if (drawn_columns_ > 0) out_ << '\n' << std::flush;
  drawn_columns_ = 0;
}

std::string Progress::left() const { return left_after(std::max(0.0, clock_() - started_)); }

std::string Progress::left_after(double elapsed) const {
  const double done = static_cast<double>(std::max<std::int64_t>(step_ - first_step_, 0));
  const double missing = static_cast<double>(std::max<std::int64_t>(total_ - step_, 0));
  // left = missing * (elapsed / done): nothing is known before the first step and before the clock moved
  const bool rate_known = elapsed > 0 && done > 0;
  return missing == 0 ? time_text(0) : rate_known ? time_text(missing * elapsed / done) : "-";
}

std::vector<std::string> Progress::parts(double elapsed) const {
  std::string head = label_ + ' ' + std::to_string(step_) + '/' + std::to_string(total_);
  // Rounded down: 100 % is printed when all is done and not before.
  if (total_ > 0)
    head += ' ' + fixed(std::floor(100.0 * static_cast<double>(step_) / static_cast<double>(total_)), 0) + " %";
  std::vector<std::string> list = {std::move(head)};
  for (const auto& [name, value] : figures_) list.push_back(name + ' ' + (std::isnan(value) ? "nan" : digits(value)));
  list.push_back("left " + left_after(elapsed));
  if (tokens_ > 0)
    list.push_back((elapsed > 0 ? with_unit(static_cast<double>(tokens_) / elapsed) : "-") + " tokens/s");
  list.push_back("elapsed " + time_text(elapsed));
  return list;
}

// The parts that fit, the important ones first.
std::string Progress::line(double elapsed, std::size_t columns) const {
  std::string text;
  for (const std::string& part : parts(elapsed)) {
    const std::string longer = text.empty() ? part : text + "  " + part;
    if (display_width(longer) > columns) return text.empty() ? cut_to_width(part, columns) : text;
    text = longer;
  }
  return text;
}

void Progress::draw(double now) {
  if (style_.quiet) return;
  const double elapsed = std::max(0.0, now - started_);
  drawn_at_ = now;
  drawn_ = true;
  if (!style_.rewriting) {
    out_ << line(elapsed, 1000) << '\n' << std::flush;
    return;
  }
  // The last column stays free: many terminals begin a new line once it is filled.
  const int columns = std::max(style_.columns ? style_.columns() : 80, 2);
  const std::string text = line(elapsed, static_cast<std::size_t>(columns) - 1);
  const std::size_t width = display_width(text);
  // Blanks cover what is left of the longer line before, as far as the window still reaches.
  const std::size_t covered = std::min(drawn_columns_, static_cast<std::size_t>(columns) - 1);
  out_ << '\r' << text << std::string(covered > width ? covered - width : 0, ' ') << std::flush;
  drawn_columns_ = width;
}

void Progress::erase() {
  if (drawn_columns_ == 0) return;
  out_ << '\r' << std::string(drawn_columns_, ' ') << '\r';
  drawn_columns_ = 0;
  drawn_ = false;  // finish() shows the last state again
}

}  // namespace whence
