"""The demonstration class of exercise 02: seven submissions."""

from __future__ import annotations

from classroom.checks.attention_answers import FUND, K_1, K_2, V_1, V_2, VALUES, by_hand
from classroom.grading.demo_class.submission import Submission

SIZES = f"\nk_1, k_2, v_1, v_2 = {K_1}, {K_2}, {V_1}, {V_2}"  # what a student reads in problem 2
VECTOR = [round(x, 3) for x in (FUND @ VALUES).tolist()]
# without the root of d_k
RAW, RAW_REPEATED = by_hand([0, 1, 2], 0, 1), by_hand([0, 1, 2, 2], 2, 1)
RAW_ROWS = [[round(x, 3) for x in row.tolist()] for row in (RAW, RAW @ VALUES, RAW_REPEATED)]

# one score, one weight, one row at a time
LOOPS = Submission(
    "demo-loops",
    {
        "p1-answer": "guess = 1",
        "p2-answer": SIZES
        + f"\nfund_vector = {tuple(VECTOR)}"
        + """
powers = [math.exp(score / math.sqrt(2)) for score in (k_1, 0, k_1)]
fund_weights = tuple(p / sum(powers) for p in powers)
powers = [math.exp(score / math.sqrt(2)) for score in (2 * k_1, k_2, 2 * k_1 + k_2, 2 * k_1 + k_2)]
repeated = [p / sum(powers) for p in powers]
""",
        "p3-answer": """
def attend(q, k, v):
    rows = []
    for i in range(q.shape[0]):
        s = [float(q[i] @ k[j]) / math.sqrt(q.shape[1]) for j in range(k.shape[0])]
        e = [math.exp(each - max(s)) for each in s]
        rows.append(sum(e[j] / sum(e) * v[j] for j in range(k.shape[0])))
    return torch.stack(rows)

def attend_many(q, k, v):
    result = torch.zeros(*q.shape[:3], v.shape[3], dtype=q.dtype)
    for b in range(q.shape[0]):
        for n in range(q.shape[1]):
            result[b, n] = attend(q[b, n], k[b, n], v[b, n])
    return result
""",
        "p4-answer": """
def self_attention(x, W_Q, W_K, W_V, W_O):
    return torch.stack([attend(text @ W_Q, text @ W_K, text @ W_V) @ W_O for text in x])

def one_matrix(W_Q, W_K):
    d, d_k = W_Q.shape
    M = torch.zeros(d, d, dtype=W_Q.dtype)
    for m in range(d):
        for n in range(d):
            M[m, n] = sum(W_Q[m, c] * W_K[n, c] for c in range(d_k)) / math.sqrt(d_k)
    return M
""",
        "p5-answer": """
def jacobian(a):
    n = a.shape[-1]
    J = torch.zeros(*a.shape, n, dtype=a.dtype)
    for i in range(n):
        for j in range(n):
            J[..., i, j] = a[..., i] * (int(i == j) - a[..., j])
    return J

def trace(a):
    J = jacobian(a)
    return sum(J[..., i, i] for i in range(a.shape[-1]))

def lone(gap, n_keys):
    scores = [gap] + (n_keys - 1) * [0]
    powers = [math.exp(s - gap) for s in scores]
    return powers[0] / sum(powers)

needed = {}
for name, gap in (("divided", 1), ("raw", 8)):
    n = 1
    while lone(gap, n) >= 0.5:
        n += 1
    needed[name] = n
""",
        "p6-answer": """
fault = {"third": "E", "second": "C", "first": "A"}
harmless = {"first": 12, "second": 1, "third": int(math.log(torch.finfo(torch.float64).max))}

def exposes(attention):
    for factor in (0.5, 1e3):
        x = torch.arange(10).double().reshape(5, 2).sin() * factor
        Q, K, V = torch.eye(2, 3).double(), torch.ones(2, 3).double().triu(), torch.tensor([[1.0, 2], [-3, 1]]).double()
        gap = attention(x, Q, K, V) - attend(x @ Q, x @ K, x @ V)
        if not gap.abs().max() < 1e-6:
            return True
    return False
""",
        "p7-answer": """
swapped, moved = tokens[[0, 3, 2, 1, 4, 5]], {}
for name, causal, n_layers in (("free", 0, 1), ("causal", 1, 1), ("two free", 0, 2), ("two causal", 1, 2)):
    gap = (through(tokens, causal, n_layers) - through(swapped, causal, n_layers)).abs().sum(1)
    moved[name] = [n for n in range(6) if gap[n] > 1e-9]
distinct = {}
for text in ("aaaaa", "baaaa", "aaaab"):
    x = tokens[[0 if token == "a" else 1 for token in text]]
    distinct[text] = [len(through(x, causal, 1).mul(1e9).div(1e3).round().unique(dim=0)) for causal in (False, True)]
verdict = "C"
""",
    },
)

