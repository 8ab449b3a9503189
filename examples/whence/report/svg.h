// Pieces of a picture as SVG, and the file around them.
#pragma once

#include <string>
#include <string_view>

namespace whence::report {

[[nodiscard]] std::string svg_line(std::string_view css, double x1, double y1, double x2, double y2);
// `content` is text, and escaped; `extra` are further attributes.
[[nodiscard]] std::string svg_text(
    std::string_view css, double x, double y, std::string_view content, std::string_view extra = "");

// Text in lines at most `width` wide, broken at blanks, as <text> elements one below the other, the first one's foot at
// y. What has no blank for that long stands in a line of its own.
struct SvgLines {
  std::string body;
  double height = 0;
};
[[nodiscard]] SvgLines svg_lines(std::string_view css, double x, double y, std::string_view text, double width);

// A file of its own, with the pages' colours, light and dark. `description` is read out, not drawn.
struct Picture {
  double width = 0, height = 0;
  std::string title = {}, description = {};
  std::string body = {};   // SVG
  std::string style = {};  // CSS, behind that of every picture
};
[[nodiscard]] std::string svg_file(const Picture& picture);

}  // namespace whence::report
