"""The demonstration class of exercise 05: eight submissions."""

from __future__ import annotations

from classroom.checks.positions_slips import EVEN_ODD, HALVES, ROOT, SPEEDS, WAVE, WIDTH
from classroom.grading.demo_class.submission import Submission

SIZES = f"\nwidth, base = {WIDTH}, {ROOT ** (WIDTH // 2)}"  # what a student reads in problem 2

LOOPS = Submission(
    "demo-loops",
    {
        "p1-answer": "guess = 6.3",
        "p2-answer": SIZES
        + f"\nwavelength, halves = {WAVE:.4g}, {[list(reversed(pair)) for pair in reversed(HALVES)]}"
        + """
speeds = []
for n in range(width // 2):
    speeds.append(base ** (-2 * n / width))
even_odd = []
for n in range(width // 2):
    even_odd.append([2 * n, 2 * n + 1])
""",
        "p3-answer": """
def sinusoid_rows(n_positions, d_model, base):
    table = []
    for p in range(n_positions):
        row = []
        for n in range(d_model // 2):
            angle = p / base ** (2 * n / d_model)
            row.append(math.sin(angle))
            row.append(math.cos(angle))
        table.append(row)
    return torch.tensor(table, dtype=torch.float64)

def shift_matrix(k, d_model, base):
    # solve for it: d rows at positions 0, 1, ... and the rows k further on
    speeds = [base ** (-2 * n / d_model) for n in range(d_model // 2)]
    M = torch.zeros(d_model, d_model, dtype=torch.float64)
    for n in range(d_model // 2):
        at = torch.tensor([[0.0, 1.0], [1.0, 0.0]], dtype=torch.float64)  # the hand at angles 0 and a quarter turn
        after = []
        for quarter in (0, 1):
            angle = k * speeds[n] + quarter * math.pi / 2
            after.append([math.sin(angle), math.cos(angle)])
        M[2 * n : 2 * n + 2, 2 * n : 2 * n + 2] = torch.linalg.solve(at, torch.tensor(after, dtype=torch.float64))
    return M
""",
        "p4-answer": """
def turn(x, positions, base, pairing):
    d = x.shape[-1]
    done = x.clone()
    for t in range(len(positions)):
        for n in range(d // 2):
            if pairing == "halves":
                i, j = n, n + d // 2
            else:
                i, j = 2 * n, 2 * n + 1
            angle = int(positions[t]) / base ** (2 * n / d)
            done[:, :, t, i] = x[:, :, t, i] * math.cos(angle) - x[:, :, t, j] * math.sin(angle)
            done[:, :, t, j] = x[:, :, t, j] * math.cos(angle) + x[:, :, t, i] * math.sin(angle)
    return done
""",
        "p5-answer": """
def convert(weight, n_heads, to):
    d_head = len(weight) // n_heads
    result = torch.zeros_like(weight)
    for h in range(n_heads):
        for n in range(d_head // 2):
            for part in (0, 1):
                neighbours, halves = h * d_head + 2 * n + part, h * d_head + n + part * d_head // 2
                if to == "halves":
                    result[halves] = weight[neighbours]
                else:
                    result[neighbours] = weight[halves]
    return result
""",
        "p6-answer": """
def is_relative(rotation, d_head):
    for trial in range(5):
        x = torch.randn(2, d_head, dtype=torch.float64)
        for distance in range(0, 4096, 512):
            last = None
            for r in range(0, 4096 - distance, 256):
                y = rotation(x, torch.tensor([r + distance, r]))
                score = sum(y[0] * y[1]).item()
                if last is not None and abs(score - last) > 0.0001:
                    return False
                last = score
    return True
""",
        "p7-answer": """
right_one = "C"
verdicts = {}
for letter in heads:
    f = heads[letter]
    q, k, one = torch.randn(2, 2), torch.randn(2, 2), torch.eye(2)
    def weights(p, r, q=q, k=k, one=one, f=f):
        return f(q, k, one, torch.tensor([p, r]))
    if (weights(0, 3) - weights(100, 103)).abs().max() > 1e-9:
        verdicts[letter] = "values"
    elif (weights(7, 7) - torch.softmax(q @ k.T / 2**0.5, -1)).abs().max() > 1e-9:
        verdicts[letter] = "shifted"
    else:
        turned_back = turn(torch.stack([q, k])[None], torch.tensor([5, 1]), 10000, "halves")[0]
        if (weights(5, 1) - torch.softmax(turned_back[0] @ turned_back[1].T / 2**0.5, -1)).abs().max() > 1e-9:
            verdicts[letter] = "sign"
        else:
            q4, k4 = torch.randn(2, 4, 4)
            both = turn(torch.stack([q4, k4])[None], torch.tensor([0, 1, 5, 9]), 10000, "halves")[0]
            good = torch.softmax(both[0] @ both[1].T / 2, -1)
            got = f(q4, k4, torch.eye(4), torch.tensor([0, 1, 5, 9]))
            verdicts[letter] = "right" if (got - good).abs().max() < 1e-9 else "exponent"
""",
        "p8-answer": """
def unfinished(d_head, base, n_context):
    count = 0
    for n in range(d_head // 2):
        speed = 1 / base ** (2 * n / d_head)
        if n_context * speed < 2 * math.pi:
            count = count + 1
    return count

def base_for(d_head, n_context):
    low, high = 0.0, 1e30
    for _ in range(400):
        middle = (low * high) ** 0.5 if low > 0 else high / 2
        if 2 * math.pi * middle ** (1 - 2 / d_head) < n_context:
            low = middle
        else:
            high = middle
    return high
""",
    },
)

