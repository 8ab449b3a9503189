"""Shared by the attacks: a run and its verdict, the small commands, safetensors files, and counts."""
import hashlib
import json
import os
import pathlib
import random
import re
import resource
import shutil
import signal
import struct
import subprocess
import time

CODES = {0, 1, 2, 3, 4, 5, 6, 7, 130}  # whence --help
SIZES = "--length 8 --dim 8 --heads 2 --layers 1 --batch 2".split()
TRAIN = ["train", "flip_flop", *SIZES, "--test-sequences", "4", "--quiet"]
RUN = [*TRAIN, "--steps", "4", "--save-every", "1", "--threads", "1"]
TEXT = "".join(f"the cat number {i} sat on mat {i * 7 % 13}.\n" for i in range(400))


class Ended:
    """The end of a run. A negative code is a signal; None: it was still running at its time limit."""

    def __init__(self, code, out, error, seconds):
        self.code, self.out, self.error, self.seconds = code, out, error, seconds

    def complaint(self, codes=CODES):
        """Returns the fault of this end, or None: a signal, a hang, an undocumented code, no message or more than one line."""
        said = self.error.decode(errors="replace").strip()
        if self.code is None:
            return f"still running after {self.seconds:.0f} s"
        if self.code < 0:
            return f"signal {-self.code} {said[-100:]!r}"
        if self.code not in codes:
            return f"exit code {self.code}, of {sorted(codes)}: {said[-160:]!r}"
        problems = [line for line in said.splitlines() if line.startswith("whence") or "what():" in line]
        if self.code not in (0, 130) and len(problems) != 1:
            return f"exit code {self.code} with {len(problems)} lines of message: {said[-160:]!r}"
        if len(said) > 20000:
            return f"{len(said)} bytes of message"
        return "sanitizer: " + said[-400:] if "Sanitizer" in said or "runtime error:" in said else None


class Attack:
    """One program under attack, a working folder, a seed, and an end time."""

    def __init__(self, program, folder, seed, end, build, python):
        self.program, self.folder, self.seed, self.end = str(pathlib.Path(program).resolve()), pathlib.Path(folder), seed, end
        self.build, self.python = pathlib.Path(build).resolve(), python
        self.random = random.Random(seed)
        # A program with AddressSanitizer needs terabytes of addresses, is slower, and cannot check for leaks under ptrace.
        self.sanitized = b"__asan_init" in pathlib.Path(program).read_bytes()
        self.inputs, self.failures, self.notes = 0, [], []

    def time_is_up(self):
        return time.time() > self.end

    def judge(self, wrong, command):
        """Records a failure, if there is one."""
        if wrong:
            self.failures.append((wrong, " ".join(map(str, command)) if isinstance(command, list) else command))

    def tool(self, name):
        """The path of a tool that CMake builds from this folder, in tests/ of the build."""
        path = self.build / "tests" / name
        if not path.exists():
            raise LookupError(f"no {path}; build it, without sanitizers where it is a library: cmake --build {self.build}")
        return path

    def run(self, arguments, limit=20, program=None, **settings):
        """Runs whence (or `program`, a list) and waits; at the time limit it is killed with its children. limits: {RLIMIT: value}."""
        limits, closed = dict(settings.pop("limits", {})), settings.pop("closed", ())

        def prepare():
            for name, value in limits.items():
                resource.setrlimit(name, (value, value))
            for descriptor in closed:
                os.close(descriptor)
        if self.sanitized:
            limit *= 5
            limits.pop(resource.RLIMIT_AS, None)
            if program:
                settings["env"] = {**settings.get("env", os.environ), "ASAN_OPTIONS": "detect_leaks=0"}
        began = time.time()
        process = subprocess.Popen([*(program or [self.program]), *map(str, arguments)], stdin=subprocess.DEVNULL, start_new_session=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=prepare, cwd=settings.pop("cwd", self.folder), **settings)
        try:
            out, error = process.communicate(timeout=limit)
            code = process.returncode
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            out, error = process.communicate()
            code = None
        return Ended(code, out, error, time.time() - began)

    def start(self, arguments, **settings):
        return subprocess.Popen([self.program, *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, cwd=self.folder,
                                stderr=subprocess.DEVNULL, start_new_session=True, **settings)

    def new(self, name):
        """A new path."""
        path = self.folder / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.exists() or path.is_symlink():
            path.unlink()
        return path

    def new_folder(self, name):
        path = self.new(name)
        path.mkdir()
        return path

    def judge_disturbed(self, ended, out, wanted, said, codes=CODES):
        """Judges the end of a disturbed RUN; then the same command must resume to the result of an undisturbed run."""
        self.inputs += 1
        self.judge(ended.complaint(codes), said)
        if ended.code != 0:
            ended, said = self.run(go_on(RUN, out), limit=60), f"{said}, and again"
        self.judge_end(ended, out, wanted, said)

    def judge_end(self, ended, out, wanted, said):
        """Resumes a run to its end: the result must be that of an undisturbed run, without temporary files."""
        left = [path.name for path in out.rglob("*") if ".tmp-" in path.name or "written-by" in path.name]
        self.judge(ended.complaint({0}) or (f"{left[0]} stays" if left else difference(result_of(out), wanted)), said)

    def text(self):
        path = self.folder / "text.txt"
        path.write_text(TEXT)
        return path

    def trained(self, name):
        """A small finished run."""
        out = self.new(name)
        ended = self.run([*RUN, "--out", out])
        assert ended.code == 0, ended.error
        return out

    def language(self, name):
        out = self.new(name)
        ended = self.run(["train", "lm", "--data", self.text(), *SIZES, "--steps", "4", "--save-every", "1", "--quiet", "--out", out])
        assert ended.code == 0, ended.error
        return out


def result_of(folder):
    """The result of a finished run: SHA-256 of its weights, and its log and scores without times."""
    weights = hashlib.sha256((folder / "weights.safetensors").read_bytes()).hexdigest()
    return weights, without_times(folder / "metrics.jsonl"), without_times(folder / "results.jsonl")


def difference(found, wanted):
    """The difference of two results, in words; None if they are equal."""
    return None if found == wanted else "other weights" if found[0] != wanted[0] else "another log" if found[1] != wanted[1] else "other scores"


def go_on(command, out):
    """The same command after a disturbed run: it resumes if there is a checkpoint, else starts again."""
    going_on = any(re.fullmatch(r"step-\d+", path.name) for path in out.glob("checkpoints/*"))
    if not going_on:
        shutil.rmtree(out, ignore_errors=True)
    return [*command, "--out", out, *(["--resume"] if going_on else [])]


def without_times(path):
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [{key: value for key, value in line.items() if "second" not in key and "time" not in key} for line in lines]


def flip(path, bit):
    data = bytearray(path.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)


def write_tensors(path, tensors):
    """tensors: name -> (shape, numbers in f64)."""
    header, numbers = {}, b""
    for name, (shape, values) in tensors.items():
        data = struct.pack(f"<{len(values)}d", *values)
        header[name] = {"dtype": "F64", "shape": shape, "data_offsets": [len(numbers), len(numbers) + len(data)]}
        numbers += data
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + numbers)
