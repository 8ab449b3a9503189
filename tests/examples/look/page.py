#!/usr/bin/env python3
"""Opens every view of the pages of `whence look` in Chromium, for every scheme; uses them by key and pointer, and compares their numbers
with the engine's.
Usage: look_page.py WHENCE    ends with 77 without Chromium"""
import base64
import cmath
import concurrent.futures
import functools
import itertools
import json
import math
import pathlib
import queue
import re
import shlex
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import xml.etree.ElementTree
import zlib

from page_driver import Browser

VIEWS = ["story", "quantities", "text", "heads", "why", "paths", "edits", "logit", "patch", "graph"]

def unfold(browser, selector):
    browser.get(f"document.querySelectorAll({json.dumps(selector)}).forEach(each => each.open = true); new Promise(done => setTimeout(done, 50))")

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

def computed_equal(browser, selector=".check"):
    assert browser.texts(selector, "dataset.equal")[-1:] == ["true"], f"{browser.get('location.href')}: {browser.texts(selector)}"

def equal(what, found, wanted):
    same = len(found) == len(wanted) and all(math.isclose(float(a), float(b), rel_tol=1e-6, abs_tol=1e-15) for a, b in zip(found, wanted))
    assert same, f"{what}: {found}; {wanted} expected"

# Clicks every tab and every part of it, and gives the views and what is wrong with each.
EVERY_VIEW = """(async () => {
  const all = (selector) => [...document.querySelectorAll(selector)], views = [], wrong = [], visited = new Set();
  const parts = () => all(".parts button").length;
  for (const [tab, k] of all("[role=tab]").flatMap((tab) => { tab.click(); return Array.from({ length: parts() || 1 }, (_, k) => [tab, k]); })) {
    tab.click();
    all(".parts button")[k]?.click();
    await new Promise((done) => setTimeout(done));
    const view = new URLSearchParams(location.hash.slice(1)).get("view"), must = (holds, what) => holds || wrong.push(`${view}: ${what}`);
    views.push(view);
    must(!visited.has(view) && all("#stage > *").length, "nothing is shown");
    visited.add(view);
    must(all(".hint")[0].textContent.length > 20, "no hint");
    must(all("#stage canvas[tabindex]").every((canvas) => canvas.getAttribute("aria-label")), "a canvas without its words");
    must(all("#stage canvas").every((canvas) => canvas.width > 0), "a canvas without width");
    must(!all("bdi *, #look script").length, "a text has become elements");
    must(!document.getElementById("look").textContent.includes("[object"), "an element stands as its name");
    must(document.documentElement.scrollWidth <= innerWidth, "wider than the window");
    const levels = all("h1, h2, h3, h4").filter((each) => each.getClientRects().length).map(({ localName }) => Number(localName[1]));
    must(levels.every((level, k) => level <= (levels[k - 1] ?? 0) + 1), `headings skip a level: ${levels}`);
    must(all("main #stage").length === 1, "no main part");
    const wide = all("#stage :is(.scroll, .frame)").filter((each) => each.scrollWidth > each.clientWidth);
    must(wide.every(({ tabIndex }) => tabIndex === 0), "keys do not scroll what is wider than its room");
    must(all("#look [role=slider]").every((each) => each.hasAttribute("aria-valuenow")), "a slider without its value");
    must(all("math:not([role=group]) [tabindex]").length === 0, "what a key reaches is within what is read as a picture");
    must(!/\bNaN\b/.test(document.getElementById("stage").innerText), "NaN");
    must(all("[data-hatched]").length || all("#look > .note").every(({ hidden, innerText }) => hidden || !innerText.includes("Hatched")), "no hatched cell");
    if (innerWidth <= 390) {
      const numbers = ["story", "logit"].includes(view) ? all("#stage td.n") : [];
      must(numbers.every((cell) => cell.getBoundingClientRect().right <= innerWidth), "a number is cut");
      must(all("#stage p, #stage p code").every((each) => each.getBoundingClientRect().right <= innerWidth), "words are cut");
      const shown = (element) => element.getClientRects().length > 0, low = all("button:not(.go), input, select, summary, [role=tab]").filter(
        (element) => shown(element) && element.getBoundingClientRect().height < 23.9);
      must(!low.length, `${low.length} targets of less than 24 pixels, the first ${low[0]?.outerHTML.slice(0, 90)}`);
      const letters = (element) => [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
      const zoom = (element) => element.ownerSVGElement ? element.ownerSVGElement.getBoundingClientRect().width / element.ownerSVGElement.viewBox.baseVal.width : 1;
      const tiny = all("#look *").filter((element) => letters(element) && shown(element) && parseFloat(getComputedStyle(element).fontSize) * zoom(element) < 10.9);
      must(!tiny.length, `${tiny.length} texts of less than 11 pixels, the first ${tiny[0]?.outerHTML.slice(0, 90)}`);
    }
    must(innerWidth > 390 || all(".bar")[0].offsetHeight < 130, "the bar leaves a phone too little");
  }
  return { views, wrong, theme: document.documentElement.dataset.theme };
})()"""

def check_every_view(browser, path, themes=("light",)):
    for theme in themes:
        browser.open(path, theme=theme)
        found = browser.get(EVERY_VIEW)
        views = found["views"]
        assert [view for view in VIEWS if view in views] == views and "quantities" in views, views
        assert not found["wrong"] and found["theme"] == theme, f"{path.name}, {theme}: {found}"

def check_numbers(browser, path, data):
    browser.open(path, view="quantities", quantity="gates", show="one", part="value", layer=1, head=0, i=9, j=4, digits="true")
    gates = row_of(data, "gates", 1, 0, 9)
    equal("readout", [browser.texts("#readout b")[0]], gates[4:5])
    label, = browser.texts("[aria-label='selected row'] .strips svg", "getAttribute('aria-label')")
    assert label.startswith("gates of query 9: ")
    equal("row", label.split(": ")[1].split(), gates[:10])
    for name in ("gates", "position_logit"):  # with causes, and without, where a causal model's rule masks pairs
        browser.open(path, view="quantities", quantity=name, show="one", part="value", layer=1, head=1)
        unfold(browser, ".panel details")
        whole = [word for word in browser.texts(".panel .behind td") if word != "masked"]
        equal("table", whole, [value for i in range(24) for value in row_of(data, name, 1, 1, i)[:i + 1]])

