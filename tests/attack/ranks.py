"""Ranks of one training: killed, stopped, interrupted, out of disk at random times; the others name it and end in time; resumed by
another number of ranks the bits are those of one process."""
import os
import pathlib
import resource
import shutil
import signal
import subprocess
import time

from tools import SIZES, Ended, difference, has_checkpoint, result_of

COMMAND = ["train", "flip_flop", "--scheme", "cope", *SIZES, "--test-sequences", "4", "--quiet", "--accumulate", "8", "--steps", "250", "--save-every", "15"]
LIMIT = 3  # seconds that a rank waits for one that neither dies nor answers


def ranks_of(process):
    """The processes that it started."""
    try:
        return [int(child) for child in pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]
    except OSError:
        return []


def attack_ranks(attack, whole=False):
    out = attack.new("whole")
    began = time.time()
    ended = attack.run([*COMMAND, "--out", out], limit=60)
    assert ended.code == 0, ended.error
    wanted, seconds, slow = result_of(out), time.time() - began, 5 if attack.sanitized else 1
    faults = ["kill", "kill all", "interrupt", "terminate", "disk", *(["stop"] if whole else [])]  # after a stop whence waits for a minute
    counts = {"kill": 0, "stop": 0}
    before = set(os.listdir("/dev/shm"))
    while not attack.time_is_up():
        out, fault, count = attack.new("run"), faults[attack.inputs % len(faults)], attack.random.choice([2, 4, 8])
        attack.inputs += 1
        limits = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))} if fault == "disk" else {}
        process = subprocess.Popen([attack.program, *COMMAND, "--processes", str(count), "--rank-limit", str(LIMIT * slow), "--out", out],
                                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True, **limits)
        moment = attack.random.uniform(0, 1.5 * seconds)
        time.sleep(0 if fault == "disk" else moment)
        ranks = ranks_of(process)
        hit = attack.random.randrange(max(1, len(ranks)))
        command = f"whence {' '.join(COMMAND)} --processes {count}: {fault} of rank {hit} after {moment:.3f} s"
        try:
            if fault == "kill all":
                process.send_signal(signal.SIGKILL)
            elif fault in ("interrupt", "terminate"):
                process.send_signal(signal.SIGINT if fault == "interrupt" else signal.SIGTERM)
            elif fault != "disk" and ranks:
                os.kill(ranks[hit], signal.SIGKILL if fault == "kill" else signal.SIGSTOP)
                counts[fault] += 1
        except ProcessLookupError:
            pass
        struck = time.time()
        try:
            said = process.communicate(timeout=slow * (90 if fault == "stop" else 30))[1].decode(errors="replace")
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            attack.failed(f"a hang of {time.time() - struck:.0f} s", command)
            said = process.communicate()[1].decode(errors="replace")
        done = result_of(out) == wanted if process.returncode == 0 else False
        named = {"kill": "was ended by signal 9", "stop": "has not answered" if len(ranks) == count else "", "disk": "File too large"}.get(fault, "")
        if process.returncode == 0:
            if not done:
                attack.failed("another result", command)
        elif fault in ("interrupt", "terminate") and process.returncode not in (130, -signal.SIGINT, -signal.SIGTERM):
            attack.failed(f"exit code {process.returncode}, of 130: {said[-300:]!r}", command)
        elif fault in ("kill", "stop") and ranks and named not in said:
            attack.failed(f"no {named!r} in {said[-300:]!r}", command)
        elif fault == "disk" and (process.returncode != 4 or said.count(named) != 1):
            attack.failed(f"exit code {process.returncode}, of 4, or {named!r} not once: {said[-300:]!r}", command)
        for rank in ranks:  # who was stopped is still there
            try:
                os.kill(rank, signal.SIGKILL)
            except ProcessLookupError:
                pass
        if process.returncode == 0:
            continue
        again = ["--resume"] if has_checkpoint(out) else []
        if not again:
            shutil.rmtree(out, ignore_errors=True)
        time.sleep(0.05)
        ended: Ended = attack.run([*COMMAND, *again, "--processes", attack.random.choice(["1", "2", "4"]), "--out", out], limit=60)
        found = ended.complaint({0}) if ended.code != 0 else result_of(out)
        if found != wanted:
            attack.failed(f"{difference(found, wanted)} after resuming", command)
    if left := [name for name in os.listdir("/dev/shm") if "whence" in name and name not in before]:
        attack.failed(f"left in /dev/shm: {left}", "all of the above")
    attack.notes.append(f"killed {counts['kill']}, stopped {counts['stop']}")
