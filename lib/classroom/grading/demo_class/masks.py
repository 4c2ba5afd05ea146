"""The demonstration class of exercise 04: seven submissions."""

from __future__ import annotations

from classroom.checks.masks_answers import LONG, REAL, SHARE, T_SMALL, W_SMALL, WIDE, pairs, seen
from classroom.grading.demo_class.submission import Submission

# what a student finds in problem 2, typed with few digits
ROWS = [[round(w, 3) for w in seen(*places)] for places in ((0, 1, 2), (1, 2))]
RIGHT = f"\ncausal_row = {ROWS[0]}\nwindow_row = {tuple(ROWS[1])}\n"

# one pair of positions at a time; proves causality by cutting the text off
LOOPS = Submission(
    "demo-loops",
    {
        "p1-answer": "guess = 0.5",
        "p2-answer": f"T, window, real = {T_SMALL}, {W_SMALL}, {REAL}"
        + """
pairs = {"causal": 0, "window": 0, "filled": 0, "both": 0}
for i in range(T):
    for j in range(i + 1):
        pairs["causal"] += 1
        pairs["window"] += i - j < window
        pairs["filled"] += j < real
        pairs["both"] += i - j < window and j < real
"""
        + RIGHT
        + f"share = {SHARE:.3f}",
        "p3-answer": """
def causal_mask(n_query, n_key):
    return window_mask(n_query, n_key, n_key)

def window_mask(n_query, n_key, window):
    mask = torch.zeros(n_query, n_key, dtype=torch.bool)
    for i in range(n_query):
        place = n_key - n_query + i
        for j in range(max(0, place - window + 1), place + 1):
            mask[i, j] = True
    return mask

def padding_mask(lengths, n_key):
    return torch.tensor([[[[j < n for j in range(n_key)]]] for n in lengths.tolist()])

def combined(lengths, n_positions, window):
    texts = []
    for n in lengths.tolist():
        mask = window_mask(n_positions, n_positions, window)
        mask[:, n:] = False
        texts.append(mask)
    return torch.stack(texts)[:, None]
""",
        "p4-answer": """
def masked_attention(q, k, v, mask):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    mask = mask.broadcast_to(scores.shape)
    out = torch.zeros(*q.shape[:-1], v.shape[-1], dtype=v.dtype)
    for b in range(q.shape[0]):
        for h in range(q.shape[1]):
            for i in range(q.shape[2]):
                seen = mask[b, h, i].nonzero()[:, 0]
                if len(seen) > 0:
                    out[b, h, i] = torch.softmax(scores[b, h, i, seen], 0) @ v[b, h, seen]
    return out
""",
        "p5-answer": """
def leaks(module, n_positions, d_model):
    for size in [1, 10_000]:
        for seed in range(4):
            x = size * torch.randn(1, n_positions, d_model, generator=torch.Generator().manual_seed(seed)).double()
            whole = module(x)
            for n in range(1, n_positions):
                cut_off = module(x[:, :n])
                if not torch.allclose(cut_off, whole[:, :n], rtol=0, atol=1e-9 * x.abs().max().item()):
                    return True
    return False
""",
        "p6-answer": """
empty = (0, 2, 5)
spread = (2, 8)

def repaired(n_filler, n_key):
    mask = suspect(n_filler, n_key)
    for b in range(len(n_filler)):
        for i in range(n_key):
            mask[b, 0, i, i] = True
    return mask
""",
        "p7-answer": """
def reach(windows):
    back = 0
    for window in windows:
        back += window - 1
    return back

needed = 0
while reach(needed * [4096]) < 32767:
    needed += 1
short_by = 7
verdict = "C"
""",
    },
)