def check_start(browser, path, data):
    """The page opens with the story, at the place of its knob."""
    browser.open(path)
    browser.at(view="story", **{key: data["knob"][key] for key in ("layer", "head", "i", "j")})
    assert not browser.get("document.querySelector('.bar').offsetHeight"), "no controls above the story"
    browser.open(path, view="quantities", quantity=data["quantities"][0]["name"])
    colours = browser.get("(() => { const canvas = document.querySelectorAll('.panel canvas')[1], { width, height } = canvas;"
                          "return new Set(new Uint32Array(canvas.getContext('2d').getImageData(0, 0, width, height).data.buffer)).size; })()")
    assert colours > 60, f"{colours} colours in the map of a gradient"

# The MathML of each equation as a line of text: numerators that are sums have parentheses, and denominators that are no single factor.
LINES_OF_EQUATIONS = """[...document.querySelectorAll(".equation")].map((equation) => {
  const around = (text, operators) => {
    let depth = 0, bars = 0;
    const open = [...text].some((letter) => {
      depth += letter === "|" ? (bars = 1 - bars) || -1 : "([{".includes(letter) - ")]}".includes(letter);
      return !depth && operators.includes(letter);
    });
    return open ? `(${text})` : text;
  };
  const line = (node) => {
    const [one = "", two = "", three = ""] = [...node.childNodes].map(line), above = (text) => text === "\u2032" ? text : `^{${text}}`;
    return { mfrac: `${around(one, "+\u2212")}/${around(two, "+\u2212\u00b7\u2299 ")}`, msub: `${one}{${two}}`, msup: one + above(two), msubsup: `${one}{${two}}${above(three)}`,
      msqrt: `sqrt${one}`, munderover: `${one}${two}..${three}`, mspace: " " }[node.localName] ?? node.data ?? [...node.childNodes].map(line).join("");
  };
  return { source: equation.title, line: line(equation), read: Boolean(equation.querySelector("math")) };
})"""
GREEK = "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi omicron pi rho - sigma tau upsilon phi chi psi omega".split()
SIGNS = {"\u2211": "sum", "\u220f": "prod", "\u2264": "<=", "\u2265": ">=", "\u2190": "<-", "\u2192": "->", "\u2026": "...", "\u2212": "-", "\u2299": "*", "\u00b7": ".",
         "\u2032": "'", "\u039b": "Lambda", "\u230a": "floor", "\u230b": "", "\u2308": "ceil", "\u2309": "", **{chr(0x3b1 + k): name for k, name in enumerate(GREEK)}}

def without_needless(text):
    """Roots, exponents and roundings have braces in place of parentheses."""
    while found := re.search(r"(\^|sqrt|floor|ceil)\(", text):
        depth, end = 1, found.end()
        while depth:
            depth, end = depth + {"(": 1, ")": -1}.get(text[end], 0), end + 1
        text = f"{text[:found.end() - 1]}{{{text[found.end():end - 1]}}}{text[end:]}"
    return re.sub(r"[\s_{}]", "", text)

def check_equations(browser, path, data):
    """Each registered equation became MathML with every symbol and in their order; none was left as text."""
    browser.open(path, view="quantities", show="all", part="value")
    unfold(browser, "details.rest")
    lines = {each["source"]: each for each in browser.get(LINES_OF_EQUATIONS)}
    for source in (each["equation"] for each in data["quantities"] + data["schemes"] if each["equation"]):
        assert lines[source]["read"], f"{path.name}: no MathML: {source}"
        line = re.sub(".", lambda sign: SIGNS.get(sign[0], sign[0]), lines[source]["line"])
        assert without_needless(line) == without_needless(source), f"{path.name}: {line}; {source} expected"

def check_symbols(browser, path, data):
    browser.open(path, view="quantities", show="one", quantity="positions")
    browser.press(".symbol[aria-label='g: gates']", "Enter", quantity="gates", view="quantities")

def check_openings(browser, path, data):
    """A view opens on the most informative part and shows nothing twice; the sum is in its order, and other parts are folded."""
    titles = lambda: [title for title in browser.texts(".panels > .panel h3")]
    browser.open(path)
    for view, quantity in (("heads", "gates"), ("text", "gates"), ("quantities", "gates"), ("graph", "gates")):
        browser.click(f"#tab-{'Graph' if view == 'graph' else 'Explore'}")
        if view != "graph":
            browser.click(f"[data-focus='view {view}']")
        browser.at(view=view, quantity=quantity)
        assert browser.texts("#look > .note", "hidden") == [view in ("text", "graph")], f"{view}: keys of maps are told where there are maps"
    browser.open(path, view="heads", quantity="gate_logits")
    assert titles() == ["gate_logits, all heads", "logits, all heads"], f"{titles()}: the scores are the same numbers"
    browser.open(path, view="quantities", part="value")
    assert titles() == ["scores", "gates", "positions", "z", "logits", "pattern"], titles()
    unfold(browser, "details.rest")
    assert sorted(titles()) == sorted(each["name"] for each in data["quantities"]), "nothing is left out"
    browser.open(path, view="paths", of="k")
    assert browser.texts(".paths tbody th")[:2] == ["by content", "by gates"], browser.texts(".paths tbody th")

def check_answers(browser, path, data):
    """Each graded token is marked; the words are from the data, and their losses make the loss."""
    asked = {t: each for t, each in enumerate(data["predictions"]) if each}
    assert [t for t, target in enumerate(data["targets"]) if target is not None] == list(asked), "every target has a prediction"
    assert math.isclose(sum(each["loss"] for each in asked.values()) / len(asked), float(dict(data["facts"])["loss"]), rel_tol=1e-4)
    wrong = [t for t, each in asked.items() if each["wanted"][0] != each["likeliest"][0][0]]
    for t, each in asked.items():
        browser.open(path, view="text", i=t)
        said = browser.texts(".answer")[0]
        assert ("wrong" in said) == (t in wrong) and each["wanted"][0] in said, said
        equal("loss here", [f"{float(said.split('loss ')[1][:-1]):.3g}"], [f"{each['loss']:.3g}"])
    assert [len(browser.texts(f".word.asked{kind}")) for kind in ("", ".missed")] == [len(asked), len(wrong)]
    browser.pointer(".word", 0.5, 0.5)
    browser.at(i=0)

