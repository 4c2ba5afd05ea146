"""The demonstration class of exercise 03: seven submissions."""

from __future__ import annotations

from classroom.checks.heads_answers import D_CUT, DOTS, H_CUT, ROWS, T_CUT, pattern
from classroom.grading.demo_class.submission import Submission

ROW_1, ROW_2 = ([int(x) for x in row] for row in ROWS.tolist())
WEIGHTS = [[round(w, 4) for w in pattern(dots, 4)] for dots in DOTS]  # what a student finds in problem 2

# one head, one text, one position at a time
LOOPS = Submission(
    "demo-loops",
    {
        "p1-answer": "guess = 0.25",
        "p2-answer": f"""
head_1 = [tuple(row[2:4]) for row in ({ROW_1}, {ROW_2})]
weights = {tuple(WEIGHTS)}
""",
        "p3-answer": """
def split_heads(x, n_heads):
    d_k = x.shape[-1] // n_heads
    heads = []
    for n in range(n_heads):
        heads.append(x[:, :, n * d_k : n * d_k + d_k])
    return torch.stack(heads, dim=1)

def merge_heads(x):
    return torch.cat([x[:, n] for n in range(x.shape[1])], dim=-1)

copies = "merge"
"""
        + f"strides = {[T_CUT * D_CUT, D_CUT // H_CUT, D_CUT, 1]}",
        "p4-answer": """
def multi_head(x, W_Q, W_K, W_V, W_O, n_heads):
    out = torch.zeros_like(x)
    d_k = x.shape[-1] // n_heads
    for b in range(x.shape[0]):
        for n in range(n_heads):
            own = slice(n * d_k, (n + 1) * d_k)
            q, k, v = x[b] @ W_Q[:, own], x[b] @ W_K[:, own], x[b] @ W_V[:, own]
            for t in range(x.shape[1]):
                s = torch.stack([q[t].dot(k[j]) for j in range(x.shape[1])]) / math.sqrt(d_k)
                e = torch.exp(s - s.max())
                out[b, t] += (e / e.sum()) @ v @ W_O[own]
    return out

def head_parts(x, W_Q, W_K, W_V, W_O, n_heads):
    d_k = x.shape[-1] // n_heads
    parts = []
    for n in range(n_heads):
        only = torch.zeros_like(W_O)
        only[n * d_k : (n + 1) * d_k] = W_O[n * d_k : (n + 1) * d_k]
        parts.append(multi_head(x, W_Q, W_K, W_V, only, n_heads))
    return torch.stack(parts)
""",
        "p5-answer": """
def grouped(x, W_Q, W_K, W_V, W_O, n_heads, n_kv_heads):
    d_k = x.shape[-1] // n_heads
    wide_K, wide_V = [], []
    for n in range(n_heads):
        m = n * n_kv_heads // n_heads
        wide_K.append(W_K[:, m * d_k : (m + 1) * d_k])
        wide_V.append(W_V[:, m * d_k : (m + 1) * d_k])
    return multi_head(x, W_Q, torch.cat(wide_K, 1), torch.cat(wide_V, 1), W_O, n_heads)

def average_heads(W, n_heads, n_kv_heads):
    d_k, group = W.shape[1] // n_heads, n_heads // n_kv_heads
    columns = []
    for m in range(n_kv_heads):
        for c in range(d_k):
            columns.append(sum(W[:, (m * group + g) * d_k + c] for g in range(group)) / group)
    return torch.stack(columns, 1)
""",
        "p6-answer": """
def costs(n_positions, d_model, n_heads, n_kv_heads, n_bytes):
    d_k = d_model // n_heads
    weights = scores = kept = 0
    for head in range(n_heads):
        weights += d_model * d_k + d_k * d_model
        scores += n_positions**2 * n_bytes
    for head in range(n_kv_heads):
        weights += 2 * d_model * d_k
        kept += 2 * n_positions * d_k * n_bytes
    return {"kept": kept, "scores": scores, "weights": weights}

def longest(n_heads, n_bytes, budget):
    low, high = 1, 2
    while n_heads * n_bytes * high**2 <= budget:
        high *= 2
    while high - low > 1:
        middle = (low + high) // 2
        if n_heads * n_bytes * middle**2 <= budget:
            low = middle
        else:
            high = middle
    return low
""",
        "p7-answer": """
fine_for = [12, 1]
right_heads = [i for i in range(8) if i % 2 == i // 4]

def repaired(q, k, v):
    group = q.shape[1] // k.shape[1]
    return torch.cat([suspect(q[:, n : n + 1], k[:, n // group][:, None], v[:, n // group][:, None])
                      for n in range(q.shape[1])], dim=1)
""",
        "p8-answer": """
weights_ = [torch.randn(12, 12) for _ in range(4)]
sees = []
for n in range(6):
    other = x.clone()
    other[:, n] += 1
    if (forgetful(x, *weights_, 3) - forgetful(other, *weights_, 3))[:, 4].abs().max() > 1e-3:
        sees.append(n)
harmless = 1
verdict = "C"
""",
    },
)

