"""Kills and errors at system calls by number: whatever happens, the run goes on afterwards to the bits of an undisturbed one."""
from tools import RUN, result_of

ERRORS = ("ENOSPC", "EIO", "EACCES", "EMFILE", "EINTR", "EDQUOT")


def calls_of(attack):
    """Of an undisturbed run: its result, and its calls as (number, name, path)."""
    out, log = attack.new("run"), attack.folder / "calls.txt"
    ended = attack.run(["--log", log, "--after", out, "--", attack.program, *RUN, "--out", out], program=[attack.tool("whence_inject")])
    if ended.code == 77:
        raise LookupError("this machine lets no program trace another")
    assert ended.code == 0, ended.error
    lines = [line.split(" ", 2) for line in log.read_text().splitlines() if not line.startswith("end")]
    return result_of(out), [(int(n), name, path) for n, name, path in lines]


def attack_system_calls(attack, whole):
    wanted, calls = calls_of(attack)
    # Killed at each call of a save, the second, from its temporary folder to what it removes, and of what is written at the end.
    first = lambda text: next(n for n, _, path in calls if text in path)
    written = {*range(first("step-000002"), first("step-000003")), *range(first("run/weights.safetensors.tmp"), calls[-1][0] + 1)}
    plan, killed = [["--kill", n] for n in written], 0
    rest = [["--kill", n] for n, _, _ in calls if n not in written]
    rest += [["--fail", n, error, *lasting] for n, _, _ in calls for error in ERRORS
             for lasting in ([], ["--lasting"]) if not (lasting and error == "EINTR")]  # who is interrupted for ever tries for ever
    attack.random.shuffle(rest)
    if not whole:
        attack.random.shuffle(plan)
        plan = [each for pair in zip(plan, rest) for each in pair]
    else:
        plan += rest
    for how in plan:
        if attack.time_is_up():
            break
        out = attack.new("run")
        injected = ["--after", out, *how, "--", attack.program, *RUN, "--out", out]
        ended = attack.run(injected, program=[attack.tool("whence_inject")])
        killed += how[0] == "--kill" and how[1] in written
        attack.judge_disturbed(ended, out, wanted, f"whence_inject {' '.join(map(str, injected))}", {0, 137} if how[0] == "--kill" else {0, 4})
    attack.notes.append(f"killed at {killed} of {len(written)} calls of a save and of the end; {len(calls)} calls in all")
