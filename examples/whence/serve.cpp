// look --serve: the page at http://127.0.0.1:PORT/TOKEN/, with a free port and a random token, until Ctrl-C. The page's questions
// (playground/session.h) are answered one after another, in f64. "?prompt=..." and "?sample=..." ask for the page of another
// text or sequence, with its own session. Requests without the token, from another origin, or of more than 64 KiB are refused.
// This file is in the program `whence` alone, if cpp-httplib is there: Debian's has shared parts, and they need OpenSSL.
#include <httplib.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "examples/whence/cli/numbers.h"
#include "examples/whence/cli/run_main.h"
#include "examples/whence/cli/text.h"
#include "examples/whence/look/page.h"
#include "examples/whence/playground/session.h"
#include "tensor/error.h"

namespace whence::look {
namespace {

constexpr const char* loopback = "127.0.0.1";

struct ServedPage {
  PageRequest request;
  std::string html;
  std::unique_ptr<playground::Session> session;
};

ServedPage page_for(const PageRequest& request) {
  std::cerr << "page of " << one_line(request.subject.run) << ": computing its pass, gradients and edits" << std::endl;
  ServedPage page{
      request, html_of(subject_of(request.subject), request, true), std::make_unique<playground::Session>()};
  SubjectOptions exact = request.subject;
  exact.dtype = DType::f64;
  for (const std::string& question :
      {playground::question_that_opens(exact).line(), std::string(R"({"ask": "look", "model": 0})")})
    if (const Json answer = Json::read(page.session->answer(question), "session"); answer.has("error"))
      throw InputError(answer.text("error"));
  return page;
}

// The pages asked for last, the newest at the end. A page that is not among them is made.
class ServedPages {
 public:
  ServedPage& at(const PageRequest& request) {
    const auto found = std::ranges::find_if(pages_, [&](const ServedPage& page) {
      return page.request.subject.prompt == request.subject.prompt &&
             page.request.subject.sample == request.subject.sample;
    });
    if (found != pages_.end()) {
      std::rotate(found, found + 1, pages_.end());
    } else {
      pages_.push_back(page_for(request));
      if (pages_.size() > most) pages_.erase(pages_.begin());
    }
    return pages_.back();
  }

 private:
  static constexpr std::size_t most = 4;
  std::vector<ServedPage> pages_;
};

std::string random_token() {
  std::random_device device;
  std::string token;
  for (int k = 0; k < 32; ++k) token += "0123456789abcdef"[device() % 16];
  return token;
}

// Returns the request for the page that an address asks for.
PageRequest asked_by(PageRequest request, const httplib::Request& asked) {
  if (asked.has_param("prompt")) request.subject.prompt = asked.get_param_value("prompt"), request.subject.text.clear();
  if (!asked.has_param("sample")) return request;
  const auto sample = parse_number<std::int64_t>(asked.get_param_value("sample"));
  if (!sample || *sample < 0) throw InputError("sample: a whole number from 0 on required");
  request.subject.sample = *sample;
  return request;
}

void serve_page(const PageRequest& request) {
  ServedPages pages;
  (void)pages.at(request);
  httplib::Server server;
  server.new_task_queue = [] { return new httplib::ThreadPool(1); };  // a session answers one question at a time
  server.set_keep_alive_max_count(1);
  server.set_payload_max_length(64 << 10);
  const int port = server.bind_to_any_port(loopback);
  if (port <= 0) throw InputError("--serve: no port of ", loopback, " is free; one required");
  const std::string host = to_text(loopback, ':', port), path = '/' + random_token() + '/';
  // A page of another site may send requests here, but with its own origin, or with its own name in Host.
  server.set_pre_routing_handler([&](const httplib::Request& asked, httplib::Response& response) {
    const std::string origin = asked.get_header_value("Origin");
    const bool same = asked.get_header_value("Host") == host && (origin.empty() || origin == "http://" + host);
    if (!same) response.status = 403, response.set_content("another origin\n", "text/plain");
    return same ? httplib::Server::HandlerResponse::Unhandled : httplib::Server::HandlerResponse::Handled;
  });
  // A question carries its page's "?prompt=" or "?sample=".
  const auto answers = [&](const char* type, auto answer) {
    return [&pages, &request, type, answer](const httplib::Request& asked, httplib::Response& response) {
      try {
        response.set_content(answer(pages.at(asked_by(request, asked)), asked.body), type);
      } catch (const Error& problem) {
        response.status = 400;
        response.set_content(message_line(problem.what()) + '\n', "text/plain; charset=utf-8");
      }
    };
  };
  server.Get(path, answers("text/html; charset=utf-8", [](ServedPage& page, const std::string&) { return page.html; }));
  server.Post(path + "ask", answers("application/json", [](ServedPage& page, const std::string& question) {
    return page.session->answer(question);
  }));
  std::cout << "open http://" << host << path << " in a browser of this machine; Ctrl-C ends it" << std::endl;
  install_interrupt_handler();
  std::jthread watch([&](const std::stop_token& ended) {
    while (!interrupt_requested() && !ended.stop_requested())
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    server.stop();
  });
  server.listen_after_bind();
}

[[maybe_unused]] const bool registered = (serve = serve_page, true);

}  // namespace

}  // namespace whence::look
