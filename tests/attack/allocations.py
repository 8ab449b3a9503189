"""Makes one allocation fail, by number, or all from there on (memory_preload.cpp): exit code 5 in one line, and the run can be resumed."""
import math
import os

from tools import RUN, result_of


def failing(attack, out, **environment):
    """Runs into `out` under memory_preload: FAIL_ALLOCATION=N, FAIL_ALL=1, COUNT_ALLOCATIONS=FILE."""
    return attack.run([*RUN, "--out", out], env={**os.environ, "LD_PRELOAD": str(attack.tool("libmemory_preload.so")),
                                                 **{f"WHENCE_{name}": str(value) for name, value in environment.items()}})


def attack_allocations(attack, whole):
    out, counted = attack.new("undisturbed"), attack.folder / "allocations.txt"
    assert failing(attack, out, COUNT_ALLOCATIONS=counted).code == 0, "nothing fails here"
    wanted, count, ended_early = result_of(out), int(counted.read_text()), 0
    # A whole attack: each of the first 3000 allocations in turn, which cover set-up and first steps. A timed one: random allocations.
    numbers = range(1, 3001) if whole and attack.end == math.inf else attack.random.sample(range(1, count + 1), count)
    for n in numbers:
        if attack.time_is_up():
            break
        out, how = attack.new("run"), {"FAIL_ALLOCATION": n} | ({"FAIL_ALL": 1} if attack.random.random() < 0.3 else {})
        ended = failing(attack, out, **how)
        ended_early += ended.code != 0
        attack.judge_disturbed(ended, out, wanted, " ".join(f"WHENCE_{name}={value}" for name, value in how.items()) + f" whence {' '.join(RUN)} --out OUT", {0, 5})
    attack.notes.append(f"{ended_early} ended early; {count} allocations in all")
