#!/usr/bin/env python3
"""Writes unicode_tables.cpp: python3 unicode_tables.py > unicode_tables.cpp

Asks the regular-expression engine of the package `regex` about \\p{L} and \\p{N} for each code point from U+0080 on.
Its version decides which Unicode that is: regex 2026.11.15 has Unicode 17.0, which the file and unicode_tables.h name.
"""
import textwrap

import regex


def table(name, category):  # "L": the general category, with all below it
    counts, within = [0], False
    for code in range(0x80, 0x110000):
        is_one = not 0xD800 <= code < 0xE000 and regex.match(rf"\p{{{category}}}", chr(code)) is not None
        if is_one != within:
            counts.append(0)
            within = is_one
        counts[-1] += 1
    numbers = ", ".join(str(count) for count in counts[:-1])  # without what is behind the last range
    return textwrap.fill(f"constexpr std::uint16_t {name}[] = {{{numbers}}};", 120, subsequent_indent="    ")


print(f"""// The letters and numbers of Unicode 17.0 above ASCII: from U+0080 on, how many code points are none, how many are
// some, how many are none, and so on. Written by unicode_tables.py. Do not edit.
#include "examples/whence/cli/unicode_tables.h"

#include <vector>

namespace whence {{
namespace {{

{table("letters", "L")}

{table("numbers", "N")}

std::vector<CodeRange> ranges_of(std::span<const std::uint16_t> counts) {{
  std::vector<CodeRange> ranges;
  std::uint32_t code = 0x80;
  for (std::size_t k = 0; k < counts.size(); k += 2) {{
    const std::uint32_t first = code + counts[k];
    code = first + counts[k + 1];
    ranges.push_back({{first, code - 1}});
  }}
  return ranges;
}}

}}  // namespace

std::span<const CodeRange> letter_ranges() {{
  static const std::vector<CodeRange> ranges = ranges_of(letters);
  return ranges;
}}

std::span<const CodeRange> number_ranges() {{
  static const std::vector<CodeRange> ranges = ranges_of(numbers);
  return ranges;
}}

}}  // namespace whence""")
