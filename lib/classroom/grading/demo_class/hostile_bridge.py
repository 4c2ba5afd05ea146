"""Attacks on the line to the judge: messages that are none, and a student's side that says what it likes."""

from __future__ import annotations

from classroom.grading.demo_class.hostile import DESERVED, Attack

_LINE = """
import msgpack, pickle, struct, sys
peer = next(finder.peer for finder in sys.meta_path if hasattr(finder, "peer"))
line = peer.connection
def raw(data):
    line.sendall(struct.pack("<Q", len(data)) + data)
def frame(*parts):
    raw(msgpack.packb(list(parts)))
def instead(data):  # of this cell's own answer
    raw(data)
    write = peer._write
    peer._write = lambda data: setattr(peer, "_write", write)
def ext(code, value):
    return msgpack.ExtType(code, msgpack.packb(value))
def asked(what, *parts):
    try:
        print("ESCAPED", what, parts, repr(peer.ask(what, *parts))[:100])
    except Exception:
        pass
"""
_FIRST = {"p1-predict": 1}  # whoever breaks the line for good loses what comes over it later


def _line(name: str, tries: str, *lines: str, points: dict | None = None) -> Attack:
    return Attack(name, tries, _LINE + "\n".join(lines), points=DESERVED if points is None else points)


ATTACKS = (
    _line("message cut short", "three bytes, and an end", "line.sendall(b'abc')\nline.shutdown(1)"),
    _line("message of a huge length", "a length of exabytes", "line.sendall(struct.pack('<Q', 2**63))"),
    _line("message of no form", "bytes that are no message", "instead(b'\\xc1' * 100)"),
    _line(
        "unknown request",
        "verbs that the judge does not know",
        "for verb in ('eval', 'run', 'names', '__class__', 3, None, []): asked(verb, '1 + 1')",
    ),
    _line("message nested too deep", "a million lists in lists", "instead(b'\\x91' * 10**6)"),
    _line(
        "nested in kinds",
        "tuples in tuples, each in a message of its own",
        "data = b''\nfor _ in range(500): data = msgpack.packb(msgpack.ExtType(1, "
        "msgpack.packb([msgpack.ExtType(1, data)])))",
        "instead(b'\\x92\\xa6answer' + data)",
    ),
    _line(
        "foreign handles",
        "numbers of objects that the judge never gave",
        "instead(msgpack.packb(['answer', [ext(13, n) for n in range(-5, 99)]]))",
    ),
    _line(
        "pickle",
        "code in a message, to be run by the judge",
        "class Code:\n    def __reduce__(self):\n"
        "        return exec, ('import classroom.checks.masks as m\\nm.pairs = m.rows = m.share = lambda *a: None',)",
        "instead(msgpack.packb(['answer', msgpack.ExtType(14, pickle.dumps(Code()))]))",
    ),
    _line(
        "million objects claimed",
        "a small message that makes the judge hold many",
        "one = msgpack.packb(ext(12, [1, 'x', True]))\n"
        "many = b''.join(msgpack.packb(ext(12, [n, 'x', True])) for n in range(10**6))",
        "instead(b'\\x92\\xa6answer\\xdd' + struct.pack('>I', 10**6) + many)",
    ),
    _line(
        "million lists",
        "one byte for each list that the judge makes",
        "instead(b'\\x92\\xa6answer\\xdd' + struct.pack('>I', 6 * 10**7) + b'\\x90' * 6 * 10**7)",
    ),
    _line(
        "keys that collide",
        "a dict that takes the judge hours to read",
        "whole = [(k * (2**61 - 1)).to_bytes(16, 'little', signed=True) for k in range(1, 400_000)]",
        "pairs = b''.join(msgpack.packb(msgpack.ExtType(2, w)) + b'\\xc0' for w in whole)",
        "instead(b'\\x92\\xa6answer\\xdf' + struct.pack('>I', len(whole)) + pairs)",
    ),
    _line(
        "shape of a terabyte",
        "tensors and arrays without the bytes they claim",
        "shapes = [[2**40], [-1, 2], [2**62, 4], [0, 2**63], [1] * 1000]",
        "claims = [ext(3, ['float32', s, b'1234', False]) for s in shapes] + [ext(4, ['<f8', s, b'']) for s in shapes]",
        "instead(msgpack.packb(['answer', claims[:1]]))",
    ),
    _line(
        "outputs without number",
        "a million empty outputs",
        "instead(msgpack.packb(['answer', [dict(output_type='stream', name='stdout', text='')] * 10**6]))",
    ),
    _line(
        "traceback without end",
        "ten million empty lines",
        "instead(msgpack.packb(['answer', [dict(output_type='error', ename='', evalue='', traceback=[''] * 10**7)]]))",
    ),
    _line(
        "outputs with scripts",
        "HTML and links where only text belongs",
        "data = {'text/html': '<script>ESCAPED</script>', 'text/plain': '<b>x</b>'}",
        "forged = [dict(output_type='display_data', data=data, metadata={}), dict(output_type='stream', "
        "name='ESCAPED', text='ESCAPED'),",
        "          dict(output_type='display_data', data={'image/png': '\"><script>ESCAPED'}, metadata={})]",
        "instead(msgpack.packb(['answer', forged]))",
    ),
    _line(
        "failures of other kinds",
        "an exception that would end the judge",
        "instead(msgpack.packb(['raised', 'SystemExit', ['SystemExit', 'BaseException', 'type'], 'x', '']))",
    ),
    _line("failure of no form", "an exception whose parts are none", "instead(msgpack.packb(['raised', 1, 2, 3, 4]))"),
    _line(
        "failure with an odd name",
        "a class whose name Python refuses",
        "instead(msgpack.packb(['raised', 'a\\0b', ['ValueError'], 'x', '']))",
    ),
    _line(
        "objects with odd names",
        "types whose names Python refuses",
        "instead(msgpack.packb(['answer', [ext(12, [1, '\\0', True]), ext(12, [2, '', False])]]))",
    ),
    _line(
        "answers that nobody asked for",
        "the answers to questions that come later",
        "for _ in range(3): frame('answer', {'pairs': 1, 'check': 2})",
        points=_FIRST,
    ),
    _line(
        "names that nobody asked for",
        "the judge's own names among the answers",
        "peer.serve['names'] = lambda names: {'check': None, 'torch': None, **dict.fromkeys(names)}",
        points=_FIRST,
    ),
    _line(
        "calls answered by the line",
        "results and changed arguments without a function",
        "import torch",
        "zero = {name: 0 for name in ('n_query', 'n_key', 'window')} | {'lengths': torch.zeros(1), 'q': 1, 0: 2, "
        "(): 3}",
        "peer.serve['call'] = lambda *parts: [torch.zeros(1, dtype=torch.bool), '99.0', zero]",
        points={"p1-predict": 1, "p7-cover": 1, "p7-verdict": 1},
    ),
    _line(
        "course's side replaced",
        "the modules of the grading replaced in the student's process",
        "import classroom.grading.bridge as b, classroom.grading.student as s, classroom.grading.steps as t",
        "b.revived = b.described = t.checked = s.line_of_answer = lambda *a: None\nb.DEEPEST = b.LONGEST = 10**9",
        "s.JUDGED = 'nothing'",
    ),
    _line(
        "names of the judge's modules",
        "what the notebook does not use of them",
        "for module in ('classroom.checks.masks', 'classroom.checks.masks_answers', 'os', 'builtins', "
        "'classroom.grading.judge'):",
        "    for name in ('hidden_keys', 'nothing_to_see', 'pairs', 'known', 'CATALOGUE', 'system', 'eval', "
        "'__builtins__', 'Judge'):",
        "        if (module, name) != ('classroom.checks.masks', 'pairs'): asked('window', module, name)",
        "asked('window', [], {})\nasked('window')",
    ),
    _line(
        "walk over attributes",
        "from a function of the checks to everything else",
        "number = check.pairs._handle.number",
        "for name in ('__globals__', '__code__', '__wrapped__', '__closure__', '__class__', 'func_globals', "
        "'__self__', '', 7, None, []):",
        "    asked('attribute', number, name)",
        "for number in range(-3, 40):",
        "    for name in ('_forward_hooks', '__dict__', 'ask', 'peer', 'kept', 'CATALOGUE'): asked('attribute', "
        "number, name)",
    ),
    _line(
        "checks called with hostile arguments",
        "gigabytes and loops without end in the judge",
        "yes = lambda **given: None",
        "for action in (lambda: check.padding_mask(yes, ([10**9] * 9, 10**9)), lambda: check.causal_mask(yes, "
        "(10**6, 10**6)),",
        "               lambda: check.reached(yes, range(10**7))):",
        "    try:\n        action()\n    except Exception:\n        pass",
    ),
    _line(
        "requests of no form",
        "calls with parts that do not fit",
        "number = check.pairs._handle.number",
        "for parts in ((number,), (number, 1, 2, 3), (number, [], {}, {0: 1}), (number, [], {1: 2}, {}), ([], [], "
        "{}, {})): asked('call', *parts)",
        "for parts in ((0, 'x'), ([], 1), ()):\n    try:\n        peer.ask('changed', *parts)\n"
        "    except Exception:\n        pass",
    ),
    _line(
        "requests without end",
        "a judge that is asked for ever",
        "while True:\n    try:\n        peer.ask('window', 'classroom.checks.masks', 'pairs')\n"
        "    except BaseException:\n        pass",
    ),
    _line(
        "answers never read",
        "requests whose answers nobody takes",
        "while True: frame('ask', 'window', ['classroom.checks.masks', 'pairs'])",
    ),
    _line(
        "trickle",
        "a message of one byte a second",
        "import time\nline.sendall(struct.pack('<Q', 10**6))\nwhile True:\n    line.sendall(b'x')\n    time.sleep(1)",
    ),
    _line("silence", "a line that is closed", "line.close()\nimport time\ntime.sleep(99)"),
    Attack(
        "deeper and deeper",
        "an answer and its check that call each other without end",
        answers={
            "p5-answer": "def leaks(module, n_positions, d_model):\n    check.catches(leaks)\n    return False",
            "p3-answer": "def causal_mask(**given):\n    return check.causal_mask(causal_mask)\n"
            "window_mask = padding_mask = combined = None",
        },
    ),
    Attack(
        "tensors changed behind the judge",
        "what the judge's module was given, changed while it is compared",
        answers={
            "p5-answer": "def leaks(module, n_positions, d_model):\n"
            "    x = torch.zeros(1, n_positions, d_model, dtype=torch.float64)\n    y = module(x)\n"
            "    for number in range(9):\n        try:\n"
            "            module._peer.ask('changed', number, torch.full_like(x, 1e300))\n"
            "        except Exception:\n            pass\n    return bool(y.sum())"
        },
    ),
)