def check_words(browser, data):
    """The story's steps speak of the quantity that moves, the head, and the most frequent cause in it; keys move within their rows."""
    knob, words, number = data["knob"], browser.texts(".step > div:first-child > p"), lambda text: float(text.replace("\u2212", "-"))
    here = lambda each: each["layer"] == knob["layer"] and each["head"] in (None, knob["head"])
    learns = f"dLoss/d{knob['at'].split()[0]} says"
    assert any(each.startswith(learns) for each in words[1:3]), words
    silenced = number(re.search(r"the loss changes by (\S+)\. ", words[0])[1])
    assert math.isclose(silenced, next(filter(here, data["effects"]))["real"], rel_tol=6e-3), words[0]
    found, kinds = [], [each["kind"] for each in data["causes"]]
    for share in filter(here, data["shares"]):
        if share["probe"] in [each["probe"] for each in data["quantities"] if each["scheme"] and each["axes"] == "h i j"]:
            pairs = share["entries"] - sum(count for count, kind in zip(share["by"], kinds) if kind == "masked")
            found += [(count / pairs, kind) for count, kind in list(zip(share["by"], kinds))[1:] if count and kind != "masked"]
    most, _ = max([each for each in found if each[0] > 0.01 and each[1] in ("table flat", "whole position", "clamped", "saturated")] or found)
    kind, said = re.search(r"zero\. ([\w ]+):.*This cause has (\S+) % of the pairs", words[-1]).groups()
    assert (most, kind) in found and math.isclose(float(said), 100 * most, rel_tol=6e-3), (words[-1], found)
    browser.press("[data-focus^='row ']", "Home", "ArrowRight", j=1)

def check_story(browser, path, data):
    """Its claim, its steps, the other answers of the sequence, and the heads that are silenced."""
    browser.open(path)
    assert [title.split(". ")[1] for title in browser.texts("h2") if ". " in title] == [
        "Which tokens this head counts", "cope: position_logit by position", "How it learns", "Where its gradient comes from", "Why a gradient dies"], browser.texts("h2")
    asked = data["predictions"][data["knob"]["i"]]
    assert asked["likeliest"][0][0] in browser.texts(".claim b")[0] and f"After {data['knob']['i']} " in browser.texts(".claim")[0]
    check_words(browser, data)
    other = next(t for t, each in enumerate(data["predictions"]) if each and t != data["knob"]["i"])
    browser.press(f"[data-focus='asked {other}']", "Enter", i=other)
    assert f"For the query {other} " in browser.texts(".step p")[0], browser.texts(".step p")
    browser.press("[data-focus='to knob']", "Enter", i=data["knob"]["i"])
    browser.open(path, view="edits")
    told = [float(text) for text in browser.texts(".effects td:nth-child(3)", "title")]
    equal("silenced heads", told, [each["real"] for each in data["effects"]])
    means = {text: [] for text in data["tokens"]}
    for i in range(len(data["tokens"])):
        for text, gate in zip(data["tokens"], row_of(data, "gates", 0, 0, i)[:i + 1]):
            means[text].append(gate)
    counted = sorted((text for text in means if sum(means[text]) > len(means[text]) / 2), key=lambda text: -sum(means[text]) / len(means[text]))
    more = f" and {len(counted) - 4} more" if len(counted) > 4 else ""
    assert browser.texts(".effects tbody td:last-child")[0] == f"counts {', '.join(counted[:4]) or 'no kind of token'}{more}", counted
    browser.press("[data-focus='effect 1 0']", "Enter", layer=1, head=0)
    browser.open(path, view="story", i=9, j=4)
    tokens = browser.texts(".step svg .token")
    assert tokens and len(browser.texts(".step:nth-of-type(2) svg:last-child .token")) <= 10, f"a row's picture ends at its query: {tokens}"

def check_knob(browser, path, data):
    """Eleven stops reached by key: the page shows its data for each, and these are the numbers of `look --edit` for the same edit."""
    knob = data["knob"]
    stops, seen = knob["stops"], knob["i"] + 1
    for stop in stops[::5]:
        words = shlex.split(data["command"])[1:]
        words += [*([] if "--dtype" in words else ["--dtype", "f64"]), "--edit", stop["edit"]]
        lines = subprocess.run([sys.argv[1], *words], check=True, capture_output=True, text=True).stdout.splitlines()
        line = {"ends": next(line for line in lines if line.startswith(stop["edit"] + " ")).rsplit(None, 2)[1:]}
        for found, wanted in zip(line["ends"], (stop["predicted"], stop["real"])):  # a quantity made of constants has no gradient
            same = found == "-" if wanted is None else math.isclose(float(found), wanted, rel_tol=2e-3, abs_tol=1e-12)
            assert same, f"{path.name}: {stop['edit']}: {line['ends']}; {wanted} expected"
    browser.open(path, view="story", digits="true")
    browser.press("[data-focus=knob]", "End", "Home")
    quantity = browser.texts(".turn .strips svg", "getAttribute('aria-label')")[0].split(f" of query {knob['i']}: ")[0]
    for stop in stops:
        said = browser.texts(".moved")[0].replace("\u2212", "-")
        told = [0 if word == "about 0" else float(word) for word in re.findall(r"[+-]\d+(?:\.\d+)?(?:e[+-]?\d+)?|about 0", said)]
        wanted = [each for each in (stop["real"], stop["predicted"]) if each is not None]
        assert all(math.isclose(a, b, rel_tol=6e-3, abs_tol=1e-12) for a, b in zip(told, wanted, strict=True)), f"{said}: {wanted} expected"
        assert f'--edit "{stop["edit"]}"' in browser.texts(".turn .command")[0]
        answer = stop["prediction"]["likeliest"][0][0]
        assert answer in browser.texts(".claim b")[0] and ("wrong" in browser.texts(".claim")[0]) == (answer != stop["prediction"]["wanted"][0])
        row = first(stop["rows"], probe=quantity)["value"][:seen]
        words = browser.texts(".turn .strips svg", "getAttribute('aria-label')")[0].split(": ", 1)[1].split()
        pairs = [(word, value) for word, value in zip(words, row, strict=True) if word != "masked"]
        equal(f"{stop['edit']}: {quantity}", [word for word, _ in pairs], [value for _, value in pairs])
        browser.press("[data-focus=knob]", "ArrowUp")
    assert browser.get("document.querySelector('[data-key=knob]').offsetHeight") >= 24, "a slider that a finger finds"
    browser.click("[data-focus='knob reset']")
    assert not browser.texts(".turn .own-level[d^=M]"), "the model's own numbers are drawn once"
    if " i=" in knob["at"] and " j=" not in knob["at"]:
        browser.pointer(".turn .strips svg", 0.3, 0.3)
        assert browser.texts(".turn output")[0].startswith("every bar: ") and f'--edit "{knob["at"]} ' in browser.texts(".turn .command")[0]
    if knob["value"] is not None and knob["change"] == "=":  # drags the bar to the bottom, and the picture follows
        key = (70 + (knob["j"] + 0.5) / seen * (1280 - 40 - 15 - 82)) / (1280 - 40 - 15)
        for kind, y in (("mousePressed", 0.3), ("mouseMoved", 0.5), ("mouseMoved", 0.74), ("mouseReleased", 0.74)):
            browser.pointer(".turn .strips svg", key, y, kind)
        assert f'= 0"' in browser.texts(".turn .command")[0], browser.texts(".turn .command")

