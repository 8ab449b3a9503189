#include "examples/whence/report/report.h"

#include "examples/whence/report/assets.h"
#include "examples/whence/report/encode.h"
#include "examples/whence/report/plot.h"
#include "tensor/error.h"

namespace whence::report {
std::string table_html(const PageTable& table) {
  std::string out = table.folded ? "<details><summary>" + escape(table.title) + "</summary>\n"
                                 : "<section><h3>" + escape(table.title) + "</h3>\n";
  out += "<div class=\"scroll\">" + table.table.html() + "</div>\n";
  if (!table.note.empty()) out += "<div class=\"note\">" + paragraphs(table.note) + "</div>\n";
  return out + (table.folded ? "</details>\n" : "</section>\n");
}

std::string html(const Page& page) {
  std::string body;
  if (!page.verdict.empty()) body += "<p class=\"verdict\">" + escape(page.verdict) + "</p>\n";
  body += paragraphs(page.introduction);
  for (const Matrix& matrix : page.matrices) body += matrix_html(matrix);
  if (!page.tables.empty()) {
    body += "<div class=\"tables\">\n";
    for (const PageTable& table : page.tables) body += table_html(table);
    body += "</div>\n";
  }
  for (const std::string& picture : page.pictures) body += "<section>\n" + picture + "</section>\n";
  body += plots_html(page.plots);
  if (!page.footnotes.empty()) {
    body += "<footer>\n";
    for (const std::string& note : page.footnotes) body += paragraphs(note);
    body += "</footer>\n";
  }
  // Only the filter of a matrix needs one; in a function scope, so that the page has no global names.
  const std::string script =
      page.matrices.empty() ? "" : to_text("<script>\n(() => {\n", table_script, "})();\n</script>\n");
  return document(page.title, style_sheet, body, script);
}

}  // namespace whence::report
