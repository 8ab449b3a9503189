"""Every past failure as a named case: each takes an Attack and returns None, or in a few words what is still wrong."""
import gzip
import hashlib
import json
import math
import os
import re
import resource
import shutil
import signal
import subprocess
import time

from allocations import failing, how_many
from tools import SIZES, TRAIN, TEXT, flip, read_tensors, without_times, write_tensors

FINDINGS = []  # (number, name, function)
LAB = ["lab", "counting", "--schemes", "rope,absolute", "--seeds", "1", "--quiet", "--jobs", "1", "--set",
       "steps=2 dim=8 heads=2 layers=1 batch=2 test-sequences=4"]
BAD_FILE = {3, 7}


def finding(number, name):
    return lambda function: FINDINGS.append((number, name, function))


def ends(ended, codes, *words):
    """None where the run ended with one of the codes, a line of message, and these words in it."""
    wrong = ended.complaint(set(codes))
    if wrong or ended.code == 0:
        return wrong
    said = ended.error.decode(errors="replace")
    missing = [word for word in words if word not in said]
    return f"{missing[0]!r} is not named in {said.strip()[-160:]!r}" if missing else None


def lab_table(text):
    return [line for line in text.decode().splitlines() if line.startswith("counting ")]


def damaged_lab(attack, damage):
    """A finished lab, one of its files damaged, and the same command again: that run ends anew, with the same table."""
    out = attack.new("lab")
    table = lab_table(attack.run([*LAB, "--out", out]).out)
    damage(out / "absolute.0")
    again = attack.run([*LAB, "--out", out])
    return again.complaint({0}) or (None if lab_table(again.out) == table else "another table")


def change(name, edit):
    def damage(folder):
        (folder / name).write_text(edit((folder / name).read_text()))
    return damage


for kind, edit in [
        ("empty", lambda text: ""), ("without its first line", lambda text: text.split("\n", 1)[1]),
        ("with a text for a number", lambda text: re.sub(r'"token_error_percent":[\d.]+', '"token_error_percent":"x"', text))]:
    finding(1, f"lab: a results.jsonl {kind} is not believed")(lambda attack, edit=edit: damaged_lab(attack, change("results.jsonl", edit)))


@finding(1, "lab: a missing results.jsonl is not believed")
def _(attack):
    return damaged_lab(attack, lambda folder: (folder / "results.jsonl").unlink())


def resumed_with(attack, damage, words=("step-000003",)):
    out = attack.trained("run")
    shutil.rmtree(out / "checkpoints/step-000004")
    damage(out / "checkpoints/step-000003")
    ended = attack.run([*TRAIN, "--steps", "4", "--save-every", "1", "--resume", "--out", out])
    return "resumed from it" if ended.code == 0 else ends(ended, BAD_FILE, *words)


