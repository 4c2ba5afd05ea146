"""The demonstration class of exercise 07: seven submissions."""

from __future__ import annotations

from classroom.checks.mlp_slips import BEST, D_BY_HAND, FUELS, GATE, UP, right_width, silu
from classroom.grading.demo_class.submission import Submission

BEST_TWO, BOTH = BEST[:2], sum(FUELS[n] for n in BEST[:2])
WEIGHTS = [round(FUELS[n] / BOTH, 4) for n in BEST_TWO]


def written(first: float, second: float) -> str:
    """The two hidden numbers and what they write, as a student types them."""
    return f"\nhidden, out = [{first:.3f}, {second:.3f}], [{first + 2 * second:.3f}, {second:.3f}]\n"


UNITS = written(*[silu(gate) * up for gate, up in zip(GATE, UP)])

# one number, one unit, one token at a time
LOOPS = Submission(
    "demo-loops",
    {
        "p1-answer": "guess = 0",
        "p2-answer": f"d_ff = 256\nwhile 3 * d_ff < 8 * {D_BY_HAND}:\n    d_ff += 256\n"
        + UNITS
        + f"chosen, weights = {tuple(BEST_TWO)}, {WEIGHTS}",
        "p3-answer": """
def each(formula):
    def whole(x):
        return torch.tensor([formula(number) for number in x.flatten().tolist()], dtype=x.dtype).reshape(x.shape)
    return whole

def relu(x):
    return each(lambda number: max(0.0, number))(x)

def gelu(x):
    return each(lambda number: number * (1 + math.erf(number / 2**0.5)) / 2)(x)

def silu(x):
    result = torch.zeros_like(x)
    big = x > 0
    result[big] = x[big] / (1 + torch.exp(-x[big]))
    small = torch.exp(x[~big])
    result[~big] = x[~big] * small / (1 + small)
    return result
""",
        "p4-answer": """
def gated_mlp(x, W_gate, W_up, W_down):
    y = torch.zeros_like(x)
    for n in range(W_down.shape[0]):
        g = (x * W_gate[:, n]).sum(-1)
        u = (x * W_up[:, n]).sum(-1)
        y = y + (g / (1 + torch.exp(-g)) * u).unsqueeze(-1) * W_down[n]
    return y

def hidden_width(d_model, multiple_of):
    blocks, rest = divmod(8 * d_model, 3 * multiple_of)
    if rest > 0:
        blocks += 1
    return blocks * multiple_of
""",
        "p5-answer": """
def choose(scores, k):
    weights, experts = [], []
    for row in scores.tolist():
        best = sorted(range(len(row)), key=lambda n: -row[n])[:k]
        powers = [math.exp(row[n] - row[best[0]]) for n in best]
        weights.append([p / sum(powers) for p in powers])
        experts.append(best)
    return torch.tensor(weights, dtype=scores.dtype), torch.tensor(experts)

def mixture(x, W_router, experts, k):
    y = torch.zeros_like(x)
    weights, chosen = choose(x @ W_router, k)
    for t in range(x.shape[0]):
        for j in range(k):
            y[t] += weights[t, j] * experts[int(chosen[t, j])](x[t : t + 1])[0]
    return y

def count_weights(d_model, d_ff, n_experts, k):
    active = total = n_experts * d_model
    for n in range(n_experts):
        total += d_model * d_ff + d_model * d_ff + d_ff * d_model
        if n < k:
            active += d_model * d_ff + d_model * d_ff + d_ff * d_model
    return {"active": active, "total": total}
""",
        "p6-answer": """
right_at = {"gate": -0.5, "up": -0.5}
wrong_at = {"gate": -10.0, "up": 9.95}

def repaired(x, W_gate_up, W_down):
    gate, up = (x @ W_gate_up).chunk(2, dim=-1)
    return (gate * torch.sigmoid(gate) * up) @ W_down
""",
        "p7-answer": """
def experts_met(n_tokens, n_experts, k):
    idle = 1.0
    for token in range(n_tokens):
        idle *= (n_experts - k) / n_experts
    return 1 - idle

read = {1: 12.88, 8: 42.19, 64: 46.70}
n_needed = 1
while experts_met(n_needed, 8, 2) < 0.99:
    n_needed += 1
verdict = "C"
""",
    },
)

