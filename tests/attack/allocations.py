"""One allocation fails, by number, or all from there on (memory_preload.cpp): exit code 5 in one line, and the run goes on afterwards."""
import os
import time

from system_calls import RUN, gone_on
from tools import difference, result_of


def failing(attack, out, **environment):
    """The run into `out`, watched by memory_preload: FAIL_ALLOCATION=N, FAIL_ALL=1, COUNT_ALLOCATIONS=FILE."""
    library = attack.build / "tests/libmemory_preload.so"
    if not library.exists():
        raise LookupError("no libmemory_preload.so; build it without sanitizers: cmake --build build/release --target memory_preload")
    return attack.run([*RUN, out], env={**os.environ, "LD_PRELOAD": str(library), **{f"WHENCE_{name}": str(value) for name, value in environment.items()}})


def how_many(attack):
    """The result of an undisturbed run, and how often it asks for memory."""
    out, count = attack.new("undisturbed"), attack.folder / "allocations.txt"
    assert failing(attack, out, COUNT_ALLOCATIONS=count).code == 0, "nothing fails here"
    return result_of(out), int(count.read_text())


def attack_allocations(attack, whole=False):
    wanted, count = how_many(attack)
    ended_early = 0
    # To its end: each of the first 3000 in turn, which set a run up and take its first steps. For a time: any, at random.
    numbers = range(1, 3001) if whole and attack.end - time.time() > 1e6 else attack.random.sample(range(1, count + 1), count)
    for n in numbers:
        if attack.time_is_up():
            break
        out, how = attack.new("run"), {"FAIL_ALLOCATION": n} | ({"FAIL_ALL": 1} if attack.random.random() < 0.3 else {})
        ended = failing(attack, out, **how)
        attack.inputs += 1
        command = " ".join(f"WHENCE_{name}={value}" for name, value in how.items()) + f" whence {' '.join(RUN)} OUT"
        if ended.complaint({0, 5}):
            attack.failed(ended.complaint({0, 5}), command)
        if ended.code == 0 and result_of(out) == wanted:
            continue
        ended_early += 1
        found = gone_on(attack, out)
        if found != wanted:
            attack.failed(f"{difference(found, wanted)} afterwards", command)
    attack.notes.append(f"{'the first 3000 in turn, ' if len(numbers) == 3000 else ''}{ended_early} ended early; {count} allocations in all")
