"""Checks that whence_core is self-contained: no file of it includes one outside, and its archive needs no other symbol of whence or of a
library. Prints its lines of code.   core.py SOURCE_DIR ARCHIVE SOURCES...   (SOURCES: the files of the archive, as CMake has them)"""
import pathlib
import re
import subprocess
import sys

FOREIGN = r"^(cblas_|openblas_|pthread_create|MPI_|cu[A-Z])"


def included(text):
    return re.findall(r'^\s*#\s*include\s+"([^"]+)"', text, re.M)


def files_of(source, sources):
    """Returns the sources and all included headers; an include outside the core's folders is an error."""
    folders = {str(pathlib.Path(path).parent) for path in sources}
    found, waiting, outside = {}, list(sources), []
    while waiting:
        path = waiting.pop()
        if path in found:
            continue
        found[path] = (source / path).read_text()
        for header in included(found[path]):
            alone = header.endswith(".h") and str(pathlib.Path(header).parent) in folders
            has_source = (source / header).with_suffix(".cpp").exists() and header[:-2] + ".cpp" not in sources
            if alone and not has_source:
                waiting.append(header)
            else:
                outside.append(f"{path}: includes {header}, which is outside of the core")
    return found, outside


def symbols_of(archive):
    """Returns the symbols that the archive needs, and those that it defines."""
    wanted, defined = set(), set()
    for line in subprocess.run(["nm", archive], capture_output=True, text=True, check=True).stdout.splitlines():
        kind, _, name = line[17:].partition(" ")
        if name:
            (wanted if kind == "U" else defined).add(name)
    return wanted, defined


def main():
    source, archive, sources = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3:]
    sources = [str(pathlib.Path(path).resolve().relative_to(source.resolve())) for path in sources]
    found, faults = files_of(source, sources)
    wanted, defined = symbols_of(archive)
    faults += [f"undefined: {name}" for name in sorted(wanted - defined) if "6whence" in name or re.match(FOREIGN, name)]
    print(f"whence_core: {len(found)} files, {sum(text.count(chr(10)) for text in found.values())} lines")
    for fault in faults:
        print(fault)
    return 1 if faults else 0


sys.exit(main())
