"""Every view of the pages of `whence look` in Chromium, for every scheme, by key and pointer; their numbers are the engine's:
tests/pytest tests/examples/look/page.py"""
import base64
import cmath
import concurrent.futures
import functools
import itertools
import json
import math
import os
import pathlib
import re
import struct
import subprocess
import sys
import urllib.error
import urllib.request
import xml.etree.ElementTree
import zlib

import pytest

from page_driver import Browser, chromium

WHENCE = os.environ["WHENCE"]
VIEWS = ["story", "quantities", "text", "heads", "why", "paths", "edits", "logit", "patch", "graph"]
# Hostile tokens: markup, control characters, right to left, four bytes, half a character.
NASTY = b"<b>&amp;</script>\x01\x07 \xd7\xa9\xd7\x9c\xd7\x95\xd7\x9d \xf0\x9f\x98\x80\xff\t\n\n" * 40
LOOKS = {"cope": "cope(p_max=6) --beside cope(p_max=3) --length 24 --dtype f64", "cdape": "cdape(kerple) --length 24", "large": "cope --length 64",
         "equation5": "cope(p_max=6,interpolation=equation5) --length 24 --dtype f64", "left": "cope+cdape(kerple,kernel=4,pad=left) --length 12",
         "one token": "cdape(kerple) --length 1", "shared keys": "shared --dtype f64", "nasty": "nasty --text nasty.txt",
         "checkpoints": "run --checkpoints 5 --dtype f64"}
for scheme in re.findall(r"^(\w+(?:\(SCHEME\))?)  ", subprocess.run([WHENCE, "schemes"], check=True, capture_output=True, text=True).stdout, re.MULTILINE):
    if scheme not in ("scheme", "hard_attention"):  # the head of the list; and a scheme that is always with another
        LOOKS["scheme " + scheme] = scheme.replace("SCHEME", "kerple") + " --length 12"

class Page(Browser):
    """The browser at one of the pages: its file and its data."""

    def show(self, **state):
        self.open(self.path, **state)

    def row(self, name, layer, head, i, field="value", data=None):
        return row_of(data or self.data, name, layer, head, i, field)

def numbers(holder, field="value", bits=None):
    data, letter = holder[field], {8: "B", 32: "f", 64: "d", "steps": "I"}[bits or holder["bits"]]
    return struct.unpack(f"<{len(data) // struct.calcsize(letter)}{letter}", data)

def elements(link, field):
    return [total % 2 ** 32 for total in itertools.accumulate(numbers(link, field, "steps"))]

def first(entries, **fields):
    return next(each for each in entries if fields.items() <= each.items())

def row_of(data, name, layer, head, i, field="value"):
    part = first(data["quantities"], name=name)["layers"][layer]
    _, rows, columns = part["shape"]
    return numbers(part, field)[(head * rows + i) * columns:][:columns]

def equal(what, found, wanted):
    same = len(found) == len(wanted) and all(math.isclose(float(a), float(b), rel_tol=1e-6, abs_tol=1e-15) for a, b in zip(found, wanted))
    assert same, f"{what}: {found}; {wanted} expected"

def unfold(page, selector):
    page.get(f"document.querySelectorAll({json.dumps(selector)}).forEach(each => each.open = true); new Promise(done => setTimeout(done, 50))")

def computed_equal(page, selector=".check"):
    assert page.texts(selector, "dataset.equal")[-1:] == ["true"], f"{page.get('location.href')}: {page.texts(selector)}"

@functools.cache
def all_data_of(path, name):
    """The JSON of a page, with each array's bytes in place of their reference."""
    text = path.read_text()
    elements_of = lambda kind, name: [each.partition("</script>")[0] for each in text.split(f'<script type="application/{kind}" {name}>')[1:]]
    block = zlib.decompress(base64.b64decode(elements_of("octet-stream", 'id="look-numbers"')[0]), -15)
    array = lambda each: block[each["at"]:each["at"] + each["bytes"]] if each.keys() == {"at", "bytes"} else each
    return [json.loads(each, object_hook=array) for each in elements_of("json", name)]

besides_of = lambda page: all_data_of(page.path, 'class="look-beside"')

