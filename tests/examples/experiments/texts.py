#!/usr/bin/env python3
"""Tests the texts of the papers' language rows (examples/experiments/texts.py), without a network: python3 tests/examples/experiments/texts.py"""
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import zlib

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "examples/experiments"))
sys.dont_write_bytecode = True
import texts
from outside import Refused


def refused(words, call, *arguments):
    try:
        call(*arguments)
    except Refused as problem:
        assert words in str(problem), problem
        return
    raise AssertionError(f"{words}: not refused")


def test_novels_of_r():
    text = lambda line: struct.pack(">II", 0x8009, len(line.encode())) + line.encode()  # flags have an encoding, too
    vector = lambda lines: b"X\n\0\0\0\2" + struct.pack(">II", 16, len(lines)) + b"".join(map(text, lines)) + b"\0\0\0\xfe"
    long, short, none = [f"line {k} caf\u00e9" for k in range(2000)], ["a title"], b"X\n\0\0\0\2\0\0\0\xfe"
    database = b"".join(struct.pack(">I", len(each)) + zlib.compress(each) for each in (vector(long), vector(short), none, vector(long[:1500])))
    assert texts.novels(database) == ["\n".join(long), "\n".join(long[:1500])]


def test_the_sources():
    """From this clone, unless it is shallow; then and without git a sentence says what to do."""
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        refused("git fetch --unshallow", texts.sources, folder)
        if shutil.which("git") and subprocess.run(["git", "cat-file", "-e", texts.COMMIT], cwd=ROOT, capture_output=True).returncode == 0:
            files = texts.sources()
            texts.keep(folder / "whence-sources", files)
            assert len([path for path in folder.rglob("*") if path.is_file()]) == len(files) > 200
        else:
            print("  skipped: no git, or this clone lacks the commit")
        refused("5dc38062", texts.keep, folder / "austen.txt", {"": b"another text"})
        refused("none here: ", texts.printed, ["none", "here"], folder, "a program")
        assert not (folder / "austen.txt").exists()


def test_the_record_is_of_these_texts():
    page = (ROOT / "examples/whence/papers/README.md").read_text()
    assert all(f"{name}, SHA-256 {sum_}" in page for name, sum_ in texts.HASHES.items())


for name, test in list(globals().items()):
    if name.startswith("test_"):
        test()
        print(f"{name[5:].replace('_', ' ')}: ok")