TERSE = Submission(
    "demo-terse",
    {
        "p1-answer": "guess = 16",
        "p2-answer": f"head_1, weights = [{ROW_1[2:4]}, {ROW_2[2:4]}], {WEIGHTS}",
        "p3-answer": f"""
split_heads = lambda x, n_heads: x.unflatten(-1, (n_heads, -1)).transpose(1, 2)
merge_heads = lambda x: torch.einsum("bhtk->bthk", x).flatten(2)
strides, copies = split_heads(torch.empty(2, {T_CUT}, {D_CUT}), {H_CUT}).stride(), "merge"
""",
        "p4-answer": """
def multi_head(x, W_Q, W_K, W_V, W_O, n_heads):
    q, k, v = split_heads(x @ torch.cat([W_Q, W_K, W_V], 1), 3 * n_heads).chunk(3, 1)
    return merge_heads(torch.nn.functional.scaled_dot_product_attention(q, k, v)) @ W_O

def head_parts(x, W_Q, W_K, W_V, W_O, n_heads):
    heads = split_heads(multi_head(x, W_Q, W_K, W_V, torch.eye(len(W_O)).double(), n_heads), n_heads)
    return torch.einsum("bhtk,hkd->hbtd", heads, W_O.view(n_heads, -1, len(W_O)))
""",
        "p5-answer": """
def grouped(x, W_Q, W_K, W_V, W_O, n_heads, n_kv_heads):
    wide = [W.view(len(W), n_kv_heads, 1, -1).expand(-1, -1, n_heads // n_kv_heads, -1).flatten(1) for W in (W_K, W_V)]
    return multi_head(x, W_Q, *wide, W_O, n_heads)

def average_heads(W, n_heads, n_kv_heads):
    mean = torch.eye(n_kv_heads).double().repeat_interleave(n_heads // n_kv_heads, 0) * n_kv_heads / n_heads
    return W @ torch.kron(mean, torch.eye(len(W) // n_heads).double())
""",
        "p6-answer": """
costs = lambda n_positions, d_model, n_heads, n_kv_heads, n_bytes: dict(
    weights=2 * d_model**2 * (n_heads + n_kv_heads) // n_heads,
    scores=n_heads * n_positions**2 * n_bytes,
    kept=2 * n_positions * d_model * n_kv_heads // n_heads * n_bytes,
)
longest = lambda n_heads, n_bytes, budget: math.isqrt(budget // n_heads // n_bytes)
""",
        "p7-answer": """
fine_for, right_heads = (1, 12), {0, 2, 5, 7}

def repaired(q, k, v):
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)
""",
        "p8-answer": 'sees, harmless, verdict = (4, 5), 1, "C"',
    },
)

