// What a laboratory leaves: tables on the screen, and files.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "examples/whence/lab/figures.h"
#include "examples/whence/lab/tables.h"

namespace whence {

struct Findings {
  Findings(const std::vector<std::string>& varied, bool text) : axes(varied), tables(axes, text) {}

  std::vector<std::string> axes;
  std::string introduction;
  LongTables tables;
  std::vector<CrossTable> crossed;
  std::vector<Figure> figures;
};

// Everything for a terminal; of differences only as many as can be read there.
[[nodiscard]] std::string text_of(const Findings& found);

// report.html, CSV, SVG, and lab.json with all runs.
void write_findings(const std::filesystem::path& folder, const std::string& title, const Findings& found,
    const std::vector<Grid>& grids);

}  // namespace whence
