// The module of WebAssembly that the playground's page loads: a session, and the numbers of its last look.
#include <emscripten.h>

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
}
