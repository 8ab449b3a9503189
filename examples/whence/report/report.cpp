#include "examples/whence/report/report.h"

#include "examples/whence/cli/json.h"
#include "examples/whence/report/assets.h"
#include "examples/whence/report/encode.h"
#include "tensor/error.h"

namespace whence::report {
std::string table_html(const PageTable& table) {
  std::string out = table.folded ? "<details><summary>" + escape(table.title) + "</summary>\n"
                                 : "<section><h3>" + escape(table.title) + "</h3>\n";
  out += "<div class=\"scroll\">" + table.table.html() + "</div>\n";
  if (!table.note.empty()) out += "<div class=\"note\">" + paragraphs(table.note) + "</div>\n";
  return out + (table.folded ? "</details>\n" : "</section>\n");
}

std::string plots_html(const std::vector<Plot>& plots) {
  if (plots.empty()) return "";
  std::string out = "<noscript><p>A script inside this file draws the plots.</p></noscript>\n<div class=\"plots\">\n";
  for (const Plot& plot : plots) {
    std::vector<Json> curves;
    for (const Curve& curve : plot.curves) {
      if (curve.x.size() != curve.y.size())
        throw Error("plot: ", curve.name, " has ", curve.x.size(), " x, ", curve.y.size(), " y; one y per x required");
      curves.push_back({{"name", curve.name}, {"x", curve.x}, {"y", curve.y}});
    }
    const Json data{{"x", plot.x_label}, {"y", plot.y_label}, {"log", plot.log_y}, {"curves", curves}};
    out += to_text("<figure><h3>", escape(plot.title), "</h3><script type=\"application/json\" class=\"plot\">",
        safe_in_script(data.line(Json::Utf8::escaped)), "</script></figure>\n");
  }
  return out + "</div>\n";
}

std::string html(const Page& page) {
  std::string body;
  if (!page.verdict.empty()) body += "<p class=\"verdict\">" + escape(page.verdict) + "</p>\n";
  body += paragraphs(page.introduction);
  for (const auto& [file, words] : page.links)
    body += to_text("<p><a href=\"", escape(file), "\">", escape(file), "</a> ", escape(words), "</p>\n");
  for (const Matrix& matrix : page.matrices) body += matrix_html(matrix);
  if (!page.tables.empty()) {
    body += "<div class=\"tables\">\n";
    for (const PageTable& table : page.tables) body += table_html(table);
    body += "</div>\n";
  }
  body += plots_html(page.plots);
  if (!page.footnotes.empty()) {
    body += "<footer>\n";
    for (const std::string& note : page.footnotes) body += paragraphs(note);
    body += "</footer>\n";
  }
  std::string scripts;
  if (!page.matrices.empty()) scripts += table_script;
  if (!page.plots.empty()) scripts += plot_script;
  // A function scope keeps names out of the page's global scope.
  if (!scripts.empty()) scripts = to_text("<script>\n(() => {\n", scripts, "})();\n</script>\n");
  return document(page.title, style_sheet, body, scripts);
}

}  // namespace whence::report
