"""Runs on a full disk: a small tmpfs filled in steps (in a user's own mount namespace), or limits on the size of a file."""
import resource
import shutil
import subprocess

from tools import RUN, result_of


def attack_disk(attack, whole):
    wanted = result_of(attack.trained("reference"))
    mounting = shutil.which("unshare") and subprocess.run(["unshare", "-rm", "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True).returncode == 0
    fullness = list(range(0, 160 if mounting else 16384, 4 if mounting else 512 if whole else 2048))  # KiB free in pages, or bytes
    if not whole:
        attack.random.shuffle(fullness)
    for free in fullness:
        if attack.time_is_up():
            break
        out = attack.new("run")
        if mounting:
            # Copies the files from the small disk, so that the run can resume where there is room.
            small = attack.new_folder("small")
            script = (f'mount -t tmpfs -o size={free + 4}k none "{small}"; "$@"; code=$?; '
                      f'cp -a "{small}/run" "{out}" 2>/dev/null; exit $code')
            ended = attack.run(["-rm", "sh", "-c", script, "sh", attack.program, *RUN, "--out", small / "run"], program=["unshare"])
        else:
            ended = attack.run([*RUN, "--out", out], limits={resource.RLIMIT_FSIZE: free})
        where = f"a tmpfs of {free + 4} KiB" if mounting else f"RLIMIT_FSIZE={free}"
        attack.judge_disturbed(ended, out, wanted, f"{where}: whence {' '.join(RUN)} --out OUT", {0, 4})
    attack.notes.append("on a tmpfs" if mounting else "by limits on the size of files")
