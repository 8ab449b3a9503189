#!/usr/bin/env python3
"""Uses the playground's page in Chromium like a reader: every lesson, training, edits, the inspector, links, hostile texts; compares its numbers
with the program's. --pictures writes pictures of the page.
Usage: page.py WHENCE [--pictures FOLDER]    ends with 77 without Chromium or module"""
import argparse
import base64
import json
import math
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.parse

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "look")]
from lessons import LESSONS, answers  # noqa: E402
from page_driver import Browser  # noqa: E402


class Playground(Browser):
    """The page, with its errors and its network requests recorded."""

    def show(self, path, fragment="", width=1500, height=950, scheme="light"):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 500)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.call("Page.navigate", url=f"{path.as_uri()}?{self.count}#{fragment}")
        self.until("document.querySelectorAll('.pairs canvas').length > 0 && document.querySelector('.status').textContent !== 'The engine is starting.'")

    def until(self, script, seconds=120):
        end = time.monotonic() + seconds
        while not self.get(f"Boolean({script})"):
            assert time.monotonic() < end, f"{script}: not within {seconds} s: {self.texts('.status, .problem')}"
            time.sleep(0.05)

    def type(self, selector, text):
        self.get(f"""(() => {{ const e = document.querySelector({json.dumps(selector)}); e.focus(); e.value = {json.dumps(text)};
                     e.dispatchEvent(new Event("change", {{ bubbles: true }})); e.form?.requestSubmit(); }})()""")

    def steps(self):
        return [int(text.split()[1]) for text in self.get("[...document.querySelectorAll('.column')].map((each) => each.querySelector('.facts').textContent)")]

    def picture(self, folder, name):
        if folder:
            (folder / f"{name}.png").write_bytes(base64.b64decode(self.call("Page.captureScreenshot", captureBeyondViewport=True)["data"]))

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


def check_start(page, path, program):
    """The engine's numbers of the untrained models are those of the program."""
    start = time.monotonic()
    page.show(path)
    print(f"first picture after {time.monotonic() - start:.1f} s")
    place = "gates layer=0 head=0 i=28 j=8"
    ours = answers([program, "playground", "--answer"], [{"ask": "begin", "model": 0, "scheme": "cope", "dim": 32}, {"ask": "look", "model": 0},
                                                        {"ask": "value", "model": 0, "what": place}])
    page.show(path, "i=28&j=8&quantity=gates")
    page.until("document.querySelector('aside tbody tr')")
    shown = page.get("[...document.querySelectorAll('aside tbody tr')].find((row) => row.textContent.includes('1 gates')).children[1].textContent")
    assert math.isclose(float(shown), ours[2]["value"], rel_tol=1e-3), f"{place}: {shown} on the page, {ours[2]} by the program"


def check_training(page, path):
    page.show(path)
    start = time.monotonic()
    page.click(".play")
    page.until("document.querySelector('.column .errors dd').textContent === '0.0'")
    print(f"CoPE makes no error any more after {time.monotonic() - start:.1f} s, {page.steps()} steps of three models")
    page.click(".play")
    page.until("document.querySelector('.play').textContent === 'Play'")
    steps = page.steps()
    page.click("[data-focus=step]")
    page.until(f"document.querySelector('.column > .facts').textContent.startsWith('step {steps[0] + 1} ')")


def check_edits(page):
    page.click("[data-focus='vector zero']")
    page.until("document.querySelectorAll('.in-force tbody tr').length === 1")
    page.type("[data-focus='edit text']", "blocks.0.attention.position.table 0=3 = 0")
    page.until("document.querySelectorAll('.in-force tbody tr').length === 2")
    page.until("!document.querySelector('.in-force tbody tr:last-child').textContent.includes('none')")
    link = page.get("new Promise((done) => setTimeout(() => done(location.hash), 900))")
    page.type("[data-focus='edit text']", "nonsense layer=0 = 0")
    page.until("document.querySelector('#edit-problem').textContent.includes('nonsense')")
    page.click("[data-focus='undo 0']")
    page.until("document.querySelectorAll('.in-force tbody tr').length === 1")
    assert "edit=" in link and "step=" in link, link
    return link.lstrip("#")


