#include "examples/whence/report/report.h"

#include "examples/whence/report/assets.h"
#include "examples/whence/report/encode.h"
#include "examples/whence/report/matrix.h"
#include "examples/whence/report/plot.h"
#include "nn/io/files.h"
#include "tensor/error.h"

namespace whence::report {
namespace {

// ---- What contradicts itself is refused before anything is written

void check(const PageTable& table) {
  for (std::size_t row = 0; row < table.rows.size(); ++row) {
    if (table.rows[row].size() == table.header.size()) continue;
    throw Error("report: table '", table.title, "': row ", row, " has ", table.rows[row].size(),
        " cells; the header has ", table.header.size(), "; give every row one cell per column");
  }
}

void check(const Page& page) {
  for (const PageTable& table : page.tables) check(table);
}

// ---- Tables and plots

// A column is right-aligned where all its cells start like a number; empty cells and dashes do not count against it.
bool numeric(const PageTable& table, std::size_t column) {
  bool any = false;
  for (const std::vector<std::string>& row : table.rows) {
    const std::string& cell = row[column];
    if (cell.empty() || cell == "-" || cell == "\xE2\x80\x93") continue;
    const std::size_t digit = cell.find_first_not_of("+-<>~.");
    if (digit == std::string::npos || cell[digit] < '0' || cell[digit] > '9') return false;
    any = true;
  }
  return any;
}

// Complete without script: only the filter of a matrix needs one.
std::string results(const Page& page) {
  std::string out;
  for (const Matrix& matrix : page.matrices) out += matrix_html(matrix);
  if (!page.tables.empty()) {
    out += "<div class=\"tables\">\n";
    for (const PageTable& table : page.tables) out += table_html(table);
    out += "</div>\n";
  }
  if (!page.plots.empty()) {
    out += "<div class=\"plots\">\n";
    for (const Plot& plot : page.plots)
      out += "<figure><h3>" + escape(plot.title) + "</h3>\n" + svg(plot) + "</figure>\n";
    out += "</div>\n";
  }
  return out;
}

}  // namespace

std::string table_html(const PageTable& table) {
  std::vector<std::string> style;
  for (std::size_t column = 0; column < table.header.size(); ++column)
    style.push_back(numeric(table, column) ? " class=\"n\"" : "");
  std::string out = table.folded ? "<details><summary>" + escape(table.title) + "</summary>\n"
                                 : "<section><h3>" + escape(table.title) + "</h3>\n";
  out += "<div class=\"scroll\"><table><thead><tr>";
  for (std::size_t column = 0; column < table.header.size(); ++column)
    out += "<th scope=\"col\"" + style[column] + ">" + escape(table.header[column]) + "</th>";
  out += "</tr></thead><tbody>\n";
  for (const std::vector<std::string>& row : table.rows) {
    out += "<tr>";
    for (std::size_t column = 0; column < row.size(); ++column) {
      const std::string tag = column == 0 ? "th" : "td";  // the first column names its row
      out += "<" + tag + (column == 0 ? " scope=\"row\"" : "") + style[column] + ">" + escape(row[column]) + "</" +
             tag + ">";
    }
    out += "</tr>\n";
  }
  out += "</tbody></table></div>\n";
  if (!table.note.empty()) out += "<div class=\"note\">" + paragraphs(table.note) + "</div>\n";
  return out + (table.folded ? "</details>\n" : "</section>\n");
}

std::string html(const Page& page) {
  check(page);
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

void write(const Page& page, const std::string& path) { write_file(path, html(page)); }

}  // namespace whence::report
