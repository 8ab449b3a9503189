"""Kills and errors at system calls by number: whatever happens, the run goes on afterwards to the bits of an undisturbed one."""
import shutil

from tools import TRAIN, difference, has_checkpoint, result_of

RUN = [*TRAIN, "--steps", "4", "--save-every", "1", "--threads", "1", "--out"]
ERRORS = ("ENOSPC", "EIO", "EACCES", "EMFILE", "EINTR", "EDQUOT")


def gone_on(attack, out):
    """What a disturbed run ends in when the same command follows: its result, or a complaint."""
    ended = attack.run([*RUN, out, "--resume"])
    if ended.code == 2 and not has_checkpoint(out):  # nothing to go on from, as the message says
        shutil.rmtree(out, ignore_errors=True)
        ended = attack.run([*RUN, out])
    if ended.code != 0:
        return f"does not go on: {ended.complaint() or ended.error.decode(errors='replace').strip()[-200:]}"
    return result_of(out)


def calls_of(attack):
    """Of an undisturbed run: its result, and its calls as (number, name, path)."""
    out, log = attack.new("run"), attack.folder / "calls.txt"
    ended = attack.run(["--log", log, "--after", out, "--", attack.program, *RUN, out], program=[attack.injector])
    if ended.code == 77:
        raise LookupError("this machine lets no program trace another")
    assert ended.code == 0, ended.error
    lines = [line.split(" ", 2) for line in log.read_text().splitlines() if not line.startswith("end")]
    return result_of(out), [(int(n), name, path) for n, name, path in lines]


def disturbed(attack, n, how, wanted, codes=None):
    out = attack.new("run")
    injected = ["--after", out, *how, "--", attack.program, *RUN, out]
    ended = attack.run(injected, program=[attack.injector])
    attack.inputs += 1
    command = f"whence_inject {' '.join(map(str, injected)).replace(str(out), 'OUT')}"
    killed = "--kill" in how
    wrong = None if killed and ended.code in (0, 137) else ended.complaint({0, 4}) if not killed else f"exit code {ended.code}"
    if wrong:
        attack.failed(wrong, command)
    if ended.code == 0 and not killed and result_of(out) == wanted:
        return True
    found = gone_on(attack, out)
    if found != wanted:
        attack.failed(f"{difference(found, wanted)} afterwards", command)
    return found[0] == wanted[0]


def a_save(calls):
    """The numbers of all calls of the second save, from its temporary folder to what it removes."""
    touching = [n for n, name, path in calls if "step-000002" in path]
    third = next(n for n, name, path in calls if "step-000003" in path)
    return range(touching[0], third)


def attack_system_calls(attack, whole=False):
    if not attack.injector:
        raise LookupError("no whence_inject; build it: cmake --build build/release --target whence_inject")
    wanted, calls = calls_of(attack)
    saves = list(a_save(calls))
    plan = [(n, ["--kill", n]) for n in saves]
    rest = [(n, ["--kill", n]) for n, _, _ in calls if n not in saves]
    rest += [(n, ["--fail", n, error, *lasting]) for n, _, _ in calls for error in ERRORS
             for lasting in ([], ["--lasting"]) if not (lasting and error == "EINTR")]  # who is interrupted for ever tries for ever
    attack.random.shuffle(rest)
    if not whole:
        attack.random.shuffle(plan)
        plan = [each for pair in zip(plan, rest) for each in pair]
    else:
        plan += rest
    kills_of_save = same_weights = 0
    for n, how in plan:
        if attack.time_is_up():
            break
        same = disturbed(attack, n, how, wanted)
        kills_of_save += "--kill" in how and n in saves
        same_weights += bool(same)
    attack.notes.append(f"killed at {kills_of_save} of {len(saves)} calls of a save; of {attack.inputs} disturbed runs "
                        f"{same_weights} ended in the weights of an undisturbed one; {len(calls)} calls in all")
