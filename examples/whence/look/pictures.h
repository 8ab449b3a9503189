// All that an inspection found as pictures: SVG files without scripts, for papers, slides and talks.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "examples/whence/look/edits.h"
#include "examples/whence/look/inspection.h"
#include "examples/whence/report/heat_map.h"

namespace whence::look {

// "key j" of 'j': what the letters of ProbeInfo::axes stand for.
[[nodiscard]] std::string axis_name(char letter);
// One of several along an axis in front, as a file's name has it: "head-1".
[[nodiscard]] std::string axis_part(char letter, index_t index);

// How numbers of a quantity are coloured; a gradient has either sign. The ends are those of `least` and `most`, with
// zero in the middle or at the low end.
void set_scale(report::HeatMap& map, ProbeInfo::Scale scale, double least, double most);

// Calls `take` with a name such as "blocks.0.attention.position.gates.head-1.gradient.svg" and a file's content:
//   value, gradient and reasons   of each quantity and each parameter of a position, by layer, head or channel
//   ways                          of x, q, k and v in each layer
//   graph.svg, edits.svg          the step; the edits, where there are any
void make_pictures(const Inspection& inspection, const std::vector<EditOutcome>& edits,
    const std::function<void(const std::string& name, const std::string& svg)>& take);

}  // namespace whence::look
