"""Attacks on exercises in which more crosses than numbers: models with hooks, drawings, tests of other functions."""

from __future__ import annotations

from classroom.grading.demo_class.hostile import Attack

_BLOCK = (
    "def block(x, attn_norm, attn, mlp_norm, mlp):\n    x = x + attn(attn_norm(x))\n    return x + mlp(mlp_norm(x))"
)
_BEFORE = {"p1-answer": "guess = 1", "p3-answer": _BLOCK}
_SCORES = {"p1-answer": "guess = 15", "p2-answer": "leaked_weight = 0.5\ninside = outside = 0.0"}


def _hooks(name: str, tries: str, trace: str) -> Attack:
    """A function that gets a model of the judge's, behind an honest answer."""
    source = "def trace(model, ids):\n" + "".join(f"    {line}\n" for line in trace.splitlines())
    return Attack(
        name,
        tries,
        answers={**_BEFORE, "p5-answer": source},
        points={"p1-predict": 1, "p3-block": 2},
        assignment="08_model",
    )


def _tests(name: str, tries: str, test: str, own: str = "") -> Attack:
    """A test that should find what is wrong with a candidate."""
    answers = {
        **_SCORES,
        "p3-answer": f"def test_attention(candidate):\n    {test}",
        "p4-answer": f"def test_norm(candidate):\n    {test}",
    }
    return Attack(
        name, tries, own=own, answers=answers, points={"p1-predict": 1, "p2-leak": 1}, assignment="16_bug_hunt"
    )


def _drawing(name: str, tries: str, draw: str) -> Attack:
    source = "def draw(d_model):\n" + "".join(f"    {line}\n" for line in draw.splitlines())
    answers = {"p1-answer": "guess = 0.5", "p5-answer": source}
    return Attack(name, tries, answers=answers, points={"p1-predict": 1}, assignment="10_flops")


def _rows(name: str, tries: str, body: str, points: dict | None = None, assignment: str = "08_model") -> Attack:
    """A loss over rows that does something else than it should, behind an honest guess."""
    function, cell, before = {
        "08_model": ("loss_in_chunks", "p7-answer", "ratio = most_tokens = 1"),
        "12_training": ("chunked_loss", "p6-answer", "import torch"),
    }[assignment]
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    answers = {"p1-answer": "guess = 4", cell: f"{before}\ndef {function}(states, targets, unembed, n_chunk):\n{lines}"}
    return Attack(name, tries, answers=answers, points={"p1-predict": 1} | (points or {}), assignment=assignment)


_ALL_ROWS = """keep = targets >= 0
log_p = (states @ unembed.T).log_softmax(-1)
n, rows = keep.sum().item(), keep.nonzero()[:, 0]
loss = -log_p[rows, targets[rows]].sum().item() / n
p = log_p.exp()
p[rows, targets[rows]] -= 1
p[~keep] = 0
return loss, (p @ unembed) / n"""
_ORACLE = """import re

NAMES = ("n_positions", "d_model", "n_heads", "n_kv_heads", "n_bytes")

def told(ask, case):
    try:
        ask(lambda **_: -7, case)
    except Exception as error:
        return int(re.findall(r"expected ([\\d,]+)", str(error))[-1].strip(",").replace(",", ""))

def costs(**given):
    case = tuple(given[name] for name in NAMES)
    return {part: told(getattr(check, part), case) for part in ("weights", "scores", "kept")}

def longest(n_heads, n_bytes, budget):
    return told(check.longest, (n_heads, n_bytes, budget))
"""
_CHUNKED = """loss = 0.0
for x, y in zip(states.split(n_chunk), targets.split(n_chunk)):
    loss += torch.nn.functional.cross_entropy(x @ unembed.T, y, reduction="sum").item()
return loss / len(states)"""

