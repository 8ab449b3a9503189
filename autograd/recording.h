// Whether operations are recorded. On by default. Off inside NoGrad, inside every op's forward, and
// in backward unless create_graph.
#pragma once

namespace whence {

namespace detail {
inline thread_local bool recording = true;
}

inline bool recording() { return detail::recording; }

class RecordingScope {
 public:
  explicit RecordingScope(bool on) : previous_(detail::recording) { detail::recording = on; }
  ~RecordingScope() { detail::recording = previous_; }
  RecordingScope(const RecordingScope&) = delete;
  RecordingScope& operator=(const RecordingScope&) = delete;

 private:
  bool previous_;
};

// NoGrad no_grad;  from here to the end of the block nothing is recorded and results have no history.
class NoGrad : RecordingScope {
 public:
  NoGrad() : RecordingScope(false) {}
};

}  // namespace whence
