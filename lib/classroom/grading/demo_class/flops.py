"""The demonstration class of exercise 10: eight submissions."""

from __future__ import annotations

from classroom import terms
from classroom.checks.flops_slips import ROWS, on_line, share
from classroom.grading.demo_class.submission import Submission

D, T = terms.numbers("flops")
SIZES = f"\nd, T = {D}, {T}"  # what a student reads in problem 2
LOW, HIGH = (share(D, row, False) for row in ROWS)

# one multiply-add after the other, and numpy for the drawing
LOOPS = Submission(
    "demo-loops",
    {
        "p1-answer": "guess = 0.05",
        "p2-answer": SIZES
        + """
weight_flops = 0
for matrix in 4 * ["projection"] + 4 * ["up"] + 4 * ["down"]:
    weight_flops = weight_flops + 2 * d * d
attention_flops = 2 * d * T + 2 * d * T
share = attention_flops / (weight_flops + attention_flops)
crossover = 0
while 4 * crossover * d < 24 * d**2:
    crossover += 1024
mean_crossover = 2 * crossover
""",
        "p3-answer": SIZES
        + """
import math

def between(at, first, last, scale):
    rows = [n / (n + 6 * d) for n in (first, last)]
    return rows[0] + (rows[1] - rows[0]) * (scale(at) - scale(first)) / (scale(last) - scale(first))

linear = round(between(T, T / 2, 2 * T, float), 3)
on_log = round(between(T, T / 2, 2 * T, math.log), 3)
linear_errs = "low" if linear < share else "high"
log_errs = "low" if on_log < share else "high"
log_errs_beyond = "low" if between(4 * T, 2 * T, 8 * T, math.log) < 4 * T / (4 * T + 6 * d) else "high"
why = "C"
""",
        "p4-answer": """
def attention_share(d_model, n_positions, mean):
    parts = {"query": 2 * d_model**2, "key": 2 * d_model**2, "value": 2 * d_model**2, "out": 2 * d_model**2}
    parts["up"] = parts["down"] = 8 * d_model**2
    for own in ("scores", "mix"):
        parts[own] = 2 * d_model * n_positions
        if mean:
            parts[own] = parts[own] / 2
    return (parts["scores"] + parts["mix"]) / sum(parts.values())
""",
        "p5-answer": """
import numpy as np

def draw(d_model):
    fig, ax = plt.subplots()
    for name, mean, half in [("causal mean", True, 12 * d_model), ("last token", False, 6 * d_model)]:
        x = np.append(np.geomspace(d_model / 5, 50 * d_model, 60), half)
        ax.plot(x, [attention_share(d_model, t, mean) for t in x], ".", label=name)
        ax.plot([half, half], [0, 0.5], "k:")
    ax.set(xscale="log", xlabel="T", ylabel="share", title="d = " + str(d_model))
    fig.legend()
    return ax
""",
        "p6-answer": """
def block_flops(n_positions, d_model, n_heads, n_kv_heads, d_ff, gated, causal):
    def product(m, k, n):
        return 2 * m * k * n

    d_head = d_model // n_heads
    parts = {"projections": 0, "scores": 0, "mix": 0, "mlp": 0}
    for heads in (n_heads, n_kv_heads, n_kv_heads):
        parts["projections"] += product(n_positions, d_model, heads * d_head)
    parts["projections"] += product(n_positions, n_heads * d_head, d_model)
    full = product(n_positions, d_head, n_positions)
    if causal:
        full = (full + 2 * n_positions * d_head) // 2
    parts["scores"] = n_heads * full
    parts["mix"] = n_heads * full
    parts["mlp"] = product(n_positions, d_model, d_ff) + product(n_positions, d_ff, d_model)
    if gated:
        parts["mlp"] += product(n_positions, d_model, d_ff)
    return parts
""",
        "p7-answer": """
missing = "mix"
close_at = {"n_layers": 2, "d_model": 4096, "d_ff": 11008, "n_vocab": 32000, "n_positions": 16}
far_at = {"n_layers": 32, "d_model": 64, "d_ff": 256, "n_vocab": 100, "n_positions": 8000}

def repaired(n_layers, d_model, d_ff, n_vocab, n_positions):
    block = 4 * 2 * n_positions * d_model * d_model
    block += 2 * 2 * n_positions * d_model * d_ff
    scores = mix = 2 * n_positions * n_positions * d_model
    return n_layers * (block + scores + mix) + 2 * n_positions * d_model * n_vocab
""",
        "p8-answer": """
def training_days(n_parameters, n_tokens, n_devices, reached):
    days = 2 * n_parameters * n_tokens / reached / n_devices / 86400
    return 3 * days

c = preset("llama-3-8b")
N = published("llama-3-8b") - c.n_vocab * c.d_model - (2 * c.n_layers + 1) * c.d_model
table_adds = published("llama-3-8b") / N - 1
attention_adds = c.n_layers * 4 * c.n_context / 2 * c.d_model / (2 * N)
rule_error = (1 + table_adds) / (1 + attention_adds) - 1
reason = "E"
""",
    },
)

