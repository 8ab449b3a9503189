// Figures of the papers, drawn from a run: what they show and on which text, as a table, and their pictures.
#pragma once

#include <string>

#include "examples/whence/look/subject.h"

namespace whence::look {

// Every name with what it shows and what it needs, as lines of text.
[[nodiscard]] std::string figures_list();

// The figure as an SVG file. `wanted`: "cope/4", "dape/7", "cope/4 layer=1 head=2"; `subject`: as for a page, but that
// its length, where none is given, and its place in the text are the figure's. InputError: no such figure, a scheme
// without what it shows, a text too short.
[[nodiscard]] std::string figure_svg(const std::string& wanted, SubjectOptions subject);

}  // namespace whence::look
