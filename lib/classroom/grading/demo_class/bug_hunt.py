"""The demonstration class of exercise 16: eight submissions."""

from __future__ import annotations

from classroom.checks.bug_hunt_slips import EPS, INSIDE, OUTSIDE, SPREAD, TIMES
from classroom.grading.demo_class.submission import Submission

# what is right is found by loops of their own; numbers are drawn from torch's own generator, without a seed
LOOPS = Submission(
    "demo-loops",
    {
        "p1-answer": "guess = 0",
        "p2-answer": f"""
leaked_weight = {TIMES / (TIMES + 1):.4f}
inside = {INSIDE:.4f}
outside = {OUTSIDE:.3f}
""",
        "p3-answer": """
def test_attention(candidate):
    for B, T, d, h, d_k, d_v, factor in [(3, 1, 4, 2, 5, 6, 1), (3, 8, 4, 2, 5, 6, 1), (2, 64, 4, 3, 5, 6, 1),
                                         (3, 8, 4, 2, 5, 6, 1), (2, 6, 5, 3, 4, 7, 1000)]:
        x = factor * torch.randn(B, T, d).double()
        W_Q, W_K = torch.randn(d, h * d_k).double(), torch.randn(d, h * d_k).double()
        W_V = torch.randn(d, h * d_v).double()
        copies = [t.clone() for t in (x, W_Q, W_K, W_V)]
        out = candidate(x, W_Q, W_K, W_V, h)
        for old, new in zip(copies, (x, W_Q, W_K, W_V)):
            if not torch.equal(old, new):
                raise ValueError("an input was changed")
        if tuple(out.shape) != (B, T, h * d_v):
            raise ValueError("wrong shape")
        for b in range(B):
            for head in range(h):
                q = x[b] @ W_Q[:, head * d_k : (head + 1) * d_k]
                k = x[b] @ W_K[:, head * d_k : (head + 1) * d_k]
                v = x[b] @ W_V[:, head * d_v : (head + 1) * d_v]
                for i in range(T):
                    scores = k[: i + 1] @ q[i] / math.sqrt(d_k)
                    weights = (scores - scores.max()).exp()
                    expected = (weights / weights.sum()) @ v[: i + 1]
                    got = out[b, i, head * d_v : (head + 1) * d_v]
                    if not ((got - expected).abs().max() < 1e-6 * factor):
                        raise ValueError(f"wrong at text {b}, position {i}, head {head}")
""",
        "p4-answer": """
def test_norm(candidate):
    for eps in (0.5, 0.001, 1e-5):
        for offset in (0, 3, -1e6):
            x = torch.randn(4, 3).double() + offset
            weight, bias = torch.randn(3).double(), torch.randn(3).double()
            got = candidate(x, weight, bias, eps)
            for row, result in zip(x, got):
                mean = sum(row) / 3
                variance = sum((n - mean) ** 2 for n in row) / 3
                for j in range(3):
                    expected = weight[j] * (row[j] - mean) / math.sqrt(variance + eps) + bias[j]
                    assert abs(expected - result[j]) < 1e-5
""",
        "p5-answer": """
def test_memory(candidate):
    for window in (1, 2, 5):
        memories = [candidate(window), candidate(window)]
        for text in (8, 1, 5, 3):
            past = [[], []]
            q, k, v = torch.zeros(3).double(), torch.zeros(3).double(), torch.zeros(2).double()
            for n in range(text):
                for memory, rows in zip(memories, past):
                    q.copy_(torch.randn(3))
                    k.copy_(torch.randn(3))
                    v.copy_(torch.randn(2))
                    rows.append((k.tolist(), v.tolist()))
                    want = [0.0, 0.0]
                    query = q.tolist()
                    kept = rows[-window:]
                    parts = [math.exp(sum(a * b for a, b in zip(query, key)) / math.sqrt(3)) for key, _ in kept]
                    for part, (_, value) in zip(parts, kept):
                        want = [w + part / sum(parts) * number for w, number in zip(want, value)]
                    got = memory.step(q, k, v).tolist()
                    assert q.tolist() == query and k.tolist() == rows[-1][0]
                    assert all(abs(a - b) < 1e-6 for a, b in zip(got, want))
            for memory in memories:
                memory.reset()
""",
        "p6-answer": """
def test_layers(candidate):
    B, T, d, d_k = 3, 4, 6, 2
    layers = []
    for layer in range(3):
        layers.append([torch.randn(6, 2).double() / 2, torch.randn(6, 2).double() / 2, torch.randn(6, 6).double() / 2])
    x = torch.randn(B, T, d).double()
    out, maps = candidate(x.clone(), layers)
    for b in range(B):
        rows = x[b]
        for (W_Q, W_K, W_V), shown in zip(layers, maps):
            new = []
            for i in range(T):
                weights = ((rows[: i + 1] @ W_K) @ (rows[i] @ W_Q) / math.sqrt(d_k)).softmax(0)
                assert (shown[b, i, : i + 1] - weights).abs().max() < 1e-6 and (shown[b, i, i + 1 :] == 0).all()
                new.append(rows[i] + weights @ (rows[: i + 1] @ W_V))
            rows = torch.stack(new)
        assert (out[b] - rows).abs().max() < 1e-6
""",
        "p7-answer": """
def score(test, right, wrong):
    for version in right:
        try:
            test(version)
        except Exception:
            return 0.0
    rejected = 0
    for version in wrong:
        try:
            test(version)
        except Exception:
            rejected += 1
    return rejected / len(wrong)

scores = {}
for name in ["as it is", "20 seeds", "sizes differ", "huge scores"]:
    scores[name] = round(score(colleagues_tests[name], right_versions, wrong_versions), 3)
reason = "B"
""",
    },
)

