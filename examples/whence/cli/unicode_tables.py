#!/usr/bin/env python3
"""Writes unicode_tables.cpp: python3 unicode_tables.py > unicode_tables.cpp

Asks the regular-expression engine of the package `regex` about \\p{L} and \\p{N} for each code point from U+0080 on.
Its version decides which Unicode that is: regex 2026.11.15 has Unicode 17.0, which the file and unicode_tables.h name.
"""
import regex


def ranges(category):
    found = []
    for code in range(0x80, 0x110000):
        if 0xD800 <= code < 0xE000 or not regex.match(rf"\p{{{category}}}", chr(code)):
            continue
        if found and found[-1][1] == code - 1:
            found[-1][1] = code
        else:
            found.append([code, code])
    return [f"{{0x{first:X}, 0x{last:X}}}" for first, last in found]


def table(name, category):  # "L": the general category, with all below it
    lines = [f"constexpr CodeRange {name}[] = {{"]
    entries = ranges(category)
    for number, entry in enumerate(entries):
        last = number == len(entries) - 1
        text = entry + ("};" if last else ",")
        space = "" if lines[-1].endswith("{") else " "
        if len(lines[-1]) + len(space) + len(text) <= 120:
            lines[-1] += space + text
        else:
            lines.append("    " + text)
    return "\n".join(lines)


print(f"""// The letters and numbers of Unicode 17.0 above ASCII, as ranges of code points.
// Written by unicode_tables.py. Do not edit.
#include "examples/whence/cli/unicode_tables.h"

namespace whence {{
namespace {{

{table("letters", "L")}

{table("numbers", "N")}

}}  // namespace

std::span<const CodeRange> letter_ranges() {{ return letters; }}
std::span<const CodeRange> number_ranges() {{ return numbers; }}

}}  // namespace whence""")