def check_keys(browser, path, data):
    browser.open(path, view="quantities", show="one", part="value", quantity="gates", i=9, j=4)
    browser.press("#stage canvas", "ArrowLeft", "ArrowUp", i=8, j=3)
    browser.press("#stage canvas", "End", j=8)  # the diagonal
    browser.pointer("#stage canvas", 0.5, 0.5)
    assert browser.address()["i"] != "8", "a click selects a cell"
    browser.press("[role=tab][aria-selected=true]", "ArrowLeft", view="story")
    assert browser.get("document.activeElement.id") == "tab-Story"

def check_why(browser, path, data):
    browser.open(path, view="why", quantity="gates", layer=1, head=1)
    shares = [share for share in data["shares"] if share["probe"] == "position.gates"]
    for line, share in enumerate(shares):
        row = browser.texts(f".shares tbody tr:nth-child({line + 1}) td", "firstChild.textContent")
        equal("shares", row[4:], [*(count for index, count in enumerate(share["by"]) if any(each["by"][index] for each in shares)), share["zeros"]])
    part = first(data["quantities"], name="gates")["layers"][1]
    zeros = numbers(part, "gradient")[24 * 24:2 * 24 * 24].count(0.0)
    assert f"{zeros} of 576 entries are exactly 0; {zeros} of them" in browser.texts("figcaption")[0], browser.texts("figcaption")
    browser.press("#stage canvas[tabindex]", "Home")
    kinds = [cause["kind"] for cause in data["causes"]]
    assert browser.texts(".told p")[0].split(":")[0] in [*kinds, "Not zero."], browser.texts(".told p")

def check_paths(browser, path, data):
    browser.open(path, view="paths", of="q", layer=1, head=0, i=7)
    route = first(data["paths"], layer=1, of="q")
    at = lambda holder, field: numbers(holder, field, 64)[7]
    equal("norms", browser.texts(".paths td:nth-child(4)", "title"), [at(each, "norm") for each in [*route["paths"], route]])
    along = [at(each, "along") for each in route["paths"]]
    equal("along", browser.texts(".paths td:nth-child(5)", "title"), [*along, at(route, "norm")])
    equal("the parts along the whole add up to it", [sum(along)], [at(route, "norm")])
    assert "scores" in browser.texts(".paths code")[0], "the chain of the first path"

PICTURES = {"heads": ["dape"], "taps": ["cdape"], "turn": ["rope", "yarn", "xpos", "carope", "repo", "selective_rope"],
            "distance": ["alibi", "cable", "fire", "forgetting", "kerple", "relative", "sandwich", "shaw", "t5", "transformer_xl"],
            "positions": ["cope", "cope_alibi", "cope_mlp"]}