@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """Pages of every scheme, and of inputs that may break a page."""
    folder = tmp_path_factory.mktemp("look")
    run = lambda words, *more: subprocess.run([WHENCE, *words.split(), *more], check=True, cwd=folder, capture_output=True)
    (folder / "nasty.txt").write_bytes(NASTY)
    run("train lm --data nasty.txt --dim 8 --layers 1 --heads 1 --length 48 --steps 1 --batch 1 --evaluate-to 1 --quiet --out nasty", "--scheme", "alibi + forgetting")
    flip_flop = "train flip_flop --scheme cope(p_max=6) --dim 16 --batch 2 --test-sequences 2 --quiet"
    run(f"{flip_flop} --layers 2 --heads 2 --length 24 --steps 5 --save-every 1 --keep-checkpoints 0 --out run")
    run(f"{flip_flop} --layers 1 --heads 4 --kv-heads 2 --length 12 --steps 1 --out shared")
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda name: run(f"look {LOOKS[name]} --out", f"{name}.html"), LOOKS))
    return folder

@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    browser = Page(chromium(), tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()

@pytest.fixture
def page(request, browser, folder):
    browser.path, browser.errors = folder / f"{request.param}.html", []
    browser.data = all_data_of(browser.path, 'id="look-data"')[0]
    yield browser
    assert not browser.errors, "the console of the page has errors"

def on(*names):
    return pytest.mark.parametrize("page", names, indirect=True)

# Clicks every tab and every part of it, and gives the views and what is wrong with each.
EVERY_VIEW = """(async () => {
  const all = (selector) => [...document.querySelectorAll(selector)], views = [], wrong = [];
  const parts = () => all(".parts button").length;
  for (const [tab, k] of all("[role=tab]").flatMap((tab) => { tab.click(); return Array.from({ length: parts() || 1 }, (_, k) => [tab, k]); })) {
    tab.click();
    all(".parts button")[k]?.click();
    await new Promise((done) => setTimeout(done));
    const view = new URLSearchParams(location.hash.slice(1)).get("view"), must = (holds, what) => holds || wrong.push(`${view}: ${what}`);
    must(!views.includes(view) && all("#stage > *").length, "nothing is shown");
    views.push(view);
    must(all("#stage canvas").every((canvas) => canvas.width > 0 && (canvas.tabIndex < 0 || canvas.getAttribute("aria-label"))), "a canvas without width or words");
    must(!all("bdi *, #look script").length, "a text has become elements");
    must(!document.getElementById("look").textContent.includes("[object"), "an element stands as its name");
    must(document.documentElement.scrollWidth <= innerWidth, "wider than the window");
    must(!/\\bNaN\\b/.test(document.getElementById("stage").innerText), "NaN");
    if (innerWidth <= 390) {
      must(all("#stage p, #stage p code").every((each) => each.getBoundingClientRect().right <= innerWidth), "words are cut");
      const low = all("button:not(.go), input, select, summary, [role=tab]").filter((each) => each.getClientRects().length && each.getBoundingClientRect().height < 23.9);
      must(!low.length, `${low.length} targets of less than 24 pixels, the first ${low[0]?.outerHTML.slice(0, 90)}`);
    }
  }
  return { views, wrong, theme: document.documentElement.dataset.theme };
})()"""

def check_every_view(page, theme="light"):
    page.show(theme=theme)
    found = page.get(EVERY_VIEW)
    views = found["views"]
    assert [view for view in VIEWS if view in views] == views and "quantities" in views, views
    assert not found["wrong"] and found["theme"] == theme, found

@on(*LOOKS)
def test_every_view(page):
    check_every_view(page)
    check_equations(page)
    check_pictures(page)

@on("cope", "cdape")
def test_dark(page):
    check_every_view(page, "dark")

@on("cope", "equation5")
def test_phone(page):
    page.call("Emulation.setDeviceMetricsOverride", width=390, height=844, deviceScaleFactor=1, mobile=False)
    try:
        check_every_view(page)
    finally:
        page.call("Emulation.clearDeviceMetricsOverride")

GREEK = "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi omicron pi rho - sigma tau upsilon phi chi psi omega".split()
SIGNS = {"\u2211": "sum", "\u220f": "prod", "\u039b": "Lambda", "\u230a": "floor", "\u2308": "ceil", **{chr(0x3b1 + k): name for k, name in enumerate(GREEK)}}

def check_equations(page):
    """Each registered equation became MathML with every letter and digit in their order; none was left as text."""
    page.show(view="quantities", show="all", part="value")
    unfold(page, "details.rest")
    lines = dict(page.get("[...document.querySelectorAll('.equation')].map((each) => [each.title, each.querySelector('math') && each.textContent])"))
    for source in (each["equation"] for each in page.data["quantities"] + page.data["schemes"] if each["equation"]):
        line = re.sub(".", lambda sign: SIGNS.get(sign[0], sign[0]), lines[source] or "no MathML")
        assert re.sub(r"\W|_", "", line) == re.sub(r"\W|_|sqrt", "", source), f"{line}; {source} expected"

def check_pictures(page):
    """The story shows the picture of each scheme, a base's too: its numbers are the row's, and the keyboard moves it."""
    data = page.data
    drawn = [scheme for scheme in data["schemes"] if scheme["picture"] != "none"]
    if not drawn or not any(data["predictions"]):
        return
    layer, head, i = data["layers"] - 1, data["heads"] - 1, min(9, len(data["tokens"]) - 1)
    page.show(view="story", layer=layer, head=head, i=i, j=i, digits="true")
    assert [title.split(". ")[1].split(": ")[0] for title in page.texts(".step h2") if ": " in title] == [scheme["name"] for scheme in drawn]
    assert all(equal == "true" for equal in page.texts(".drawn .check", "dataset.equal")), page.texts(".drawn .check")
    for scheme in drawn:
        at = f"[data-focus='picture {scheme['name']}']"
        label = page.texts(f"{at} svg", "getAttribute('aria-label')")[0]
        shown = [float(word) for word in label.split(": ")[1].split()]
        pairs = [each for each in data["quantities"] if each["scheme_name"] == scheme["name"] and each["axes"] == "h i j"]
        if scheme["picture"] in ("distance", "positions"):
            equal(label, shown, page.row(pairs[-1]["name"], layer, head, i)[:i + 1])
        elif scheme["picture"] != "turn":
            equal(label, shown, [page.row(pairs[-1]["name"], layer, each, i)[i] for each in range(data["heads"])])
        elif page.path.stem == "scheme rope":  # the other distances by the formula
            q, k = ([complex(a, b) for a, b in zip(row[:len(row) // 2], row[len(row) // 2:])] for row in (page.row(name, layer, head, i) for name in "qk"))
            score = lambda far: sum((a * b.conjugate() * cmath.exp(1j * far * 10000 ** (-m / len(q)))).real for m, (a, b) in enumerate(zip(q, k))) / math.sqrt(2 * len(q))
            assert all(abs(value - score(i - j)) < 1e-4 for j, value in enumerate(shown)), (shown, [score(i - j) for j in range(i + 1)])
        for key, moved in (("ArrowLeft", dict(j=max(0, i - 1))), ("ArrowRight", dict(j=i)), ("ArrowUp", dict(head=max(0, head - 1))), ("ArrowDown", dict(head=head))):
            page.press(at, key, **moved)

@on("cope")
def test_numbers(page):
    page.show(view="quantities", quantity="gates", show="one", part="value", layer=1, head=0, i=9, j=4, digits="true")
    gates = page.row("gates", 1, 0, 9)
    equal("readout", [page.texts("#readout b")[0]], gates[4:5])
    label, = page.texts("[aria-label='selected row'] .strips svg", "getAttribute('aria-label')")
    assert label.startswith("gates of query 9: ")
    equal("row", label.split(": ")[1].split(), gates[:10])
    for name in ("gates", "position_logit"):  # with causes, and without, where a causal model's rule masks pairs
        page.show(view="quantities", quantity=name, show="one", part="value", layer=1, head=1)
        unfold(page, ".panel details")
        whole = [word for word in page.texts(".panel .behind td") if word != "masked"]
        equal("table", whole, [value for i in range(24) for value in page.row(name, 1, 1, i)[:i + 1]])
    page.show(view="quantities", run="difference", quantity="logits", part="value", show="one", layer=0, head=1, i=5, j=2, digits="true")
    one, other = (page.row("logits", 0, 1, 5, data=each)[2] for each in (page.data, besides_of(page)[0]))
    equal("difference", [page.texts("#readout b")[0]], [one - other])
    page.show(view="text", quantity="pattern", part="value", side="query", layer=0, head=1, i=6)
    page.press(".text", "ArrowRight", i=7)
    titles = page.texts(".word", "title.split(': ')[1]")
    equal("shading", titles[:8], page.row("pattern", 0, 1, 7)[:8])
    assert set(titles[8:]) == {"masked"}

@on("cope")
def test_answers(page):
    """Each graded token is marked; the words are from the data, and their losses make the loss."""
    asked = {t: each for t, each in enumerate(page.data["predictions"]) if each}
    assert [t for t, target in enumerate(page.data["targets"]) if target is not None] == list(asked), "every target has a prediction"
    assert math.isclose(sum(each["loss"] for each in asked.values()) / len(asked), float(dict(page.data["facts"])["loss"]), rel_tol=1e-4)
    wrong = [t for t, each in asked.items() if each["wanted"][0] != each["likeliest"][0][0]]
    for t, each in asked.items():
        page.show(view="text", i=t)
        said = page.texts(".answer")[0]
        assert ("wrong" in said) == (t in wrong) and each["wanted"][0] in said, said
        equal("loss here", [f"{float(said.split('loss ')[1][:-1]):.3g}"], [f"{each['loss']:.3g}"])
    assert [len(page.texts(f".word.asked{kind}")) for kind in ("", ".missed")] == [len(asked), len(wrong)]

@on("cope")
def test_story(page):
    """Its claim, its steps, the other answers of the sequence, and the heads that are silenced."""
    knob, data, number = page.data["knob"], page.data, lambda text: float(text.replace("\u2212", "-"))
    page.show()
    page.at(view="story", **{key: knob[key] for key in ("layer", "head", "i", "j")})
    asked, words = data["predictions"][knob["i"]], page.texts(".step > div:first-child > p")
    assert asked["likeliest"][0][0] in page.texts(".claim b")[0] and f"After {knob['i']} " in page.texts(".claim")[0]
    assert any(each.startswith(f"dLoss/d{knob['at'].split()[0]} says") for each in words[1:3]), words
    silenced = next(each for each in data["effects"] if each["layer"] == knob["layer"] and each["head"] in (None, knob["head"]))
    assert math.isclose(number(re.search(r"the loss changes by (\S+)\. ", words[0])[1]), silenced["real"], rel_tol=6e-3), words[0]
    assert re.search(r"zero\. ([\w ]+):.*This cause has (\S+) % of the pairs", words[-1]), words[-1]
    page.press("[data-focus^='row ']", "Home", "ArrowRight", j=1)
    other = next(t for t, each in enumerate(data["predictions"]) if each and t != knob["i"])
    page.press(f"[data-focus='asked {other}']", "Enter", i=other)
    assert f"For the query {other} " in page.texts(".step p")[0], page.texts(".step p")
    page.press("[data-focus='to knob']", "Enter", i=knob["i"])
    page.show(view="edits")
    equal("silenced heads", [float(text) for text in page.texts(".effects td:nth-child(3)", "title")], [each["real"] for each in data["effects"]])
    page.press("[data-focus='effect 1 0']", "Enter", layer=1, head=0)
    # The rows below the one that moves are those of the pass with the moved number.
    page.show(view="story", digits="true")
    page.press("[data-focus=knob]", "End", "Home")
    labels = [label.split(": ") for label in page.texts(".step:nth-of-type(2) .strips svg", "getAttribute('aria-label')")]
    assert [label[0].split()[0] for label in labels] == ["positions", "position_logit", "pattern"], labels
    for label, words in labels:
        equal(label, words.split(), first(knob["stops"][0]["rows"], probe=label.split()[0])["value"][:knob["i"] + 1])

@on("cope", "cdape", "scheme alibi", "scheme rope", "scheme stick_breaking")
def test_knob(page):
    """Eleven stops reached by key: the page shows its data for each."""
    knob = page.data["knob"]
    stops, seen = knob["stops"], knob["i"] + 1
    page.show(view="story", digits="true")
    page.press("[data-focus=knob]", "End", "Home")
    quantity = page.texts(".turn .strips svg", "getAttribute('aria-label')")[0].split(f" of query {knob['i']}: ")[0]
    for stop in stops:
        said = page.texts(".moved")[0].replace("\u2212", "-")
        told = [0 if word == "about 0" else float(word) for word in re.findall(r"[+-]\d+(?:\.\d+)?(?:e[+-]?\d+)?|about 0", said)]
        wanted = [each for each in (stop["real"], stop["predicted"]) if each is not None]
        assert all(math.isclose(a, b, rel_tol=6e-3, abs_tol=1e-12) for a, b in zip(told, wanted, strict=True)), f"{said}: {wanted} expected"
        assert f'--edit "{stop["edit"]}"' in page.texts(".turn .command")[0]
        answer = stop["prediction"]["likeliest"][0][0]
        assert answer in page.texts(".claim b")[0] and ("wrong" in page.texts(".claim")[0]) == (answer != stop["prediction"]["wanted"][0])
        words = page.texts(".turn .strips svg", "getAttribute('aria-label')")[0].split(": ", 1)[1].split()
        pairs = [(word, value) for word, value in zip(words, first(stop["rows"], probe=quantity)["value"][:seen], strict=True) if word != "masked"]
        equal(f"{stop['edit']}: {quantity}", [word for word, _ in pairs], [value for _, value in pairs])
        page.press("[data-focus=knob]", "ArrowUp")
    page.click("[data-focus='knob reset']")
    assert not page.texts(".turn .own-level[d^=M]"), "the model's own numbers are drawn once"
    if knob["value"] is not None and knob["change"] == "=":  # drags the bar to the bottom, and the picture follows
        key = (70 + (knob["j"] + 0.5) / seen * (1280 - 40 - 15 - 82)) / (1280 - 40 - 15)
        for kind, y in (("mousePressed", 0.3), ("mouseMoved", 0.5), ("mouseMoved", 0.74), ("mouseReleased", 0.74)):
            page.pointer(".turn .strips svg", key, y, kind)
        assert "= 0\"" in page.texts(".turn .command")[0], page.texts(".turn .command")

@on("cope")
def test_keys(page):
    page.show(view="quantities", show="one", part="value", quantity="gates", i=9, j=4)
    page.press("#stage canvas", "ArrowLeft", "ArrowUp", i=8, j=3)
    page.press("#stage canvas", "End", j=8)  # the diagonal
    page.pointer("#stage canvas", 0.5, 0.5)
    assert page.address()["i"] != "8", "a click selects a cell"
    page.press("[role=tab][aria-selected=true]", "ArrowLeft", view="story")
    assert page.get("document.activeElement.id") == "tab-Story"

@on("cope")
def test_why(page):
    page.show(view="why", quantity="gates", layer=1, head=1)
    shares = [share for share in page.data["shares"] if share["probe"] == "position.gates"]
    for line, share in enumerate(shares):
        row = page.texts(f".shares tbody tr:nth-child({line + 1}) td", "firstChild.textContent")
        equal("shares", row[4:], [*(count for index, count in enumerate(share["by"]) if any(each["by"][index] for each in shares)), share["zeros"]])
    zeros = numbers(first(page.data["quantities"], name="gates")["layers"][1], "gradient")[24 * 24:2 * 24 * 24].count(0.0)
    assert f"{zeros} of 576 entries are exactly 0; {zeros} of them" in page.texts("figcaption")[0], page.texts("figcaption")
    page.press("#stage canvas[tabindex]", "Home")
    assert page.texts(".told p")[0].split(":")[0] in [*(cause["kind"] for cause in page.data["causes"]), "Not zero."], page.texts(".told p")

@on("cope")
def test_paths(page):
    page.show(view="paths", of="q", layer=1, head=0, i=7)
    route = first(page.data["paths"], layer=1, of="q")
    at = lambda holder, field: numbers(holder, field, 64)[7]
    equal("norms", page.texts(".paths td:nth-child(4)", "title"), [at(each, "norm") for each in [*route["paths"], route]])
    along = [at(each, "along") for each in route["paths"]]
    equal("along", page.texts(".paths td:nth-child(5)", "title"), [*along, at(route, "norm")])
    assert "scores" in page.texts(".paths code")[0], "the chain of the first path"

@on("equation5")
def test_equation5(page):
    """The printed weights: the value is the engine's position_logit, and its slope is the falling one, which carries the engine's gradients."""
    p, z = page.row("positions", 1, 1, 12), page.row("z", 1, 1, 12)
    j = next(j for j in range(13) if p[j] % 1 > 0)
    page.show(view="quantities", quantity="position_logit", layer=1, head=1, i=12, j=j)
    equal("read", page.texts(".sides .whole")[:1], page.row("position_logit", 1, 1, 12)[j:j + 1])
    slopes = dict(zip(page.texts(".terms tbody th"), page.texts(".terms td:nth-child(3)", "title")))
    slope, = (float(each) for name, each in slopes.items() if name.startswith("positions["))
    gradients = [page.row(name, 1, 1, 12, "gradient")[j] for name in ("position_logit", "positions")]
    equal("slope", [gradients[0] * slope], gradients[1:])
    equal("the slope of equation 5", [slope], [z[math.floor(p[j])] - z[math.ceil(p[j])]])

@on("cdape")
def test_heads(page):
    data, heads = page.data, range(page.data["heads"])
    page.show(view="heads", quantity="conv_bias", layer=1, head=2, i=15, j=6, digits="true")
    unfold(page, ".panels details")
    for column, name in enumerate(("conv_bias", "scores", "logits"), 1):
        shown = [word for word in page.texts(f".panels:not(section *) > .panel:nth-child({column}) .behind td") if word != "masked"]
        equal(f"heads, {name}", shown, [value for head in heads for value in page.row(name, 1, head, 15)[:16]])
    parameter = lambda name: numbers(first(data["parameters"], path=f"blocks.1.attention.position.output.{name}"))
    hidden, weight, bias = numbers(first(data["quantities"], name="conv_hidden")["layers"][1]), parameter("weight"), parameter("bias")[2]
    given = lambda j, tap, c: weight[(2 * 32 + c) * 3 + tap] * hidden[(c * 24 + 15) * 24 + j + tap - 1] if 0 <= j + tap - 1 < 24 else 0
    for j in (6, 0, 15):  # inside, and where taps reach over the edge
        page.show(view="heads", quantity="conv_bias", layer=1, head=2, i=15, j=j, digits="true")
        computed_equal(page, ".drawn .check")
        unfold(page, ".drawn details")
        contributions = [given(j, tap, c) for c in range(32) for tap in range(3)]
        equal("contributions", page.texts(".given td", "title"), contributions)
        equal("sum", page.texts(".drawn .check b", "title"), [sum(contributions, bias)])

@on("left", "one token", "scheme dape(SCHEME)")
def test_sums(page):
    page.show(view="heads")
    computed_equal(page, ".drawn .check")

@on("cdape", "scheme alibi")
def test_graph(page):
    nodes = sorted(page.data["graph"]["nodes"], key=lambda node: node["order"])
    page.show(view="graph", digits="true")
    by_id = dict(zip(page.texts(".place", "dataset.focus.slice(6)"), page.texts(".place .norm")))
    for node in nodes:
        if node["kind"] != "parameter" and node["path"]:
            equal(node["id"], [by_id[node["id"]]], [node["norm"]])
        elif node["kind"] != "parameter":
            assert by_id[node["id"]] == "no path" and f"place {node['id']}" in page.texts(".place.lost", "dataset.focus"), node
    page.get("document.querySelector('.graph-tables').open = true")
    equal("norms", page.texts(".nodes tr:not(.lost) td:last-child", "title"), [node["norm"] for node in nodes if node["path"]])
    equal("edges", page.texts(".edges-table td:last-child", "title"), [edge["norm"] for edge in page.data["graph"]["edges"]])
    if modules := {node["id"].rpartition(".")[0] for node in nodes if node["kind"] == "parameter" and node["id"].startswith("blocks.0.")}:
        page.press("[data-focus='place parameters 0']", "Enter", unfolded=0)
        assert len(page.texts(".place[data-focus*='blocks.0'].parameter")) == len(modules)

def place_of(quantity, layer, index):
    """The part of the address that is one number of a quantity."""
    at, shape = {}, first(quantity["layers"], layer=layer)["shape"]
    for letter, size in reversed(list(zip(quantity["axes"].split(), shape))):
        at[{"t": "i", "h": "head"}.get(letter, letter)], index = index % size, index // size
    return {"quantity": quantity["name"], "layer": layer, **at}

@on("cope")
def test_worked(page):
    """The tables are the sums that the links make of the quantities; the walk goes along the links, and back."""
    by_probe = {quantity["probe"]: quantity for quantity in page.data["quantities"]}
    array = lambda probe, layer, field: numbers(first(by_probe[probe]["layers"], layer=layer), field)

    def products(probe, layer, index, side):
        here, field, found = ("a", "b")[side == "to"], ("gradient", "value")[side == "to"], []
        for link in page.data["links"]:
            if (link["layer"], link[side]) == (layer, probe):
                a = elements(link, "a")
                b = elements(link, "b") if link["b"] else a
                ends, other = ((a, b), link["to"]) if here == "a" else ((b, a), link["from"])
                have = array(other, layer, field)
                found += [(other, y, have[y] * d) for x, y, d in zip(*ends, numbers(link, "derivative")) if x == index]
        return sorted(found, key=lambda each: -abs(each[2]))
    for probe, layer, index in (("position.gates", 0, (1 * 24 + 9) * 24 + 4), ("logits", 1, 23 * 24 + 3), ("v", 1, (2 * 24 + 5) * 8 + 3)):
        page.show(view="quantities", show="one", part="value", **place_of(by_probe[probe], layer, index))
        for number, side in ((1, "to"), (2, "from")):
            wanted = [each[2] for each in products(probe, layer, index, side)]
            shown = page.texts(f".sides > div:nth-child({number}) .terms td:last-child", "title")
            equal(f"{probe}, {side}", sorted(map(float, shown)), sorted(wanted[:12] + ([sum(wanted[12:])] if len(wanted) > 12 else [])))
        equal("whole", page.texts(".sides .whole"), [array(probe, layer, field)[index] for field in ("value", "gradient")])
        computed_equal(page, ".sides .check")
    at = ("logits", 1, 23 * 24 + 3)
    page.show(view="quantities", **place_of(by_probe["logits"], *at[1:]))
    other, index, _ = products(*at, "to")[0]
    target = place_of(by_probe[other], 1, index)
    page.press('[data-focus="worked value 0"]', "Enter", **target)
    assert len(page.texts(".crumbs [data-focus]")) == 3 and page.texts(".crumbs [aria-current]")[0].startswith(target["quantity"])
    page.press(".worked", "Backspace", quantity="logits")
    page.press('[data-focus="crumb loss"]', "Enter", quantity="output")
    assert math.isclose(abs(float(page.texts(".sides .whole")[1])), max(map(abs, array("output", 1, "gradient"))))
    page.show(view="quantities", quantity="gates", layer=0, head=0, i=4, j=9)
    assert "whence look" in page.texts(".sides code")[-1] and "dLoss/dgates layer=0 head=0 i=4 j=9" in page.texts(".sides code")[-1]

@on("shared keys")
def test_key_heads(page):
    """Head 3 of four reads key head 1 of two: in the words, in the map and in the explained number."""
    k, index = first(page.data["quantities"], probe="k"), (1 * 12 + 5) * 4 + 2
    value = numbers(first(k["layers"], layer=0))[index:index + 1]
    page.show(view="quantities", show="one", part="value", digits="true", **{**place_of(k, 0, index), "head": 3})
    equal("readout", [page.texts("#readout b")[0]], value)
    equal("worked", page.texts(".sides .whole")[:1], value)
    assert "head 3, which reads key head 1" in " ".join(page.texts("#stage"))

@on("large")
def test_some_rows(page):
    """If only some queries have links, the others say so, and link to them."""
    rows = page.data["link_rows"][1]
    other = next(i for i in range(len(page.data["tokens"])) if i not in rows)
    page.show(view="quantities", quantity="gates", layer=1, head=0, i=other, j=0)
    assert not page.texts(".terms") and f"dLoss/dgates layer=1 head=0 i={other} j=0" in page.texts(".sides code")[-1]
    page.press(f"[data-focus='row {rows[0]}']", "Enter", i=rows[0])
    computed_equal(page, ".sides .check")

@on("checkpoints")
def test_slider(page):
    """The slider chooses the checkpoint to compare: by address, by key, and every number follows."""
    checkpoints, part = besides_of(page), dict(quantity="logits", show="one", layer=0, head=1, i=5, j=2, digits="true")
    read, number = lambda: page.texts("#readout b")[0], lambda data, field="value": page.row("logits", 0, 1, 5, field, data)[2]
    page.show(view="quantities", part="value", **part)
    equal("this", [read()], [number(page.data)])
    page.press("[data-key=beside]", "Home")
    for index, each in enumerate(checkpoints):  # earlier numbers must not be shown again
        page.at(beside=index if index < len(checkpoints) - 1 else None, run="beside")
        equal("beside", [read()], [number(each)])
        assert page.texts("[data-key=beside] + output") == page.texts("[data-key=beside]", "ariaValueText") == [each["label"]]
        page.press("[data-key=beside]", "ArrowRight")
    loss = [float(dict(each["facts"])["loss"]) for each in checkpoints]
    steepest = max(range(len(checkpoints) - 1), key=lambda k: loss[max(0, k - 1)] - loss[k])
    page.show(view="quantities", part="gradient", **part)
    equal("gradients where the loss fell most", [read()], [number(checkpoints[steepest], "gradient")])
    page.press("[data-key=moment]", "End")
    equal("gradients at the end", [read()], [number(checkpoints[-1], "gradient")])
    page.show(view="graph", run="beside", beside=1)
    assert "recorded for" in page.texts("#stage .note")[0], "a checkpoint has no graph"

@on("cope")
def test_saving(page, tmp_path):
    """"save" at the picture that is pointed at: a map as PNG, all else as SVG that a browser shows by itself."""
    page.call("Page.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    for view, picture, ending in (("quantities", ".panel canvas", "png"), ("quantities", ".strips svg", "svg"), ("graph", ".graph svg", "svg")):
        page.show(view=view)
        page.pointer(picture, 0.5, 0.5, "mouseMoved")
        page.click(".save")
        page.get("new Promise((done) => setTimeout(done, 1000))")
        saved, = [file for file in tmp_path.iterdir() if file.suffix == f".{ending}"]
        if ending == "svg":
            xml.etree.ElementTree.fromstring(saved.read_bytes())
        else:
            assert saved.read_bytes().startswith(b"\x89PNG")
        saved.unlink()

@on("equation5", "checkpoints")
def test_logits(page):
    """The parts of a logit add up to the lens after the last layer, which is the pass; and patches are by head."""
    data, count = page.data, len(page.data["logits"]["parts"])
    for entry in (data["logits"]["tokens"][0], data["logits"]["tokens"][-1]):
        page.show(view="logit", i=entry["token"], digits="true")
        parts = numbers(entry, "parts")
        equal("differences", page.texts(".edits td:nth-child(4)", "title"), [a - b for a, b in zip(parts[:count], parts[count:])])
        computed_equal(page)
    if data["patches"]:
        page.show(view="patch", layer=0, head=0)
        output = [each["place"] for each in first(data["patches"]["maps"], name="output")["outcomes"]]
        assert output == [f"output layer={layer} head={head}" for layer in range(data["layers"]) for head in range(data["heads"])]
        page.press("#stage canvas", "ArrowRight", head=1)
        assert page.texts("#stage table.edits tbody tr:nth-child(2) code") == [output[1]]

WHEN_THERE = "new Promise(done => { const each = () => document.querySelector('%s') ? done() : setTimeout(each, 20); each(); })"

class Served:
    """`look --serve`, and browsers at its page."""

    def __init__(self, *words):
        self.words = [WHENCE, "look", *words]
        self.process = subprocess.Popen([*self.words, "--serve"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if not (address := self.process.stdout.readline()):
            assert "without cpp-httplib" in self.process.stderr.read() and self.process.wait() == 2
            pytest.skip("built without cpp-httplib")
        self.url = re.search(r"http://127\.0\.0\.1:\d+/\w{32}/", address)[0]

    def status(self, path="", body=None, url=None, **headers):
        try:
            return urllib.request.urlopen(urllib.request.Request((url or self.url) + path, body, headers)).status
        except urllib.error.HTTPError as refused:
            return refused.code

    def open(self, browser, query=""):
        browser.call("Page.navigate", url=f"{self.url}{query}#view=story&layer=0&head=0&i=9&j=5&digits=true")
        browser.get(WHEN_THERE % ".claim")

    def move(self, browser, *words):
        """Moves a bar by key; the page says what `look --edit` prints for that edit. Returns the edit."""
        for key in ("ArrowLeft", "ArrowDown"):
            browser.press("[data-focus=knob]", key)
        browser.get(WHEN_THERE % ".turn .command")
        edit = re.search('--edit "(.*)"', browser.texts(".turn .command")[0])[1]
        printed = subprocess.run([*self.words, *words, "--dtype", "f64", "--edit", edit], check=True, capture_output=True, text=True).stdout.split()
        said = [float(word) for word in re.findall(r"[+-]\d\S*\d", browser.texts(".moved")[0].replace("\u2212", "-"))]
        assert all(math.isclose(one, float(other), rel_tol=6e-3) for one, other in zip(said, (printed[-1], printed[-2]), strict=True)), (said, printed)
        browser.click("[data-focus='knob reset']")
        return edit

    def stop(self):
        self.process.terminate()
        assert self.process.wait(20) == 0

def test_served(browser):
    """Any bar of the row drags, by the engine's numbers in f64; others' requests are refused; a signal ends it."""
    served, question = Served("kerple", "--length", "24"), json.dumps({"ask": "schemes"}).encode()
    assert served.status() == served.status("ask", question) == 200
    assert served.status("/ask", question, served.url[:-2]) == served.status("/", None, served.url.rsplit("/", 2)[0]) == 404, "a wrong token"
    assert served.status(Host="example.org") == served.status("ask", question, Origin="http://example.org") == 403, "another site"
    assert served.status("ask", b"a" * 100_000) == 413 and served.status("?sample=-1") == served.status("ask?sample=-1", question) == 400
    assert "error" in json.load(urllib.request.urlopen(served.url + "ask", b'{"ask":')), "a broken question"
    served.open(browser)
    assert re.fullmatch(r"(bias|scores) layer=0 head=0 i=9 j=4 = -\d+\.\d+", served.move(browser))
    served.stop()

def test_another_text_is_served(folder):
    served = Served(str(folder / "nasty"), "--text", str(folder / "nasty.txt"))
    assert served.status() == served.status("?prompt=abc") == 200
    served.stop()

def test_served_to_two(browser, folder, tmp_path):
    """Tabs of two sequences stay apart, also when other pages have taken their sessions' place."""
    served, browsers = Served(str(folder / "run")), [browser, Page(chromium(), tmp_path)]
    for sample, each in enumerate(browsers):
        served.open(each, f"?sample={sample}")
    for later in (False, True):
        for sample, each in enumerate(browsers):
            served.move(each, "--task-sample", str(sample))
        assert later or [served.status(f"?sample={other}") for other in range(2, 6)] == [200] * 4
    browsers[1].close()
    served.stop()

def test_picture():
    """The picture in the first README is of the page as it is."""
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "examples/whence/look"))
    import picture
    assert picture.noted((picture.HERE / "look.png").read_bytes()) == picture.drawn_by(), \
        "look.png is of an older page: examples/quickstart, then examples/whence/look/picture.py runs/quickstart/look.html"