TERSE = Submission(
    "demo-terse",
    {
        "p1-answer": "guess = 10**9",
        "p2-answer": f"h, root = {WIDTH // 2}, {ROOT}"
        + """
speeds, wavelength = [float(root) ** -n for n in range(h)], 2 * root ** (h - 1) * math.pi
halves, even_odd = tuple(zip(range(h), range(h, 2 * h))), tuple(zip(range(0, 2 * h, 2), range(1, 2 * h, 2)))
""",
        "p3-answer": """
def hands(steps, d, base):
    return torch.polar(torch.tensor(1.0), steps * base ** (-torch.arange(0, d, 2) / d))

def sinusoid_rows(n_positions, d_model, base):
    z = hands(torch.arange(n_positions)[:, None], d_model, base)
    return torch.stack([z.imag, z.real], -1).flatten(1)

def shift_matrix(k, d_model, base):
    z = hands(k, d_model, base)
    return torch.block_diag(*torch.stack([z.real, -z.imag, z.imag, z.real], -1).reshape(-1, 2, 2))
""",
        "p4-answer": """
def turn(x, positions, base, pairing):
    if pairing == "halves":
        mixed = x.unflatten(-1, (2, -1)).mT
        return turn(mixed.flatten(-2), positions, base, "even-odd").unflatten(-1, (-1, 2)).mT.flatten(-2)
    z = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
    return torch.view_as_real(z * hands(positions[:, None], x.shape[-1], base)).flatten(-2)
""",
        "p5-answer": """
convert = lambda weight, n_heads, to: (
    weight.unflatten(0, (n_heads, *((-1, 2) if to == "halves" else (2, -1)))).transpose(1, 2).flatten(0, 2)
)
""",
        "p6-answer": """
def is_relative(rotation, d_head):
    x, at = torch.randn(2, d_head).repeat(60, 1), torch.randint(4096 - 9, (60,))
    pairs = rotation(x, torch.stack([at + 9, at], 1).flatten()).unflatten(0, (-1, 2))
    return torch.einsum("pd,pd->p", *pairs.unbind(1)).std() < 1e-7
""",
        "p7-answer": """
right_one, words = "C", ("values", "exponent", "right", "shifted", "sign")
verdicts = dict(zip("ABCDE", words))
""",
        "p8-answer": """
unfinished = lambda d_head, base, n_context: int(
    (2 * math.pi * base ** (torch.arange(0, d_head, 2) / d_head) > n_context).sum()
)
base_for = lambda d_head, n_context: math.exp(math.log(n_context / math.tau) / (1 - 2 / d_head))
""",
    },
)

