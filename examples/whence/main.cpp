// The program `whence` as it is installed.
#include "examples/whence/whence.h"

int main(int argc, char** argv) { return whence::whence_main(argc, argv); }
