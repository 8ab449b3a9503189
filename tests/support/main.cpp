// The test program's main: doctest's own. `whence_tests --help` lists what it can do.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>
