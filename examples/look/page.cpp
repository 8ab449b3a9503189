#include "examples/look/page.h"

#include <cmath>

#include "examples/look/written.h"
#include "examples/report/assets.h"
#include "examples/report/encode.h"
#include "examples/report/plot.h"
#include "tensor/error.h"

namespace whence::look {

namespace {

std::string data_element(const char* id, const std::string& json) {
  return to_text("<script type=\"application/json\" id=\"", id, "\">", report::safe_in_script(json), "</script>\n");
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
  throw InputError("look: a page of ", tokens, " tokens would take ", std::llround(bytes / (1 << 20)), " MiB; at most ",
      most_bytes >> 20, " required; --length ",
      static_cast<index_t>(0.97 * tokens * std::sqrt(static_cast<double>(most_bytes) / bytes)),
      " should fit, and --causes, --ways and --explain take any length");
}

}  // namespace

void require_small_page(const Inspection& inspection, bool two) {
  const double bytes = bytes_of(inspection) * (two ? 2 : 1);
  if (bytes > static_cast<double>(most_bytes)) refuse_size(inspection, bytes);
}

std::string page_of(const Inspection& inspection, const Besides& besides) {
  require_small_page(inspection, besides.beside != nullptr);
  const Table causes = causes_of(inspection), ways = ways_table(inspection);
  report::PageTable facts{.title = "What is looked at", .note = "", .header = {"fact", ""}, .rows = {}, .folded = true};
  for (const auto& [name, value] : inspection.subject().facts) facts.rows.push_back({name, value});
  facts.rows.push_back({"loss", report::number(inspection.loss(), 6)});
  std::string body = report::table_html(facts);
  body += "<noscript><p>The maps are drawn by a script inside this file, which is switched off here. What they ";
  body += "show is in the tables below.</p></noscript>\n<div id=\"look\"></div>\n";
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
  if (!besides.history.empty()) body += "<h2>Over the training</h2>\n<div class=\"plots\">\n";
  for (const report::Plot& plot : besides.history)
    body += "<figure><h3>" + report::escape(plot.title) + "</h3>\n" + report::svg(plot) + "</figure>\n";
  if (!besides.history.empty()) body += "</div>\n";
  std::string scripts = data_element("look-data", json_of(inspection, besides.edits));
  if (besides.beside) scripts += data_element("look-data-beside", json_of(*besides.beside));
  scripts += "<script>\n(() => {\n";
  for (const std::string_view script : report::look_scripts) scripts += script;
  scripts += "})();\n</script>\n";
  std::string page =
      report::document(inspection.subject().title, to_text(report::style_sheet, report::look_style), body, scripts);
  if (static_cast<double>(page.size()) > 1.2 * static_cast<double>(most_bytes))
    refuse_size(inspection, static_cast<double>(page.size()));
  return page;
}

}  // namespace whence::look
