"""Files that CMake compiles together (WHENCE_UNITE) must not share a local name. Of two functions the compiler would choose an overload
silently.   names.py SOURCE_DIR"""
import collections
import pathlib
import re
import sys

SOURCE = pathlib.Path(sys.argv[1])
UNITED = ["tensor/*.cpp tensor/kernels/*.cpp", "autograd/*.cpp autograd/ops/*.cpp autograd/check/*.cpp autograd/inspect/*.cpp autograd/tiled/*.cpp",
          "nn/**/*.cpp", *(f"{room.relative_to(SOURCE)}/*.cpp" for room in sorted((SOURCE / "examples/whence").iterdir()) if room.name not in ("bench", "python", "verify") and room.is_dir())]
FUNCTION = r"(?:template <.*> )?(?!using\b|return\b|namespace\b|extern\b)[\w\[][\w:<>,&*\[\] ]*? [&*]?(\w+)\("
TYPE = r"(?:template <.*> )?(?:struct|class|enum class|enum) (\w+) [^;]*$"
VARIABLE = r"(?:static |inline |thread_local |constinit )*(?:constexpr|const) [\w:<>,*& ]+? (\w+)(?: =|\{|\[)"


def local_names(text):
    """Names in unnamed namespaces, and of static functions. clang-format puts them at the beginning of a line."""
    unnamed = False
    for line in text.splitlines():
        unnamed = line.startswith("namespace {") or unnamed and line != "}  // namespace"
        for kind in (FUNCTION, TYPE, VARIABLE) if unnamed else (FUNCTION,) if line.startswith("static ") else ():
            if found := re.match(kind, line):
                yield found[1]
        if unnamed and (found := re.match(r"enum \w*(?: : [\w:]+)? \{(.*)\}", line)):
            yield from re.findall(r"\w+", re.sub(r"=[^,]*", "", found[1]))


faults, count = [], 0
for patterns in UNITED:
    homes = collections.defaultdict(set)
    for path in (path for pattern in patterns.split() for path in SOURCE.glob(pattern)):
        for name in local_names(path.read_text()):
            homes[name].add(str(path.relative_to(SOURCE)))
    homes = {name: paths for name, paths in homes.items() if name not in ("checked", "registered")}  # CMake keeps these apart
    count += len(homes)
    faults += [f"{name}: is local to {', '.join(sorted(paths))}; one name for each required" for name, paths in homes.items() if len(paths) > 1]
print(*faults, f"names: {count} local names, {len(faults)} in two files", sep="\n")
sys.exit(1 if faults or count < 500 else 0)