TERSE = Submission(
    "demo-terse",
    {
        "p1-answer": "guess = 0.0027",
        "p2-answer": SIZES
        + """
X, Q = (torch.tensor(rows).double() for rows in ([[1, 0], [0, 1], [1, 1]], [[1, 0], [1, 1]]))
K, V = (torch.tensor(rows).double() for rows in ([[k_1, 0], [0, k_2]], [[v_1, 0], [0, v_2]]))
fund_weights = (X[0] @ Q @ K.T @ X.T / 2**0.5).softmax(0).tolist()
fund_vector = (torch.tensor(fund_weights).double() @ X @ V).tolist()
repeated = (X[2] @ Q @ K.T @ X[[0, 1, 2, 2]].T / 2**0.5).softmax(0).tolist()
""",
        "p3-answer": "attend = attend_many = lambda q, k, v: torch.nn.functional.scaled_dot_product_attention(q, k, v)",
        "p4-answer": """
one_matrix = lambda W_Q, W_K: torch.einsum("mk,nk->mn", W_Q, W_K) * W_Q.shape[-1] ** -0.5
self_attention = lambda x, W_Q, W_K, W_V, W_O: (x @ one_matrix(W_Q, W_K) @ x.mT).softmax(-1) @ x @ W_V @ W_O
""",
        "p5-answer": """
needed = {"raw": math.floor(math.exp(8)) + 2, "divided": math.floor(math.e) + 2}
jacobian = lambda a: torch.diag_embed(a) - torch.einsum("...i,...j->...ij", a, a)
trace = lambda a: jacobian(a).diagonal(dim1=-2, dim2=-1).sum(-1)
lone = lambda gap, n_keys: torch.sigmoid(torch.tensor(gap - math.log(max(n_keys - 1, 1e-300))).double())
""",
        "p6-answer": """
fault, harmless = dict(zip(("first", "second", "third"), "ACE")), dict(first=12, second=1, third=709)

def exposes(attention):
    x, Q, K, V = torch.ones(3, 8).double().cumsum(0), *torch.rand(3, 8, 5).double()
    x[:, 1:5] = torch.rand(3, 4).double()
    right = lambda x: self_attention(x[None], Q, K, V, torch.eye(5).double())[0]
    return not all(torch.allclose(attention(s * x, Q, K, V), right(s * x)) for s in (0.3, 99))
""",
        "p7-answer": """
moved = {"free": {1, 3}, "causal": (1, 2, 3), "two free": {3, 1}, "two causal": range(1, 6)}
moved = {name: list(places) for name, places in moved.items()}
distinct, verdict = dict(aaaaa=(1, 1), baaaa=(2, 5), aaaab=(2, 2)), "C"
""",
    },
)

# writes for two axes and counts them from the front; never divides
FROM_THE_FRONT = Submission(
    "demo-from-the-front",
    {
        "p2-answer": "fund_weights, fund_vector, repeated = " + ", ".join(map(str, RAW_ROWS)),
        "p3-answer": """
def attend(q, k, v):
    return torch.softmax(q @ k.T / math.sqrt(q.shape[1]), 1) @ v

def attend_many(q, k, v):
    return torch.softmax(q @ k.mT / math.sqrt(q.shape[1]), 1) @ v
""",
        "p4-answer": """
def self_attention(x, W_Q, W_K, W_V, W_O):
    return torch.softmax(x @ W_Q @ (x @ W_K).mT / math.sqrt(x.shape[2]), 2) @ (x @ W_V) @ W_O

def one_matrix(W_Q, W_K):
    return W_Q @ W_K.T
""",
        "p6-answer": """
fault = {"first": "A", "second": "C", "third": "E"}
harmless = {"first": 144, "second": 1, "third": 709}

def exposes(attention):
    x, W = torch.randn(4, 4).double(), torch.randn(4, 4).double()
    return not torch.allclose(attention(x, W, W, W), attend(x @ W, x @ W, x @ W))
""",
    },
    {"p2": 0, "p3": 2, "p4": 0, "p6": 1},
)

# exponentials as they stand, all along the first axis; believes the colleague of the last problem
BARE = Submission(
    "demo-bare",
    {
        "p1-answer": "guess = 75",
        "p3-answer": """
def attend(q, k, v):
    powers = torch.exp(q @ k.T / math.sqrt(q.shape[1]))
    return powers / powers.sum(1, keepdim=True) @ v

def attend_many(q, k, v):
    q /= math.sqrt(q.shape[-1])
    return torch.softmax(q @ k.mT, -1) @ v
""",
        "p4-answer": """
def self_attention(x, W_Q, W_K, W_V, W_O):
    return x + torch.softmax(x @ W_Q @ (x @ W_K).mT / math.sqrt(W_Q.shape[1]), -1) @ (x @ W_V) @ W_O

def one_matrix(W_Q, W_K):
    return W_Q @ W_K.T / math.sqrt(W_Q.shape[1])
""",
        "p5-answer": """
needed = {"raw": 2981, "divided": 3}

def jacobian(a):
    return torch.diag_embed(a * (1 - a))

def trace(a):
    return jacobian(a).sum((-2, -1))

def lone(gap, n_keys):
    return math.exp(gap) / (math.exp(gap) + n_keys - 1)
""",
        "p7-answer": """
moved = {"free": [1, 3], "causal": [1, 2, 3, 4, 5], "two free": [1, 3], "two causal": [1, 2, 3, 4, 5]}
distinct = {"aaaaa": [1, 5], "baaaa": [2, 5], "aaaab": [2, 5]}
verdict = "A"
""",
    },
    {"p1": 0, "p3": 0, "p4": 1, "p5": 1, "p6": 2, "p7": 0},  # its test is built on attend
)


SUBMISSIONS = [
    Submission("demo-perfect"),
    LOOPS,
    TERSE,
    Submission("demo-untouched", marks=None, from_reference=False),
    FROM_THE_FRONT,
    BARE,
    # an indentation that fits nowhere, in every answer cell
    Submission("demo-does-not-run", marks=None, wrap="if True:\nguess = 1\n{}"),
]
