# Script (cmake -P, with ROOT and OUTPUT): writes the program's commit to a file, which changes only when the commit does. The file is
# empty if there is no git, or ROOT is no checkout of its own, such as an unpacked archive.
cmake_minimum_required(VERSION 3.22)
set(text "")
find_program(git git)
if(git)
  execute_process(COMMAND ${git} -C ${ROOT} rev-parse --show-toplevel --short=8 HEAD OUTPUT_VARIABLE words ERROR_QUIET
                  OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE failed)
  if(NOT failed AND words MATCHES "^${ROOT}\n([0-9a-f]+)$")
    set(text "commit ${CMAKE_MATCH_1}")
    execute_process(COMMAND ${git} -C ${ROOT} diff --quiet HEAD RESULT_VARIABLE changed ERROR_QUIET)
    if(changed)
      string(APPEND text ", modified")
    endif()
  endif()
endif()
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT "#include \"examples/whence/run/commit.h\"\n\nstd::string whence::commit() { return \"@text@\"; }\n" @ONLY)
