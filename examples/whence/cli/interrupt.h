// Ctrl-C and similar signals: the first SIGINT, SIGTERM or SIGHUP requests a save and stop, the second stops at once.
// SIGUSR1, with which schedulers warn, requests it too, and is not counted.
#pragma once

#include "tensor/error.h"

namespace whence {

// Thrown when a program stopped on request, after it saved. run_main() turns it into exit code 130.
class Interrupted : public Error {
 public:
  using Error::Error;
};

// Installs the handler. SIGHUP stays ignored if it was (nohup).
void install_interrupt_handler();

// True if a signal was received since install_interrupt_handler(). Cheap enough for every step.
[[nodiscard]] bool interrupt_requested();

// Throws Interrupted if so: "WORK: stopped before it was done". For loops that have nothing to save.
void stop_if_interrupted(const char* work);

}  // namespace whence
