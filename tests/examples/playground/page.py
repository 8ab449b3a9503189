"""The playground's page in Chromium, used like a reader: lessons, training, edits, the inspector, links; its numbers are the program's.
WHENCE_PICTURES names a folder for pictures of the page: tests/pytest tests/examples/playground/page.py"""
import base64
import json
import math
import os
import pathlib
import re
import subprocess
import time
import urllib.parse

import pytest

from lessons import LESSONS, NATIVE, answers
from page_driver import Browser, chromium


class Playground(Browser):
    """The page, with its errors and its network requests recorded."""

    def show(self, path, fragment="", width=1500, height=950, scheme="light"):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 500)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.call("Page.navigate", url=f"{path.as_uri()}?{self.count}#{fragment}")
        self.until("document.querySelectorAll('.pairs canvas').length > 0 && document.querySelector('.status').textContent !== 'The engine is starting.'")

    def until(self, script, seconds=600):
        end = time.monotonic() + seconds
        while not self.get(f"Boolean({script})"):
            assert time.monotonic() < end, f"{script}: not within {seconds} s: {self.texts('.status, .problem')}"
            time.sleep(0.05)

    def type(self, selector, text):
        self.get(f"""(() => {{ const e = document.querySelector({json.dumps(selector)}); e.focus(); e.value = {json.dumps(text)};
                     e.dispatchEvent(new Event("change", {{ bubbles: true }})); e.form?.requestSubmit(); }})()""")

    def steps(self):
        return [int(text.split()[1]) for text in self.get("[...document.querySelectorAll('.column')].map((each) => each.querySelector('.facts').textContent)")]

    def picture(self, name):
        if folder := os.environ.get("WHENCE_PICTURES"):
            (pathlib.Path(folder) / f"{name}.png").write_bytes(base64.b64decode(self.call("Page.captureScreenshot", captureBeyondViewport=True)["data"]))

    def view(self, key):
        """One of another kind is drawn when the engine has looked at the model whole."""
        groups = {"playground": "Playground", "story": "Story", "graph": "Graph", "why": "Why", "paths": "Why", "edits": "Evidence", "logit": "Evidence", "lessons": "Lessons"}
        self.click(f"#tab-{groups.get(key, 'Explore')}")
        part = f"[data-focus='view {key}']"
        self.until(f"new URLSearchParams(location.hash.slice(1)).get('view') === '{key}' || document.querySelector(\"{part}\")")
        self.get(f"document.querySelector(\"{part}\")?.click()")
        self.until(f"new URLSearchParams(location.hash.slice(1)).get('view') === '{key}' && document.querySelector('#stage > *') && "
                   "!document.querySelector('.status')?.textContent.startsWith('Drawing')")

    def narrow_enough(self):
        found = self.get("['html', 'aside'].map((each) => document.querySelector(each)).map((each) => [each.scrollWidth, each.clientWidth])")
        assert all(wide <= room for wide, room in found), f"wider than the window, or than what stands beside the maps: {found}"


@pytest.fixture(scope="session")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "playground.html"
    made = subprocess.run([NATIVE[0], "playground", "--out", path], capture_output=True, text=True)
    if made.returncode == 2 and "no module of WebAssembly" in made.stderr:
        pytest.skip(made.stderr.strip())
    assert made.returncode == 0, made.stderr
    return path


@pytest.fixture(scope="session")
def page(path, tmp_path_factory):
    page = Playground(chromium(), tmp_path_factory.mktemp("profile"))
    page.call("Network.enable")
    yield page
    page.close()
    asked = [url for url in page.requests if not url.startswith(("file:", "blob:", "data:"))]
    assert not page.errors and not asked, f"the page asks the network, or has errors: {asked}, {page.errors}"


VALUE_OF_GATES = "[...document.querySelectorAll('aside tbody tr')].find((row) => row.textContent.includes('1 gates')).children[1].textContent"


def test_training(page, path):
    page.show(path)
    page.click(".play")
    page.until("document.querySelector('.column .errors dd').textContent === '0.0'")
    page.click(".play")
    page.until("document.querySelector('.play').textContent === 'Play'")
    steps = page.steps()
    page.click("[data-focus=step]")
    page.until(f"document.querySelector('.column > .facts').textContent.startsWith('step {steps[0] + 1} ')")