# torch's own functions, einsum, numpy, and invariants in place of numbers where they do
TERSE = Submission(
    "demo-terse",
    {
        "p1-answer": "guess = 99.5",
        "p2-answer": f"leaked_weight = torch.tensor([-1e4, math.log({TIMES}) - 1e4]).double().softmax(0)[1]\n"
        f"inside, outside = {SPREAD} / ({SPREAD}**2 + {EPS}) ** 0.5, {SPREAD} / ({SPREAD} + {EPS})",
        "p3-answer": """
from torch.nn.functional import scaled_dot_product_attention

def test_attention(candidate, B=3, d=2, h=5):
    for seed, (T, times) in enumerate([(1, 1.0), (9, 1.0), (9, 900.0), (64, 1.0), (9, 1.0)]):
        torch.manual_seed(seed)
        given = torch.randn(B, T, d) * times, torch.randn(d, h * 4), torch.randn(d, h * 4), torch.randn(d, h * 6)
        given = [part.double() for part in given]
        before = torch.cat([part.flatten() for part in given])
        q, k, v = (torch.einsum("btd,dhw->bhtw", given[0], W.view(d, h, -1)) for W in given[1:])
        right = scaled_dot_product_attention(q, k, v, is_causal=True).permute(0, 2, 1, 3).reshape(B, T, -1)
        out = candidate(*given, h)
        assert out.shape == right.shape and torch.allclose(out, right, rtol=1e-6, atol=1e-6)
        assert before.equal(torch.cat([part.flatten() for part in given]))
""",
        "p4-answer": """
def test_norm(candidate):
    x, (weight, bias) = torch.tensor([[1e6 + 1, 1e6, 1e6], [0.0, 2.0, 9.0]]).double(), torch.randn(2, 3).double() + 3
    for eps in (0.4, 1e-6):
        right = torch.nn.functional.layer_norm(x, [3], weight, bias, eps)
        return_value = candidate(x, weight, bias, eps)
        assert torch.allclose(return_value, right, atol=1e-5)
""",
        "p5-answer": """
def test_memory(candidate):
    def new(n): return torch.randn(n, 3).double(), torch.randn(n, 3).double(), torch.randn(n, 5).double()

    def run(memory, rows, window):
        q, k, v = rows
        for n in range(len(q)):
            given = [part[n].clone() for part in rows]
            out = memory.step(*given)
            assert all(g.equal(part[n]) for g, part in zip(given, rows))
            [g.zero_() for g in given]
            seen = slice(max(0, n + 1 - window), n + 1)
            weights = torch.softmax(k[seen] @ q[n] * 3**-0.5, 0)
            assert torch.allclose(out, torch.einsum("n,nv->v", weights, v[seen]))
            yield

    for window in (4, 1):
        one, two = candidate(window), candidate(window)
        for n in (6, 3):
            [*zip(run(one, new(n), window), run(two, new(n), window))]
            one.reset(), two.reset()
""",
        "p6-answer": """
def test_layers(candidate):
    x, layers = torch.randn(2, 5, 3).double(), torch.randn(3, 3, 3, 3).double().div(2)
    out, maps = candidate(x, [(q[:, :2], k[:, :2], v) for q, k, v in layers])
    for (W_Q, W_K, W_V), a in zip(layers, maps):
        right = torch.einsum("bid,dk,ek,bje->bij", x, W_Q[:, :2], W_K[:, :2], x) / 2**0.5
        assert torch.allclose(a, right.exp().tril() / right.exp().tril().sum(-1, True))
        x = x + a @ x @ W_V
    assert torch.allclose(out, x)
""",
        "p7-answer": """
def fails(test, version):
    try:
        test(version)
    except BaseException as error:
        return True
    return False

score = lambda test, right, wrong: (
    not any(fails(test, r) for r in right)
) * sum(fails(test, w) for w in wrong) / len(wrong)
scores, reason = {n: score(t, right_versions, wrong_versions) for n, t in colleagues_tests.items()}, "B"
""",
    },
)

