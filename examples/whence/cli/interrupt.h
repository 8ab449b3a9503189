// Ctrl-C and its relatives: the first SIGINT, SIGTERM or SIGHUP asks the program to save and stop, the second stops it
// at once. SIGUSR1, by which schedulers warn, asks and does not count.
#pragma once

#include "tensor/error.h"

namespace whence {

// A program stopped on request, after it saved. run_main() turns it into exit code 130.
class Interrupted : public Error {
 public:
  using Error::Error;
};

// Installs the handler. SIGHUP stays ignored where it was (nohup).
void install_interrupt_handler();

// Was a signal received since install_interrupt_handler()? Cheap enough to ask at every step.
[[nodiscard]] bool interrupt_requested();

// Throws Interrupted where one was: "WORK: stopped before it was done". For loops that have nothing to save.
void stop_if_interrupted(const char* work);

}  // namespace whence
