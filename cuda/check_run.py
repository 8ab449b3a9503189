"""What cuda/check stands on: commands that end in time with all that they started, and the folder of a run, in which nothing is filed as a
result that did not pass."""
import datetime
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time


class NotPassed(Exception):
    """Ends a stage; `outcome` is failed, stopped (out of time) or left out (cannot be done here)."""

    def __init__(self, outcome, reason):
        super().__init__(reason)
        self.outcome = outcome


def processes_of(session):
    found = []
    for entry in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # has ended
        if int(fields[3]) == session and fields[0] != "Z":
            found.append(int(entry.parent.name))
    return found


def end_session(session):
    """Politely, then not. The whole session: ninja starts each compiler in a process group of its own."""
    for how in (signal.SIGTERM, signal.SIGKILL):
        for process in processes_of(session):
            try:
                os.kill(process, how)
            except ProcessLookupError:
                pass
        until = time.monotonic() + 5
        while processes_of(session) and time.monotonic() < until:
            time.sleep(0.05)


class Stage:
    """One stage while it runs: its commands, all that they say in a file, and what was found."""

    def __init__(self, name, output, limit, environment, root, places):
        self.name, self.output, self.environment, self.root, self.places = name, output, environment, root, places
        self.began = time.monotonic()
        self.until = self.began + limit
        self.steps, self.found = [], {}
        self.output.write_text("")

    def without_places(self, text):
        """What is filed is of whence, not of the machine."""
        for place in sorted(self.places, key=len, reverse=True):
            text = text.replace(place, self.places[place])
        return text

    def step(self, what, command, more_environment=None, left_out_if=None, expected=0, interrupt_when=None):
        """Runs a command and returns what it said. Where its exit code is not the expected one the stage ends here. `left_out_if` is a text by
        which the command says that it cannot work on this machine; `interrupt_when()` is asked until it is true: then comes SIGINT."""
        command = [str(word) for word in command]
        print(f"   {what}", file=sys.stderr, flush=True)
        record = {"step": what, "command": [self.without_places(word) for word in command], "outcome": "failed", "seconds": 0}
        self.steps.append(record)
        began = time.monotonic()
        with open(self.output, "a") as file:
            file.write(f"== {what}\n$ {' '.join(command)}\n")
            file.flush()
            at = file.tell()
            try:
                process = subprocess.Popen(command, cwd=self.root, env={**self.environment, **(more_environment or {})}, stdin=subprocess.DEVNULL,
                                           stdout=file, stderr=subprocess.STDOUT, start_new_session=True)
            except OSError as failure:
                file.write(f"{failure}\n")
                raise NotPassed("failed", f"{what}: {command[0]}: {failure.strerror}") from None
            try:
                while interrupt_when and process.poll() is None and time.monotonic() < self.until:
                    if interrupt_when():
                        process.send_signal(signal.SIGINT)
                        break
                    time.sleep(0.01)
                status = process.wait(max(0.1, self.until - time.monotonic()))
            except subprocess.TimeoutExpired:
                record["outcome"] = "stopped"
                raise NotPassed("stopped", f"{what}: no time left after {time.monotonic() - began:.0f} s") from None
            finally:
                end_session(process.pid)
                process.wait()
                record["seconds"] = round(time.monotonic() - began, 1)
        with open(self.output, errors="replace") as file:
            file.seek(at)
            said = file.read()
        if left_out_if and left_out_if in said:
            record["outcome"] = "left out"
            raise NotPassed("left out", f"{what}: does not work on this machine: {left_out_if}")
        if status != expected:
            lines = said.strip().splitlines() or ["it said nothing"]
            last = next((line for line in lines if "ERROR: " in line), lines[-1])  # doctest's are followed by a summary
            code = f"exit code {status}" if status >= 0 else signal.Signals(-status).name
            raise NotPassed("failed", f"{what}: {code}" + (f", {expected} expected" if expected else "") + f": {last[:300]}")
        record["outcome"] = "passed"
        return said


