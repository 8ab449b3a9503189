#include "examples/whence/report/report.h"

#include "examples/whence/report/assets.h"
#include "examples/whence/report/encode.h"
#include "examples/whence/report/plot.h"
#include "tensor/error.h"

namespace whence::report {
namespace {

// Complete without script: only the filter of a matrix needs one.
std::string results(const Page& page) {
  std::string out;
  for (const Matrix& matrix : page.matrices) out += matrix_html(matrix);
  if (!page.tables.empty()) {
    out += "<div class=\"tables\">\n";
    for (const PageTable& table : page.tables) out += table_html(table);
    out += "</div>\n";
  }
  return out + plots_html(page.plots);
}

}  // namespace

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
  body += paragraphs(page.introduction) + results(page);
  if (!page.footnotes.empty()) {
    body += "<footer>\n";
    for (const std::string& note : page.footnotes) body += paragraphs(note);
    body += "</footer>\n";
  }
  // A function scope, so that the page has no global names.
  const std::string script =
      page.matrices.empty() ? "" : to_text("<script>\n(() => {\n", table_script, "})();\n</script>\n");
  return document(page.title, style_sheet, body, script);
}

}  // namespace whence::report
