#include "examples/report/report.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "examples/report/assets.h"
#include "examples/report/encode.h"
#include "examples/report/matrix.h"
#include "examples/report/plot.h"
#include "nn/io/files.h"
#include "tensor/error.h"

namespace whence::report {
namespace {

using nlohmann::json;

// ---- What contradicts itself is refused before anything is written

void check(const PageTable& table) {
  for (std::size_t row = 0; row < table.rows.size(); ++row) {
    if (table.rows[row].size() == table.header.size()) continue;
    throw Error("report: table '", table.title, "': row ", row, " has ", table.rows[row].size(),
        " cells; the header has ", table.header.size(), "; give every row one cell per column");
  }
}

void check(const HeatMap& map, const Page& page) {
  const std::string place = to_text("report: map '", map.name, "' of layer ", map.layer, ", head ", map.head, ": ");
  const std::size_t rows = page.row_tokens.size(), columns = page.column_tokens.size();
  if (map.rows < 1 || map.columns < 1 || static_cast<std::size_t>(map.rows) != rows ||
      static_cast<std::size_t>(map.columns) != columns) {
    throw Error(place, "it is ", map.rows, " x ", map.columns, "; the page has ", rows, " row tokens and ", columns,
        " column tokens; give one token per row and column, at least one of each");
  }
  if (map.values.size() != rows * columns) {
    throw Error(
        place, map.values.size(), " values for ", rows, " x ", columns, " cells; give one per cell, NaN where masked");
  }
  if (!std::isfinite(map.low) || !std::isfinite(map.high) || map.low > map.high)
    throw Error(place, "colour range ", map.low, " to ", map.high, "; it must be finite and not descend");
  // Off-centre, the neutral colour would no longer mean zero.
  if (map.scale == HeatMap::Scale::diverging && map.low != -map.high)
    throw Error(place, "diverging colour range ", map.low, " to ", map.high, "; it must be symmetric about 0");
}

void check(const Page& page) {
  for (const PageTable& table : page.tables) check(table);
  // Two maps of one name, layer and head would hide each other in the viewer.
  std::set<std::tuple<std::string, int, int>> seen;
  for (const HeatMap& map : page.maps) {
    check(map, page);
    if (!seen.emplace(map.name, map.layer, map.head).second) {
      throw Error(
          "report: map '", map.name, "' of layer ", map.layer, ", head ", map.head, ": given twice; give it once");
    }
  }
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

// Tables and plots are complete without script: only the heat maps need one.
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

// ---- Heat maps

// Values as base64 of little-endian float32: exact, and masked cells cost one bit each.
json embedded(const HeatMap& map) {
  std::vector<std::uint8_t> shown((map.values.size() + 7) / 8), bytes;
  bool masked = false;
  for (std::size_t cell = 0; cell < map.values.size(); ++cell) {
    if (std::isnan(map.values[cell])) {
      masked = true;
      continue;
    }
    shown[cell / 8] = static_cast<std::uint8_t>(shown[cell / 8] | 1u << cell % 8);
    const auto word = std::bit_cast<std::uint32_t>(map.values[cell]);
    for (unsigned shift = 0; shift < 32; shift += 8) bytes.push_back(static_cast<std::uint8_t>(word >> shift & 0xFFu));
  }
  return {{"name", map.name}, {"caption", map.caption},
      {"scale", map.scale == HeatMap::Scale::diverging ? "diverging" : "sequential"}, {"low", map.low},
      {"high", map.high}, {"layer", map.layer}, {"head", map.head}, {"rows", map.rows}, {"columns", map.columns},
      {"shown", masked ? base64(shown) : ""}, {"values", base64(bytes)}};
}

// JSON that cannot end its <script> element: pure ASCII, invalid UTF-8 replaced,
// and no '<' left (it only occurs inside strings).
std::string embedded(const Page& page) {
  json data = {{"rows", page.row_tokens}, {"columns", page.column_tokens}, {"maps", json::array()}};
  for (const HeatMap& map : page.maps) data["maps"].push_back(embedded(map));
  std::string safe;
  for (const char c : data.dump(-1, ' ', true, json::error_handler_t::replace))
    if (c == '<')
      safe += "\\u003c";
    else
      safe += c;
  return safe;
}

// The maps in numbers, for readers without script or sight of the colours.
PageTable ranges(const Page& page) {
  PageTable table{"", "", {"quantity", "layer", "head", "cells shown", "smallest", "mean", "largest"}, {}};
  for (const HeatMap& map : page.maps) {
    double sum = 0, low = INFINITY, high = -INFINITY;
    std::size_t count = 0;
    for (const float value : map.values) {
      if (std::isnan(value)) continue;
      sum += static_cast<double>(value), ++count;
      low = std::min(low, static_cast<double>(value)), high = std::max(high, static_cast<double>(value));
    }
    const bool any = count > 0;
    table.rows.push_back({map.name, std::to_string(map.layer), std::to_string(map.head), std::to_string(count),
        any ? number(low) : "-", any ? number(sum / static_cast<double>(count)) : "-", any ? number(high) : "-"});
  }
  return table;
}

std::string map_section(const Page& page) {
  if (page.maps.empty()) return "";
  std::string out = "<section id=\"maps\"><h2>" + escape(page.map_title) + "</h2>\n" + paragraphs(page.map_note);
  out += "<noscript><p>The heat maps are drawn by a script inside this file, which is switched off here. ";
  out += "Their ranges are listed below.</p></noscript>\n<div id=\"viewer\"></div>\n";
  out += "<details><summary>Smallest, mean and largest value of every map</summary>\n" + table_html(ranges(page)) +
         "</details></section>\n";
  return out;
}

// A function scope each, so that the page has no global names.
std::string scripts(const Page& page) {
  std::string out;
  if (!page.matrices.empty()) out += to_text("<script>\n(() => {\n", table_script, "})();\n</script>\n");
  if (page.maps.empty()) return out;
  return to_text(out, "<script type=\"application/json\" id=\"map-data\">", embedded(page),
      "</script>\n<script>\n(() => {\n", viewer_script, "})();\n</script>\n");
}

}  // namespace

std::string html(const Page& page) {
  check(page);
  // The policy makes the browser itself refuse anything from outside of this file.
  std::string out = "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n";
  out += "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; ";
  out += "script-src 'unsafe-inline'\">\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n";
  out +=
      "<title>" + escape(page.title) + "</title>\n<style>" + std::string(style_sheet) + "</style>\n</head>\n<body>\n";
  out += "<div class=\"top\"><h1>" + escape(page.title) + "</h1><div id=\"theme\"></div></div>\n";
  if (!page.verdict.empty()) out += "<p class=\"verdict\">" + escape(page.verdict) + "</p>\n";
  out += paragraphs(page.introduction) + results(page) + map_section(page);
  if (!page.footnotes.empty()) {
    out += "<footer>\n";
    for (const std::string& note : page.footnotes) out += paragraphs(note);
    out += "</footer>\n";
  }
  return out + scripts(page) + "</body>\n</html>\n";
}

void write(const Page& page, const std::string& path) { write_file(path, html(page)); }

}  // namespace whence::report
