#include "examples/whence/report/svg.h"

#include <algorithm>

#include "examples/whence/cli/numbers.h"
#include "examples/whence/cli/text.h"
#include "examples/whence/report/assets.h"
#include "examples/whence/report/encode.h"
#include "tensor/error.h"

namespace whence::report {
std::string svg_line(std::string_view css, double x1, double y1, double x2, double y2) {
  return to_text("<line class=\"", css, "\" x1=\"", digits(x1), "\" y1=\"", digits(y1), "\" x2=\"", digits(x2),
      "\" y2=\"", digits(y2), "\"/>");
}

std::string svg_text(std::string_view css, double x, double y, std::string_view content, std::string_view extra) {
  return to_text("<text class=\"", css, "\" x=\"", digits(x, 6), "\" y=\"", digits(y, 6), "\"", extra, ">",
      escape(content), "</text>");
}

SvgLines svg_lines(std::string_view css, double x, double y, std::string_view text, double width) {
  constexpr double line_height = 16;
  const double letter = css == "title" ? 7.4 : 6.3;
  SvgLines all;
  for (const std::string& line : wrapped(text, static_cast<std::size_t>(std::max(20.0, width / letter)))) {
    all.body += svg_text(css, x, y + all.height, line);
    all.height += line_height;
  }
  return all;
}

std::string svg_file(const Picture& picture) {
  return to_text("<svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" viewBox=\"0 0 ", digits(picture.width, 6), " ",
      digits(picture.height, 6), "\" style=\"max-width:", digits(1.25 * picture.width, 6), "px\"><title>",
      escape(picture.title), "</title><desc>", escape(picture.description), "</desc><style><![CDATA[", picture_style,
      "svg { background: var(--page); } svg .title { font-weight: 600; } svg .soft { fill: var(--soft); }\n",
      picture.style, "]]></style>\n", picture.body, "</svg>\n");
}

}  // namespace whence::report
