"""Kills, stops and interrupts ranks of one training, or fills the disk, at random times. The other ranks must name the fault and end in time.
Resumed by another number of ranks, the bits are those of one process."""
import os
import resource
import signal
import subprocess
import time

from tools import SIZES, children_of, difference, go_on, result_of

COMMAND = ["train", "flip_flop", "--scheme", "cope", *SIZES, "--test-sequences", "4", "--quiet", "--accumulate", "8", "--steps", "250", "--save-every", "15"]
LIMIT = 3  # seconds that a rank waits for a hanging rank


def attack_ranks(attack, whole):
    out = attack.new("whole")
    ended = attack.run([*COMMAND, "--out", out], limit=60)
    assert ended.code == 0, ended.error
    wanted, seconds, slow = result_of(out), ended.seconds, 5 if attack.sanitized else 1
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
        ranks = children_of(process.pid)
        hit = attack.random.choice(ranks or [0])
        command = f"whence {' '.join(COMMAND)} --processes {count}: {fault}, of rank {ranks.index(hit) if ranks else 'none'}, after {moment:.3f} s"
        try:
            if fault in ("kill all", "interrupt", "terminate"):
                process.send_signal({"kill all": signal.SIGKILL, "interrupt": signal.SIGINT, "terminate": signal.SIGTERM}[fault])
            elif fault != "disk" and ranks:
                os.kill(hit, signal.SIGKILL if fault == "kill" else signal.SIGSTOP)
                counts[fault] += 1
        except ProcessLookupError:
            pass
        try:
            said = process.communicate(timeout=slow * (90 if fault == "stop" else 30))[1].decode(errors="replace")
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            said = process.communicate()[1].decode(errors="replace")
            attack.judge("a hang", command)
        code, end = process.returncode, f"exit code {process.returncode}: {said[-300:]!r}"
        named = {"kill": "was ended by signal 9", "stop": "has not answered" if len(ranks) == count else "", "disk": "File too large"}.get(fault, "")
        if code == 0:
            attack.judge(difference(result_of(out), wanted), command)
        elif fault in ("interrupt", "terminate"):
            attack.judge(None if code in (130, -signal.SIGINT, -signal.SIGTERM) else f"{end}, of 130", command)
        elif fault == "disk":
            attack.judge(None if code == 4 and said.count(named) == 1 else f"{end}, of 4, or {named!r} not once", command)
        elif ranks:
            attack.judge(None if named in said else f"{end}, without {named!r}", command)
        for rank in ranks:  # a stopped rank still exists
            try:
                os.kill(rank, signal.SIGKILL)
            except ProcessLookupError:
                pass
        if code == 0:
            continue
        time.sleep(0.05)
        attack.judge_end(attack.run([*go_on(COMMAND, out), "--processes", attack.random.choice(["1", "2", "4"])], limit=60), out, wanted, f"{command}, and again")
    left = [name for name in os.listdir("/dev/shm") if "whence" in name and name not in before]
    attack.judge(f"left in /dev/shm: {left}" if left else None, "all of the above")
    attack.notes.append(f"killed {counts['kill']}, stopped {counts['stop']}")