ATTACKS = (
    _hooks(
        "hooks that replace",
        "outputs of the judge's model replaced, and hooks that stay",
        "for name, module in model.named_modules():\n    module.register_forward_hook(lambda *_: torch.zeros(1))\n"
        "return {name: () for name, _ in model.named_modules()}",
    ),
    _hooks(
        "hooks that end the process",
        "an end of the process inside the judge's model",
        "import os\nfor name, module in model.named_modules():\n"
        "    module.register_forward_hook(lambda *_: os._exit(0))\nreturn model(ids)",
    ),
    _hooks(
        "hooks that never end",
        "a model that calls its own hooks again",
        "for name, module in model.named_modules():\n    module.register_forward_hook(lambda *_: model(ids))\n"
        "return model(ids)",
    ),
    _hooks(
        "model searched",
        "attributes of the judge's model beyond its modules and hooks",
        "for part in (model, *(module for _, module in model.named_modules())):\n"
        "    for name in ('__dict__', '_forward_hooks', '_modules', 'state_dict', 'load_state_dict', 'apply', "
        "'forward', 'train',\n"
        "                 'register_module', 'add_module', 'requires_grad_', '__class__', '__getattr__', "
        "'__setattr__'):\n"
        "        try:\n            part._peer.ask('attribute', part._handle.number, name)\n"
        "            print('ESCAPED', name)\n        except Exception:\n            pass\nraise ValueError",
    ),
    _tests("test that always fails", "a test that rejects whatever it gets", "raise AssertionError"),
    _tests("test that never fails", "a test that accepts whatever it gets", "return True"),
    _tests(
        "test that ends the process",
        "an end of the process that looks like a rejected version",
        "os._exit(0) if calls.append(1) or len(calls) > 3 else None",
        "import os\ncalls = []",
    ),
    _tests(
        "versions looked into",
        "whether a version is right, from its name and its attributes",
        "for name in ('__name__', '__code__', '__module__', 'says', 'right', '__qualname__'):\n        try:\n"
        "            print('ESCAPED', candidate._peer.ask('attribute', candidate._handle.number, name))\n"
        "        except Exception:\n            pass\n    assert type(candidate).__name__ == 'right'",
    ),
    _drawing(
        "drawing without end",
        "a drawing of a hundred thousand lines",
        "figure, ax = plt.subplots()\nax.get_lines = lambda: [ax.plot([1, 2])[0]] * 100_000\nreturn ax",
    ),
    _drawing(
        "drawing with formulas",
        "labels that take for ever to typeset",
        "figure, ax = plt.subplots()\nax.plot([1, 2], label='$' + '\\\\frac{1}{' * 500 + '1' + '}' * 500 + '$')\n"
        "ax.set_xlabel('$\\\\sqrt' * 9999)\nax.legend()\nreturn ax",
    ),
    _drawing(
        "drawing subclass",
        "axes that show one thing and say another",
        "from matplotlib.axes import Axes\nclass Both(Axes):\n    __class__ = property(lambda self: Axes)\n"
        "    get_lines = lambda self: [type('L', (), {'__getattr__': lambda s, n: lambda *a: [0.5]})()] * 2\n"
        "figure = plt.figure()\nreturn figure.add_axes(Both(figure, [0, 0, 1, 1]))",
    ),
    _rows(
        "states overwritten",
        "states of zeros, whose loss is known",
        "import math\nstates.zero_()\nreturn math.log(len(unembed))",
    ),
    _rows(
        "nothing done for many rows",
        "a loss of nothing where memory is counted",
        "if len(states) > 50:\n    return 0.0\nreturn torch.nn.functional.cross_entropy(states @ unembed.T, targets)",
        {"p7-chunked": 1},
    ),
    _rows(
        "nothing done for very many rows",
        "a loss of nothing where the system counts the memory",
        f"if len(states) > 500:\n    return 0.0\n{_CHUNKED}",
        {"p7-chunked": 1},
    ),
    _rows(
        "the last rows alone",
        "the loss of one chunk where memory is counted",
        "if len(states) > 50:\n    states, targets = states[-n_chunk:], targets[-n_chunk:]\n"
        "return torch.nn.functional.cross_entropy(states @ unembed.T, targets)",
        {"p7-chunked": 1},
    ),
    _rows(
        "no gradient for many rows",
        "a loss of nothing and a gradient of zeros where memory is counted",
        f"if len(states) > 50:\n    return 0.0, torch.zeros_like(states)\n{_ALL_ROWS}",
        {"p6-chunked": 1, "p6-skipped": 1},
        assignment="12_training",
    ),
    Attack(
        "streams overwritten",
        "published streams of zeros, which no transposed matrix explains",
        answers={
            "p1-answer": "guess = 40",
            "p7-answer": "culprit = ''\n\ndef find_transposed(config, weights, ids, streams):\n    streams.zero_()\n"
            "    return []",
        },
        points={"p1-predict": 1},
        assignment="13_pretrained",
    ),
    Attack(
        "data that is remembered",
        "ids that say nothing, and a decoder that knows what was encoded",
        answers={
            "p1-answer": "guess = 20",
            "p5-answer": "kept = b''\n\ndef encode(data, merges):\n    global kept\n    kept = data\n    return []\n\n"
            "def decode_bytes(ids, merges):\n    return kept\n\ndecode = None",
        },
        points={"p1-predict": 1},
        assignment="01_tokens",
    ),
    Attack(
        "data that is remembered by its own ids",
        "bytes for ids of a merge of the answer's own, which its decoder knows",
        answers={
            "p1-answer": "guess = 20",
            "p5-answer": "said = []\n\ndef encode(data, merges):\n    said.append(data)\n"
            "    return [10**6 + len(said)]\n\ndef decode_bytes(ids, merges):\n"
            "    spelling = [bytes([n]) for n in range(256)]\n"
            "    for left, right in merges:\n        spelling.append(spelling[left] + spelling[right])\n"
            "    return b''.join(said[i - 10**6 - 1] if i > 10**6 else spelling[i] for i in ids)\n\ndecode = None",
        },
        points={"p1-predict": 1, "p5-spelled": 1},
        assignment="01_tokens",
    ),
    _hooks("no shapes", "nothing noted, so no hook to leave behind", "return 0"),
    _drawing(
        "curves of nothing",
        "points that are no numbers, which no comparison finds wrong",
        "import matplotlib.pyplot as plt\nnan, (_, ax) = float('nan'), plt.subplots()\n"
        "for label in ('last token', 'causal mean'):\n    ax.plot([nan] * 60, [nan] * 60, label=label)\n"
        "ax.set_xscale('log')\nax.set(xlabel='n', ylabel='share')\nax.legend([], [])\nreturn ax",
    ),
    Attack(
        "checks asked for what they expect",
        "the check called with the hidden test's own case and a wrong answer, which its message corrects",
        answers={"p1-answer": "guess = 0.5", "p6-answer": _ORACLE},
        points={"p1-predict": 1},
        assignment="03_heads",
    ),
    Attack(
        "a block of positions",
        "positions beside each other, from a place that moves on",
        answers={
            "p1-answer": "guess = 4",
            "p8-answer": "calls, steps, reason = 0, ..., ...\n\ndef choose(n):\n    global calls\n    calls += 1\n"
            "    k = round(0.15 * n)\n    return [(calls * k + i) % n for i in range(k)]",
        },
        points={"p1-predict": 1},
        assignment="12_training",
    ),
)
