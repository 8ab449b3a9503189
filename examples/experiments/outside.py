"""Files and texts of others, and failures, for all scripts here: a file is read whole, if it is one and fits; text that acts on a terminal or a
spreadsheet is written out; a script that fails ends with one line and the exit code of `whence`."""
from __future__ import annotations

import functools
import json
import os
import pathlib
import re
import stat
import sys
import unicodedata
from typing import Any, Callable

MOST = 1 << 28  # bytes of a text
CODES = {MemoryError: 5, OSError: 4, ValueError: 2, KeyboardInterrupt: 130, ImportError: 2}


class Refused(ValueError):
    """An input that is refused. The message says what was given and what is required."""


class NoFile(OSError):
    """A pipe, a device or a folder, or more bytes than a file of this kind may have."""


def read_bytes(path: str | os.PathLike, most: int = MOST) -> bytes:
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:  # a pipe without a writer is not waited for
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise NoFile(f"{path}: cannot read: not a regular file; a file required")
        read = file.read(min(most, max(found.st_size, 1 << 16)) + 1)
        if max(len(read), found.st_size) > most:
            raise NoFile(f"{path}: has {found.st_size} bytes; at most {most} required")
        return read


def read_text(path: str | os.PathLike) -> str:
    """Reads a text in UTF-8, without the byte order mark of some editors."""
    try:
        return read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        raise Refused(f"{path}: byte {problem.start} is not UTF-8: {problem}; UTF-8 required") from None


def once(fields: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(fields)
    if len(found) < len(fields):
        names = [name for name, _ in fields]
        raise ValueError(f"field {next(name for name in names if names.count(name) > 1)!r} given twice; once required")
    return found


def parsed(text: str, place: Any) -> dict[str, Any]:
    try:
        found = json.loads(text, object_pairs_hook=once)
    except (ValueError, RecursionError) as problem:
        raise Refused(f"{place}: no JSON: {problem}; one object required") from None
    if not isinstance(found, dict):
        raise Refused(f"{place}: no object; a JSON object required")
    return found


def read_json(path: str | os.PathLike) -> dict[str, Any]:
    return parsed(read_text(path), path)


def shown(text: Any) -> str:
    """The text on one line of a terminal, where `whence` too writes out what acts unseen: "\\x1b", "\\u{202e}"."""
    return "".join(f"\\x{ord(each):02x}" if each < " " or each == "\x7f" else f"\\u{{{ord(each):x}}}"
                   if unicodedata.category(each) in ("Cc", "Cf", "Cs", "Zl", "Zp") else each for each in str(text))


def cell(value: Any) -> Any:
    """The value for a CSV file: an apostrophe precedes a text that spreadsheets would read as a formula."""
    acts = isinstance(value, str) and re.match(r"[=+\-@\t\r]", value) and not re.fullmatch(r"[+-]?[\d.]+(e[+-]?\d+)?", value)
    return f"'{value}" if acts else value


def failure(problem: BaseException, script: str, refused: int = 2) -> int:
    """Prints one line, with both ends of a long message, and returns the exit code."""
    code = next((code for kind, code in CODES.items() if isinstance(problem, kind)), 1)
    text = shown(problem) if str(problem) and code != 1 else shown(f"{type(problem).__name__}: {problem}".removesuffix(": "))
    print(f"{script}: {text if len(text) <= 500 else f'{text[:248]}...{text[-248:]}'}", file=sys.stderr)
    return refused if code == 2 else code


def one_line(refused: int = 2) -> Callable:
    """A script's main whose every failure is one line and an exit code."""
    def made(main: Callable) -> Callable:
        @functools.wraps(main)
        def run(words: list[str] | None = None) -> int:
            try:
                return main(words)
            except (Exception, KeyboardInterrupt) as problem:
                return failure(problem, pathlib.Path(main.__code__.co_filename).name, refused)
        return run
    return made


if pathlib.Path(sys.argv[0]).resolve().parent == pathlib.Path(__file__).resolve().parent:  # Ctrl-C may come while a script imports
    sys.excepthook = lambda kind, problem, trace: os._exit(failure(problem, pathlib.Path(sys.argv[0]).name))
