// The module of WebAssembly that the playground's page loads: a session, the numbers of its last look, and the system
// functions that a page lacks.
#include <emscripten.h>
#include <sched.h>
#include <sys/sysinfo.h>

#include "examples/whence/playground/session.h"

namespace {

whence::playground::Session& session() {
  static whence::playground::Session only;
  return only;
}

}  // namespace

extern "C" {

// The text is valid until the next question.
EMSCRIPTEN_KEEPALIVE const char* whence_ask(const char* question) {
  static std::string answer;
  answer = session().answer(question);
  return answer.c_str();
}
EMSCRIPTEN_KEEPALIVE const void* whence_numbers() { return session().numbers().data(); }
EMSCRIPTEN_KEEPALIVE std::size_t whence_numbers_size() { return session().numbers().size(); }

// One core, no BLAS.
int sched_getaffinity(pid_t, size_t, cpu_set_t*) { return 0; }
int __sched_cpucount(size_t, const cpu_set_t*) { return 1; }
int sysinfo(struct sysinfo*) { return -1; }
int prctl(int, ...) { return -1; }
const char* openblas_get_config() { return "none"; }
const char* openblas_get_corename() { return "none"; }
int openblas_get_parallel() { return 0; }
}
