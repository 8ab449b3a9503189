#!/usr/bin/env python3
"""The two texts of the papers' language rows. These commands repeat the rows, on a Debian machine and in a clone with its history:

    examples/experiments/texts.py
    examples/experiments/reproduce.py all --check --data runs/texts/austen.txt --code runs/texts/whence-sources
    examples/experiments/reproduce.py dape/decay --preset deep --check --code runs/texts/whence-sources

austen.txt is six novels of Jane Austen, in the public domain, out of Debian's r-cran-janeaustenr. whence-sources is tensor, autograd and nn of a
fixed commit. A text is refused if its hash is not the recorded one.
"""
from __future__ import annotations

import argparse
import hashlib
import io
import pathlib
import struct
import subprocess
import sys
import tarfile
import tempfile
import zlib

import outside
from outside import Refused

COMMIT = "504dfcc340141fa92b71108a8626550115b5a569"
HASHES = {"austen.txt": "5dc38062e79abddfb1652f3aa2dcb5cc68f372215ca7102ffacb20e047382710",
          "whence-sources": "55397759beae7ebd46e41d19e51e25571295f858b9cd9a1f606a83aa2741c3e0"}


def printed(words: list[str], folder: str | pathlib.Path, required: str) -> bytes:
    try:
        return subprocess.run(words, cwd=folder, capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as problem:
        said = getattr(problem, "stderr", b"").decode(errors="replace").strip() or str(problem)
        raise Refused(f"{' '.join(words[:2])}: {said.splitlines()[-1]}; {required} required") from None


def files_of(archive: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        return {each.name: files.extractfile(each).read() for each in files if each.isfile()}


def novels(database: bytes) -> list[str]:
    """Reads R's lazy-load database: the length and zlib stream of each object. A novel is a vector of lines: type 16 and their number, then for each
    line flags, length and bytes."""
    found = []
    while database:
        stream = zlib.decompressobj()
        record, database = stream.decompress(database[4:]), stream.unused_data
        at, lines = record.find(b"\0\0\0\x10") + 8, []
        for _ in range(struct.unpack_from(">I", record, at - 4)[0] if at >= 8 else 0):
            end = at + 8 + struct.unpack_from(">I", record, at + 4)[0]
            lines.append(record[at + 8:end].decode())
            at = end
        found += ["\n".join(lines)] * (len(lines) > 1000)
    return found


def austen() -> dict[str, bytes]:
    with tempfile.TemporaryDirectory() as folder:
        printed(["apt-get", "download", "r-cran-janeaustenr"], folder, "a Debian machine with a network, after apt-get update,")
        package, = pathlib.Path(folder).glob("*.deb")
        files = files_of(printed(["dpkg-deb", "--fsys-tarfile", package.name], folder, "dpkg"))
    return {"": "\n\n".join(novels(next(files[name] for name in files if name.endswith("/data/Rdata.rdb")))).encode()}


def sources(clone: pathlib.Path = pathlib.Path(__file__).resolve().parents[2]) -> dict[str, bytes]:
    return files_of(printed(["git", "archive", COMMIT, "tensor", "autograd", "nn"], clone,
                            "a clone with its history (git fetch --unshallow brings that of a shallow one)"))


def keep(place: pathlib.Path, files: dict[str, bytes]) -> None:
    """Writes the files below `place` if they have the hash by which `whence train` names its text."""
    found = hashlib.sha256("".join(f"{hashlib.sha256(files[name]).hexdigest()}\n" for name in sorted(files)).encode()).hexdigest()
    if found != HASHES[place.name]:
        raise Refused(f"{place.name}: SHA-256 {found} given; {HASHES[place.name]} required")
    for name, content in files.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_bytes(content)
    print(f"{place}: SHA-256 {found}")


@outside.one_line()
def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default="runs/texts", help="folder of both texts (runs/texts)")
    out = parser.parse_args(words).out
    keep(out / "whence-sources", sources())
    keep(out / "austen.txt", austen())
    return 0


if __name__ == "__main__":
    sys.exit(main())
