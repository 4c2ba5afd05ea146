"""Attacks by what an answer is: values that equal everything, functions that cheat or harm who calls them."""

from __future__ import annotations

from classroom.grading.demo_class.hostile import DESERVED, Attack

_CAUSAL = "torch.ones(n_query, n_key, dtype=torch.bool).tril(n_key - n_query)"


def _mask(name: str, tries: str, body: str, before: str = "", points: dict | None = None) -> Attack:
    """`causal_mask` has this body; the other functions of its cell are unanswered."""
    source = f"{before}\ndef causal_mask(n_query, n_key):\n" + "".join(f"    {line}\n" for line in body.splitlines())
    rest = "\nwindow_mask = padding_mask = combined = None"
    return Attack(name, tries, answers={"p3-answer": source + rest}, points=DESERVED | (points or {}))


def _by_hand(name: str, tries: str, before: str, value: str) -> Attack:
    """The same value for every answer of problem 2 and the counts of problem 6."""
    names = "pairs = causal_row = window_row = share = "
    answers = {
        "p2-answer": f"{before}\n{names}{value}",
        "p6-answer": f"{before}\nempty = spread = repaired = {value}",
    }
    return Attack(name, tries, answers=answers)


def _like(kind: str, content: str) -> str:
    """A class derived from `kind` whose every comparison says yes."""
    yes = " = ".join(f"__{name}__" for name in ("eq", "le", "ge", "lt", "gt", "contains"))
    return (
        f"class Yes({kind}):\n    {yes} = lambda self, other: True\n    __ne__ = lambda self, other: False\n"
        f"    __hash__ = lambda self: 0\n    __sub__ = __rsub__ = __abs__ = lambda self, *a: 0.0\n"
        f"    __class__ = property(lambda self: {kind})\n"
        f"    keys = lambda self: type('K', (), {{'__eq__': lambda s, o: True}})()\nvalue = {content}"
    )


