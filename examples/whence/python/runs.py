"""Runs of whence from Python: train, look into, compare them."""
import functools
import html
import json
import pathlib
import signal
import subprocess
import sys
import threading
from typing import Any, Iterable, NamedTuple

import numpy as np

from . import _whence

PROGRAM = pathlib.Path(__file__).parent / "whence"


class Rows(list):
    """A list of dicts, one per row: pandas.DataFrame(rows) takes it. `folder`: the run's folder."""

    folder = None

    def _repr_html_(self):
        heads = dict.fromkeys(name for row in self for name in row)
        cells = lambda row, tag: "".join(f"<{tag}>{html.escape('' if value is None else str(value))}</{tag}>" for value in row)
        lines = (cells((row.get(name) for name in heads), "td") for row in self)
        return f"<table><tr>{cells(heads, 'th')}</tr>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


class Traced(NamedTuple):
    value: np.ndarray
    gradient: np.ndarray | None


class Answer(NamedTuple):
    wanted: str
    probability: float
    loss: float
    likeliest: list[tuple[str, float]]


class Edited(NamedTuple):
    predicted: float | None
    real: float


class Page(str):
    """The page of `whence look`, shown in a notebook's cell; save(path) writes it."""

    def _repr_html_(self):
        return f'<iframe srcdoc="{html.escape(self)}" style="width: 100%; height: 900px; border: 0"></iframe>'

    def __repr__(self):
        return f"<whence.Page of {len(self)} characters>"

    def save(self, path):
        pathlib.Path(path).write_text(self, encoding="utf-8")


