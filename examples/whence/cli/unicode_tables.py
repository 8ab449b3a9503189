#!/usr/bin/env python3
"""Writes unicode_tables.h: python3 unicode_tables.py > unicode_tables.h

Asks the regular-expression engine of the package `regex` about \\p{L} and \\p{N} for each code point from U+0080 on.
Its version decides which Unicode that is: regex 2026.11.15 has Unicode 17.0, which the file names.
"""
import itertools
import textwrap

import regex


def table(name, category):  # "L": the general category, with all below it
    within = [not 0xD800 <= code < 0xE000 and regex.match(rf"\p{{{category}}}", chr(code)) is not None
              for code in range(0x80, 0x110000)]
    counts = [str(len(list(run))) for _, run in itertools.groupby(within)]
    numbers = ", ".join(counts[:-1])  # without those behind the last that is some
    return textwrap.fill(f"inline constexpr std::uint16_t {name}[] = {{{numbers}}};", 120, subsequent_indent="    ")


print(f"""// The letters and numbers of Unicode 17.0 above ASCII: from U+0080 on, how many code points are none, how many are
// some, how many are none, and so on. Written by unicode_tables.py. Do not edit.
#pragma once

#include <cstdint>

namespace whence {{

{table("letter_counts", "L")}

{table("number_counts", "N")}

}}  // namespace whence""")
