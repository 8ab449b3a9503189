#include "examples/whence/report/report.h"

#include "examples/whence/report/encode.h"

namespace whence::report {

std::string table_html(const PageTable& table) {
  std::string out = table.folded ? "<details><summary>" + escape(table.title) + "</summary>\n"
                                 : "<section><h3>" + escape(table.title) + "</h3>\n";
  out += "<div class=\"scroll\">" + table.table.html() + "</div>\n";
  if (!table.note.empty()) out += "<div class=\"note\">" + paragraphs(table.note) + "</div>\n";
  return out + (table.folded ? "</details>\n" : "</section>\n");
}

}  // namespace whence::report
