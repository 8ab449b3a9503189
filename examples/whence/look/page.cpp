#include "examples/whence/look/page.h"

#include <algorithm>
#include <cmath>

#include "autograd/inspect/capture.h"
#include "autograd/recording.h"
#include "examples/whence/cli/numbers.h"
#include "examples/whence/look/page_data.h"
#include "examples/whence/look/tables.h"
#include "examples/whence/report/assets.h"
#include "examples/whence/report/encode.h"
#include "examples/whence/report/table.h"
#include "tensor/error.h"

namespace whence::look {
namespace {

using report::PageTable;

std::string data_element(const char* attributes, const Json& data) {
  return to_text("<script type=\"application/json\" ", attributes, ">",
      report::safe_in_script(data.line(Json::Utf8::escaped)), "</script>\n");
}

std::string document_of(const Subject& subject, double loss, const std::vector<PageTable>& tables,
    const Besides& besides, const Json& data) {
  Table facts({"fact", ""});
  for (const auto& [name, value] : subject.facts) facts.row({name, value});
  facts.row({"loss", digits(loss, 6)});
  std::string body = report::table_html({.title = "Facts about this pass", .note = "", .table = facts, .folded = true});
  body +=
      "<noscript><p>A script inside this file draws the maps, and scripts are switched off here. The tables below show "
      "the "
      "same.</p></noscript>\n<main id=\"look\"></main>\n";
  for (const PageTable& table : tables) body += report::table_html(table);
  std::string scripts = data_element("id=\"look-data\"", data);
  for (const Json& beside : besides.beside) scripts += data_element("class=\"look-beside\"", beside);
  scripts +=
      to_text("<script type=\"application/octet-stream\" id=\"look-numbers\">", besides.numbers.text(), "</script>\n");
  scripts += to_text(
      "<script type=\"application/json\" id=\"lessons\">", report::safe_in_script(report::lessons), "</script>\n");
  if (besides.served) scripts += "<script type=\"text/plain\" id=\"served\"></script>\n";
  scripts += report::viewer_script(report::look_scripts);
  return report::document(subject.title, to_text(report::style_sheet, report::look_style), body, scripts,
      besides.served ? "; connect-src 'self'; form-action 'self'" : "");
}

// Returns the quantities of a planned pass over a few tokens: shapes without numbers.
std::vector<Quantity> planned_quantities(const TransformerOptions& options, DType dtype, index_t tokens) {
  const NoGrad values_only;
  const PlannedModules planned;
  Transformer model(options);
  model.to(dtype);
  Capture capture("*");
  (void)model(Tensor::zeros({1, tokens}, DType::i64));
  capture.stop();
  return quantities_of(capture, parse_schemes(model.scheme()));
}

// Returns the bytes of value, gradient and cause of each entry, for a text that is `longer` times as long.
double page_bytes(const std::vector<Quantity>& quantities, double longer) {
  double bytes = 0;
  for (const Quantity& quantity : quantities) {
    if (!quantity.probe || quantity.layer < 0) continue;
    const Axes axes(quantity);
    double entries = static_cast<double>(quantity.value.numel());
    for (const char of_tokens : {'i', 'j', 't'})
      if (axes.has(of_tokens)) entries *= longer;
    bytes += entries * (2 * static_cast<double>(size_of(quantity.value.dtype())) + 1);
  }
  return bytes;
}

}  // namespace

void require_small_page(const Subject& subject, std::size_t others) {
  const index_t tokens = subject.tokens.numel(), few = std::min<index_t>(tokens, 16);
  const std::vector<Quantity> quantities = planned_quantities(subject.model->options(), subject.dtype(), few);
  const auto bytes_at = [&](index_t length) {
    return page_bytes(quantities, static_cast<double>(length) / static_cast<double>(few));
  };
  const double runs = static_cast<double>(1 + others), most = static_cast<double>(most_bytes);
  const double bytes = bytes_at(tokens);
  if (bytes * runs <= most) return;
  index_t shorter = tokens;
  while (shorter > 1 && bytes_at(shorter) * runs > most) --shorter;
  const double fitting = std::floor(most / bytes) - 1;  // runs in addition to this one
  throw InputError("a page of ", tokens, " tokens", others > 0 ? to_text(" and of ", others, " more runs") : "",
      " would hold ", std::ceil(bytes * runs / (1 << 20)), " MiB of numbers; at most ", most_bytes >> 20,
      " required; --length ", shorter, " fits", others > 1 && fitting >= 1 ? to_text(", or ", fitting, " runs") : "",
      ", and --causes, --paths and --explain take any length");
}

std::string page_of(const Inspection& inspection, Besides besides) {
  require_small_page(inspection.subject(), besides.beside.size());
  std::string in_order;
  for (int stop = static_cast<int>(Stop::flat); stop <= static_cast<int>(Stop::sole); ++stop)
    in_order += to_text(in_order.empty() ? "" : ", ", to_string(static_cast<Stop>(stop)));
  const PageTable causes{.title = "How much of each gradient is zero, and why",
      .note = to_text("Percent of the entries of one head. A cause that only makes a gradient small (saturated, "
                      "leaking, cancels) is ",
          "counted in addition to the zeros. Of several causes one is named: on one way the nearest to the loss; in a "
          "sum, ",
          "where each alone would let a gradient pass, the first of: ", in_order, ". A masked pair hands on no cause."),
      .table = causes_of(inspection),
      .folded = true};
  const PageTable paths{.title = "Paths by which gradients came",
      .note =
          "Steps from the logits down to the quantity of the gradient. \"Along the whole\" is the projection of the "
          "path's "
          "part on the whole gradient; the paths of one gradient add up to 100.",
      .table = paths_table(inspection),
      .folded = true};
  Json data = json_of(inspection, besides.numbers, besides.edits, besides.links);
  data.add("patches", besides.patches).add("rivals", besides.rivals);
  return document_of(inspection.subject(), inspection.loss(), {causes, paths}, besides, data);
}

}  // namespace whence::look