for part in ("weights", "optimizer"):
    def flipped(folder, part=part):
        path = folder / f"{part}.safetensors"
        flip(path, 8 * (path.stat().st_size * 3 // 4) + 1)
    finding(2, f"resume: a flipped bit in the numbers of {part}.safetensors is found")(lambda attack, flipped=flipped: resumed_with(attack, flipped))


@finding(2, "resume: two swapped tensors of one shape are found")
def _(attack):
    def swap(folder):
        path = folder / "weights.safetensors"
        data = bytearray(path.read_bytes())
        size = int.from_bytes(data[:8], "little")
        seen = {}
        for name, entry in json.loads(data[8:8 + size]).items():
            if name != "__metadata__":
                seen.setdefault(tuple(entry["shape"]), []).append([8 + size + at for at in entry["data_offsets"]])
        (a, b), (c, d) = next(places for shape, places in seen.items() if len(shape) == 1 and data[slice(*places[0])] != data[slice(*places[1])])[:2]
        data[a:b], data[c:d] = data[c:d], data[a:b]
        path.write_bytes(data)
    return resumed_with(attack, swap)


@finding(2, "generate: a flipped bit in the weights is found")
def _(attack):
    out = attack.language("lm")
    flip(out / "weights.safetensors", 8 * ((out / "weights.safetensors").stat().st_size * 3 // 4) + 1)
    ended = attack.run(["generate", "--run", out, "--tokens", "5", "--quiet"])
    return "drawn from it" if ended.code == 0 else ends(ended, BAD_FILE, "weights.safetensors")


@finding(3, "memory: a product's buffers that do not fit (280 to 640 MiB) are a message, no endless wait")
def _(attack):
    for size in range(280, 640, 40):
        ended = attack.run("train flip_flop --dim 512 --layers 4 --length 512 --batch 16 --steps 1 --test-sequences 1 --quiet --out".split() + [attack.new("run")],
                           limit=20, limits={resource.RLIMIT_AS: size << 20})
        wrong = ends(ended, {5})
        if wrong:
            return f"{size} MiB: {wrong}"


@finding(3, "memory: no program hangs at its start (195 MiB)")
def _(attack):
    return ends(attack.run(["schemes"], limit=10, limits={resource.RLIMIT_AS: 200000 * 1024}), {0, 5, 127})


@finding(4, "memory: one failing allocation is a message, never an abort (every 150th)")
def _(attack):
    numbers = range(1, how_many(attack)[1], 150)
    complaints = [(n, failing(attack, attack.new("run"), FAIL_ALLOCATION=n).complaint({0, 5})) for n in numbers]
    attack.inputs += len(numbers)
    bad = [f"WHENCE_FAIL_ALLOCATION={n}: {complaint}" for n, complaint in complaints if complaint]
    return f"{len(bad)} of {len(numbers)}: {bad[0]}" if bad else None


def shrinking(attack, arguments):
    text = attack.new("big.txt")
    text.write_bytes(TEXT.encode() * (64000000 // len(TEXT)))
    process = attack.start([*arguments, "--data", text])
    until = time.time() + 20
    while process.poll() is None and time.time() < until:
        try:
            mapped = "big.txt" in open(f"/proc/{process.pid}/maps").read()
            opened = any("big.txt" in os.readlink(f"/proc/{process.pid}/fd/{n}") for n in os.listdir(f"/proc/{process.pid}/fd"))
        except OSError:
            continue
        if mapped or opened:
            time.sleep(0.05)
            os.truncate(text, 1000)
            break
    try:
        code = process.wait(40)
    except subprocess.TimeoutExpired:
        code = None
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL), process.wait()
        text.unlink()
    return None if code in (0, 2, 3, 4) else "hangs" if code is None else f"signal {-code}" if code < 0 else f"exit code {code}"


@finding(5, "train lm: text that shrinks while it is read is no SIGBUS")
def _(attack):
    return shrinking(attack, ["train", "lm", *SIZES, "--steps", "1", "--quiet", "--out", attack.new("run")])


@finding(5, "tokenize: text that shrinks while it is read is no SIGBUS")
def _(attack):
    return shrinking(attack, ["tokenize", "--kind", "words", "--vocabulary", "100", "--out", attack.new("words.json")])


def nested(word, levels):
    return f"{word}(" * levels + "rope" + ")" * levels


for word, levels in (("dape", 15000), ("randomised", 2000)):
    @finding(6, f"schemes: {levels} levels of {word} are refused at once")
    def _(attack, word=word, levels=levels):
        ended = attack.run(["probe", "--describe", nested(word, levels)], limit=5)
        return ends(ended, {2}) or (f"{len(ended.error)} bytes of message" if len(ended.error) > 2000 else "accepted" if ended.code == 0 else None)


def with_run_json(attack, edits, arguments, limit=5, start="lm", codes=(2, 3)):
    """A run whose run.json says something else, and a command that reads it."""
    out = attack.language("lm") if start == "lm" else attack.trained("run")
    record = json.loads((out / "run.json").read_text())
    for path, value in edits.items():
        part, key = path.split("/")
        record[part][key] = value
    (out / "run.json").write_text(json.dumps(record))
    ended = attack.run([out / a if a.startswith("run.json") else out if a == "RUN" else a for a in arguments], limit=limit,
                       limits={resource.RLIMIT_AS: 6 << 30})
    return ends(ended, codes) or ("accepted" if ended.code == 0 else None)


GENERATE = ["generate", "--run", "RUN", "--tokens", "2", "--quiet"]
for name, arguments, edit in (("generate", GENERATE, "facts/model.scheme"), ("train --from", ["train", "--from", "run.json"], "options/scheme")):
    @finding(6, f"{name}: 20 000 levels of a scheme in a run.json are refused at once")
    def _(attack, arguments=arguments, edit=edit):
        return with_run_json(attack, {edit: nested("dape", 20000)}, arguments, start="lm" if arguments is GENERATE else "run")


@finding(7, "closed outputs: what is printed does not land in the run's files")
def _(attack):
    command = [attack.program, *[a for a in TRAIN if a != "--quiet"], "--steps", "30000", "--out"]
    closings = {"closed_error": "2>&- >/dev/null", "closed_both": "1>&- 2>&-"}
    processes = [subprocess.Popen(["sh", "-c", f'"$@" {how}', "sh", *command, attack.new(name)]) for name, how in closings.items()]
    for process in processes:
        process.wait(120)
    for name in closings:
        out = attack.folder / name
        if any(path.stat().st_size for path in (out / "checkpoints").glob("lock")):
            return f"{name}: checkpoints/lock is not empty"
        foreign = [line for line in (out / "metrics.jsonl").read_text().splitlines() if not line.startswith("{")]
        if foreign:
            return f"{name}: metrics.jsonl holds {foreign[0][:60]!r}"


def probed(attack, scheme, executor, padded, damaged=None):
    """The width of a head, and the output of attention on numbers of a fixed stream. padded: tokens 0 and 1 are; damaged: a token whose v is 1e30."""
    described = json.loads(attack.run(["probe", "--describe", scheme, "--length", "8", "--heads", "2", "--head-dim", "4"]).out)
    tensors = {}
    for tensor in described["tensors"]:
        if tensor["required"]:
            tensors[tensor["name"]] = (tensor["shape"], [int(hashlib.md5(f"{tensor['name']}{i}".encode()).hexdigest()[:6], 16) / 2**23 - 1 for i in range(math.prod(tensor["shape"]))])
    if "v" not in tensors:
        return None
    width = tensors["v"][0][-1]
    if padded:
        tensors["present"] = ([1, 8], [token > 1 for token in range(8)])
    if damaged is not None:
        tensors["v"][1][damaged * width] = 1e30  # of head 0
    source, target = attack.folder / "in.safetensors", attack.new("out.safetensors")
    write_tensors(source, tensors)
    ended = attack.run(["probe", "--scheme", scheme, "--in", source, "--out", target, "--executor", executor, "--init", "1", *(["--rows", "2"] if executor == "strips" else [])])
    return (width, read_tensors(target)["output"][1]) if ended.code == 0 else None


for executor in ("reference", "tiled", "strips"):
    for padded, where, token, rows in ((False, "a later v reaches no earlier row", 4, range(4)), (True, "the v of padding reaches no row of a token", 1, range(2, 8))):
        @finding(8, f"attention ({executor}): {where}, in any scheme")
        def _(attack, executor=executor, padded=padded, token=token, rows=rows):
            reached, tried = [], 0
            for line in attack.run(["schemes"]).out.decode().splitlines()[2:]:
                scheme = line.split(" ")[0].replace("SCHEME", "kerple")
                if not re.fullmatch(r"[a-z_0-9()]+", scheme) or line.startswith("whence"):
                    continue
                clean, damaged = probed(attack, scheme, executor, padded), probed(attack, scheme, executor, padded, token)
                if clean is None or damaged is None:
                    continue
                tried += 1
                seen = slice(clean[0] * rows.start, clean[0] * rows.stop)
                if clean[1][seen] != damaged[1][seen]:
                    reached.append(scheme)
            if tried < 5:
                return f"only {tried} schemes could be tried"
            return f"{len(reached)} of {tried} schemes, {reached[0]} first" if reached else None


@finding(9, "resume: metrics.jsonl is that of the undisturbed run")
def _(attack):
    options = ["--steps", "12", "--save-every", "1", "--log-every", "5", "--keep-checkpoints", "0", "--out"]
    out = attack.new("run")
    attack.run([*TRAIN, *options, out])
    whole = without_times(out / "metrics.jsonl")
    for k in range(3, 13):
        shutil.rmtree(out / f"checkpoints/step-{k:06}")
    for name in ("weights.safetensors", "results.jsonl", "results.csv", "metrics.csv"):
        (out / name).unlink()
    (out / "metrics.jsonl").write_text("")  # as killed after step 2
    ended = attack.run([*TRAIN, *options, out, "--resume"])
    if ended.code != 0:
        return ends(ended, {0})
    return None if without_times(out / "metrics.jsonl") == whole else f"{without_times(out / 'metrics.jsonl')[0]} in place of {whole[0]}"


def children_of(process):
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(process)], capture_output=True, text=True).stdout
    return [int(pid) for pid in found.split()]


def alive(pid):
    try:
        return open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


@finding(10, "lab: kill -9 leaves no orphan, and the same command goes on")
def _(attack):
    out = attack.new("lab")
    command = ["lab", "counting", "--schemes", "rope", "--seeds", "1", "--quiet", "--out", out, "--set",
               "steps=600 save-every=20 dim=8 heads=2 layers=1 batch=2 test-sequences=4"]
    lab = attack.start(command)
    children, until = [], time.time() + 10
    while time.time() < until and not (children and any(out.glob("*/checkpoints/step-*"))):
        children = children_of(lab.pid)
        time.sleep(0.01)
    lab.kill(), lab.wait()
    time.sleep(0.5)
    orphans = [pid for pid in children if alive(pid)]
    again = attack.run(command, limit=30)
    for pid in orphans:
        if alive(pid):
            os.kill(pid, signal.SIGKILL)
    if not children:
        return "no run of the lab was seen"
    return f"{len(orphans)} orphans go on; the same command: exit code {again.code}" if orphans else ends(again, {0})


@finding(11, "lab: schemes that differ by a minus sign have folders of their own")
def _(attack):
    out = attack.new("lab")
    ended = attack.run(["lab", "flip_flop", "--schemes", "forgetting(bias=1),forgetting(bias=-1)", "--seeds", "1", "--quiet", "--out", out, "--set",
                        "steps=2 dim=8 heads=2 layers=1 batch=2 test-sequences=4 length=8"])
    folders = [path.name for path in out.glob("forgetting*") if path.is_dir()]
    return ends(ended, {0}) or (f"folders {folders}" if len(folders) != 2 else None)


@finding(12, "ulimit -f: a message, no SIGXFSZ (10 sizes)")
def _(attack):
    wrong = []
    for size in range(1, 20, 2):
        ended = attack.run([*TRAIN, "--steps", "4", "--save-every", "1", "--out", attack.new("run")], limits={resource.RLIMIT_FSIZE: size * 1024})
        if ended.complaint({0, 4}):
            wrong.append(f"{size} KiB: {ended.complaint({0, 4})}")
    return f"{len(wrong)} of 10: {wrong[0]}" if wrong else None


for key, value in (("layers", 1000000000), ("layers", "1000000000"), ("hidden", -8), ("dim", 1 << 62), ("causal", False)):
    finding(13, f"generate: a run.json with model.{key} = {json.dumps(value)} is refused at once")(
        lambda attack, key=key, value=value: with_run_json(attack, {f"facts/model.{key}": value}, GENERATE))
for value in ("abc", "", "99999999999999999999"):
    finding(13, f"lab: --set steps={value} is bad usage, with its name")(
        lambda attack, value=value: ends(attack.run(["lab", "flip_flop", "--seeds", "1", "--quiet", "--set", f"steps={value}", "--out", attack.new("lab")],
                                                    limit=10), {2}, "steps"))


@finding(13, "probe: --describe 'absolute(rows=2)' is bad usage")
def _(attack):
    return ends(attack.run(["probe", "--describe", "absolute(rows=2)"]), {2})


for name in ("metrics.jsonl", "results.jsonl"):
    @finding(14, f"train: a pipe in the place of {name} is refused, no endless wait")
    def _(attack, name=name):
        out = attack.new("run")
        out.mkdir()
        os.mkfifo(out / name)
        ended = attack.run([*TRAIN, "--steps", "2", "--out", out], limit=10)
        return ends(ended, {4})

    for kind, link in (("symbolic", os.symlink), ("hard", os.link)):
        @finding(15, f"train: {name} as a {kind} link: what it leads to is left alone")
        def _(attack, name=name, link=link):
            out, other = attack.new("run"), attack.folder / "other.txt"
            out.mkdir()
            other.write_text("mine\n")
            link(other, out / name)
            ended = attack.run([*TRAIN, "--steps", "2", "--out", out])
            return ends(ended, {4}) or (f"it now holds {other.read_bytes()[:40]!r}" if other.read_text() != "mine\n" else None)


@finding(16, "train: temporary files of a killed run are gone after the next (killed at each rename)")
def _(attack):
    if not attack.injector:
        raise LookupError("no whence_inject")
    command = [attack.program, *TRAIN, "--steps", "4", "--save-every", "2", "--threads", "1", "--keep-best", "--validate-every", "2",
               "--validation-sequences", "2", "--out", attack.folder / "run"]
    log = attack.folder / "calls.txt"
    injector = [attack.injector, "--after", attack.folder / "run", "--log", log]
    attack.new("run")
    attack.run(["--", *command], program=injector)
    renames = [int(line.split()[0]) for line in log.read_text().splitlines() if " rename" in line or " unlink " in line and "written-by" in line]
    for n in renames:
        out = attack.new("run")
        attack.run(["--kill", n, "--", *command], program=injector)
        if attack.run([*command[1:], "--resume"]).code != 0:
            attack.run(command[1:])
        left = [str(path.relative_to(out)) for path in out.rglob("*") if "tmp" in path.name or "written-by" in path.name]
        if left:
            return f"killed at call {n}: {left[0]} stays"
    return None if len(renames) > 5 else f"only {len(renames)} renames seen"


@finding(17, "train --from: a run.json cannot name the folder that is written to")
def _(attack):
    out, elsewhere = attack.trained("run"), attack.new("elsewhere")
    record = json.loads((out / "run.json").read_text())
    record["options"]["out"] = str(elsewhere)
    record["given"].append("out")
    (out / "run.json").write_text(json.dumps(record))
    ended = attack.run(["train", "--from", out / "run.json", "--out", attack.new("again"), "--quiet"])
    inside = attack.run(["train", "--from", out / "run.json", "--quiet"], cwd=attack.new_folder("here"))
    return "it wrote there" if elsewhere.exists() else ends(ended, {2, 3}) or ends(inside, {2, 3})


@finding(17, "train --from: a fact of a run.json cannot be an option")
def _(attack):
    out, elsewhere = attack.language("lm"), attack.new("elsewhere")
    text = (out / "run.json").read_text()
    record = json.loads(text)
    record["facts"]["file"] = f"--out={elsewhere}"
    (out / "run.json").write_text(json.dumps(record))
    ended = attack.run(["train", "--from", out / "run.json", "--quiet"], cwd=attack.new_folder("here"))
    return "it wrote there" if elsewhere.exists() else ends(ended, {0, 2, 3})


def on_terminal(attack, arguments):
    """What a terminal gets of a command."""
    ours, theirs = os.openpty()
    process = subprocess.Popen([attack.program, *arguments], stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs, cwd=attack.folder, env={**os.environ, "NO_COLOR": "1"})
    os.close(theirs)
    said = b""
    try:
        while part := os.read(ours, 65536):
            said += part
    except OSError:  # how Linux ends a terminal that nobody has open any more
        pass
    os.close(ours), process.wait(20)
    assert said, "the terminal got nothing"
    return said


# What generate writes to a file or a pipe is its text as it is.
for place, arguments in (("train --out", lambda name: [*TRAIN, "--steps", "1", "--out", name]), ("probe --in", lambda name: ["probe", "--scheme", "rope", "--in", name]),
                         ("tokenize --out", lambda name: ["tokenize", "--data", "text.txt", "--kind", "words", "--vocabulary", "50", "--out", name]),
                         ("generate --prompt", lambda name: ["generate", "--run", "lm", "--tokens", "1", "--prompt", name])):
    @finding(18, f"{place}: no control character, U+009B or bidi override of a name reaches the terminal")
    def _(attack, place=place, arguments=arguments):
        attack.text()
        if place.startswith("generate"):
            attack.language("lm")
        for bad in ("\x1b[31m", "\a", "\u009b31m", "\u202e"):
            attack.new(f"a{bad}b")
            if bad.encode() in on_terminal(attack, arguments(f"a{bad}b")):
                return f"{bad!r} as it is"


def simple_probe(attack, behind_header=b"", names=0):
    source = attack.folder / "in.safetensors"
    tensors = {name: ([1, 2, 4, 4], [0.5] * 32) for name in "qkv"}
    tensors.update({f"name{i}": ([0], []) for i in range(names)})
    write_tensors(source, tensors, behind_header)
    return attack.run(["probe", "--scheme", "rope", "--in", source, "--out", attack.new("out.safetensors")])


@finding(19, "safetensors: what follows a NUL in the header is not ignored")
def _(attack):
    assert simple_probe(attack).code == 0, "the file is right without it"
    ended = simple_probe(attack, b"\0garbage")
    return "accepted" if ended.code == 0 else ends(ended, BAD_FILE, "in.safetensors")


@finding(19, "safetensors: a file of 100 000 unknown names is refused in a short line")
def _(attack):
    ended = simple_probe(attack, names=100000)
    return f"{len(ended.error)} bytes of message" if len(ended.error) > 4000 else ends(ended, {2, 3, 7}) or ("accepted" if ended.code == 0 else None)


@finding(19, "CSV: no cell begins with = or @")
def _(attack):
    other = attack.language("lm")
    scores = (other / "lengths.json").read_text()
    for start in ("=", "@"):
        renamed = re.sub(r'("(?:name|scheme)": ?")\w+', rf"\1{start}1+1", scores)
        other.rename(attack.new("other"))
        (attack.folder / "other/lengths.json").write_text(renamed)
        out = attack.new("beside")
        ended = attack.run(["train", "lm", "--data", attack.text(), *SIZES, "--steps", "1", "--quiet", "--beside", "other", "--out", out])
        cells = [cell for path in out.glob("*.csv") for line in path.read_text().splitlines() for cell in line.split(",")]
        bad = [cell for cell in cells if cell.strip('"').startswith(start)]
        if bad or renamed == scores or not cells:
            return f"a cell is {bad[:1]}; {len(cells)} cells; {ends(ended, {0})}"
        (attack.folder / "other").rename(other)


@finding(19, "train lm: a gzip file is not trained on without a word")
def _(attack):
    path = attack.folder / "text.gz"
    path.write_bytes(gzip.compress(b"".join(os.urandom(16) for _ in range(500))))
    ended = attack.run(["train", "lm", "--data", path, *SIZES, "--steps", "1", "--quiet", "--out", attack.new("run")])
    said = (ended.out + ended.error).replace(b"text.gz", b"").lower()
    return None if b"gzip" in said or b"compressed" in said else "trained on" if ended.code == 0 else f"exit code {ended.code}, without its kind"


@finding(19, "train lm: SIGINT is heeded within 2 s while 60 MB of text are read")
def _(attack):
    text = attack.new("big.txt")
    text.write_bytes(TEXT.encode() * (60000000 // len(TEXT)))
    attack.run(["tokenize", "--data", attack.text(), "--kind", "bpe", "--vocabulary", "400", "--out", "bpe.json"])
    process = attack.start(["train", "lm", "--data", text, "--tokeniser", "bpe.json", *SIZES, "--steps", "100000", "--quiet", "--out", attack.new("run")])
    time.sleep(0.3)
    began = time.time()
    process.send_signal(signal.SIGINT)
    try:
        code, seconds = process.wait(30), time.time() - began
    except subprocess.TimeoutExpired:
        process.kill(), process.wait()
        code, seconds = None, 30
    finally:
        text.unlink()
    return None if seconds < 2 and code == 130 else f"exit code {code} after {seconds:.1f} s"


@finding(19, "train: how much memory it will need is said beforehand")
def _(attack):
    ended = attack.run([*TRAIN, "--steps", "1", "--out", attack.new("run")])
    return None if re.search(rb"memory: [\d.]+ [KMG]iB", ended.out + ended.error) else "not said"


def attack_findings(attack, only=None):
    """All of them, as a table on standard output."""
    rows = []
    for number, name, check in FINDINGS:
        if only and not re.search(only, f"{number} {name}"):
            continue
        if attack.time_is_up():
            break
        began = time.time()
        try:
            wrong = check(attack)
        except LookupError as reason:
            wrong = f"SKIPPED: {reason}"
        except Exception as problem:  # whatever it is, the other findings are looked at
            wrong = f"the check itself: {type(problem).__name__}: {problem}"
        attack.inputs += 1
        verdict = "green" if wrong is None else "skip" if wrong.startswith("SKIPPED") else "red"
        rows.append((number, name, verdict))
        print(f"{number:2}  {verdict:5}  {name}{'' if wrong is None else ': ' + wrong[:300]}  ({time.time() - began:.1f} s)", flush=True)
        if verdict == "red":
            attack.failed(f"{number}: {name}: {wrong}", f"tests/attack/run findings --only '{re.escape(name)}'")
    count = [sum(row[2] == kind for row in rows) for kind in ("green", "red", "skip")]
    print(f"findings: {count[0]} green, {count[1]} red, {count[2]} skipped")
    attack.notes.append(f"{count[0]} of {len(rows)} hold")
