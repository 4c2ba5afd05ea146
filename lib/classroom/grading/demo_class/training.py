"""The demonstration class of exercise 12: eight submissions."""

from __future__ import annotations

import math

from classroom.checks import training_answers as known
from classroom.grading.demo_class.submission import Submission

# one number at a time
LOOPS = Submission(
    "demo-loops",
    {
        "p1-answer": "guess = 7",
        "p2-answer": f"""
first_loss = -math.log(1 / {known.VOCABULARY})
m, v = 0.1 * {known.DERIVATIVE}, 0.05 * ({known.DERIVATIVE}) ** 2
one_step = {known.WEIGHT} - {known.STEP_RATE} * (m / 0.1 / math.sqrt(v / 0.05) + {known.STEP_DECAY} * {known.WEIGHT})
done = ({known.MIDDLE} - {known.WARMUP}) / ({known.LAST} - {known.WARMUP})
middle_rate = {known.FLOOR} + ({known.PEAK} - {known.FLOOR}) * (1 + math.cos(math.pi * done)) / 2
""",
        "p3-answer": """
def loss(logits, ids, lengths):
    total, n_targets = 0.0, 0
    for row, length in enumerate(lengths):
        for t in range(length - 1):
            scores = logits[row, t].tolist()
            largest = max(scores)
            whole = math.log(sum(math.exp(score - largest) for score in scores)) + largest
            total += whole - scores[int(ids[row, t + 1])]
            n_targets += 1
    return total / n_targets
""",
        "p4-answer": """
def rate(step, peak, n_warmup, n_steps, floor):
    if step < n_warmup:
        return step * (peak / n_warmup)
    if step >= n_steps:
        return floor
    angle = math.pi * (step - n_warmup) / (n_steps - n_warmup)
    return peak - (peak - floor) * math.sin(angle / 2) ** 2

def clip(gradients, limit):
    squares = 0.0
    for gradient in gradients:
        for x in gradient.flatten().tolist():
            squares += x * x
    if squares <= limit**2:
        return gradients
    shorter = []
    for gradient in gradients:
        shorter.append(gradient / math.sqrt(squares) * limit)
    return shorter
""",
        "p5-answer": """
def adamw_step(w, g, m, v, step, lr, decay, beta_1, beta_2, eps):
    new = [torch.zeros_like(w), torch.zeros_like(w), torch.zeros_like(w)]
    for k in range(w.numel()):
        w_k, g_k, m_k, v_k = (x.flatten()[k].item() for x in (w, g, m, v))
        m_k += (1 - beta_1) * (g_k - m_k)
        v_k += (1 - beta_2) * (g_k**2 - v_k)
        w_k -= lr * decay * w_k + lr * m_k / (1 - beta_1**step) / (math.sqrt(v_k / (1 - beta_2**step)) + eps)
        for x, value in zip(new, (w_k, m_k, v_k)):
            x.view(-1)[k] = value
    return new

def groups(named):
    found = {"decay": [], "still": []}
    seen = []
    for name, tensor in named.items():
        if any(tensor is other for other in seen) or not tensor.requires_grad:
            continue
        seen.append(tensor)
        if len(tensor.shape) >= 2:
            found["decay"].append(name)
        else:
            found["still"].append(name)
    return found
""",
        "p6-answer": """
def chunked_loss(states, targets, unembed, n_chunk):
    total, rows, n_targets = 0.0, [], sum(1 for target in targets.tolist() if target != -100)
    for state, target in zip(states, targets.tolist()):  # one row is a chunk that is small enough
        if target == -100:
            rows.append(torch.zeros_like(state))
            continue
        logits = unembed @ state
        p = (logits - logits.max()).exp()
        p = p / p.sum()
        total += float(logits.logsumexp(0) - logits[target])
        rows.append((p @ unembed - unembed[target]) / n_targets)
    return total / n_targets, torch.stack(rows)
""",
        "p7-answer": """
def leaks(lesson, ids, n_vocab):
    logits, targets = lesson(ids)
    found = []
    for row in range(len(targets)):
        leaking = False
        for place in range(len(ids)):
            for token in range(n_vocab):
                changed = ids.clone()
                changed[place] = token
                new_logits, new_targets = lesson(changed)
                if new_targets[row] != targets[row] and not torch.allclose(new_logits[row], logits[row]):
                    leaking = True
        if leaking:
            found.append(row)
    return found

def repaired(ids, embed, W_Q, W_K, W_V, unembed):
    logits = []
    for t in range(len(ids) - 1):
        seen = embed[ids[: t + 1]]
        scores = torch.stack([(seen[t] @ W_Q) @ (row @ W_K) / math.sqrt(W_Q.shape[1]) for row in seen])
        logits.append(unembed @ (seen[t] + scores.softmax(0) @ (seen @ W_V)))
    return torch.stack(logits), ids[1:]
""",
        "p8-answer": """
import random

def choose(n):
    chosen = []
    while len(chosen) < round(0.15 * n):
        place = random.randrange(n)
        if place not in chosen:
            chosen.append(place)
    return chosen

steps = {"masked": check.steps_until(1.8, choose), "all": check.steps_until(1.8, lambda n: list(range(n)))}
reason = "C"
""",
    },
)