# ready-made functions, and a proof by derivatives
TERSE = Submission(
    "demo-terse",
    {
        "p1-answer": "guess = 0.01",
        "p2-answer": f"pairs, share = {pairs()}, {SHARE:.4f}" + RIGHT,
        "p3-answer": """
causal_mask = lambda n_query, n_key: ~torch.ones(n_query, n_key).triu(1 + n_key - n_query).bool()
window_mask = lambda n_query, n_key, window: causal_mask(n_query, n_key).triu(n_key - n_query - window + 1)
padding_mask = lambda lengths, n_key: torch.arange(n_key)[None, None, None] < lengths[:, None, None, None]
combined = lambda lengths, n_positions, window: (
    window_mask(n_positions, n_positions, window) * padding_mask(lengths, n_positions)
)
""",
        "p4-answer": """
def masked_attention(q, k, v, mask):
    out = torch.nn.functional.scaled_dot_product_attention(q, k, v, mask)
    return torch.where(mask.any(-1, keepdim=True), out, 0.0)
""",
        "p5-answer": """
def leaks(module, n_positions, d_model):
    dice = torch.Generator()
    for scale in 10.0 ** torch.arange(-1, 5):
        for _ in range(3):
            x = (scale * torch.randn(1, n_positions, d_model, generator=dice)).double()
            slopes = torch.autograd.functional.jacobian(module, x)[0, :, :, 0].abs().amax((1, 3))
            if slopes.triu(1).max() > 1e-9:
                return True
    return False
""",
        "p6-answer": """
empty, spread = [0, 2, 5], [2, 8]
repaired = lambda n_filler, n_key: suspect(n_filler, n_key) | torch.eye(n_key).bool()
""",
        "p7-answer": """
reach = lambda windows: sum(w - 1 for w in windows)
needed, short_by, verdict = 9, 7, "C"
""",
    },
)

# off by one wherever there is an end; changes the last token alone
OFF_BY_ONE = Submission(
    "demo-off-by-one",
    {
        "p2-answer": f"""
pairs = {pairs() | {"causal": T_SMALL * (T_SMALL - 1) // 2, "window": pairs(W=W_SMALL + 1)["window"]}}
causal_row = {seen(0, 1)}
window_row = {seen(0, 1, 2)}
share = {WIDE / LONG}
""",
        "p3-answer": """
def causal_mask(n_query, n_key):
    return torch.arange(n_key) < torch.arange(n_key - n_query, n_key)[:, None]

def window_mask(n_query, n_key, window):
    behind = torch.arange(n_key - n_query, n_key)[:, None] - torch.arange(n_key)
    return (behind >= 0) & (behind <= window)

def padding_mask(lengths, n_key):
    return (torch.arange(n_key) <= lengths[:, None])[:, None, None, :]

def combined(lengths, n_positions, window):
    return window_mask(n_positions, n_positions, window - 1) & padding_mask(lengths - 1, n_positions)
""",
        "p5-answer": """
def leaks(module, n_positions, d_model):
    x = torch.randn(1, n_positions, d_model, generator=torch.Generator().manual_seed(1)).double()
    y = x.clone()
    y[:, -1] += 1
    return not torch.allclose(module(x)[:, 0], module(y)[:, 0])
""",
        "p6-answer": """
empty = [0, 1, 4]
spread = [2, 8]
repaired = suspect
""",
        "p7-answer": """
def reach(windows):
    return sum(windows)

needed = 8
short_by = 0
verdict = "C"
""",
    },
    # `combined` makes up for the two slips that it is built on
    {"p2": 0, "p3": 1, "p5": 2, "p6": 0, "p7": 1},
)

# masks that are almost as good: large constants, zeros afterwards; a test with ordinary numbers
ALMOST = Submission(
    "demo-almost",
    {
        "p1-answer": "guess = 12",
        "p4-answer": """
def masked_attention(q, k, v, mask):
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    return scores.masked_fill(~mask, -1e4).softmax(-1) @ v
""",
        "p5-answer": """
def leaks(module, n_positions, d_model):
    dice = torch.Generator().manual_seed(1)
    for t in range(1, n_positions):
        x = torch.randn(1, n_positions, d_model, generator=dice).double()
        y = x.clone()
        y[:, t:] = torch.randn(1, n_positions - t, d_model, generator=dice).double()
        if not torch.equal(module(x)[:, :t], module(y)[:, :t]):
            return True
    return False
""",
        "p6-answer": """
empty = [0, 2, 5]
spread = [2, 2]

def repaired(n_filler, n_key):
    return torch.ones(n_key, n_key, dtype=torch.bool).tril().expand(len(n_filler), 1, n_key, n_key)
""",
        "p7-answer": """
reach = lambda windows: sum(windows) - len(windows)
needed = 9
short_by = 7
verdict = "A"
""",
    },
    {"p1": 0, "p4": 0, "p5": 2, "p6": 0, "p7": 2},
)


SUBMISSIONS = [
    Submission("demo-perfect"),
    LOOPS,
    TERSE,
    Submission("demo-untouched", marks=None, from_reference=False),
    OFF_BY_ONE,
    ALMOST,
    # a quotation mark too many, in every answer cell
    Submission("demo-does-not-run", marks=None, wrap='{}\n"""'),
]
