"""A disk that is full: a small tmpfs filled in steps (in a user's own mount namespace), or else limits on the size of a file."""
import resource
import shutil
import subprocess

from system_calls import RUN, gone_on
from tools import difference, result_of


def may_mount():
    return shutil.which("unshare") and subprocess.run(["unshare", "-rm", "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True).returncode == 0


def attack_disk(attack, whole=False):
    reference = attack.new("reference")
    attack.run([*RUN, reference])
    wanted, mounting = result_of(reference), may_mount()
    fullness = list(range(0, 160 if mounting else 16384, 4 if mounting else 512 if whole else 2048))  # KiB free in pages, or bytes
    if not whole:
        attack.random.shuffle(fullness)
    for free in fullness:
        if attack.time_is_up():
            break
        out = attack.new("run")
        attack.inputs += 1
        if mounting:
            # What is on the small disk is carried out of it, so that the run can go on where there is room.
            small = attack.new_folder("small")
            script = (f'mount -t tmpfs -o size={free + 4}k none "{small}"; "$@"; code=$?; '
                      f'cp -a "{small}/run" "{out}" 2>/dev/null; exit $code')
            ended = attack.run(["-rm", "sh", "-c", script, "sh", attack.program, *RUN, small / "run"], program=["unshare"])
            command = f"a tmpfs of {free + 4} KiB: whence {' '.join(RUN)} OUT"
        else:
            ended = attack.run([*RUN, out], limits={resource.RLIMIT_FSIZE: free})
            command = f"RLIMIT_FSIZE={free}: whence {' '.join(RUN)} OUT"
        if wrong := ended.complaint({0, 4}):
            attack.failed(wrong, command)
        if ended.code == 0 and result_of(out) == wanted:
            continue
        found = gone_on(attack, out)
        if found != wanted:
            attack.failed(f"{difference(found, wanted)} afterwards", command)
    attack.notes.append("on a tmpfs" if mounting else "by limits on the size of files")