# what torch has ready, and autograd
TERSE = Submission(
    "demo-terse",
    {
        "p1-answer": "guess = 1.5",
        "p2-answer": f"""
first_loss, one_step = {known.FIRST_LOSS:.2f}, {known.ONE_STEP:.3f}
middle_rate = {known.MIDDLE_RATE}
""",
        "p3-answer": """
def loss(logits, ids, lengths):
    ones = torch.nn.functional.one_hot(ids[:, 1:], logits.shape[-1]).to(logits.dtype)
    surprises = logits.logsumexp(-1) - torch.einsum("btn,btn->bt", logits, ones)
    return torch.cat([row[: n - 1] for row, n in zip(surprises, lengths)]).mean()
""",
        "p4-answer": """
def rate(step, peak, n_warmup, n_steps, floor):
    angle = math.pi * min(1, max(0, step - n_warmup) / (n_steps - n_warmup))
    return min(1, step / n_warmup if n_warmup else 1) * (floor + (peak - floor) * math.cos(angle / 2) ** 2)

def clip(gradients, limit):
    copies = [torch.nn.Parameter(torch.zeros_like(g)) for g in gradients]
    for copy, g in zip(copies, gradients):
        copy.grad = g.clone()
    torch.nn.utils.clip_grad_norm_(copies, limit)
    return tuple(copy.grad for copy in copies)
""",
        "p5-answer": """
def adamw_step(w, g, m, v, step, lr, decay, beta_1, beta_2, eps):
    m, v = m.lerp(g, 1 - beta_1), v.lerp(g**2, 1 - beta_2)
    size = (v / (1 - beta_2**step)) ** 0.5 + eps
    return (1 - lr * decay) * w - lr / (1 - beta_1**step) * m / size, m, v

def groups(named):
    first = {id(x): name for name, x in reversed(named.items()) if x.requires_grad}.values()
    return {"decay": {n for n in first if named[n].ndim > 1}, "still": {n for n in first if named[n].ndim < 2}}
""",
        "p6-answer": """
def chunked_loss(states, targets, unembed, n_chunk):
    states = states.detach().requires_grad_()
    total = 0
    for x, y in zip(states.split(n_chunk), targets.split(n_chunk)):
        part = torch.nn.functional.cross_entropy(x @ unembed.T, y, reduction="sum") / (targets != -100).sum()
        part.backward()
        total += part.detach()
    return total, states.grad
""",
        "p7-answer": """
def leaks(lesson, ids, n_vocab):
    every = ids.repeat(len(ids), 1)
    every.diagonal().add_(1).remainder_(n_vocab)
    logits, targets = map(torch.stack, zip(*map(lesson, every)))
    seen = (logits != lesson(ids)[0]).any(-1) & (targets != lesson(ids)[1])
    return seen.any(0).nonzero().flatten().tolist()

def repaired(ids, embed, W_Q, W_K, W_V, unembed):
    x = embed[ids[:-1]]
    q, k, v = (x @ W for W in (W_Q, W_K, W_V))
    mixed = torch.nn.functional.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True)[0]
    return torch.einsum("td,nd->tn", x + mixed, unembed), ids[1:]
""",
        "p8-answer": """
choose = lambda n: torch.rand(n).topk(round(0.15 * n)).indices
steps, reason = dict(all=check.steps_until(1.8, range), masked=check.steps_until(1.8, choose)), "C"
""",
    },
)

