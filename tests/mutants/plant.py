#!/usr/bin/env python3
"""Plants the faults of list.txt, and names the tests that find them: plant.py [--folder DIR] [--jobs N] [NAME...]

All faults are planted into one copy of the tree, which is built once: WHENCE_MUTANT=N in the environment chooses one when a program starts. The
tests that list.txt names run first, and then, if they pass, all others. The table, also in DIR/build/release/mutants.tsv, has what found each fault; a fault
that nothing found is a failure.
"""
import argparse
import os
import pathlib
import re
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
SWITCH = "\n#include <cstdlib>\nextern const int whence_mutant;\nconst int whence_mutant = " \
         "std::atoi(std::getenv(\"WHENCE_MUTANT\") ? std::getenv(\"WHENCE_MUTANT\") : \"0\");\n"


def mutants():
    lines = (HERE / "list.txt").read_text().partition("\n\n")[2].splitlines()
    for number, (head, right, wrong) in enumerate(zip(*[iter(lines)] * 3, strict=True), 1):
        name, file, *tests = head.split()
        yield {"number": number, "name": name, "file": file, "tests": tests, "right": right[2:], "wrong": wrong[2:]}


def plant(tree, all_mutants):
    files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout.decode().split("\0")
    planted = {}
    for mutant in all_mutants:
        file = mutant["file"]
        text = planted.get(file) or "extern const int whence_mutant;\n" + (ROOT / file).read_text()
        right, wrong, chosen = mutant["right"], mutant["wrong"], f"whence_mutant == {mutant['number']}"
        if text.count(right) != 1:
            sys.exit(f"{mutant['name']}: {file} has this {text.count(right)} times; once required: {right}")
        both = f"if ({chosen}) {{ {wrong} }} else {{ {right} }}" if right.endswith(";") else f"({chosen} ? ({wrong}) : ({right}))"
        planted[file] = text.replace(right, both)
    planted["tensor/error.cpp"] = (planted.get("tensor/error.cpp") or (ROOT / "tensor/error.cpp").read_text()) + SWITCH
    for file in tree.rglob("*"):  # removed since
        if file.is_file() and not file.is_relative_to(tree / "build") and str(file.relative_to(tree)) not in files:
            file.unlink()
    for file in filter(None, files):
        text, to = planted.get(file), tree / file
        bytes_now = text.encode() if text else (ROOT / file).read_bytes()
        if to.is_file() and to.read_bytes() == bytes_now:
            continue  # keeps its time, so that nothing is built again
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_bytes(bytes_now)
        to.chmod((ROOT / file).stat().st_mode)


def build(tree, folder, jobs):
    subprocess.run(["cmake", "--preset", "release"], cwd=tree, stdout=subprocess.DEVNULL, check=True)
    subprocess.run(["cmake", "--build", folder, "--parallel", str(jobs), "--target", "whence_tests", "whence_tests_emulated"],
                   stdout=subprocess.DEVNULL, check=True)


def found_by(folder, entry, number):
    """Returns what failed first in a file of tests (or in all, if `entry` is "*"), as `entry: case`; None if all passed."""
    emulated = entry.startswith("cuda/")
    place = folder / "tests/scratch/mutants"
    place.mkdir(parents=True, exist_ok=True)
    try:
        run = subprocess.run([folder / "tests" / ("whence_tests_emulated" if emulated else "whence_tests"), f"--source-file=*/{entry}.cpp",
                              "--abort-after=1"], cwd=place, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                             env=dict(os.environ, WHENCE_MUTANT=str(number), WHENCE_EMULATOR_SHARED="99K"), timeout=1200)
    except subprocess.TimeoutExpired:
        return f"{entry}: time"
    if run.returncode == 0:
        return None
    cases = re.findall(r"TEST CASE:\s+(.*)", run.stdout.partition("ERROR: ")[0])  # a message shows its case as well
    return f"{entry}: {cases[-1].strip() if cases else f'exit {run.returncode}'}"


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--folder", type=pathlib.Path, default=ROOT / "build/mutants", help="of the copy")
    arguments.add_argument("--jobs", type=int, default=os.cpu_count())
    arguments.add_argument("names", nargs="*", metavar="NAME", help="only these")
    options = arguments.parse_args()
    tree, everything = options.folder, list(mutants())
    folder = tree / "build/release"  # as in the tree itself, so that ccache knows what was compiled there
    plant(tree, everything)
    build(tree, folder, options.jobs)
    rows, began = [], time.time()
    for mutant in everything:
        if options.names and mutant["name"] not in options.names:
            continue
        by = next(filter(None, (found_by(folder, entry, mutant["number"]) for entry in [*mutant["tests"], "*"])), "NOTHING")
        rows.append((mutant["name"], mutant["file"], by))
        print("{:26} {:48} {}".format(*rows[-1]), flush=True)
    for entry in {by.split(":")[0] for *_, by in rows} - {"NOTHING"}:
        if by := found_by(folder, entry, 0):
            sys.exit(f"without a fault, too: {by}")
    found = sum(by != "NOTHING" for *_, by in rows)
    rows.append((f"{found} of {len(rows)} found", "", f"{time.time() - began:.0f} s"))
    print("{:26} {:48} {}".format(*rows[-1]))
    (folder / "mutants.tsv").write_text("".join("\t".join(row) + "\n" for row in rows))
    sys.exit(found < len(rows) - 1)


if __name__ == "__main__":
    main()