def test_edits(page, path):
    page.show(path)
    page.click("[data-focus='vector zero']")
    page.until("document.querySelectorAll('.in-force tbody tr').length === 1")
    page.type("[data-focus='edit text']", "blocks.0.attention.position.table 0=3 = 0")
    page.until("document.querySelectorAll('.in-force tbody tr').length === 2")
    page.until("!document.querySelector('.in-force tbody tr:last-child').textContent.includes('none')")
    link = page.get("new Promise((done) => setTimeout(() => done(location.hash), 900))").lstrip("#")
    assert "edit=" in link and "step=" in link, link
    page.type("[data-focus='edit text']", "nonsense layer=0 = 0")
    page.until("document.querySelector('#edit-problem').textContent.includes('nonsense')")
    page.click("[data-focus='undo 0']")
    page.until("document.querySelectorAll('.in-force tbody tr').length === 1")
    for width, scheme in ((1500, "dark"), (390, "light"), (390, "dark")):
        page.show(path, link, width=width, height=844, scheme=scheme)
        page.until("document.querySelectorAll('.in-force tbody tr').length === 2")
        page.narrow_enough()
        page.picture(f"linked-{scheme}-{width}")


def looks_of(*looks):
    """Returns what the program says of the pass under each of these lists of edits, and the gradient of the last place asked for."""
    asked = [question for edits, more in looks for question in ({"ask": "look", "model": 0, "edits": edits}, *more)]
    return answers(NATIVE, [{"ask": "begin", "model": 0, "scheme": "cope"}, {"ask": "train", "model": 0, "steps": 20}, *asked])[2:]


def test_inspector(page, path):
    """Moves a gate by key in the story of a model: the page must show the program's numbers for the same edit, beside one in force."""
    own = "blocks.0.attention.position.table *= 300"  # otherwise a gate has almost no effect after 20 steps of training
    page.show(path, f"step=20&digits=true&edit={urllib.parse.quote('0:' + own)}")
    page.until("document.querySelectorAll('.in-force tbody tr').length === 1")
    page.click("[data-focus='look 0']")
    broken = "self.post = Worker.prototype.postMessage; Worker.prototype.postMessage = () => { throw new Error('No engine today.'); }; 0"
    page.until("document.querySelector('#stage .step')")
    page.view("story")
    layer, head, i, j = page.get("['layer', 'head', 'i', 'j'].map((key) => Number(new URLSearchParams(location.hash.slice(1)).get(key)))")
    at = f"layer={layer} head={head} i={i}"
    place = f"gates {at} j={j}"
    before, value = looks_of(([own], [{"ask": "value", "model": 0, "what": place}]))
    page.press("[data-focus=knob]", "ArrowDown")
    page.until("document.querySelector('.turn .command')")
    gate = float(re.search("= ([0-9.e-]+)\"", page.texts(".turn .command")[0])[1])
    after, pattern = looks_of(([own, f"{place} = {gate!r}"], [{"ask": "value", "model": 0, "what": f"pattern {at} j={j}"}]))
    real, foretold = (float(word) for word in re.findall(r"[+-]\d\S*\d", page.texts(".moved")[0].replace("\u2212", "-")))
    assert math.isclose(real, after["loss"] - before["loss"], rel_tol=0.02, abs_tol=2e-6), f"{page.texts('.moved')}: {after['loss'] - before['loss']}"
    assert math.isclose(foretold, value["gradient"] * (gate - value["value"]), rel_tol=0.02, abs_tol=1e-8), page.texts(".moved")
    label = next(label for label in page.texts(".step svg", "getAttribute('aria-label')") if label.startswith("pattern of query "))
    shown = [float(word) for word in label.split(": ")[-1].split() if word != "masked"]
    assert shown[j] == pytest.approx(pattern["value"], abs=1e-5)
    page.click("[data-focus='knob reset']")
    page.get(broken)
    page.press("[data-focus=knob]", "ArrowDown")
    page.until("document.querySelector('.moved .wrong')?.textContent === 'No engine today.'")
    page.get("Worker.prototype.postMessage = self.post; 0")
    page.press("[data-focus=knob]", "ArrowDown")
    page.until("document.querySelector('.moved').textContent.startsWith('The loss changes')")