class Run:
    """runs/NAME/STAGE.json and STAGE.txt of what passed, runs/NAME/failed/ of what did not. A page of it and a record go to `published` (where
    that is given), all of it to the folder that OUT names. NAME is the time in UTC and the device, so that no run overwrites another."""

    def __init__(self, folder, published, facts, page):
        self.folder, self.published, self.facts, self.page = folder, published, facts, page

    @staticmethod
    def begin_or_resume(runs, published, facts, page, afresh, wanted):
        """The latest run goes on where it is of this code, device and settings and has not passed all that is wanted: on a machine that
        is had for ten minutes at a time the next call is the same command."""
        latest = max(runs.glob("*/run.json"), default=None)
        if latest and not afresh and json.loads(latest.read_text()) == facts:
            run = Run(latest.parent, published, facts, page)
            if not all(run.outcome(stage) == "passed" for stage in wanted):
                return run
        name = f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d_%H%M%S}_" + re.sub(r"\W+", "_", facts["device"]["name"])
        run = Run(runs / name, published, facts, page)
        run.folder.mkdir(parents=True)
        (run.folder / "run.json").write_text(json.dumps(facts, indent=1) + "\n")
        return run

    def stages(self):
        """{name: what its JSON says}, of the latest attempt at each."""
        found = {}
        for file in [*self.folder.glob("*.json"), *self.folder.glob("failed/*.json")]:
            if file.name != "run.json":
                found[file.stem] = json.loads(file.read_text())
        return found

    def outcome(self, stage):
        return self.stages().get(stage, {}).get("outcome", "not run")

    def attempt(self, name, body, limit, environment, root, places):
        """Runs one stage and files it by its outcome, which is returned. `places`: {path: what is said in its place}."""
        print(f"== {name}", file=sys.stderr, flush=True)
        failed = self.folder / "failed"
        for old in [*self.folder.glob(name + ".*"), *failed.glob(name + ".*")]:
            old.unlink()
        failed.mkdir(exist_ok=True)
        stage = Stage(name, failed / (name + ".txt"), limit, environment, root, places)  # until it has passed
        outcome, reason = "passed", ""
        try:
            body(stage)
        except NotPassed as why:
            outcome, reason = why.outcome, str(why)
        except KeyboardInterrupt:
            outcome, reason = "stopped", "interrupted"
            raise
        finally:
            seconds = round(time.monotonic() - stage.began, 1)
            record = {"stage": name, "outcome": outcome, "reason": reason, "seconds": seconds,
                      "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"), **self.facts, "steps": stage.steps,
                      "found": stage.found}
            stage.output.write_text(stage.without_places(stage.output.read_text(errors="replace")))
            (failed / (name + ".json")).write_text(json.dumps(record, indent=1) + "\n")
            if outcome == "passed":
                for file in failed.glob(name + ".*"):
                    file.replace(self.folder / file.name)
            if not any(failed.iterdir()):
                failed.rmdir()
            self.publish()
            print(f"   {outcome}, {seconds} s" + (f": {reason}" if reason else ""), file=sys.stderr, flush=True)
        return outcome

    def publish(self):
        stages = self.stages()
        page = "\n".join(self.page(self.facts, stages)) + "\n"
        (self.folder / "README.md").write_text(page)
        if self.published:
            passed = any(stage["outcome"] == "passed" and name != "build" for name, stage in stages.items())
            for ending, text in ((".md", page), (".json", record(self.facts, stages))):
                file = self.published / (self.folder.name + ending)
                file.unlink(missing_ok=True)  # a stage that passed and now fails is no longer a result
                if passed:
                    file.write_text(text)
        if out := os.environ.get("OUT"):
            place = pathlib.Path(out) / self.folder.name
            shutil.rmtree(place, ignore_errors=True)
            shutil.copytree(self.folder, place)


def record(facts, stages):
    """The JSON beside the page, a line for each stage. What was measured is on the page, and all of it in the run's folder.
    >>> print(record({"code_hash": "771a"}, {"bits": {"outcome": "passed", "seconds": 1.4, "date": "2026", "found": {"summary": "", "rows": [1]}}}))
    {
     "code_hash": "771a",
     "stages": {
      "bits": {"outcome": "passed", "seconds": 1.4, "date": "2026", "summary": ""}
     }
    }
    <BLANKLINE>
    """
    lines = []
    for name, stage in sorted(stages.items(), key=lambda each: each[1]["date"]):
        said = {key: stage[key] for key in ("outcome", "reason", "seconds", "date") if stage.get(key)}
        said |= {key: value for key, value in stage["found"].items() if not isinstance(value, list)}
        lines.append(f'  "{name}": {json.dumps(said)}')
    of_facts = "".join(f' "{key}": {json.dumps(value)},\n' for key, value in facts.items())
    return "{\n" + of_facts + ' "stages": {\n' + ",\n".join(lines) + "\n }\n}\n"
