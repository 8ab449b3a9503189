// Whether operations are recorded. On by default; off inside NoGrad, inside every op's forward, and in backward unless create_graph.
#pragma once

namespace whence {

namespace detail {
inline thread_local bool recording = true;
}

inline bool recording() { return detail::recording; }

class SetRecording {
 public:
  explicit SetRecording(bool on) : previous_(detail::recording) { detail::recording = on; }
  ~SetRecording() { detail::recording = previous_; }
  SetRecording(const SetRecording&) = delete;
  SetRecording& operator=(const SetRecording&) = delete;

 private:
  bool previous_;
};

// NoGrad no_grad;  from here to the end of the block nothing is recorded and results have no history.
class NoGrad : SetRecording {
 public:
  NoGrad() : SetRecording(false) {}
};

}  // namespace whence
