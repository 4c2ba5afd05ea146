"""Attacks by Python's own means: what a check is made of is replaced, looked at, or shadowed."""

from __future__ import annotations

from classroom.grading.demo_class.hostile import Attack

# a shell that runs no further cell: what is honest behind it is lost too, by the student's own doing
_DEAF = {"p1-predict": 1}

_READING = """
import os, re, sys, classroom
def files():
    for top in ("/", os.path.dirname(classroom.__file__), {place!r}):
        for folder, folders, names in os.walk(top):
            folders[:] = [n for n in folders if folder + n not in ("/proc", "/sys", "/usr") and n != "site-packages"]
            yield from (os.path.join(folder, name) for name in names)
for path in files():
    try:
        if re.search({pattern!r}, path) and {is_found}:
            print("ESCAPED", path, open(path, "rb").read(1000))
    except OSError:
        continue
"""


def _reads(name: str, tries: str, pattern: str, place: str = "/", is_found: str = "True") -> Attack:
    return Attack(name, tries, _READING.format(pattern=pattern, place=place, is_found=is_found))


ATTACKS = (
    Attack(
        "assert patched",
        "an AssertionError that is none",
        "import builtins\nbuiltins.AssertionError = type('Quiet', (Exception,), {'__new__': lambda *a: None})",
    ),
    Attack(
        "builtins patched",
        "type, isinstance, abs, all and any that say yes",
        "import builtins\nfor name in ('abs', 'all', 'any', 'callable', 'isinstance'):\n"
        "    globals()[name] = lambda *a: True\nbuiltins.all = builtins.any = lambda *a: True",
    ),
    Attack(
        "torch patched",
        "torch.equal, torch.allclose and its tests pass everything",
        "torch.equal = torch.allclose = torch.isclose = lambda *a, **k: True\n"
        "torch.testing.assert_close = lambda *a, **k: None\n"
        "torch.Tensor.__eq__ = lambda s, o: torch.ones(s.shape, dtype=torch.bool)",
    ),
    Attack(
        "numpy patched",
        "numpy.testing passes everything",
        "import numpy, numpy.testing\nfor name in dir(numpy.testing):\n    if name.startswith('assert'):\n"
        "        setattr(numpy.testing, name, lambda *a, **k: None)\nnumpy.allclose = lambda *a, **k: True",
    ),
    Attack(
        "checks replaced",
        "check functions that pass everything, under their names and in their modules",
        "import sys, types\n"
        "class Kind(types.ModuleType):\n    def __getattr__(self, name):\n        return lambda *a, **k: None\n"
        "for name in ('masks', 'expect', 'tensors', 'progress'):\n"
        "    sys.modules['classroom.checks.' + name] = Kind(name)\n"
        "check.pairs = check.rows = check.share = lambda *a, **k: None\ncheck = Kind('check')\n"
        "ready = lambda **k: None",
    ),
    Attack(
        "names of the checks taken",
        "wrong answers under the names that the judge's cells use",
        "check = torch = math = ready = range = print = None\n__builtins__ = {}\nimport math, torch",
        points={"p1-predict": 1, "p7-cover": 1, "p7-verdict": 1},  # its own functions have no builtins either
    ),
    Attack(
        "cells rewritten",
        "an input transformer that empties every check",
        "get_ipython().input_transformers_post.append(lambda lines: ['pass\\n'] if any('check.' in l for l in lines) "
        "else lines)",
    ),
    Attack(
        "syntax rewritten",
        "an AST transformer that drops calls and asserts",
        "import ast\nclass Drop(ast.NodeTransformer):\n    def visit_Assert(self, node):\n        return ast.Pass()\n"
        "    def visit_Expr(self, node):\n        return ast.Pass()\nget_ipython().ast_transformers.append(Drop())",
    ),
    Attack(
        "tracebacks silenced",
        "errors that are never shown",
        "shell = get_ipython()\nshell.showtraceback = shell._showtraceback = lambda *a, **k: None\n"
        "shell.set_custom_exc((Exception,), lambda *a, **k: None)\n"
        "import sys\nsys.excepthook = lambda *a: None",
    ),
    Attack(
        "cells not run",
        "a shell that runs nothing any more",
        "get_ipython().run_cell = get_ipython().run_code = lambda *a, **k: None",
        points=_DEAF,
    ),
    Attack(
        "code compiled without asserts",
        "a compile and an optimisation that drop them",
        "import builtins, sys\nreal = compile\n"
        "builtins.compile = lambda *a, **k: real(*a, **{**k, 'optimize': 2})\nsys.flags",
    ),
    Attack(
        "outputs invented",
        "a result of 99 points and a script, as if the cell had shown them",
        "shell = get_ipython()\n"
        "shell.outputs.found += [{'output_type': 'execute_result', 'data': {'text/plain': '99.0'}, 'metadata': {}, "
        "'execution_count': 1}, {'output_type': 'display_data', 'data': {'text/html': '<script>ESCAPED</script>', "
        "'image/svg+xml': 'ESCAPED'}, 'metadata': {}}, {'output_type': []}, 7, None]",
    ),
    Attack(
        "display hooked",
        "results that are displayed as points",
        "import sys\nsys.displayhook = get_ipython().displayhook = lambda value: 99.0\n99.0",
    ),
    Attack(
        "answers of the checks imported",
        "the modules that hold the right answers",
        "import importlib\nfor name in ('masks_answers', 'masks_slips', 'attention_answers', 'tokens_answers'):\n"
        "    try:\n        module = importlib.import_module('classroom.checks.' + name)\n"
        "        print('ESCAPED', module.pairs, module.leaks, module.CATALOGUE)\n"
        "    except (ImportError, AttributeError):\n        pass",
    ),
    Attack(
        "hidden tests asked for",
        "names of the checks that only hidden tests use",
        "for name in ('hidden_keys', 'nothing_to_see', 'known', 'CATALOGUE', 'masks', 'numbers'):\n"
        "    try:\n        print('ESCAPED', getattr(check, name))\n    except AttributeError:\n        pass",
    ),
    Attack(
        "memory searched",
        "the judge's cells or the tests among the objects of the process",
        "import gc, sys\nword = '(2, 8, ' + '200)'\n"
        "for one in gc.get_objects():\n"
        "    if type(one) is dict:\n        for value in list(one.values()):\n"
        "            if type(value) is str and len(value) < 10**6 and word in value[1:]:\n"
        "                print('ESCAPED', value[:80])\n"
        "for name in list(sys.modules):\n"
        "    if name.startswith('classroom.checks.') and getattr(sys.modules[name], '__file__', None):\n"
        "        print('ESCAPED', name)",
    ),
    Attack(
        "callers inspected",
        "the frames and the history for what the check compares with",
        answers={
            "p3-answer": "import gc, inspect\n\ndef causal_mask(n_query, n_key):\n"
            "    for frame in inspect.stack():\n        for value in frame.frame.f_locals.values():\n"
            "            if isinstance(value, torch.Tensor) and tuple(value.shape) == (n_query, n_key):\n"
            "                return value\n"
            "    for value in gc.get_objects():\n"
            "        if isinstance(value, torch.Tensor) and value.dtype == torch.bool and "
            "tuple(value.shape) == (n_query, n_key):\n            return value\n"
            "    return eval(get_ipython().user_ns['In'][-1])\n\n"
            "window_mask = lambda n_query, n_key, window: causal_mask(n_query, n_key)\n"
            "padding_mask = combined = None"
        },
    ),
    Attack(
        "modules shadowed",
        "torch.py and plainformer/ beside the notebook",
        "import os, sys\nfor name in ('torch', 'math', 'sitecustomize', 'usercustomize', 'nbgrader', 'msgpack'):\n"
        "    with open(name + '.py', 'w') as file:\n        file.write('equal = allclose = lambda *a, **k: True')\n"
        "os.makedirs('plainformer', exist_ok=True)\nopen('plainformer/__init__.py', 'w').close()\n"
        "open('plainformer/masks.py', 'w').write('causal = lambda *a: None')\n"
        "os.environ['PYTHONPATH'] = os.environ['PYTHONSTARTUP'] = os.getcwd()\nsys.path.insert(0, os.getcwd())",
    ),
    Attack(
        "course patched",
        "the course's own mask functions, which the checks compare with",
        "import plainformer.masks, plainformer.attention\n"
        "plainformer.masks.causal = lambda q, k=None: torch.ones(q, k or q, dtype=torch.bool)\n"
        "plainformer.masks.sliding_window = lambda *a, **k: None\n"
        "plainformer.attention.attention = lambda *a, **k: None",
    ),
    Attack(
        "patched later",
        "a thread, an exit function and a signal that act while later cells are judged",
        "import atexit, signal, threading, time, sys\n"
        "def later():\n    for _ in range(40):\n        time.sleep(0.05)\n"
        "        for name in ('check', 'share', 'pairs'):\n            globals()[name] = lambda *a, **k: None\n"
        "threading.Thread(target=later, daemon=True).start()\natexit.register(later)\n"
        "signal.signal(signal.SIGALRM, lambda *a: later())\nsignal.setitimer(signal.ITIMER_REAL, 0.2)",
    ),
    Attack(
        "random numbers foreseen",
        "the seeds and the generators from which checks would draw",
        "import random, numpy\nrandom.seed(0)\nnumpy.random.seed(0)\ntorch.manual_seed(0)\n"
        "torch.randn = lambda *a, **k: torch.zeros(1)\nrandom.random = lambda: 0.0",
    ),
    _reads("solutions read", "the right answers on disk", r"/solutions/|/04_masks\.ipynb|_answers\.py|_slips\.py"),
    _reads("grading read", "the gradebook and other submissions", r"gradebook\.db|/submitted/|/results/", "@CANARY@"),
    _reads("checks read", "the source of the checks and of the grading", r"/classroom/(checks|grading)/"),
    _reads(
        "processes read",
        "memory, environment and files of other processes",
        r"/(environ|cmdline|\w+\.db)$",
        "/proc",
        "re.search(rb'@PORT@|pytest|PYTEST|gradebook', open(path, 'rb').read(10**5))",
    ),
    _reads("secrets read", "accounts and keys", r"/(shadow|id_rsa|\.netrc|\.git-credentials|\.pgpass|run/secrets/.*)$"),
)