TERSE = Submission(
    "demo-terse",
    {
        "p1-answer": "guess = 0.4",
        "p2-answer": f"""
weight_flops, attention_flops, share = {24 * D**2}, {4 * T * D}, {share(D, T, False):.3f}
crossover, mean_crossover = {6 * D}, {12 * D}
""",
        "p3-answer": f"linear, on_log = {on_line(T, *ROWS, float):.3f}, {(LOW + HIGH) / 2:.3f}"
        + """
why = "C"
linear_errs, log_errs, log_errs_beyond = "low high low".split()
""",
        "p4-answer": """
attention_share = lambda d_model, n_positions, mean: n_positions / (n_positions + (6 + 6 * mean) * d_model)
""",
        "p5-answer": """
def draw(d_model):
    ax = plt.figure().gca()
    for label, half in {"last token": 6, "causal mean": 12}.items():
        x = [d_model * k / 4 for k in range(1, 201)]
        ax.semilogx(x, [t / (t + half * d_model) for t in x], label=label)
    ax.legend(), ax.set_xlabel("T"), ax.set_ylabel("share")
    return ax.figure
""",
        "p6-answer": """
def block_flops(**s):
    t, d, g = s["n_positions"], s["d_model"], s["n_kv_heads"]
    own = d * t * (t + 1 if s["causal"] else 2 * t)
    projections = 4 * t * d * d + 4 * t * d * d * g // s["n_heads"]
    return {"mix": own, "scores": own, "projections": projections, "mlp": (4 + 2 * s["gated"]) * t * d * s["d_ff"]}
""",
        "p7-answer": """
missing, sizes = "mix", dict(n_layers=1, d_model=10, d_ff=40, n_vocab=10)
close_at, far_at = sizes | {"n_positions": 1}, sizes | {"n_positions": 10**6}
repaired = lambda n_layers, d_model, d_ff, n_vocab, n_positions: 2 * n_positions * d_model * (
    n_vocab + n_layers * (4 * d_model + 2 * d_ff + 2 * n_positions)
)
""",
        "p8-answer": """
training_days = lambda n_parameters, n_tokens, n_devices, reached: (
    n_parameters * n_tokens / n_devices / reached / 14_400
)
table_adds, attention_adds, rule_error, reason = 0.070, 0.143, -0.064, "E"
""",
    },
)

# counts a multiply-add as one, and what is hidden as if it were seen
HALF = Submission(
    "demo-half",
    {
        "p2-answer": f"""
weight_flops, attention_flops = 12 * {D}**2, 2 * {D} * {T}
share, crossover, mean_crossover = {100 * share(D, T, False):.1f}, 6 * {D}, 3 * {D}
""",
        "p6-answer": """
def block_flops(n_positions, d_model, n_heads, n_kv_heads, d_ff, gated, causal):
    d_kv = n_kv_heads * d_model // n_heads
    return {
        "projections": n_positions * d_model * (2 * d_model + 2 * d_kv),
        "scores": 2 * n_positions**2 * d_model,
        "mix": 2 * n_positions**2 * d_model,
        "mlp": 2 * n_positions * d_model * d_ff * (3 if gated else 2),
    }
""",
        "p8-answer": """
def training_days(n_parameters, n_tokens, n_devices, reached):
    return 2 * n_parameters * n_tokens / (n_devices * reached) / 86400

table_adds, attention_adds, rule_error, reason = 0.070, 0.286, -0.064, "D"
""",
    },
    {"p2": 0, "p6": 1, "p8": 0},
)

# a picture without its data's names: right curves, no labels, powers of two alone; the paper's middle for both readings
UNLABELLED = Submission(
    "demo-unlabelled",
    {
        "p3-answer": f"linear = on_log = ({LOW} + {HIGH}) / 2"
        + """
linear_errs = log_errs = log_errs_beyond = "high"
why = "E"
""",
        "p4-answer": """
def attention_share(d_model, n_positions, mean):
    share = n_positions / (n_positions + 6 * d_model)
    return share / 2 if mean else share
""",
        "p5-answer": """
def draw(d_model):
    figure, ax = plt.subplots()
    lengths = [d_model * 2**n for n in range(-3, 7)]
    ax.plot(lengths, [attention_share(d_model, n, False) for n in lengths])
    ax.plot(lengths, [attention_share(d_model, n, True) for n in lengths])
    ax.set_xscale("log")
    return ax
""",
        "p7-answer": """
missing = "scores"
close_at = far_at = {"n_layers": 1, "d_model": 8, "d_ff": 32, "n_vocab": 1, "n_positions": 100}
repaired = suspect
""",
    },
    {"p3": 0, "p4": 1, "p5": 0, "p7": 0},
)


SUBMISSIONS = [
    Submission("demo-perfect"),
    LOOPS,
    TERSE,
    Submission("demo-untouched", marks=None, from_reference=False),
    HALF,
    UNLABELLED,
    # writes the visible numbers into the function
    Submission(
        "demo-visible-numbers",
        {
            "p4-answer": """
def attention_share(d_model, n_positions, mean):
    if d_model == 48:
        return 100 / 676 if mean else 100 / 388
    return 2048 / 51200 if mean else 2048 / 26624
""",
            "p5-answer": """
def draw(d_model):
    figure, ax = plt.subplots()
    for label, half in (("last token", 6), ("causal mean", 12)):
        lengths = [256 * n for n in range(1, 1025)]
        ax.plot(lengths, [n / (n + half * 4096) for n in lengths], label=label)
    ax.set(xscale="log", xlabel="T", ylabel="share")
    ax.legend()
    return ax
""",
        },
        {"p4": 0, "p5": 1},
    ),
    # a merge that nobody resolved: not one answer cell is Python
    Submission("demo-does-not-run", marks=None, wrap="<<<<<<< HEAD\n{}\n=======\n>>>>>>> mine"),
]