def test_lessons(page, path):
    page.show(path)
    for lesson in LESSONS:
        page.click(f"[data-focus='lesson {lesson['key']}']")
        page.until(f"document.querySelector('.lesson h2').textContent === {json.dumps(lesson['title'])}")
        page.until(f"document.querySelectorAll('.column').length === {len(lesson['models'])}")
        page.until(f"[...document.querySelectorAll('.column')].every((each) => each.querySelector('.facts').textContent.startsWith('step "
                   f"{lesson['steps']} ')) && document.querySelector('.play').textContent === 'Play'")
        page.until("document.querySelectorAll('aside tbody tr').length > 0")
        before = page.get("document.querySelector('aside').textContent")
        page.click("[data-focus=try]")
        page.until(f"document.querySelectorAll('.in-force tbody tr').length === {len(lesson['edits'])}")
        page.until("[...document.querySelectorAll('.in-force tbody tr')].every((row) => !/^.*none$/.test(row.children[2].textContent))")
        page.until("document.querySelector('.edits p[role=status]').textContent.startsWith('Loss')")
        page.until(f"document.querySelector('aside').textContent !== {json.dumps(before)}")  # drawn after the loss is
        assert not any(page.texts(".problem")), f"{lesson['key']}: {page.texts('.problem')}"
        page.narrow_enough()
        page.picture(lesson["key"])


def test_run(page, tmp_path):
    """A trained run in the page: its numbers and those of an edit are the program's."""
    run, path = tmp_path / "run", tmp_path / "run.html"
    sizes = "--length 16 --dim 16 --layers 2 --heads 2 --batch 8 --test-sequences 4".split()
    for words in (["train", "flip_flop", "--scheme", "cope", *sizes, "--steps", "5", "--quiet", "--out", run], ["playground", run, "--out", path]):
        subprocess.run([NATIVE[0], *words], check=True, capture_output=True)
    place, edit = "gates layer=1 head=0 i=9 j=4", "gates layer=1 head=0 i=9 j=4 = 0"
    ours = answers(NATIVE, [{"ask": "open", "model": 0, "run": str(run)}, {"ask": "look", "model": 0}, {"ask": "value", "model": 0, "what": place},
                                                        {"ask": "errors", "model": 0, "sequences": 64}, {"ask": "look", "model": 0, "edits": [edit]}])
    page.show(path, "view=playground&layer=1&i=9&j=4&quantity=gates")
    page.until("document.querySelector('.column .errors dd').textContent !== '\u2013'")
    near = lambda shown, number: math.isclose(float(shown), number, rel_tol=1e-3, abs_tol=0.05)
    assert float(page.get(VALUE_OF_GATES)) == pytest.approx(ours[2]["value"], rel=1e-3)
    percent = page.texts(".column .errors dd")
    assert all(map(near, percent, ours[3]["percent"])), f"{percent} on the page, {ours[3]} by the program"
    page.click("[data-focus='vector zero']")
    page.until("document.querySelector('.edits p[role=status]').textContent.startsWith('Loss')")
    loss = page.get("document.querySelector('.edits p[role=status]').textContent.match(/, ([0-9.e-]+) with/)[1]")
    assert math.isclose(float(loss), ours[4]["loss"], rel_tol=1e-3), f"{edit}: {loss} on the page, {ours[4]['loss']} by the program"
    page.click("[data-focus='undo 0']")
    page.until("!document.querySelector('.in-force tbody tr')")
    page.view("lessons")
    for lesson in LESSONS:
        if lesson["models"][0]["scheme"] != "cope" or "i=" in "".join(lesson["edits"]):
            continue
        wanted = answers(NATIVE, [{"ask": "open", "model": 0, "run": str(run)},
                         {"ask": "look", "model": 0, "edits": lesson["edits"]}])[1]["loss"]
        page.click(f"[data-focus='try {lesson['key']}']")
        page.until(f"document.querySelector(`[data-focus='undo {lesson['key']}']`)")
        shown = page.get("document.querySelector('#stage .step [role=status]').textContent.match(/, ([0-9.e-]+) with/)[1]")
        assert math.isclose(float(shown), wanted, rel_tol=1e-3), f"{lesson['key']}: loss {shown} on the page, {wanted} by the program"
    page.view("playground")
    page.until("document.querySelectorAll('.in-force tbody tr').length === 1")
    assert page.get("document.querySelector('.column h2 input').readOnly && !document.querySelector('.lesson-list button') && !document.querySelector('.play').offsetParent")
