#include "examples/whence/look/page.h"

#include <cmath>

#include "examples/whence/look/page_data.h"
#include "examples/whence/look/tables.h"
#include "examples/whence/report/assets.h"
#include "examples/whence/report/encode.h"
#include "examples/whence/report/plot.h"
#include "tensor/error.h"

namespace whence::look {

namespace {

std::string data_element(const char* attribute, const std::string& json) {
  return to_text("<script type=\"application/json\" ", attribute, ">", report::safe_in_script(json), "</script>\n");
}

constexpr const char* own_data = "id=\"look-data\"";
constexpr const char* data_beside = "class=\"look-beside\"";

std::string facts_html(const Subject& subject, double loss) {
  report::PageTable facts{.title = "What is looked at", .note = "", .header = {"fact", ""}, .rows = {}, .folded = true};
  for (const auto& [name, value] : subject.facts) facts.rows.push_back({name, value});
  facts.rows.push_back({"loss", report::number(loss, 6)});
  return report::table_html(facts) +
         "<noscript><p>The maps are drawn by a script inside this file, which is switched off here. What they show is "
         "in the tables below.</p></noscript>\n<div id=\"look\"></div>\n";
}

std::string history_html(const std::vector<report::Plot>& history) {
  if (history.empty()) return {};
  std::string html = "<h2>Over the training</h2>\n<div class=\"plots\">\n";
  for (const report::Plot& plot : history)
    html += "<figure><h3>" + report::escape(plot.title) + "</h3>\n" + report::svg(plot) + "</figure>\n";
  return html + "</div>\n";
}

std::string document_of(const Subject& subject, const std::string& body, const std::string& data) {
  std::string scripts = data + "<script>\n(() => {\n";
  for (const std::string_view script : report::look_scripts) scripts += script;
  scripts += "})();\n</script>\n";
  return report::document(subject.title, to_text(report::style_sheet, report::look_style), body, scripts);
}

// The strongest cells of the gradient of the logits, for those who do not see the maps.
report::PageTable strongest_table(const Overview& overview) {
  report::PageTable table{.title = "Where the gradient of the logits is large",
      .note = to_text("The windows of single numbers. Maps have ", overview.cells, " cells along a side, of ",
          overview.cell, " tokens each."),
      .header = {"layer", "queries", "keys", "why"},
      .rows = {},
      .folded = true};
  for (const Window& window : overview.windows)
    table.rows.push_back({std::to_string(window.layer), to_text(window.i, " to ", window.i + window.rows - 1),
        to_text(window.j, " to ", window.j + window.columns - 1), window.why});
  return table;
}

// The numbers of the quantities alone: value, gradient and reason of each entry, a third more as base64.
double bytes_of(const Inspection& inspection) {
  double bytes = 0;
  for (const Quantity& quantity : inspection.quantities())
    if (quantity.probe && quantity.layer >= 0)
      bytes += static_cast<double>(quantity.value.numel()) *
               (2 * static_cast<double>(size_of(quantity.value.dtype())) + 1) * 4 / 3;
  return bytes;
}

[[noreturn]] void refuse_size(const Inspection& inspection, double bytes) {
  const auto tokens = static_cast<double>(inspection.subject().tokens.numel());
  throw InputError("a page of ", tokens, " tokens would take ", std::llround(bytes / (1 << 20)), " MiB; at most ",
      most_bytes >> 20, " required; --length ",
      static_cast<index_t>(0.97 * tokens * std::sqrt(static_cast<double>(most_bytes) / bytes)),
      " should fit, and --causes, --ways and --explain take any length");
}

}  // namespace

void require_small_page(const Inspection& inspection, std::size_t others) {
  const double bytes = bytes_of(inspection) * static_cast<double>(1 + others);
  if (bytes > static_cast<double>(most_bytes)) refuse_size(inspection, bytes);
}

std::string page_of(const Inspection& inspection, const Besides& besides) {
  require_small_page(inspection, besides.beside.size());
  const Table causes = causes_of(inspection), ways = ways_table(inspection);
  std::string body = facts_html(inspection.subject(), inspection.loss());
  body += report::table_html({.title = "How much of each gradient is zero, and why",
      .note = "Percent of the entries of one head. A reason that only makes a gradient small (saturated, leaking, "
              "cancels) counts beside the zeros.",
      .header = causes.header(),
      .rows = causes.rows(),
      .folded = true});
  body += report::table_html({.title = "By which ways gradients came",
      .note =
          "Steps from the logits down to what the gradient is of. \"Along the whole\" is the projection of the way's "
          "part on the whole gradient; the ways of one gradient add up to 100.",
      .header = ways.header(),
      .rows = ways.rows(),
      .folded = true});
  body += history_html(besides.history);
  std::string data = data_element(own_data, json_of(inspection, besides.edits));
  for (const std::string& beside : besides.beside) data += data_element(data_beside, beside);
  std::string page = document_of(inspection.subject(), body, data);
  if (static_cast<double>(page.size()) > 1.2 * static_cast<double>(most_bytes))
    refuse_size(inspection, static_cast<double>(page.size()));
  return page;
}

std::string page_of(const Overview& overview, const Rows& rows, const std::vector<report::Plot>& history) {
  std::string page = document_of(rows.subject(),
      facts_html(rows.subject(), rows.loss()) + report::table_html(strongest_table(overview)) + history_html(history),
      data_element(own_data, json_of(overview, rows)));
  if (page.size() > most_bytes + most_bytes / 5)
    throw InputError("a page of ", overview.tokens, " tokens would take ", page.size() >> 20, " MiB; at most ",
        most_bytes >> 20, " required; fewer tokens, or fewer places of --at");
  return page;
}

}  // namespace whence::look