def check_pictures(browser, path, data):
    """The story shows the picture of each scheme, a base's too: its numbers are the row's, and the keyboard moves it."""
    drawn = [scheme for scheme in data["schemes"] if scheme["picture"] != "none"]
    for scheme in data["schemes"]:
        assert scheme["name"] in PICTURES.get(scheme["picture"], [scheme["name"]]) and (scheme in drawn or all(scheme["name"] not in names for names in PICTURES.values()))
    if not drawn or not any(data["predictions"]):
        return
    layer, head, i = data["layers"] - 1, data["heads"] - 1, min(9, len(data["tokens"]) - 1)
    browser.open(path, view="story", layer=layer, head=head, i=i, j=i, digits="true")
    titles = [title.split(". ")[1].split(": ")[0] for title in browser.texts(".step h2") if ": " in title]
    assert titles == [scheme["name"] for scheme in drawn], f"{path.name}: {titles}"
    assert all(equal == "true" for equal in browser.texts(".drawn .check", "dataset.equal")), f"{path.name}: {browser.texts('.drawn .check')}"
    for scheme in drawn:
        at = f"[data-focus='picture {scheme['name']}']"
        label = browser.texts(f"{at} svg", "getAttribute('aria-label')")[0]
        shown = [float(word) for word in label.split(": ")[1].split()]
        pairs = [each for each in data["quantities"] if each["scheme_name"] == scheme["name"] and each["axes"] == "h i j"]
        if scheme["picture"] in ("distance", "positions"):
            equal(f"{path.name}: {label}", shown, row_of(data, pairs[-1]["name"], layer, head, i)[:i + 1])
        elif scheme["picture"] != "turn":
            equal(f"{path.name}: {label}", shown, [row_of(data, pairs[-1]["name"], layer, each, i)[i] for each in range(data["heads"])])
        elif path.stem == "scheme rope":  # the other distances by the formula
            q, k = ([complex(a, b) for a, b in zip(row[:len(row) // 2], row[len(row) // 2:])] for row in (row_of(data, name, layer, head, i) for name in "qk"))
            score = lambda far: sum((a * b.conjugate() * cmath.exp(1j * far * 10000 ** (-m / len(q)))).real for m, (a, b) in enumerate(zip(q, k))) / math.sqrt(2 * len(q))
            assert all(abs(value - score(i - j)) < 1e-4 for j, value in enumerate(shown)), (shown, [score(i - j) for j in range(i + 1)])
        browser.press(at, "ArrowLeft", j=max(0, i - 1))
        browser.press(at, "ArrowRight", j=i)
        browser.press(at, "ArrowUp", head=max(0, head - 1))
        browser.press(at, "ArrowDown", head=head)
        for share, j in ((0.99, 0), (0.01, i)) if scheme["picture"] in ("distance", "turn") else ():
            browser.pointer(f"{at} svg", share, 0.5)
            browser.at(j=j)

def check_text(browser, path, data):
    browser.open(path, view="text", quantity="pattern", part="value", side="query", layer=0, head=1, i=6)
    browser.press(".text", "ArrowRight", i=7)
    titles = browser.texts(".word", "title.split(': ')[1]")
    equal("shading", titles[:8], row_of(data, "pattern", 0, 1, 7)[:8])
    assert set(titles[8:]) == {"masked"}

def check_moved(browser, path, data):
    """The rows below the one that moves are those of the pass with the moved number."""
    browser.open(path, view="story", digits="true")
    browser.press("[data-focus=knob]", "End", "Home")
    knob = data["knob"]
    assert len(browser.texts(".drawn .turned")) > 1, "dots at the moved positions"
    labels = [label.split(": ") for label in browser.texts(".step:nth-of-type(2) .strips svg", "getAttribute('aria-label')")]
    assert [label[0].split()[0] for label in labels] == ["positions", "position_logit", "pattern"], labels
    for label, words in labels:
        row = first(knob["stops"][0]["rows"], probe=label.split()[0])["value"][:knob["i"] + 1]
        equal(label, words.split(), row)

def check_equation5(browser, path, data):
    """The printed weights: the value is the engine's position_logit, and its slope is the falling one, which carries the engine's gradients."""
    p, z = row_of(data, "positions", 1, 1, 12), row_of(data, "z", 1, 1, 12)
    j = next(j for j in range(13) if p[j] % 1 > 0)
    browser.open(path, view="quantities", quantity="position_logit", layer=1, head=1, i=12, j=j)
    equal("read", browser.texts(".sides .whole")[:1], row_of(data, "position_logit", 1, 1, 12)[j:j + 1])
    slopes = dict(zip(browser.texts(".terms tbody th"), browser.texts(".terms td:nth-child(3)", "title")))
    slope, = (float(each) for name, each in slopes.items() if name.startswith("positions["))
    gradients = [row_of(data, name, 1, 1, 12, "gradient")[j] for name in ("position_logit", "positions")]
    equal("slope", [gradients[0] * slope], gradients[1:])
    equal("the slope of equation 5", [slope], [z[math.floor(p[j])] - z[math.ceil(p[j])]])

def check_heads(browser, path, data):
    heads = range(data["heads"])
    browser.open(path, view="heads", quantity="conv_bias", layer=1, head=2, i=15, j=6, digits="true")
    unfold(browser, ".panels details")
    for column, name in enumerate(("conv_bias", "scores", "logits"), 1):
        shown = [word for word in browser.texts(f".panels:not(section *) > .panel:nth-child({column}) .behind td") if word != "masked"]
        equal(f"heads, {name}", shown, [value for head in heads for value in row_of(data, name, 1, head, 15)[:16]])
    hidden, weight = (numbers(part) for part in (first(data["quantities"], name="conv_hidden")["layers"][1],
                                                 first(data["parameters"], path="blocks.1.attention.position.output.weight")))
    bias = numbers(first(data["parameters"], path="blocks.1.attention.position.output.bias"))[2]
    given = lambda j, tap, c: weight[(2 * 32 + c) * 3 + tap] * hidden[(c * 24 + 15) * 24 + j + tap - 1] if 0 <= j + tap - 1 < 24 else 0
    for j in (6, 0, 15):  # inside, and where taps reach over the edge
        browser.open(path, view="heads", quantity="conv_bias", layer=1, head=2, i=15, j=j, digits="true")
        computed_equal(browser, ".drawn .check")
        unfold(browser, ".drawn details")
        contributions = [given(j, tap, c) for c in range(32) for tap in range(3)]
        equal("contributions", browser.texts(".given td", "title"), contributions)
        equal("sum", browser.texts(".drawn .check b", "title"), [sum(contributions, bias)])
        label = browser.texts(".drawn svg", "getAttribute('aria-label')")[0]
        equal(label, label.split(": ")[1].split(), [row_of(data, "conv_bias", 1, head, 15)[j] for head in heads])
    browser.open(path, view="heads", quantity="conv_bias", layer=1, head=2, i=15, j=15)
    browser.press(".panels canvas", "ArrowLeft", j=14)
    browser.press(".panels canvas", "ArrowUp", head=1)

def check_graph(browser, path, data):
    nodes = sorted(data["graph"]["nodes"], key=lambda node: node["order"])
    reached, places = [node for node in nodes if node["path"]], [node for node in nodes if node["kind"] != "parameter"]
    browser.open(path, view="graph")
    assert browser.get("(() => { const graph = document.querySelector('.graph'); return graph.scrollWidth <= graph.clientWidth; })()"), "the graph is cut"
    seen = lambda: set(browser.texts(".flow.quiet", "computedStyleMap().get('visibility').toString()"))
    assert seen() <= {"hidden"}, "edges to parameters are off at first"
    browser.get("document.querySelector('.place.parameter')?.focus()")
    assert "visible" in seen() or not seen(), "and there at the place with the focus"
    browser.open(path, view="graph", digits="true")
    by_id = dict(zip(browser.texts(".place", "dataset.focus.slice(6)"), browser.texts(".place .norm")))
    for node in places:
        if node["path"]:
            equal(node["id"], [by_id[node["id"]]], [node["norm"]])
        else:
            assert by_id[node["id"]] == "no path" and f"place {node['id']}" in browser.texts(".place.lost", "dataset.focus"), node
    browser.get("document.querySelector('.graph-tables').open = true")
    equal("norms", browser.texts(".nodes tr:not(.lost) td:last-child", "title"), [node["norm"] for node in reached])
    equal("edges", browser.texts(".edges-table td:last-child", "title"), [edge["norm"] for edge in data["graph"]["edges"]])
    modules = {node["id"].rpartition(".")[0] for node in nodes if node["kind"] == "parameter" and node["id"].startswith("blocks.0.")}
    if modules:
        browser.press("[data-focus='place parameters 0']", "Enter", unfolded=0)
        assert len(browser.texts(".place[data-focus*='blocks.0'].parameter")) == len(modules)
    browser.open(path, view="graph", layers=1)
    assert "place layer 0" in browser.texts(".place", "dataset.focus") and not browser.texts(".place[data-focus*='blocks.0']")

def place_of(data, quantity, layer, index):
    """The part of the address that is one number of a quantity."""
    at, shape = {}, first(quantity["layers"], layer=layer)["shape"]
    for letter, size in reversed(list(zip(quantity["axes"].split(), shape))):
        at[{"t": "i", "h": "head"}.get(letter, letter)], index = index % size, index // size
    return {"quantity": quantity["name"], "layer": layer, **at}

def check_worked(browser, path, data):
    """The tables are the sums that the links make of the quantities; the walk goes along the links, and back."""
    by_probe = {quantity["probe"]: quantity for quantity in data["quantities"]}
    array = lambda probe, layer, field: numbers(first(by_probe[probe]["layers"], layer=layer), field)
    def products(probe, layer, index, side):
        here, field, found = ("a", "b")[side == "to"], ("gradient", "value")[side == "to"], []
        for link in data["links"]:
            if (link["layer"], link[side]) == (layer, probe):
                a = elements(link, "a")
                b = elements(link, "b") if link["b"] else a
                ends, other = ((a, b), link["to"]) if here == "a" else ((b, a), link["from"])
                have = array(other, layer, field)
                found += [(other, y, have[y] * d) for x, y, d in zip(*ends, numbers(link, "derivative")) if x == index]
        return sorted(found, key=lambda each: -abs(each[2]))
    table = lambda side: [float(text) for text in browser.texts(f".sides > div:nth-child({side}) .terms td:last-child", "title")]
    for probe, layer, index in (("position.gates", 0, (1 * 24 + 9) * 24 + 4), ("logits", 1, 23 * 24 + 3), ("v", 1, (2 * 24 + 5) * 8 + 3)):
        browser.open(path, view="quantities", show="one", part="value", **place_of(data, by_probe[probe], layer, index))
        for number, side in ((1, "to"), (2, "from")):
            wanted = products(probe, layer, index, side)
            shown = [each[2] for each in wanted][:12] + ([sum(each[2] for each in wanted[12:])] if len(wanted) > 12 else [])
            equal(f"{probe}, {side}", sorted(table(number)), sorted(shown))
        whole = browser.texts(".sides .whole")
        equal("whole", whole, [array(probe, layer, field)[index] for field in ("value", "gradient")])
        computed_equal(browser, ".sides .check")
        assert abs(float(browser.texts(".sides .check b", "title")[-1]) - float(whole[1])) < 1e-10
    at = ("logits", 1, 23 * 24 + 3)
    browser.open(path, view="quantities", **place_of(data, by_probe["logits"], *at[1:]))
    other, index, _ = products(*at, "to")[0]
    target = place_of(data, by_probe[other], 1, index)
    browser.press('[data-focus="worked value 0"]', "Enter", **target)
    assert len(browser.texts(".crumbs [data-focus]")) == 3 and browser.texts(".crumbs [aria-current]")[0].startswith(target["quantity"])
    browser.press(".worked", "Backspace", quantity="logits")
    assert len(browser.texts(".crumbs [data-focus]")) == 2
    browser.press('[data-focus="crumb loss"]', "Enter", quantity="output")
    strongest = max(map(abs, array("output", 1, "gradient")))
    assert math.isclose(abs(float(browser.texts(".sides .whole")[1])), strongest)
    assert "residual stream" in browser.texts(".sides")[0]
    browser.open(path, view="quantities", quantity="gates", layer=0, head=0, i=4, j=9)
    assert "whence look" in browser.texts(".sides code")[-1] and "dLoss/dgates layer=0 head=0 i=4 j=9" in browser.texts(".sides code")[-1]

def check_key_heads(browser, path, data):
    """Head 3 of four reads key head 1 of two: in the words, in the map and in the explained number."""
    k = first(data["quantities"], probe="k")
    index = (1 * 12 + 5) * 4 + 2
    value = numbers(first(k["layers"], layer=0))[index:index + 1]
    at = {**place_of(data, k, 0, index), "head": 3}
    browser.open(path, view="quantities", show="one", part="value", digits="true", **at)
    equal("readout", [browser.texts("#readout b")[0]], value)
    equal("worked", browser.texts(".sides .whole")[:1], value)
    assert "head 3, which reads key head 1" in " ".join(browser.texts("#stage")), browser.texts("#stage")

def check_some_rows(browser, path, data):
    """If only some queries have links, the others say so, and link to them."""
    rows = data["link_rows"][1]
    other = next(i for i in range(len(data["tokens"])) if i not in rows)
    browser.open(path, view="quantities", quantity="gates", layer=1, head=0, i=other, j=0)
    assert not browser.texts(".terms") and f"dLoss/dgates layer=1 head=0 i={other} j=0" in browser.texts(".sides code")[-1]
    browser.press(f"[data-focus='row {rows[0]}']", "Enter", i=rows[0])
    computed_equal(browser, ".sides .check")

def check_difference(browser, path, data, **state):
    browser.open(path, view="quantities", run="difference", quantity="logits", part="value", show="one", layer=0, head=1, i=5, j=2, digits="true", **state)
    one, other = (row_of(each, "logits", 0, 1, 5)[2] for each in (data, besides_of(path)[state.get("beside", 0)]))
    equal("difference", [browser.texts("#readout b")[0]], [one - other])

def check_slider(browser, path, data):
    """The slider chooses the checkpoint to compare: by address, by key, and every number follows."""
    checkpoints = besides_of(path)
    part = dict(quantity="logits", part="value", show="one", layer=0, head=1, i=5, j=2, digits="true")
    read = lambda: browser.texts("#readout b")[0]
    value = lambda page: row_of(page, "logits", 0, 1, 5)[2]
    loss = lambda page: float(dict(page["facts"])["loss"])
    browser.open(path, view="quantities", **part)
    equal("this", [read()], [value(data)])
    browser.press("[data-key=beside]", "Home")
    for index in range(len(checkpoints)):  # earlier numbers must not be shown again
        browser.at(beside=index if index < len(checkpoints) - 1 else None, run="beside")
        equal("beside", [read()], [value(checkpoints[index])])
        assert browser.texts("[data-key=beside] + output") == [checkpoints[index]["label"]] and browser.texts("[data-key=beside]", "ariaValueText") == [
            checkpoints[index]["label"]], "the slider says its checkpoint"
        browser.press("[data-key=beside]", "ArrowRight")
    assert len({value(page) for page in checkpoints}) == len(checkpoints), "checkpoints differ, else nothing is tested"
    steepest = max(range(len(checkpoints) - 1), key=lambda k: loss(checkpoints[max(0, k - 1)]) - loss(checkpoints[k]))
    part = dict(quantity="logits", part="gradient", show="one", layer=0, head=1, i=5, j=2, digits="true")
    gradient = lambda page: row_of(page, "logits", 0, 1, 5, "gradient")[2]
    browser.open(path, view="quantities", **part)
    equal("gradients where the loss fell most", [read()], [gradient(checkpoints[steepest])])
    browser.press("[data-key=moment]", "End")
    equal("gradients at the end", [read()], [gradient(checkpoints[-1])])
    assert gradient(checkpoints[-1]) != gradient(checkpoints[steepest]), "else nothing is tested"
    check_difference(browser, path, data, beside=1)
    browser.open(path, view="graph", run="beside", beside=1)
    assert "recorded for" in browser.texts("#stage .note")[0], "a checkpoint has no graph"

def check_saving(browser, path, _):
    """"save" at the picture that is pointed at: a map as PNG, all else as SVG that a browser shows by itself."""
    folder = path.parent / "saved"
    folder.mkdir()
    browser.call("Page.setDownloadBehavior", behavior="allow", downloadPath=str(folder))
    for view, picture, begins in (("quantities", ".panel canvas", b"\x89PNG"), ("quantities", ".strips svg", b"<svg "),
                                  ("graph", ".graph svg", b"<svg ")):
        browser.open(path, view=view)
        before = set(folder.iterdir())
        browser.pointer(picture, 0.5, 0.5, "mouseMoved")
        assert browser.texts(".save", "hidden") == [False], f"{view}: no save at {picture}"
        browser.click(".save")
        for _ in range(100):
            saved = [file for file in set(folder.iterdir()) - before if not file.name.endswith(".crdownload")]
            if saved and saved[0].stat().st_size:
                break
            time.sleep(0.05)
        content = saved[0].read_bytes()
        assert content.startswith(begins), f"{saved[0]}: {content[:20]}"
        if begins == b"<svg ":
            xml.etree.ElementTree.fromstring(content)

def check_logits(browser, path, data):
    """The parts of a logit add up to the lens after the last layer, which is the pass; and patches are by head."""
    count, asked = len(data["logits"]["parts"]), data["logits"]["tokens"]
    for entry in (asked[0], asked[-1]):
        browser.open(path, view="logit", i=entry["token"], digits="true")
        parts, answers = numbers(entry, "parts"), len(entry["answers"])
        equal("differences", browser.texts(".edits td:nth-child(4)", "title"), [a - b for a, b in zip(parts[:count], parts[count:])])
        computed_equal(browser)
        equal("sum", [sum(parts[:count])], [numbers(entry, "logits")[-answers]])
        equal("share", [numbers(entry, "shares")[-answers]], [data["predictions"][entry["token"]]["wanted"][1]])
    if not data["patches"]:
        return
    browser.open(path, view="patch", layer=0, head=0)
    output = first(data["patches"]["maps"], name="output")["outcomes"]
    assert [each["place"] for each in output] == [f"output layer={layer} head={head}" for layer in range(data["layers"]) for head in range(data["heads"])]
    assert browser.texts("#stage table.edits tbody tr:nth-child(2) code") == [output[0]["place"]]
    browser.press("#stage canvas", "ArrowRight", head=1)
    assert browser.texts("#stage table.edits tbody tr:nth-child(2) code") == [output[1]["place"]]

def check_phone(browser, path, _):
    """On 390 pixels no view is wider than the window, and the bar that stays in sight leaves the rest to the view."""
    browser.call("Emulation.setDeviceMetricsOverride", width=390, height=844, deviceScaleFactor=1, mobile=False)
    check_every_view(browser, path)
    browser.call("Emulation.clearDeviceMetricsOverride")

def check_speed(browser, path):
    browser.open(path)
    taken = browser.get("performance.timing.loadEventEnd - performance.timing.navigationStart")
    print(f"look_page: {path.name}: {path.stat().st_size >> 10} KiB, open after {taken} ms")
    assert taken < 5000, "a page of two layers, four heads and 64 tokens has to open in about a second"
    assert path.stat().st_size <= 4_000_000, "and has to fit into a mail"

# Hostile tokens: markup, control characters, right to left, four bytes, half a character.
NASTY = b"<b>&amp;</script>\x01\x07 \xd7\xa9\xd7\x9c\xd7\x95\xd7\x9d \xf0\x9f\x98\x80\xff\t\n\n" * 40

def pages_in(folder, whence):
    """Returns name -> path of pages: of every scheme, and of inputs that may break a page."""
    run = lambda *words: subprocess.run([whence, *map(str, words)], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    (folder / "nasty.txt").write_bytes(NASTY)
    run("train", "lm", "--data", folder / "nasty.txt", "--scheme", "alibi + forgetting", "--dim", 8, "--layers", 1, "--heads", 1, "--length", 48,
        "--steps", 1, "--batch", 1, "--evaluate-to", 1, "--quiet", "--out", folder / "nasty")
    run("train", "flip_flop", "--scheme", "cope(p_max=6)", "--dim", 16, "--layers", 2, "--heads", 2, "--length", 24, "--steps", 5, "--batch", 2,
        "--test-sequences", 2, "--save-every", 1, "--keep-checkpoints", 0, "--quiet", "--out", folder / "run")
    run("train", "flip_flop", "--scheme", "cope(p_max=6)", "--dim", 16, "--layers", 1, "--heads", 4, "--kv-heads", 2, "--length", 12, "--steps", 1,
        "--batch", 1, "--test-sequences", 1, "--quiet", "--out", folder / "shared")
    looks = {"shared keys": (folder / "shared", "--dtype", "f64"),
             "cope": ("cope(p_max=6)", "--beside", "cope(p_max=3)", "--length", 24, "--dtype", "f64"),
             "equation5": ("cope(p_max=6, interpolation=equation5)", "--length", 24, "--dtype", "f64"), "cdape": ("cdape(kerple)", "--length", 24),
             "left": ("cope + cdape(kerple, kernel=4, pad=left)", "--length", 12), "one token": ("cdape(kerple)", "--length", 1),
             "large": ("cope", "--length", 64),
             "nasty": (folder / "nasty", "--text", folder / "nasty.txt"), "checkpoints": (folder / "run", "--checkpoints", 5, "--dtype", "f64")}
    listed = subprocess.run([whence, "schemes"], check=True, capture_output=True, text=True).stdout
    for scheme in re.findall(r"^(\w+(?:\(SCHEME\))?)  ", listed, re.MULTILINE):
        if scheme not in ("scheme", "hard_attention"):  # the head of the list; and a scheme that is always with another
            looks["scheme " + scheme] = (scheme.replace("SCHEME", "kerple"), "--length", 12)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda name: run("look", *looks[name], "--out", folder / f"{name}.html"), looks))
    return {page.stem: page for page in folder.glob("*.html")}

@functools.cache
def all_data_of(page, name):
    """The JSON of a page, with each array's bytes in place of their reference."""
    text = page.read_text()
    elements_of = lambda kind, name: [each.partition("</script>")[0] for each in text.split(f'<script type="application/{kind}" {name}>')[1:]]
    block = zlib.decompress(base64.b64decode(elements_of("octet-stream", 'id="look-numbers"')[0]), -15)
    array = lambda each: block[each["at"]:each["at"] + each["bytes"]] if each.keys() == {"at", "bytes"} else each
    return [json.loads(each, object_hook=array) for each in elements_of("json", name)]

data_of = lambda page: all_data_of(page, 'id="look-data"')[0]
besides_of = lambda page: all_data_of(page, 'class="look-beside"')

def check_sums(browser, path, _):
    browser.open(path, view="heads")
    computed_equal(browser, ".drawn .check")

WHEN_THERE = "new Promise(done => { const each = () => document.querySelector('%s') ? done() : setTimeout(each, 20); each(); })"

def served(words):
    """Starts `look --serve` and returns the process and the page's address; None if the program cannot serve."""
    process = subprocess.Popen([*words, "--serve"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if address := process.stdout.readline():
        return process, re.search(r"http://127\.0\.0\.1:\d+/\w{32}/", address)[0]
    assert "without cpp-httplib" in process.stderr.read() and process.wait() == 2

def open_served(browser, url):
    browser.call("Page.navigate", url=url + "#view=story&layer=0&head=0&i=9&j=5&digits=true")
    browser.get(WHEN_THERE % ".claim")

def move_served(browser, words):
    """Moves a bar by key; the page says what `look --edit` prints for that edit of the words' pass. Returns the edit."""
    for key in ("ArrowLeft", "ArrowDown"):
        browser.press("[data-focus=knob]", key)
    browser.get(WHEN_THERE % ".turn .command")
    edit = re.search('--edit "(.*)"', browser.texts(".turn .command")[0])[1]
    printed = subprocess.run([*words, "--dtype", "f64", "--edit", edit], check=True, capture_output=True, text=True).stdout.splitlines()[-1].split()
    said = [float(word) for word in re.findall(r"[+-]\d\S*\d", browser.texts(".moved")[0].replace("\u2212", "-"))]
    assert len(said) == 2, browser.texts(".moved")
    assert all(math.isclose(one, float(other), rel_tol=6e-3) for one, other in zip(said, (printed[-1], printed[-2]), strict=True)), (said, printed)
    return edit

def check_served(browsers, whence, folder):
    """`look --serve`: any bar of the row drags, by the engine's numbers in f64; others' requests are refused; tabs of two sequences
    stay apart, also when other pages have taken their sessions' place; a signal ends it."""
    words = [whence, "look", "kerple", "--length", "24"]
    if not (started := served(words)):
        return print("look_page: `look --serve` SKIPPED: built without cpp-httplib")
    process, url = started
    def status(url, body=None, **headers):
        try:
            return urllib.request.urlopen(urllib.request.Request(url, body, headers)).status
        except urllib.error.HTTPError as refused:
            return refused.code
    question = json.dumps({"ask": "schemes"}).encode()
    assert status(url) == status(url + "ask", question) == 200
    assert status(url[:-2] + "/ask", question) == status(url.rsplit("/", 2)[0] + "/") == 404, "a wrong token"
    assert status(url, Host="example.org") == status(url + "ask", question, Origin="http://example.org") == 403, "another site"
    assert status(url + "ask", b"a" * 100_000) == 413 and status(url + "?sample=-1") == status(url + "ask?sample=-1", question) == 400
    assert "error" in json.load(urllib.request.urlopen(url + "ask", b'{"ask":')), "a broken question"
    open_served(browsers[0], url)
    edit = move_served(browsers[0], words)
    assert re.fullmatch(r"(bias|scores) layer=0 head=0 i=9 j=4 = -\d+\.\d+", edit), edit
    process.terminate()
    assert process.wait(20) == 0 and process.stderr.readline() == "page of kerple: computing its pass, gradients and edits\n"
    words = [whence, "look", str(folder / "run")]
    process, url = served(words)
    for sample, browser in enumerate(browsers):
        open_served(browser, f"{url}?sample={sample}")
    for later in (False, True):
        for sample, browser in enumerate(browsers):
            move_served(browser, [*words, "--task-sample", str(sample)])
            browser.click("[data-focus='knob reset']")
        assert later or [status(f"{url}?sample={other}") for other in range(2, 6)] == [200] * 4
    process.terminate()
    assert process.wait(20) == 0

CHECKS = {"cope": (check_openings, check_symbols, check_start, check_story, check_knob, check_answers, check_numbers, check_keys, check_why, check_paths, check_text, check_moved, check_worked, check_difference,
                   check_saving, check_phone), "equation5": (check_equation5, check_logits, check_phone), "cdape": (check_heads, check_graph, check_knob), "left": (check_sums,),
          "one token": (check_sums,), "scheme dape(SCHEME)": (check_sums,), "scheme alibi": (check_graph, check_knob),
          "scheme rope": (check_knob,), "scheme stick_breaking": (check_knob,), "checkpoints": (check_slider, check_logits),
          "large": (check_some_rows,), "shared keys": (check_key_heads,)}

def check_picture():
    """The picture in the first README is of the page as it is."""
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "examples/whence/look"))
    import picture
    assert picture.noted((picture.HERE / "look.png").read_bytes()) == picture.drawn_by(), \
        "look.png is of an older page: examples/quickstart, then examples/whence/look/picture.py runs/quickstart/look.html"

def main(whence):
    check_picture()
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if not program:
        print("look_page: SKIPPED: no chromium in PATH; no page was opened")
        sys.exit(77)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        folder = pathlib.Path(folder)
        pages = pages_in(folder, whence)
        browsers, idle = [Browser(program, folder / f"profile{k}") for k in range(2)], queue.Queue()
        def check_page(name):
            browser = idle.get()
            try:
                check_every_view(browser, pages[name], ("light", "dark") if name in ("cope", "cdape") else ("light",))
                for check in (check_equations, check_pictures, *CHECKS.get(name, ())):
                    check(browser, pages[name], data_of(pages[name]))
            finally:
                idle.put(browser)
        try:
            for browser in browsers:
                idle.put(browser)
            with concurrent.futures.ThreadPoolExecutor(len(browsers)) as pool:
                list(pool.map(check_page, sorted(pages, key=lambda name: -len(CHECKS.get(name, ())))))
            check_speed(browsers[0], pages["large"])
            check_served(browsers, whence, folder)
        finally:
            for browser in browsers:
                browser.close()
                print(*browser.errors, sep="\n", end="")
        assert CHECKS.keys() <= pages.keys() and not any(browser.errors for browser in browsers), "the console of a page has errors"
    print(f"look_page: {len(pages)} pages: every view opens, keys and pointer do what they say, numbers are the data's")

if __name__ == "__main__":
    main(*sys.argv[1:])
