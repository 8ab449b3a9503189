"""The texts of the papers' language rows (examples/experiments/texts.py), without a network: tests/pytest tests/examples/experiments/texts.py"""
import pathlib
import shutil
import struct
import subprocess
import zlib

import pytest

import texts
from outside import Refused

refused = lambda words: pytest.raises(Refused, match=words)


def test_novels_of_r():
    text = lambda line: struct.pack(">II", 0x8009, len(line.encode())) + line.encode()  # flags have an encoding, too
    vector = lambda lines: b"X\n\0\0\0\2" + struct.pack(">II", 16, len(lines)) + b"".join(map(text, lines)) + b"\0\0\0\xfe"
    long, short, none = [f"line {k} caf\u00e9" for k in range(2000)], ["a title"], b"X\n\0\0\0\2\0\0\0\xfe"
    database = b"".join(struct.pack(">I", len(each)) + zlib.compress(each) for each in (vector(long), vector(short), none, vector(long[:1500])))
    assert texts.novels(database) == ["\n".join(long), "\n".join(long[:1500])]


def test_the_record_is_of_these_texts():
    page = (pathlib.Path(texts.__file__).parents[1] / "whence/papers/README.md").read_text()
    assert all(f"{name}, SHA-256 {sum_}" in page for name, sum_ in texts.HASHES.items())


def test_the_sources(tmp_path):
    """From this clone, unless it is shallow; then and without git a sentence says what to do."""
    for words, call, arguments in (("git fetch --unshallow", texts.sources, (tmp_path,)), ("none here: ", texts.printed, (["none", "here"], tmp_path, "a program")),
                                   ("5dc38062", texts.keep, (tmp_path / "austen.txt", {"": b"another text"}))):
        with refused(words):
            call(*arguments)
    assert not (tmp_path / "austen.txt").exists()
    if shutil.which("git") and subprocess.run(["git", "cat-file", "-e", texts.COMMIT], cwd=texts.__file__.rpartition("/")[0], capture_output=True).returncode == 0:
        files = texts.sources()
        texts.keep(tmp_path / "whence-sources", files)
        assert len([path for path in tmp_path.rglob("*") if path.is_file()]) == len(files) > 200