def check_saving(page):
    """Saved files are pictures that the browser itself can open; the link can be copied."""
    page.get("HTMLAnchorElement.prototype.click = function () { globalThis.saved = { name: this.download, href: this.href }; }; 0")
    for picture, ending in ((".pairs canvas", ".png"), (".curve svg", ".svg")):
        page.get(f"document.querySelector('{picture}').dispatchEvent(new PointerEvent('pointerover', {{ bubbles: true }}))")
        page.click(".save")
        page.until(f"globalThis.saved?.name.endsWith('{ending}')")
        sizes = page.get("(async () => { const image = new Image(); image.src = saved.href; await image.decode(); return [image.naturalWidth, image.naturalHeight]; })()")
        assert min(sizes) > 100, f"{ending}: {sizes}"
    page.click("[data-focus=link]")
    page.until("document.querySelector('.status').textContent.startsWith('The link is')")
    assert "step=" in page.get("location.hash")


def check_weights(page, path, program):
    """A number of q, a row of a table and a tap, edited by slider, choosers, fields and keys, have the effect that the program reports."""
    def choose(what, text):
        page.type(f"[data-focus='{what}']", text)
        page.get("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def model(index):
        page.click(f"[data-focus='row {index} pattern']")
        page.until(f"document.querySelector('.weights h3').textContent.endsWith('model {index + 1}')")
        return page.get("document.querySelector('[data-focus=vector]').value")

    def compare(index, scheme, edit):
        page.until("!(document.querySelector('.in-force tbody tr td.n:nth-of-type(2)')?.textContent ?? 'none').includes('none')")
        begun = {"ask": "begin", "model": 0, "scheme": scheme}
        look, said = answers([program, "playground", "--answer"], [begun, {"ask": "look", "model": 0, "edits": [edit]},
                                                                  {"ask": "edit", "model": 0, "edits": [edit]}])[1:]
        wanted, row = said["edits"][0], page.texts(".in-force tbody tr > *")
        assert row[0] == edit, f"{row[0]} in force, {edit} meant"
        for name, text in zip(("predicted", "real"), row[1:]):
            assert math.isclose(float(text), wanted[name], rel_tol=5e-3, abs_tol=1e-6), f"{edit}: {name} {text} on the page, {wanted} by the program"
        assert abs(wanted["real"]) > 1e-4, f"{edit}: too small to be told from rounding"
        shown, loss = page.texts(".edits p[role=status]")[0].split("before, ")[1].split()[0], page.get("losses.at(-1)")
        assert math.isclose(float(shown), loss, rel_tol=1e-3), f"{edit}: loss {shown} on the page, {loss} by its engine"
        assert math.isclose(loss, look["loss"], abs_tol=1e-5), f"{edit}: loss {loss} by the page's engine, {look['loss']} by the program"
        page.click("[data-focus='undo 0']")
        page.until("!document.querySelector('.in-force tbody tr')")

    page.call("Page.addScriptToEvaluateOnNewDocument", source="""const losses = [], Plain = Worker;
        Worker = class extends Plain { constructor(address) { super(address);
          this.addEventListener("message", ({ data }) => data.answer?.loss !== undefined && losses.push(data.answer.loss)); } };""")
    said = "document.querySelector('.weights .facts[role=status]').textContent"
    page.show(path, "model=rope&model=absolute&model=cdape(kerple)&vector=q&i=29&j=8&head=1&d=2")
    page.until("[...document.querySelectorAll('.column')].filter((each) => each.querySelector('canvas')).length === 3")
    page.press("[data-focus='vector value']", "ArrowDown", "ArrowRight")
    page.until(f"{said}.startsWith('q layer=0 head=1 i=30 d=3: ')")
    plain = page.get(said)
    page.get("""(() => { const slider = document.querySelector("[data-focus='vector slider']"); slider.value = 3;
                slider.dispatchEvent(new Event("input", { bubbles: true })); })()""")
    page.until(f"{said}.startsWith('q layer=0 head=1 i=30 d=3: 3, ')")
    compare(0, "rope", "q layer=0 head=1 i=30 d=3 = 3")
    page.until(f"{said} === {json.dumps(plain)}")
    assert model(1) == "q", "what is chosen does not stay with another model"
    for what, text in (("vector", "position.table"), ("row", "22"), ("scope", "its row"), ("sign", "*="), ("vector slider number", "3")):
        choose(what, text)
    compare(1, "absolute", "position.table 0=22 *= 3")
    assert model(2) == "attention.position.base.strength", "the first parameter stands in for one that is not there"
    for what, text in (("vector", "attention.position.hidden.weight"), ("column", "1"), ("scope", "its column in all maps")):
        choose(what, text)
    page.click("[data-focus='vector zero']")
    compare(2, "cdape(kerple)", "blocks.0.attention.position.hidden.weight 3=1 = 0")
    choose("slice", "5")
    page.until(f"{said}.startsWith('blocks.0.attention.position.hidden.weight 0=5 1=3 3=1: ')")
    page.show(path, "model=cope&vector=position.z&i=30&n=64", width=390, height=844)
    page.until(f"{said}.startsWith('z layer=0 head=0 i=30 n=64: ')")
    page.narrow_enough()


def row_shown(page, name):
    """Returns the numbers of a row of the story."""
    label = next(label for label in page.texts(".step svg", "getAttribute('aria-label')") if label.startswith(f"{name} of query "))
    return [float(word) for word in label.split(": ")[-1].split() if word != "masked"]


def looks_of(looks, program):
    """Returns what the program says of the pass under each of these lists of edits, and the gradient of the last place asked for."""
    asked = [question for edits, more in looks for question in ({"ask": "look", "model": 0, "edits": edits}, *more)]
    return answers([program, "playground", "--answer"], [{"ask": "begin", "model": 0, "scheme": "cope"}, {"ask": "train", "model": 0, "steps": 20},
                                                         *asked])[2:]


def close(what, shown, wanted):
    apart = max(abs(a - b) for a, b in zip(shown, wanted, strict=True))
    assert apart <= 1e-5, f"{what}: {apart} apart: {shown} on the page, {wanted} by the program"


def check_inspector(page, path, program):
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
    before, value = looks_of([([own], [{"ask": "value", "model": 0, "what": place}])], program)
    page.press("[data-focus=knob]", "ArrowDown")
    page.until("document.querySelector('.turn .command')")
    gate = float(re.search("= ([0-9.e-]+)\"", page.texts(".turn .command")[0])[1])
    after, pattern = looks_of([([own, f"{place} = {gate!r}"], [{"ask": "value", "model": 0, "what": f"pattern {at} j={j}"}])], program)
    real, foretold = (float(word) for word in re.findall(r"[+-]\d\S*\d", page.texts(".moved")[0].replace("\u2212", "-")))
    assert math.isclose(real, after["loss"] - before["loss"], rel_tol=0.02, abs_tol=2e-6), f"{page.texts('.moved')}: {after['loss'] - before['loss']}"
    assert math.isclose(foretold, value["gradient"] * (gate - value["value"]), rel_tol=0.02, abs_tol=1e-8), page.texts(".moved")
    close("attention of the key", [row_shown(page, "pattern")[j]], [pattern["value"]])
    page.click("[data-focus='knob reset']")
    page.get(broken)
    page.press("[data-focus=knob]", "ArrowDown")
    page.until("document.querySelector('.moved .wrong')?.textContent === 'No engine today.'")
    page.get("Worker.prototype.postMessage = self.post; 0")
    page.press("[data-focus=knob]", "ArrowDown")
    page.until("document.querySelector('.moved').textContent.startsWith('The loss changes')")
    page.view("playground")
    page.until("document.querySelectorAll('.in-force tbody tr').length === 1 && document.querySelectorAll('.pairs canvas').length > 0")




def check_hostile(page, path):
    for scheme in ("bogus(p=3)", "cope(p_max=999999)", "(" * 5000, "cope + cope", "layers(" * 300):
        page.type("[data-focus='scheme 1']", scheme)
        page.until("document.querySelector('#problem-1').textContent.includes('The model stays')")
        page.type("[data-focus='scheme 1']", "rope")
        page.until("!document.querySelector('#problem-1').textContent")
    page.show(path, "bogus=1&step=xx&i=-3&model=cope&head=77&quantity=none&lesson=no&__proto__=1&edit=9:x")
    page.type("[data-focus='scheme 0']", "rope")
    page.until("document.querySelector('.column h2 input').value === 'rope'")


def check_lessons(page, path, pictures):
    page.show(path)
    for lesson in json.loads(LESSONS.read_text()):
        page.click(f"[data-focus='lesson {lesson['key']}']")
        page.until(f"document.querySelector('.lesson h2').textContent === {json.dumps(lesson['title'])}")
        page.until(f"document.querySelectorAll('.column').length === {len(lesson['models'])}")
        page.until(f"[...document.querySelectorAll('.column')].every((each) => each.querySelector('.facts').textContent.startsWith('step "
                   f"{lesson['steps']} ')) && document.querySelector('.play').textContent === 'Play'")
        page.until("document.querySelectorAll('aside tbody tr').length > 0")
        page.picture(pictures, f"{lesson['key']}-before")
        before = page.get("document.querySelector('aside').textContent")
        page.click("[data-focus=try]")
        page.until(f"document.querySelectorAll('.in-force tbody tr').length === {len(lesson['edits'])}")
        page.until("[...document.querySelectorAll('.in-force tbody tr')].every((row) => !/^.*none$/.test(row.children[2].textContent))")
        page.until("document.querySelector('.edits p[role=status]').textContent.startsWith('Loss')")
        page.until(f"document.querySelector('aside').textContent !== {json.dumps(before)}")  # drawn after the loss is
        assert not any(page.texts(".problem")), f"{lesson['key']}: {page.texts('.problem')}"
        page.narrow_enough()
        page.picture(pictures, lesson["key"])


def check_run(page, program, folder):
    """A trained run in the page: its numbers and those of an edit are the program's."""
    run, path = folder / "run", folder / "run.html"
    sizes = "--length 16 --dim 16 --layers 2 --heads 2 --batch 8 --test-sequences 4".split()
    for words in (["train", "flip_flop", "--scheme", "cope", *sizes, "--steps", "5", "--quiet", "--out", run], ["playground", run, "--out", path]):
        subprocess.run([program, *words], check=True, capture_output=True)
    place, edit = "gates layer=1 head=0 i=9 j=4", "gates layer=1 head=0 i=9 j=4 = 0"
    ours = answers([program, "playground", "--answer"], [{"ask": "open", "model": 0, "run": str(run)}, {"ask": "look", "model": 0}, {"ask": "value", "model": 0, "what": place},
                                                        {"ask": "errors", "model": 0, "sequences": 64}, {"ask": "look", "model": 0, "edits": [edit]}])
    page.show(path, "view=playground&layer=1&i=9&j=4&quantity=gates")
    page.until("document.querySelector('.column .errors dd').textContent !== '\u2013'")
    near = lambda shown, number: math.isclose(float(shown), number, rel_tol=1e-3, abs_tol=0.05)
    shown = page.get("[...document.querySelectorAll('aside tbody tr')].find((row) => row.textContent.includes('1 gates')).children[1].textContent")
    assert math.isclose(float(shown), ours[2]["value"], rel_tol=1e-3), f"{place}: {shown} on the page, {ours[2]} by the program"
    percent = page.texts(".column .errors dd")
    assert all(map(near, percent, ours[3]["percent"])), f"{percent} on the page, {ours[3]} by the program"
    page.click("[data-focus='vector zero']")
    page.until("document.querySelector('.edits p[role=status]').textContent.startsWith('Loss')")
    loss = page.get("document.querySelector('.edits p[role=status]').textContent.match(/, ([0-9.e-]+) with/)[1]")
    assert math.isclose(float(loss), ours[4]["loss"], rel_tol=1e-3), f"{edit}: {loss} on the page, {ours[4]['loss']} by the program"
    page.click("[data-focus='undo 0']")
    page.until("!document.querySelector('.in-force tbody tr')")
    page.view("lessons")
    for lesson in json.loads(LESSONS.read_text()):
        if lesson["models"][0]["scheme"] != "cope" or "i=" in "".join(lesson["edits"]):
            continue
        wanted = answers([program, "playground", "--answer"], [{"ask": "open", "model": 0, "run": str(run)},
                         {"ask": "look", "model": 0, "edits": lesson["edits"]}])[1]["loss"]
        page.click(f"[data-focus='try {lesson['key']}']")
        page.until(f"document.querySelector(`[data-focus='undo {lesson['key']}']`)")
        shown = page.get("document.querySelector('#stage .step [role=status]').textContent.match(/, ([0-9.e-]+) with/)[1]")
        assert math.isclose(float(shown), wanted, rel_tol=1e-3), f"{lesson['key']}: loss {shown} on the page, {wanted} by the program"
    page.view("playground")
    page.until("document.querySelectorAll('.in-force tbody tr').length === 1")
    assert page.get("document.querySelector('.column h2 input').readOnly && !document.querySelector('.lesson-list button') && !document.querySelector('.play').offsetParent")


def main():
    line = argparse.ArgumentParser()
    line.add_argument("whence")
    line.add_argument("--pictures", type=pathlib.Path)
    options = line.parse_args()
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if not chromium:
        print("playground: SKIPPED: no chromium in PATH (and the page needs a module that emscripten builds); no page was opened")
        sys.exit(77)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        path = pathlib.Path(folder) / "playground.html"
        made = subprocess.run([options.whence, "playground", "--out", path], capture_output=True, text=True)
        if made.returncode == 2 and "no module of WebAssembly" in made.stderr:
            print(f"playground: SKIPPED: {made.stderr.strip()}")
            sys.exit(77)
        assert made.returncode == 0, made.stderr
        print(f"{path.stat().st_size} bytes")
        assert path.stat().st_size < 5e6
        page = Playground(chromium, pathlib.Path(folder) / "profile")
        page.call("Network.enable")
        try:
            check_start(page, path, options.whence)
            check_training(page, path)
            check_weights(page, path, options.whence)
            page.show(path)
            link = check_edits(page)
            check_saving(page)
            page.picture(options.pictures, "edited-light-1500")
            for width, scheme in ((1500, "dark"), (390, "light"), (390, "dark")):
                page.show(path, link, width=width, height=844, scheme=scheme)
                page.until("document.querySelectorAll('.in-force tbody tr').length === 2")
                page.narrow_enough()
                page.picture(options.pictures, f"linked-{scheme}-{width}")
            check_inspector(page, path, options.whence)
            check_hostile(page, path)
            check_lessons(page, path, options.pictures)
            check_run(page, options.whence, pathlib.Path(folder))
        finally:
            page.close()
        assert not page.errors, page.errors
        asked = [url for url in page.requests if not url.startswith((path.parent.as_uri(), "blob:", "data:"))]
        assert not asked, f"the page asks the network: {asked}"
    print("playground: the page learns, edits, teaches its lessons and keeps its numbers to the program's")


if __name__ == "__main__":
    main()
