// Large tables of short cells with notes: rows in groups, a header that stays in view, and a filter.
#include <algorithm>

#include "examples/whence/report/encode.h"
#include "examples/whence/report/report.h"
#include "tensor/error.h"

namespace whence::report {
namespace {

std::string_view class_of(Matrix::Look look) {
  static constexpr std::string_view classes[] = {"", " class=\"quiet\"", " class=\"marked\"", " class=\"bad\""};
  return classes[static_cast<int>(look)];
}

std::string row_html(const Matrix::Row& row) {
  const bool failed = std::ranges::count(row.cells, Matrix::Look::bad, &Matrix::Cell::look) > 0;
  std::string out =
      to_text("<tr class=\"entry", failed ? " failed" : "", "\"><th scope=\"row\">", escape(row.name), "</th>");
  for (const Matrix::Cell& cell : row.cells) {
    out += to_text("<td", class_of(cell.look), cell.note.empty() ? "" : " title=\"" + escape(cell.note) + "\"", ">",
        escape(cell.text), "</td>");
  }
  return out + "</tr>\n";
}

std::string meanings(const Matrix& matrix) {
  std::string out = "<details><summary>What the columns mean</summary><dl>\n";
  for (const auto& [name, meaning] : matrix.columns)
    out += to_text("<dt>", escape(name), "</dt><dd>", escape(meaning), "</dd>\n");
  return out + "</dl></details>\n";
}

}  // namespace

std::string matrix_html(const Matrix& matrix) {
  std::string out = to_text("<section class=\"large\"><h2>", escape(matrix.title), "</h2>\n", paragraphs(matrix.note),
      meanings(matrix), "<div class=\"bar\" hidden><div class=\"controls\"><label>filter <input type=\"search\" ",
      "placeholder=\"words of a row, or failed\"></label><output></output></div><div class=\"readout\" ",
      "role=\"status\"></div></div>\n<div class=\"scroll\"><table role=\"grid\"><thead><tr><td></td>");
  for (const auto& [name, meaning] : matrix.columns)
    out += to_text("<th scope=\"col\" title=\"", escape(meaning), "\">", escape(name), "</th>");
  out += "</tr></thead>\n";
  for (auto row = matrix.rows.begin(); row != matrix.rows.end();) {
    const auto end = std::find_if(row, matrix.rows.end(), [&](const Matrix::Row& r) { return r.group != row->group; });
    out += to_text("<tbody><tr><th class=\"group\" colspan=\"", matrix.columns.size() + 1, "\"><span>",
        escape(row->group), " (", end - row, ")</span></th></tr>\n");
    for (; row != end; ++row) {
      if (row->cells.size() != matrix.columns.size()) {
        throw Error("report: matrix '", matrix.title, "': row '", row->name, "' has ", row->cells.size(),
            " cells; there are ", matrix.columns.size(), " columns; give every row one cell per column");
      }
      out += row_html(*row);
    }
    out += "</tbody>\n";
  }
  return out + "</table></div></section>\n";
}

}  // namespace whence::report
