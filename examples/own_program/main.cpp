// All commands of whence, over what the other files here register.
#include "examples/whence/whence.h"

int main(int argc, char** argv) { return whence::whence_main(argc, argv); }
