// Whether the backward pass that runs forgets what each op saved, once it has come through: true of backward() without
// keep_graph, false of grad(). An op may then write over what it saved and nobody else names.
#pragma once

namespace whence::detail {

inline thread_local bool releasing = false;

class ReleasingScope {
 public:
  explicit ReleasingScope(bool on) : previous_(releasing) { releasing = on; }
  ~ReleasingScope() { releasing = previous_; }
  ReleasingScope(const ReleasingScope&) = delete;
  ReleasingScope& operator=(const ReleasingScope&) = delete;

 private:
  bool previous_;
};

}  // namespace whence::detail
