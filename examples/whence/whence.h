// The one program: `whence COMMAND ...` runs a command of the other files here. A user's program that calls whence_main
// and links whence::program has all of them, with its own schemes, ops, tasks and commands added
// (examples/own_program). Its help and messages still say `whence`, so name it `whence` too.
#pragma once

namespace whence {

int whence_main(int argc, char** argv);  // gives the exit code

}  // namespace whence
