"""Checks that no two files that CMake may compile together (WHENCE_UNITE) have a function of one name that is local to each: an overload would be
chosen among both, in silence.   names.py SOURCE_DIR"""
import collections
import pathlib
import re
import sys

SOURCE = pathlib.Path(sys.argv[1])
UNITED = ["tensor/*.cpp tensor/plain/*.cpp", "autograd/*.cpp autograd/ops/*.cpp autograd/check/*.cpp autograd/inspect/*.cpp autograd/joined/*.cpp",
          "nn/**/*.cpp", *(f"{room.relative_to(SOURCE)}/*.cpp" for room in sorted((SOURCE / "examples/whence").iterdir()) if room.name not in ("bench", "python") and room.is_dir())]
FUNCTION = re.compile(r"(?:template <.*> )?(?!using\b|return\b|namespace\b|extern\b)[\w\[][\w:<>,&*\[\] ]*? [&*]?(\w+)\(")


def local_functions(text):
    """Names of functions in unnamed namespaces, and of static ones. clang-format puts both at the beginning of a line."""
    unnamed = False
    for line in text.splitlines():
        unnamed = line.startswith("namespace {") or unnamed and line != "}  // namespace"
        if (unnamed or line.startswith("static ")) and (found := FUNCTION.match(line)):
            yield found[1]


faults, count = [], 0
for patterns in UNITED:
    homes = collections.defaultdict(set)
    for path in (path for pattern in patterns.split() for path in SOURCE.glob(pattern)):
        for name in local_functions(path.read_text()):
            homes[name].add(str(path.relative_to(SOURCE)))
    homes = {name: paths for name, paths in homes.items() if name not in ("checked", "registered")}  # CMake keeps these apart
    count += len(homes)
    faults += [f"{name}: is local to {', '.join(sorted(paths))}; one name for each required" for name, paths in homes.items() if len(paths) > 1]
print(*faults, f"names: {count} local functions, {len(faults)} names in two files", sep="\n")
sys.exit(1 if faults or count < 500 else 0)
