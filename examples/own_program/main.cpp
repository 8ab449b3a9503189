// Runs all commands of whence with the op, the scheme and the task that the other files register.
#include "examples/whence/whence.h"

int main(int argc, char** argv) { return whence::whence_main(argc, argv); }