# knows one pairing only, and counts from 1
ONE_PAIRING = Submission(
    "demo-one-pairing",
    {
        "p2-answer": f"""
speeds, wavelength = {SPEEDS}, {WAVE:.4g}
halves, even_odd = {[[(a + 1, b + 1) for a, b in pairs] for pairs in (HALVES, EVEN_ODD)]}
""",
        "p3-answer": """
def sinusoid_rows(n_positions, d_model, base):
    angles = torch.arange(1, n_positions + 1)[:, None] * base ** (-torch.arange(0, d_model, 2) / d_model)
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1)

def shift_matrix(k, d_model, base):
    angles = k * base ** (-torch.arange(0, d_model, 2) / d_model)
    return torch.block_diag(*[torch.tensor([[a.cos(), a.sin()], [-a.sin(), a.cos()]]) for a in angles])
""",
        "p4-answer": """
def turn(x, positions, base, pairing):
    angles = positions[:, None] * base ** (-torch.arange(0, x.shape[-1], 2) / x.shape[-1])
    first, second = x.chunk(2, -1)
    return torch.cat([first * angles.cos() - second * angles.sin(), second * angles.cos() + first * angles.sin()], -1)
""",
        "p5-answer": """
def convert(weight, n_heads, to):
    if to == "halves":
        return torch.cat([weight[0::2], weight[1::2]])
    return weight.view(n_heads, 2, -1, weight.shape[1]).transpose(1, 2).reshape(weight.shape)
""",
    },
    {"p2": 1, "p3": 0, "p4": 1, "p5": 1},
)

# trusts whatever runs: a test that compares with ==, and guesses at the heads
GULLIBLE = Submission(
    "demo-gullible",
    {
        "p6-answer": """
def is_relative(rotation, d_head):
    x = torch.randn(2, d_head)
    first, second = rotation(x, torch.tensor([5, 2])), rotation(x, torch.tensor([1006, 1003]))
    return bool((first[0] @ first[1]) == (second[0] @ second[1]))
""",
        "p7-answer": """
right_one = "C"
verdicts = {"A": "values", "B": "sign", "C": "right", "D": "shifted", "E": "exponent"}
""",
        "p8-answer": """
def unfinished(d_head, base, n_context):
    return sum(base ** (2 * pair / d_head) > n_context for pair in range(d_head // 2))

def base_for(d_head, n_context):
    return n_context / (2 * math.pi)
""",
    },
    {"p6": 0, "p7": 1, "p8": 0},
)

# the visible numbers typed in, and nothing else
TYPED = Submission(
    "demo-typed",
    {
        "p1-answer": "",
        "p3-answer": """
def sinusoid_rows(n_positions, d_model, base):
    angles = torch.arange(7)[:, None] * 100 ** (-torch.arange(0, 10, 2) / 10)
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1)
""",
        "p5-answer": """
def convert(weight, n_heads, to):
    order = [h * 8 + f for h in range(3) for f in (0, 2, 4, 6, 1, 3, 5, 7)]
    back = [h * 8 + f for h in range(3) for f in (0, 4, 1, 5, 2, 6, 3, 7)]
    return weight[order if to == "halves" else back]
""",
        "p8-answer": """
def unfinished(d_head, base, n_context):
    return 11 if d_head == 64 else 29

def base_for(d_head, n_context):
    return (n_context / (2 * math.pi)) ** (d_head / (d_head - 2))
""",
    },
    {"p1": 0, "p3": 0, "p5": 0, "p8": 1},
)


SUBMISSIONS = [
    Submission("demo-perfect"),
    LOOPS,
    TERSE,
    Submission("demo-untouched", marks=None, from_reference=False),
    ONE_PAIRING,
    GULLIBLE,
    TYPED,
    # a merge that nobody resolved: not one answer cell is Python
    Submission(
        "demo-does-not-run",
        marks=None,
        wrap="<<<<<<< HEAD\n{}\n=======\n>>>>>>> mine",
    ),
]
