// What a stream of this process is shown on. Descriptors are STDOUT_FILENO and STDERR_FILENO.
#pragma once

namespace whence {

// A terminal that understands escape sequences: not one of TERM=dumb.
[[nodiscard]] bool on_terminal(int descriptor);

// Such a terminal, unless NO_COLOR (no-color.org) is set.
[[nodiscard]] bool shows_colours(int descriptor);

// The width of the terminal, asked at each call because people resize windows; 80 where there is none.
[[nodiscard]] int terminal_columns(int descriptor);

}  // namespace whence
