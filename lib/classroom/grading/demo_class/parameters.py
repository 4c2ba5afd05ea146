"""The demonstration class of exercise 09: eight submissions."""

from __future__ import annotations

from classroom import terms
from classroom.checks.parameters_slips import NEAREST, TIER
from classroom.grading.demo_class.submission import Submission

L, D, V = terms.numbers("parameters")
SIZES = f"\nn, d, v = {L}, {D}, {V}"  # what a student reads in problem 2

LOOPS = Submission(
    "demo-loops",
    {
        "p1-answer": "guess = 10**9",
        "p2-answer": SIZES
        + """
blocks = 0
for layer in range(n):
    blocks = blocks + 12 * d * d
table = v * d
total = blocks + table
table_share = table / total
""",
        "p3-answer": f"tier = {TIER!r}"
        + """
ratios = {}
near_match = None
for size in ["small", "medium", "large", "xl"]:
    name = "gpt2-" + size
    ratios[name] = round(total / published(name), 3)
    if near_match is None or abs(1 - ratios[name]) < abs(1 - ratios[near_match]):
        near_match = name
""",
        "p4-answer": """
def estimate(n_layers, d_model, n_vocab, tied):
    n = n_vocab * d_model
    if not tied:
        n += n_vocab * d_model
    for matrix in ["query", "key", "value", "out"] + 4 * ["up"] + 4 * ["down"]:
        n += n_layers * d_model * d_model
    return n
""",
        "p5-answer": """
def count_parameters(
    n_layers, d_model, n_heads, n_kv_heads, d_ff, n_vocab, n_context, norm, mlp, bias, tied, learned_positions
):
    d_head = d_model // n_heads
    parts = {"embed": n_vocab * d_model, "positions": 0, "attention": 0, "mlp": 0, "norms": 0, "unembed": 0}
    if learned_positions:
        parts["positions"] = n_context * d_model
    if not tied:
        parts["unembed"] = n_vocab * d_model
    shapes = [("attention", d_model, n_heads * d_head), ("attention", n_heads * d_head, d_model)]
    shapes += 2 * [("attention", d_model, n_kv_heads * d_head)]
    shapes += [("mlp", d_model, d_ff), ("mlp", d_ff, d_model)]
    if mlp == "swiglu":
        shapes.append(("mlp", d_model, d_ff))
    for part, width_in, width_out in shapes:
        parts[part] += n_layers * width_in * width_out
        if bias:
            parts[part] += n_layers * width_out
    vectors = {"layer": ["scale", "shift"], "rms": ["scale"]}[norm]
    for vector in vectors:
        parts["norms"] += n_layers * d_model + n_layers * d_model + d_model
    return parts
""",
        "p6-answer": """
right_at = {"d_model": 12, "n_heads": 3, "n_kv_heads": 3, "d_ff": 5}
wrong_at = {"d_model": 2, "n_heads": 2, "n_kv_heads": 1, "d_ff": 3}

def repaired(d_model, n_heads, n_kv_heads, d_ff):
    total = 3 * d_model * d_ff + 2 * d_model * d_model
    for head in range(n_kv_heads):
        total += 2 * d_model * (d_model // n_heads)
    return total
""",
        "p7-answer": """
def shortcut_error(name, with_tables):
    c = preset(name)
    n = 12 * c.n_layers * c.d_model**2
    if with_tables:
        n += c.n_vocab * c.d_model
        if not c.tied:
            n += c.n_vocab * c.d_model
    return (n - published(name)) / published(name)

c = preset("llama-2-70b")
units = {"attention": 2 + 2 * c.n_kv_heads / c.n_heads, "mlp": 3 * c.d_ff / c.d_model}
mlp_alone = (units["mlp"] - 8) / 12
both = (units["mlp"] - 8 + units["attention"] - 4) / 12
reason = "E"
""",
    },
)

TERSE = Submission(
    "demo-terse",
    {
        "p1-answer": "guess = 2.5e8",
        "p2-answer": f"total = (blocks := 12 * {L} * {D}**2) + (table := {V} * {D})\n"
        f"table_share = {V / (12 * L * D + V):.4f}",
        "p3-answer": f"tier, near_match = {TIER!r}, {NEAREST!r}"
        + """
ratios = {n: total / published(n) for n in map("gpt2-{}".format, ("small", "medium", "large", "xl"))}
""",
        "p4-answer": """
estimate = lambda n_layers, d_model, n_vocab, tied: 12 * n_layers * d_model**2 + (2 - tied) * n_vocab * d_model
""",
        "p5-answer": """
def count_parameters(**s):
    d, f, n, v = (s[name] for name in ("d_model", "d_ff", "n_layers", "n_vocab"))
    k = d * s["n_kv_heads"] // s["n_heads"]
    widths = {"attention": [(d, d), (d, d), (d, k), (d, k)], "mlp": [(d, f)] * (1 + (s["mlp"] == "swiglu")) + [(f, d)]}
    parts = {p: n * sum((a + s["bias"]) * b for a, b in shapes) for p, shapes in widths.items()}
    parts["norms"] = d * (1 + 2 * n) * {"rms": 1, "layer": 2}[s["norm"]]
    rows = {"embed": v, "unembed": v * (not s["tied"]), "positions": s["n_context"] * s["learned_positions"]}
    return parts | {part: d * n_rows for part, n_rows in rows.items()}
""",
        "p6-answer": """
right_at = dict(d_model=1, n_heads=1, n_kv_heads=1, d_ff=1)
wrong_at = dict(d_model=2, n_heads=2, n_kv_heads=1, d_ff=1)
repaired = lambda d_model, n_heads, n_kv_heads, d_ff: d_model * (
    3 * d_ff + 2 * d_model // n_heads * n_heads + 2 * (d_model // n_heads) * n_kv_heads
)
""",
        "p7-answer": """
def shortcut_error(name, with_tables):
    return estimate((c := preset(name)).n_layers, c.d_model, with_tables * c.n_vocab, c.tied) / published(name) - 1

units = {"attention": 2.25, "mlp": 10.5}
mlp_alone, both, reason = 0.208, 0.0625, "E"
""",
    },
)

