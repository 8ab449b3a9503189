#include "autograd/observer.h"

namespace whence {

struct ObserversOfThread {
  ~ObserversOfThread() {
    for (Observer* each = detail::observer; each; each = each->outer_) each->innermost_ = nullptr;
  }
};

Observer::Observer() : outer_(std::exchange(detail::observer, this)), innermost_(&detail::observer) {
  static thread_local ObserversOfThread until_its_end;
}

void Observer::stop() {
  Observer** link = std::exchange(innermost_, nullptr);
  while (link && *link != this) link = &(*link)->outer_;
  if (link) *link = outer_;
}

void detail::Watched::ended(Node* node, std::span<const Tensor> read, std::span<const Tensor> made) {
  run_.node = node, run_.read = read, run_.made = made;
  for (Observer* each = observer; each; each = each->outer()) each->saw(run_);
}

Tensor detail::pass_probe(const char* name, const Tensor& x, const Site& site) {
  const std::string full = scope_path && !scope_path->empty() ? *scope_path + "." + name : std::string(name);
  Tensor value = x;
  for (Observer* each = observer; each; each = each->outer()) value = each->passed(full, value, site);
  return value;
}

bool is_watched_under(const std::string& path, const std::vector<std::string>& but) {
  for (const Observer* each = detail::observer; each; each = each->outer())
    if (each->wants_under(path, but)) return true;
  return false;
}

}  // namespace whence
