// Whether operations are recorded. On by default. Off inside NoGrad, inside every op's forward, and
// in backward unless create_graph.
#pragma once

#include "autograd/thread.h"

namespace whence {

inline bool recording() { return detail::recording; }

struct RecordingScope : Exchange<bool> {
  explicit RecordingScope(bool on) : Exchange(detail::recording, on) {}
};

// NoGrad no_grad;  from here to the end of the block nothing is recorded and results have no history.
struct NoGrad : RecordingScope {
  NoGrad() : RecordingScope(false) {}
};

}  // namespace whence