# counts keys and values at full width, everywhere, and believes the explanation that goes with it
NO_GROUPING = Submission(
    "demo-no-grouping",
    {
        "p5-answer": """
def count_parameters(
    n_layers, d_model, n_heads, n_kv_heads, d_ff, n_vocab, n_context, norm, mlp, bias, tied, learned_positions
):
    matrices = 3 if mlp == "swiglu" else 2
    biases = ((matrices - 1) * d_ff + d_model) if bias else 0
    return {
        "embed": n_vocab * d_model,
        "positions": n_context * d_model * learned_positions,
        "attention": n_layers * 4 * d_model * (d_model + bias),
        "mlp": n_layers * (matrices * d_model * d_ff + biases),
        "norms": (2 * n_layers + 1) * d_model * (2 if norm == "layer" else 1),
        "unembed": n_vocab * d_model * (not tied),
    }
""",
        "p6-answer": """
right_at = {"d_model": 2, "n_heads": 2, "n_kv_heads": 2, "d_ff": 1}
wrong_at = {"d_model": 64, "n_heads": 8, "n_kv_heads": 2, "d_ff": 1}
repaired = suspect
""",
        "p7-answer": """
def shortcut_error(name, with_tables):
    c = preset(name)
    return estimate(c.n_layers, c.d_model, c.n_vocab * with_tables, c.tied) / published(name) - 1

units = {"attention": 4, "mlp": 10.5}
mlp_alone = 2.5 / 12
both = 2.5 / 12
reason = "C"
""",
    },
    {"p5": 3, "p6": 0, "p7": 1},
)

# a wrong tier and a wrong size of GPT-2 (the source's, for the printed numbers), the whole estimate doubled, a share in
# per cent, errors without a sign
TRUSTING = Submission(
    "demo-trusting",
    {
        "p2-answer": f"blocks = {12 * L * D**2}\ntable = {V * D}\ntotal = {12 * L * D**2 + V * D}\n"
        f"table_share = {100 * V / (12 * L * D + V):.2f}",
        "p3-answer": f"tier = {'inside' if TIER == 'below' else 'below'!r}\n"
        f"near_match = {'gpt2-xl' if NEAREST != 'gpt2-xl' else 'gpt2-large'!r}"
        + """
ratios = {name: total / published(name) for name in ("gpt2-small", "gpt2-medium", "gpt2-large", "gpt2-xl")}
""",
        "p4-answer": """
def estimate(n_layers, d_model, n_vocab, tied):
    n = 12 * n_layers * d_model**2 + n_vocab * d_model
    return n if tied else 2 * n
""",
        "p7-answer": """
def shortcut_error(name, with_tables):
    c = preset(name)
    n = 12 * c.n_layers * c.d_model**2 + with_tables * c.n_vocab * c.d_model
    return abs(n / published(name) - 1)

units = {"attention": 2.25, "mlp": 10.5}
mlp_alone = 14.5 / 12
both = 12.75 / 12
reason = "C"
""",
    },
    {"p2": 2, "p3": 1, "p4": 1, "p7": 1},
)

# forgets whatever is small: biases, the norms' shift, the final norm; writes the visible check's numbers into
# `estimate`, which then costs a point in problem 7 too
FORGETFUL = Submission(
    "demo-forgetful",
    {
        "p4-answer": """
def estimate(n_layers, d_model, n_vocab, tied):
    return 10600 if tied else 17600
""",
        "p5-answer": """
def count_parameters(
    n_layers, d_model, n_heads, n_kv_heads, d_ff, n_vocab, n_context, norm, mlp, bias, tied, learned_positions
):
    d_kv = n_kv_heads * d_model // n_heads
    parts = {
        "embed": n_vocab * d_model,
        "positions": n_context * d_model if learned_positions else 0,
        "attention": n_layers * 2 * d_model * (d_model + d_kv),
        "mlp": n_layers * (3 if mlp == "swiglu" else 2) * d_model * d_ff,
        "norms": n_layers * 2 * d_model,
    }
    if not tied:
        parts["unembed"] = n_vocab * d_model
    return parts
""",
        "p6-answer": "",
    },
    {"p4": 0, "p5": 0, "p6": 0, "p7": 3},
)


SUBMISSIONS = [
    Submission("demo-perfect"),
    LOOPS,
    TERSE,
    Submission("demo-untouched", marks=None, from_reference=False),
    NO_GROUPING,
    TRUSTING,
    FORGETFUL,
    # a merge that nobody resolved: not one answer cell is Python
    Submission(
        "demo-does-not-run",
        marks=None,
        wrap="<<<<<<< HEAD\n{}\n=======\n>>>>>>> mine",
    ),
]