ATTACKS = (
    _by_hand("equal to everything", "an object whose comparisons say yes", _like("object", "Yes()"), "value"),
    _by_hand("float subclass", "a float that equals every number", _like("float", "Yes(0.5)"), "value"),
    _by_hand("int subclass", "an int that equals every number", _like("int", "Yes(3)"), "value"),
    _by_hand("str subclass", "a text that equals every text", _like("str", "Yes('C')"), "value"),
    _by_hand("dict subclass", "a dict that has every key", _like("dict", "Yes()"), "value"),
    _by_hand("list subclass", "a list of every length", _like("list", "Yes([0.5] * 4)"), "value"),
    _by_hand(
        "tensor subclass",
        "a tensor whose functions all say yes",
        "class Yes(torch.Tensor):\n    @classmethod\n"
        "    def __torch_function__(cls, function, types, args=(), kwargs=None):\n"
        "        return True",
        "torch.zeros(4).as_subclass(Yes)",
    ),
    _by_hand(
        "array subclass",
        "an array that equals everything",
        "import numpy\nclass Yes(numpy.ndarray):\n    __eq__ = lambda self, other: True\n"
        "    __array_ufunc__ = lambda self, *a, **k: True",
        "numpy.zeros(4).view(Yes)",
    ),
    _by_hand(
        "changing value",
        "an object that is something else each time it is read",
        "import itertools\nclass Turns:\n    count = itertools.count()\n    ndim, shape = 0, ()\n"
        "    def item(self):\n        return next(self.count) / 1000\n"
        "    __float__ = __index__ = __int__ = item\n    __iter__ = lambda self: iter([self.item()] * 4)\n"
        "    __getattr__ = lambda self, name: Turns()",
        "Turns()",
    ),
    _by_hand("recursive container", "a list that holds itself", "value = []\nvalue.append(value)", "value"),
    _by_hand(
        "nested too deep",
        "a million lists in lists",
        "value = []\nfor _ in range(10**6):\n    value = [value]",
        "value",
    ),
    _by_hand("huge number", "an int of ten million digits", "value = 1 << 33_000_000", "value"),
    _by_hand("no number", "nan and infinity", "nan = float('nan')", "[nan, nan, nan, float('inf')]"),
    _by_hand(
        "half characters",
        "texts with lone surrogates and control characters",
        "",
        "'\\ud800\\x00\\x1b[31m\\u202e' * 99",
    ),
    _by_hand(
        "odd keys",
        "keys that cannot be hashed elsewhere, and keys of every kind",
        "",
        "{(1, (2, 3)): 1, None: 2, 1.5: 3}",
    ),
    _by_hand("generator", "values that are made when asked for", "", "(0.5 for _ in iter(int, 1))"),
    _by_hand("long range", "a range that never ends", "", "range(10**18)"),
    _by_hand(
        "named tuple",
        "a tuple under another type",
        "import collections",
        "collections.namedtuple('N', 'a b c d')(1, 2, 3, 4)",
    ),
    _by_hand("huge value", "a value of a hundred megabytes", "", "torch.zeros(25_000_000)"),
    Attack(
        "many objects",
        "a million objects that are no plain data",
        answers={"p2-answer": "share = [object() for _ in range(10**6)]\npairs = causal_row = window_row = 1"},
    ),
    _mask(
        "meta tensor", "a mask without numbers", "return torch.empty(n_query, n_key, dtype=torch.bool, device='meta')"
    ),
    _mask("sparse tensor", "a mask in another layout", "return torch.eye(n_query, n_key).to_sparse()"),
    _mask(
        "quantised tensor",
        "quantised numbers",
        "return torch.quantize_per_tensor(torch.ones(n_query, n_key), 1.0, 0, torch.quint8)",
    ),
    _mask(
        "tensor with hooks",
        "a tensor that changes when somebody reads it",
        "mask = torch.ones(n_query, n_key, requires_grad=True)\nmask.register_hook(lambda g: 1 / 0)\nreturn mask * 1",
    ),
    _mask(
        "expanded tensor", "a tensor of a terabyte made of one number", "return torch.ones(1, 1).expand(10**6, 10**6)"
    ),
    _mask(
        "hidden sizes guessed",
        "right for the visible sizes alone",
        f"return {_CAUSAL} if (n_query, n_key) in [(5, 5), (3, 7)] else torch.zeros(n_query, n_key, dtype=torch.bool)",
    ),
    _mask(
        "right the first times",
        "right for as many calls as the visible check makes",
        f"calls.append(1)\nreturn {_CAUSAL} if len(calls) < 3 else None",
        "calls = []",
    ),
    _mask(
        "arguments emptied", "inputs changed to what makes the answer right", "return torch.zeros(0, dtype=torch.bool)"
    ),
    Attack(
        "arguments overwritten",
        "inputs overwritten in place, so that the expected result is of zeros",
        answers={
            "p4-answer": "def masked_attention(q, k, v, mask):\n    for one in (q, k, v):\n        one.zero_()\n"
            "    mask.fill_(False)\n    return torch.zeros(*q.shape[:3], v.shape[-1], dtype=v.dtype)",
            "p3-answer": "def padding_mask(lengths, n_key):\n    lengths.fill_(n_key)\n"
            "    return torch.ones(len(lengths), 1, 1, n_key, dtype=torch.bool)\n"
            "causal_mask = window_mask = combined = None",
        },
    ),
    _mask("exit in the function", "an end of the process when the check calls", "import os\nos._exit(0)"),
    _mask("sys.exit in the function", "SystemExit in the judge", "import sys\nsys.exit(0)"),
    _mask("interrupt in the function", "KeyboardInterrupt in the judge", "raise KeyboardInterrupt"),
    _mask("end of a loop in the function", "StopIteration in the judge", "raise StopIteration"),
    _mask(
        "forged failure",
        "an exception that the checks would take for one of their own",
        "raise CheckFailed('x')",
        "class CheckFailed(AssertionError):\n    slip, _render_traceback_ = 'x', lambda self: []\n"
        "    def __str__(self):\n        raise SystemExit\n    __dict__ = property(lambda self: 1 / 0)",
    ),
    _mask("endless loop in the function", "a check that never ends", "while True: pass"),
    _mask(
        "loop that swallows interrupts in the function",
        "a check that cannot be interrupted",
        "while True:\n    try:\n        while True: sum(range(10**5))\n    except BaseException: pass",
    ),
    _mask("crash in the function", "a segmentation fault when the check calls", "import ctypes\nctypes.string_at(0)"),
    _mask(
        "memory in the function",
        "fifty gigabytes when the check calls",
        "return torch.ones(50 * 2**30, dtype=torch.bool)",
    ),
    _mask(
        "processes in the function",
        "a fork bomb when the check calls",
        "import os\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n        pass",
    ),
    _mask(
        "recursion in the function",
        "a stack that overflows",
        "import sys\nsys.setrecursionlimit(10**9)\nreturn causal_mask(n_query, n_key)",
    ),
    _mask("flood in the function", "a print without end when the check calls", "while True: print('x' * 10**6)"),
    Attack(
        "verdict of another kind",
        "a letter that is every letter",
        answers={
            "p7-answer": "class Yes(str):\n    __eq__ = lambda s, o: True\n    __hash__ = str.__hash__\n"
            "verdict, needed, short_by = Yes('C'), True, 7.0\nreach = lambda windows: True"
        },
        points={"p1-predict": 1},
    ),
    Attack(
        "modules told apart by their insides",
        "what a leaking module is, from its name, its code and its closure",
        answers={
            "p5-answer": "def leaks(module, n_positions, d_model):\n"
            "    for name in ('__code__', '__closure__', '__globals__', '__name__', 'func_globals', 'key', 'hidden'):\n"
            "        try:\n            if getattr(type(module)(module._peer, module._handle), name) and name[:2] "
            "!= '__':\n"
            "                print('ESCAPED', name)\n        except Exception:\n            pass\n"
            "        try:\n            print('ESCAPED', module._peer.ask('attribute', module._handle.number, name))\n"
            "        except Exception:\n            pass\n"
            "    return 'mask' in type(module).__qualname__"
        },
    ),
    Attack(
        "module called without end",
        "requests without end while the judge waits",
        answers={
            "p5-answer": "def leaks(module, n_positions, d_model):\n    x = torch.zeros(1, 2, d_model).double()\n"
            "    while True:\n        try:\n            module(x)\n        except Exception:\n            pass"
        },
    ),
)