# means of means, filler counted, every tensor clipped by itself
MEANS = Submission(
    "demo-means",
    {
        "p2-answer": f"""
first_loss = {math.log2(known.VOCABULARY):.2f}
one_step = {known.ONE_STEP}
middle_rate = {known.PEAK / 2}
""",
        "p3-answer": """
def loss(logits, ids, lengths):
    p = logits.softmax(-1).gather(-1, ids[:, 1:, None])
    return -p.log().mean()
""",
        "p4-answer": """
def rate(step, peak, n_warmup, n_steps, floor):
    if step < n_warmup:
        return peak * (step - 1) / n_warmup
    done = (step - n_warmup) / (n_steps - n_warmup)
    return floor + (peak - floor) * (1 + math.cos(math.pi * min(done, 1))) / 2

def clip(gradients, limit):
    return [g * min(1, limit / g.norm()) for g in gradients]
""",
        "p6-answer": """
def chunked_loss(states, targets, unembed, n_chunk):
    losses, gradients = [], []
    for x, y in zip(states.split(n_chunk), targets.split(n_chunk)):
        x = x.clone().requires_grad_()
        loss = torch.nn.functional.cross_entropy(x @ unembed.T, y)
        losses.append(loss.item())
        gradients.append(torch.autograd.grad(loss, x)[0])
    return sum(losses) / len(losses), torch.cat(gradients) / len(losses)
""",
    },
    {"p2": 1, "p3": 1, "p4": 0, "p6": 1},
)

# no hats, decay in the gradient, and a finder that takes the next token for the target
NO_HATS = Submission(
    "demo-no-hats",
    {
        "p5-answer": """
def adamw_step(w, g, m, v, step, lr, decay, beta_1, beta_2, eps):
    g = g + decay * w
    m = beta_1 * m + (1 - beta_1) * g
    v = beta_2 * v + (1 - beta_2) * g**2
    return w - lr * m / (v.sqrt() + eps), m, v

def groups(named):
    return {
        "decay": [name for name in named if name.endswith("weight") or "embed" in name],
        "still": [name for name in named if not (name.endswith("weight") or "embed" in name)],
    }
""",
        "p7-answer": """
def leaks(lesson, ids, n_vocab):
    logits, _ = lesson(ids)
    found = []
    for t in range(len(logits)):
        other = ids.clone()
        other[t + 1] = (ids[t + 1] + 1) % n_vocab
        if not torch.allclose(lesson(other)[0][t], logits[t]):
            found.append(t)
    return found

def repaired(ids, embed, W_Q, W_K, W_V, unembed):
    x = embed[ids[:-1]]
    scores = (x @ W_Q) @ (x @ W_K).T / math.sqrt(W_Q.shape[1])
    hidden = torch.ones(len(x), len(x), dtype=torch.bool).triu()
    return (x + scores.masked_fill(hidden, -math.inf).softmax(-1) @ (x @ W_V)) @ unembed.T, ids[1:]
""",
        "p8-answer": """
def choose(n):
    return range(round(0.15 * n))

steps = {"all": check.steps_until(1.8, range), "masked": 167}
reason = "B"
""",
    },
    {"p5": 0, "p7": 0, "p8": 0},
)


SUBMISSIONS = [
    Submission("demo-perfect"),
    LOOPS,
    TERSE,
    Submission("demo-untouched", marks=None, from_reference=False),
    MEANS,
    NO_HATS,
    # writes what the visible checks expect into the functions
    Submission(
        "demo-visible-numbers",
        {
            "p4-answer": """
def rate(step, peak, n_warmup, n_steps, floor):
    if step <= 4:
        return step / 10
    return 0.1 + 0.15 * (1 + math.cos(math.pi * min(1, (step - 4) / 20)))

def clip(gradients, limit):
    length = torch.cat([g.flatten() for g in gradients]).norm()
    return [g * (1.5 / length) if length > 1.5 else g for g in gradients]
""",
        },
        {"p4": 0},
    ),
    # a merge that nobody resolved: not one answer cell is Python
    Submission("demo-does-not-run", marks=None, wrap="<<<<<<< HEAD\n{}\n=======\n>>>>>>> mine"),
]