TERSE = Submission(
    "demo-terse",
    {
        "p1-answer": "guess = 14",
        "p2-answer": f"d_ff, chosen, weights = {right_width(D_BY_HAND)}, {BEST_TWO}, {WEIGHTS}" + UNITS,
        "p3-answer": """
relu = lambda x: x.clamp(min=0)
gelu = lambda x: x * torch.special.ndtr(x)
silu = lambda x: x * (1 + torch.tanh(x / 2)) / 2
""",
        "p4-answer": """
F = torch.nn.functional
gated_mlp = lambda x, W_gate, W_up, W_down: F.linear(F.silu(F.linear(x, W_gate.T)) * F.linear(x, W_up.T), W_down.T)
hidden_width = lambda d_model, multiple_of: math.ceil(8 * d_model / (3 * multiple_of)) * multiple_of
""",
        "p5-answer": """
def choose(scores, k):
    best, which = scores.softmax(-1).sort(-1, descending=True)
    return torch.softmax((logs := scores.gather(-1, which[:, :k])) - logs[:, :1], -1), which[:, :k]

def mixture(x, W_router, experts, k):
    scores = x @ W_router
    kept = scores.masked_fill(scores < scores.topk(k).values[:, -1:], -torch.inf).softmax(-1)
    return torch.einsum("te,etd->td", kept, torch.stack([expert(x) for expert in experts]))

count_weights = lambda d_model, d_ff, n_experts, k: {
    name: n_experts * d_model + n * 3 * d_model * d_ff for name, n in (("total", n_experts), ("active", k))
}
""",
        "p6-answer": """
right_at, wrong_at = dict(gate=7, up=7), dict(gate=9.99, up=-9.99)
repaired = lambda x, W_gate_up, W_down: suspect(x, W_gate_up.roll(W_down.shape[0], -1), W_down)
""",
        "p7-answer": """
experts_met = lambda n_tokens, n_experts, k: 1 - math.pow((n_experts - k) / n_experts, n_tokens)
whole, swappable = total(preset("mixtral-8x7b")), breakdown(preset("mixtral-8x7b"))["mlp"]
read = {n: (whole - swappable * 0.75**n) / 1e9 for n in (1, 8, 64)}
n_needed, verdict = 17, "C"
""",
    },
)

# takes the two copies for interchangeable, everywhere
EXCHANGED = Submission(
    "demo-exchanged",
    {
        "p2-answer": f"d_ff, chosen, weights = {8 * D_BY_HAND // 768 * 256}, {BEST_TWO}, {WEIGHTS}"
        + written(*[gate * silu(up) for gate, up in zip(GATE, UP)]),
        "p3-answer": """
def relu(x):
    return x * (x > 0)

def gelu(x):
    return 0.5 * x * (1 + torch.tanh((2 / math.pi) ** 0.5 * (x + 0.044715 * x**3)))

def silu(x):
    return x * torch.exp(x) / (1 + torch.exp(x))
""",
        "p4-answer": """
def gated_mlp(x, W_gate, W_up, W_down):
    return (x @ W_gate * torch.nn.functional.silu(x @ W_up)) @ W_down

def hidden_width(d_model, multiple_of):
    return round(8 * d_model / 3 / multiple_of) * multiple_of
""",
        "p6-answer": """
right_at = {"gate": 0, "up": 4}
wrong_at = {"gate": 10, "up": 3}
repaired = suspect
""",
    },
    {"p2": 1, "p3": 1, "p4": 0, "p6": 0},
)

# takes the softmax before the choice, adds up chances, and believes the colleague; holds the visible width by heart
SHARES = Submission(
    "demo-shares",
    {
        "p1-answer": "guess = 16",
        "p2-answer": f"d_ff, chosen = {right_width(D_BY_HAND)}, {BEST_TWO}"
        + UNITS
        + f"weights = {[FUELS[n] / sum(FUELS) for n in BEST_TWO]}",
        "p3-answer": """
def relu(x):
    x[x < 0] = 0
    return x

def gelu(x):
    return x * (1 + torch.erf(x / math.sqrt(2))) / 2

def silu(x):
    return x * torch.sigmoid(x)
""",
        "p4-answer": """
def gated_mlp(x, W_gate, W_up, W_down):
    return (torch.nn.functional.silu(x @ W_gate) * (x @ W_up)) @ W_down

def hidden_width(d_model, multiple_of):
    return {768: 2048, 1000: 2688, 500: 1350, 4: 20}[d_model]
""",
        "p5-answer": """
def choose(scores, k):
    return scores.softmax(-1).topk(k)

def mixture(x, W_router, experts, k):
    weights, chosen = choose(x @ W_router, k)
    y = torch.zeros_like(x)
    for t in range(len(x)):
        for w, n in zip(weights[t], chosen[t]):
            y[t] += w * experts[n](x[t][None])[0]
    return y

def count_weights(d_model, d_ff, n_experts, k):
    expert = 3 * d_model * d_ff
    return {"total": n_experts * expert, "active": k * expert}
""",
        "p7-answer": """
def experts_met(n_tokens, n_experts, k):
    return min(1.0, n_tokens * k / n_experts)

read = {1: 12.88, 8: 46.70, 64: 46.70}
n_needed = 4
verdict = "D"
""",
    },
    {"p1": 0, "p2": 2, "p3": 2, "p4": 2, "p5": 0, "p7": 0},
)


SUBMISSIONS = [
    Submission("demo-perfect"),
    LOOPS,
    TERSE,
    Submission("demo-untouched", marks=None, from_reference=False),
    EXCHANGED,
    SHARES,
    # a bracket that nobody closed, in every answer cell
    Submission("demo-does-not-run", marks=None, wrap="{}\nprint(("),
]
