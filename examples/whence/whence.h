// The one program: `whence COMMAND ...` runs a command of the other files here. A program of one's own that calls this
// in its main and links whence::program has them all, over its own schemes, ops, tasks and commands besides the others
// (examples/own_program). Whatever it is called, its help, messages and completions say `whence`: call it that too.
#pragma once

namespace whence {

int whence_main(int argc, char** argv);  // gives the exit code

}  // namespace whence