# cuts and merges by view, everywhere, and finds the colleague of the last problem right
VIEWS = Submission(
    "demo-views",
    {
        "p2-answer": f"head_1, weights = [{ROW_1[4:]}, {ROW_2[:2]}], {WEIGHTS}",
        "p3-answer": """
def split_heads(x, n_heads):
    return x.reshape(x.shape[0], n_heads, x.shape[1], -1)

def merge_heads(x):
    return x.reshape(x.shape[0], x.shape[2], -1)

copies = "neither"
"""
        + f"strides = {(T_CUT * D_CUT, T_CUT * D_CUT // H_CUT, D_CUT // H_CUT, 1)}",
        "p5-answer": """
def grouped(x, W_Q, W_K, W_V, W_O, n_heads, n_kv_heads):
    q, k, v = split_heads(x @ W_Q, n_heads), split_heads(x @ W_K, n_kv_heads), split_heads(x @ W_V, n_kv_heads)
    k, v = (y.repeat_interleave(n_heads // n_kv_heads, 1) for y in (k, v))
    return merge_heads(torch.softmax(q @ k.mT / math.sqrt(q.shape[-1]), -1) @ v) @ W_O

def average_heads(W, n_heads, n_kv_heads):
    return W.unflatten(1, (n_kv_heads, n_heads // n_kv_heads, -1)).mean(2).flatten(1)
""",
        "p8-answer": """
sees = [0, 1, 2, 3, 4, 5]
harmless = 3
verdict = "A"
""",
    },
    {"p2": 1, "p3": 0, "p4": 0, "p5": 1, "p8": 0},  # problem 4 is built on the functions of problem 3
)

# shares heads in turn, scales by the width of the model, counts heads of keys where queries count
IN_TURN = Submission(
    "demo-in-turn",
    {
        "p1-answer": "guess = 0",
        "p4-answer": """
def multi_head(x, W_Q, W_K, W_V, W_O, n_heads):
    q, k, v = (split_heads(x @ W, n_heads) for W in (W_Q, W_K, W_V))
    return merge_heads(torch.softmax(q @ k.mT / math.sqrt(x.shape[-1]), -1) @ v) @ W_O

def head_parts(x, W_Q, W_K, W_V, W_O, n_heads):
    return multi_head(x, W_Q, W_K, W_V, W_O, n_heads).expand(n_heads, *x.shape) / n_heads
""",
        "p5-answer": """
def grouped(x, W_Q, W_K, W_V, W_O, n_heads, n_kv_heads):
    q, k, v = split_heads(x @ W_Q, n_heads), split_heads(x @ W_K, n_kv_heads), split_heads(x @ W_V, n_kv_heads)
    k, v = (y.repeat(1, n_heads // n_kv_heads, 1, 1) for y in (k, v))
    return merge_heads(torch.softmax(q @ k.mT / math.sqrt(q.shape[-1]), -1) @ v) @ W_O

def average_heads(W, n_heads, n_kv_heads):
    return W.unflatten(1, (n_heads // n_kv_heads, n_kv_heads, -1)).mean(1).flatten(1)
""",
        "p6-answer": """
def costs(n_positions, d_model, n_heads, n_kv_heads, n_bytes):
    d_kv = d_model // n_heads * n_kv_heads
    return {
        "weights": 2 * d_model * d_model + 2 * d_model * d_kv,
        "scores": n_kv_heads * n_positions**2 * n_bytes,
        "kept": n_positions * d_kv * n_bytes,
    }

def longest(n_heads, n_bytes, budget):
    return round(math.sqrt(budget / (n_heads * n_bytes)))
""",
        "p7-answer": """
fine_for = [1, 2, 3, 4, 6, 12]
right_heads = [0, 2, 4, 6]
repaired = suspect
""",
    },
    {"p1": 0, "p4": 0, "p5": 0, "p6": 1, "p7": 0},
)


SUBMISSIONS = [
    Submission("demo-perfect"),
    LOOPS,
    TERSE,
    Submission("demo-untouched", marks=None, from_reference=False),
    VIEWS,
    IN_TURN,
    # an indentation that fits nowhere, in every answer cell
    Submission("demo-does-not-run", marks=None, wrap="if True:\nguess = 1\n{}"),
]
