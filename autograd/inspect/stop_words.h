// A Stop in words.
#pragma once

#include "autograd/stop.h"

namespace whence {

const char* to_string(Stop stop);   // "clamped"
const char* meaning_of(Stop stop);  // one clause: why it is 0
const char* way_out_of(Stop stop);  // one clause: what would change that

}  // namespace whence
