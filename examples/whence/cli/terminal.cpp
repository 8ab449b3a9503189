#include "examples/whence/cli/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>

namespace whence {

bool on_terminal(int descriptor) {
  const char* terminal = std::getenv("TERM");
  return isatty(descriptor) == 1 && terminal != nullptr && *terminal != '\0' && std::string_view(terminal) != "dumb";
}

bool shows_colours(int descriptor) {
  const char* refused = std::getenv("NO_COLOR");
  return on_terminal(descriptor) && (refused == nullptr || *refused == '\0');
}

int terminal_columns(int descriptor) {
  winsize window = {};
  if (ioctl(descriptor, TIOCGWINSZ, &window) == 0 && window.ws_col > 0) return window.ws_col;
  return 80;
}

}  // namespace whence