def program(*words: str, quiet: bool = False) -> str:
    """Runs `whence WORDS` and returns what it prints; progress and notes go to sys.stderr. ValueError if it refuses."""
    said = []

    def forward(lines):
        for line in lines:
            said.append(line)
            if not quiet:
                sys.stderr.write(line)
    with subprocess.Popen([PROGRAM, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        thread = threading.Thread(target=forward, args=(process.stderr,))
        thread.start()
        try:
            out = process.stdout.read()
        except KeyboardInterrupt:
            process.send_signal(signal.SIGUSR1)  # it saves, and ends; a second Ctrl-C, after the terminal's, would kill it
            raise
        finally:
            thread.join()
    error = {0: None, 2: ValueError, 3: ValueError, 4: OSError, 5: MemoryError, 6: FloatingPointError, 7: ValueError}.get(process.returncode, RuntimeError)
    if error:
        raise error(said[-1].strip() if said else f"whence ended with {process.returncode}")
    return out


def _options(given):
    """check_finite=True -> --check-finite; steps=300 -> --steps=300"""
    return [f"--{name.replace('_', '-')}" + ("" if value is True else f"={value}") for name, value in given.items() if value is not None and value is not False]


def _rows(text, folder=None):
    rows = Rows(json.loads(line) for line in text.splitlines() if line.startswith("{"))
    rows.folder = folder
    return rows


def train(task: str, *, out: str, quiet: bool = False, **options: Any) -> Rows:
    """`whence train TASK`, whose options are the keywords: scheme="cope", steps=300, lr=1e-3. A row for each test set."""
    words = _options({"out": out, "quiet": quiet, **options})
    return _rows(program("train", task, "--json", *words, quiet=quiet), out)


def _source(sample, prompt, run):
    return _whence.PatchSource(str(run or ""), -1 if sample is None else sample, _prompt(prompt))


def _prompt(prompt):
    """A text, or the token numbers that a run of a token file reads."""
    return prompt or "" if isinstance(prompt, str | None) else " ".join(str(int(number)) for number in prompt)


class Run:
    """A run of `whence train`, or a scheme with a random model, as load() returns it.

    trace, explain, causes, paths, edit, attribution, lens, patch, predictions and look describe one pass over one sequence: for a task the test
    sequence `sample`; for a language model a `prompt` (of a run of a token file: token numbers) or the file `text`, else the run's own text. `length`: tokens at most. With `patch`,
    as in patch(), and from_sample, from_prompt or from_run they describe the patched pass."""

    def __init__(self, run: str, step: int | None = None, dtype: str = "f32"):
        self.folder, self.step, self.dtype = str(run), step, dtype
        looked_at = functools.lru_cache(maxsize=2)(self._look)
        self._looked_at = lambda **where: looked_at(**{name: _prompt(each) if name.endswith("prompt") else each for name, each in where.items()})
        self._subject().check()

    def _look(self, patch="", from_sample=None, from_prompt=None, from_run=None, **where):
        return _whence.LookedAt(self._subject(**where), patch, _source(from_sample, from_prompt, from_run))

    def _subject(self, sample=0, prompt=None, text=None, length=0):
        return _whence.SubjectOptions(self.folder, str(text or ""), _prompt(prompt), sample, length, self.step or 0, self.step == 0, self.dtype)

    @property
    def steps(self) -> list[int]:
        """The steps of its checkpoints. load(run, step=...) takes a step, or 0 for the initial weights."""
        return _whence.steps_of(self.folder)

    def forward(self, tokens):
        """Logits [batch, token, answer] of integer tokens [batch, token], in numpy or PyTorch like the tokens."""
        of_torch = hasattr(tokens, "detach")
        numbers = tokens if of_torch else np.asarray(tokens)
        if not of_torch and numbers.dtype.kind not in "iu":
            bad = numbers[numbers % 1 != 0] if numbers.dtype.kind == "f" else [numbers.dtype]
            if len(bad):
                raise ValueError(f"tokens: {bad[0]} given; whole numbers required")
        return self._subject().forward(tokens if of_torch else np.ascontiguousarray(numbers, np.int64), of_torch)

    def generate(self, prompt: str | Iterable[int], tokens: int = 256, **options: Any) -> str:
        """Text from a language model: `whence generate`, whose options are the keywords: temperature=0.8, top_k=40."""
        return program("generate", self.folder, "--quiet", *_options({"prompt": _prompt(prompt), "tokens": tokens, **options}))

    def tokens(self, **where: Any) -> list[str]:
        return self._looked_at(**where).tokens

    def loss(self, **where: Any) -> float:
        return self._looked_at(**where).loss

    def predictions(self, **where: Any) -> list[Answer | None]:
        """The answer at each token; None at tokens without a question."""
        return [found and Answer(*found) for found in self._looked_at(**where).predictions()]

    def trace(self, torch: bool = False, **where: Any) -> dict[str, Traced]:
        """Every named tensor of the pass and every parameter, with the gradient of the loss or None."""
        return {name: Traced(*found) for name, found in self._looked_at(**where).trace(torch).items()}

    def explain(self, number: str, **where: Any) -> str:
        """Works out one number: "dLoss/dgates layer=0 head=1 i=9 j=4"."""
        return self._looked_at(**where).explain(number)

    def causes(self, **where: Any) -> Rows:
        """How much of each gradient is zero, and why: a row per layer, quantity and head."""
        return _rows(self._looked_at(**where).causes())

    def paths(self, **where: Any) -> Rows:
        """The paths of the gradients of x, q, k and v."""
        return _rows(self._looked_at(**where).paths())

    def edit(self, change: str, **where: Any) -> Edited:
        """The loss's change under an edit, "gates layer=0 head=1 = 0": the gradient's prediction, and the real change."""
        return Edited(*self._looked_at(**where).edit(change))

    def attribution(self, token: int | None = None, answer: str | None = None, **where: Any) -> Rows:
        """The contribution of the embedding, each head, each MLP and each bias to the logits of an answer and of the likeliest other one.
        Later norms are fixed at this pass. Defaults: `token` is the last with a question, `answer` the wanted one."""
        return _rows(self._looked_at(**where).attribution(-1 if token is None else token, answer or ""))

    def lens(self, token: int | None = None, answer: str | None = None, **where: Any) -> Rows:
        """The model's answer after the embedding (layer None) and after each layer."""
        return _rows(self._looked_at(**where).lens(-1 if token is None else token, answer or ""))

    def patch(self, place: str, *, from_sample: int | None = None, from_prompt: str | None = None, from_run: str | None = None,
              token: int | None = None, answer: str | None = None, **where: Any) -> Rows:
        """The loss and an answer when the numbers of a place, "output layer=0 head=2", are replaced by another pass's: of another
        sequence, or of another run. Without a layer: every layer and head by itself. The first row is the pass without a patch."""
        source = _source(from_sample, from_prompt, from_run)
        return _rows(self._looked_at(**where).patch(place, source, -1 if token is None else token, answer or ""))

    def hessian(self, sequences: int = 16, **where: Any) -> Any:
        """The Hessian of the mean loss over the graded tokens of so many sequences with respect to all trained parameters, in a vector of
        `size` numbers: times(v) is H v, a backward pass through the backward pass. `loss`: the loss itself."""
        return _whence.Curvature(self._subject(**where), sequences)

    def look(self, **where: Any) -> Page:
        """The page of `whence look`."""
        return Page(self._looked_at(**where).page())

    def __repr__(self):
        return f"whence.load({self.folder!r}{'' if self.step is None else f', step={self.step}'})"


def load(run: str, *, step: int | None = None, dtype: str = "f32") -> Run:
    """A run's folder, or a scheme as "cope(p_max=8)". `step`: a checkpoint's, 0 before training; default the end. `dtype` of all
    computation: f32 or f64."""
    return Run(run, step, dtype)


def look(run: "Run | str", **where: Any) -> Page:
    """The page of a run or a scheme, shown in a notebook's cell."""
    return (run if isinstance(run, Run) else load(run)).look(**where)