# right numbers, but one call with all sizes alike and everyday scores
ONE_SIZE = Submission(
    "demo-one-size",
    {
        "p3-answer": """
def test_attention(candidate):
    given = [torch.randn(4, 4, 4).double()] + [torch.randn(4, 16).double() for _ in range(3)]
    right = join(attention(*(split(given[0] @ W, 4) for W in given[1:]), causal=True))
    torch.testing.assert_close(candidate(*given, 4), right)
""",
        "p4-answer": """
def test_norm(candidate):
    x, weight, bias = torch.randn(2, 4, 4).double(), torch.ones(4).double(), torch.zeros(4).double()
    torch.testing.assert_close(candidate(x, weight, bias, 1e-5), layer_norm(x, weight, bias, 1e-5))
""",
        "p5-answer": """
def test_memory(candidate):
    memory, k, v = candidate(4), torch.randn(4, 4).double(), torch.randn(4, 4).double()
    for n in range(4):
        out = memory.step(k[n], k[n], v[n])
        torch.testing.assert_close(out, (k[: n + 1] @ k[n] / 2).softmax(0) @ v[: n + 1])
""",
        "p6-answer": """
def test_layers(candidate):
    x, W = torch.randn(4, 4, 4).double(), torch.randn(3, 4, 4).double()
    out, maps = candidate(x, [tuple(W)])
    a = ((x @ W[0]) @ (x @ W[1]).mT / 2).masked_fill(torch.ones(4, 4).triu(1).bool(), -math.inf).softmax(-1)
    torch.testing.assert_close(maps[0], a)
    torch.testing.assert_close(out, x + a @ x @ W[2])
""",
    },
    {"p3": 2, "p4": 0, "p5": 0, "p6": 1},
)

# shapes, in the manner of problem 1
SHAPES = Submission(
    "demo-shapes",
    {
        "p3-answer": """
def test_attention(candidate):
    for n in (1, 7, 64):
        out = candidate(torch.randn(2, n, 5), torch.randn(5, 12), torch.randn(5, 12), torch.randn(5, 18), 3)
        assert out.shape == (2, n, 18)
""",
        "p4-answer": """
def test_norm(candidate):
    assert candidate(torch.randn(2, 3, 5), torch.randn(5), torch.randn(5), 1e-5).shape == (2, 3, 5)
""",
        "p5-answer": """
def test_memory(candidate):
    for window in (1, 3):
        memory = candidate(window)
        for n in range(5):
            assert memory.step(torch.randn(4), torch.randn(4), torch.randn(6)).shape == (6,)
""",
        "p6-answer": """
def test_layers(candidate):
    out, maps = candidate(torch.randn(2, 7, 5), 3 * [(torch.randn(5, 3), torch.randn(5, 3), torch.randn(5, 5))])
    assert out.shape == (2, 7, 5) and [m.shape for m in maps] == 3 * [(2, 7, 7)]
""",
        "p7-answer": """
def score(test, right, wrong):
    rejected = 0
    for version in wrong:
        try:
            test(version)
        except AssertionError:
            rejected += 1
    return rejected / len(wrong)

scores = {name: 0.467 for name in colleagues_tests}
reason = "A"
""",
    },
    {"p3": 0, "p4": 0, "p5": 0, "p6": 0, "p7": 0},
)

# tests that reject right versions, give back a verdict, or do nothing
STRICT = Submission(
    "demo-strict",
    {
        "p2-answer": f"leaked_weight = 0\ninside, outside = {OUTSIDE:.3f}, {INSIDE:.3f}",
        "p3-answer": """
def test_attention(candidate):
    given = [torch.randn(shape).double() for shape in [(2, 7, 5), (5, 12), (5, 12), (5, 18)]]
    assert torch.equal(candidate(*given, 3), join(attention(*(split(given[0] @ W, 3) for W in given[1:]), causal=True)))
""",
        "p4-answer": """
def test_norm(candidate):
    x, weight, bias = torch.randn(2, 5).double(), torch.randn(5).double(), torch.randn(5).double()
    return torch.allclose(candidate(x, weight, bias, 0.3), layer_norm(x, weight, bias, 0.3))
""",
        "p5-answer": """
def test_memory(candidate):
    raise AssertionError("no memory can be trusted")
""",
        "p6-answer": """
def test_layers(candidate):
    pass
""",
        "p7-answer": """
def score(test, right, wrong):
    def rejected(version):
        try:
            test(version)
        except Exception:
            return 1
        return 0
    return sum(map(rejected, wrong)) / len(wrong)

scores = {name: score(test, right_versions, wrong_versions) for name, test in colleagues_tests.items()}
reason = "D"
""",
    },
    {"p2": 0, "p3": 0, "p4": 0, "p5": 0, "p6": 0, "p7": 1},
)


SUBMISSIONS = [
    Submission("demo-perfect"),
    LOOPS,
    TERSE,
    Submission("demo-untouched", marks=None, from_reference=False),
    ONE_SIZE,
    SHAPES,
    STRICT,
    # a merge that nobody resolved: not one answer cell is Python
    Submission("demo-does-not-run", marks=None, wrap="<<<<<<< HEAD\n{}\n=======\n>>>>>>> mine"),
]
