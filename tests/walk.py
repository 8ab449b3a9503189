#!/usr/bin/env python3
"""tests/walk.py SOURCE [FOLDER]: runs README.md in its order, like a reader. It clones SOURCE's commit into FOLDER (default:
a new one) and runs every line of a `sh` block there as printed, in one shell, and nothing else. Prints each line with its exit code and
seconds; ends with 1 at the first failure. ./tests/run, which CI runs itself, is left out."""
import pathlib
import re
import subprocess
import sys
import tempfile
import time

LEFT_OUT = "./tests/run"


def lines_of(readme):
    """The lines of README.md's shell blocks, in order."""
    return [line for block in re.findall(r"^```sh\n(.*?)^```", readme, re.S | re.M) for line in block.splitlines() if line.strip()]


def main(source, folder):
    clone = pathlib.Path(folder) / "whence"
    subprocess.run(["git", "clone", "-q", source, clone], check=True)
    lines = lines_of((clone / "README.md").read_text())
    if len(lines) < 9:
        sys.exit(f"walk.py: {len(lines)} lines found in README.md; the two commands, that of g++ and the block of whence required")
    table = re.search(r"^(scheme +in distribution %.*?)\n```", (clone / "README.md").read_text(), re.S | re.M)[1].split("\n")
    table = table if "avx512f" in pathlib.Path("/proc/cpuinfo").read_text() else table[:1]
    with subprocess.Popen(["bash"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=clone) as shell:
        for line in lines:
            if line.startswith(LEFT_OUT):
                print(f"  left out  {line}")
                continue
            began = time.monotonic()
            # The line's input is empty, because the rest of the shell's input is ours.
            shell.stdin.write(f"{{ {line}\n}} </dev/null; echo walked:$?\n")
            shell.stdin.flush()
            said = []
            for each in shell.stdout:
                if match := re.search(r"walked:(\d+)$", each):
                    break
                said.append(each)
            else:
                sys.exit(f"walk.py: the shell ended at: {line}\n{''.join(said[-20:])}")
            print(f"{match[1]:>4} {time.monotonic() - began:7.1f} s  {line}", flush=True)
            if match[1] != "0":
                sys.exit("".join(said[-20:]))
            rows = table if line.startswith("./examples/quickstart") else []  # digits are those of one kind of processor
            if lacking := [row for row in rows if f"{row}\n" not in "".join(said)]:
                sys.exit(f"walk.py: README.md's {lacking[0]!r} is not what the quickstart prints")
            if "--edit" in line and abs(float(re.search(r"^gates .* (\S+)$", "".join(said), re.M)[1])) < 0.1:
                sys.exit(f"walk.py: the edit changes the loss by less than 0.1:\n{''.join(said)}")
        shell.stdin.close()
    print(f"walk.py: {len(lines)} lines of README.md, in its order, in a clone that ran nothing else")


if __name__ == "__main__":
    if len(sys.argv) > 2:
        main(sys.argv[1], sys.argv[2])
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(sys.argv[1], temporary)
