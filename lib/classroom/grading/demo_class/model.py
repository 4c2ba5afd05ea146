"""The demonstration class of exercise 08: seven submissions."""

from __future__ import annotations

from classroom.checks.model_answers import (
    AROUND,
    AT_THE_END,
    D_FF,
    D_MODEL,
    IN_ATTENTION,
    N_HEADS,
    N_KV_HEADS,
    N_VOCAB,
    QUERIES,
    B,
    T,
)
from classroom.grading.demo_class.submission import Submission

# a class, closures and loops
LOOPS = Submission(
    "demo-loops",
    {
        "p1-answer": "guess = 0.01",
        "p2-answer": f"B, T, d, h, h_kv = {B}, {T}, {D_MODEL}, {N_HEADS}, {N_KV_HEADS}\n"
        f"d_ff, n_vocab = {D_FF}, {N_VOCAB}"
        + """
in_attention = {}
in_attention["queries"] = (B, h, T, d // h)
in_attention["keys"] = (B, h_kv, T, d // h)
in_attention["weights"] = (B, h, T, T)
in_attention["joined"] = (B, T, d)
around = {"leaves": [B, T, d], "hidden": [B, T, d_ff]}
at_the_end = {"logits": (B, T, n_vocab), "last_only": (B, 1, n_vocab)}
""",
        "p3-answer": """
class OneBlock(torch.nn.Module):
    def __init__(self, *parts):
        super().__init__()
        self.parts = parts

    def forward(self, x):
        first, look, second, think = self.parts
        for norm, layer in ((first, look), (second, think)):
            x = torch.add(x, layer(norm(x)))
        return x

def block(x, attn_norm, attn, mlp_norm, mlp):
    return OneBlock(attn_norm, attn, mlp_norm, mlp)(x)
""",
        "p4-answer": """
def model(ids, embed, blocks, final_norm, unembed):
    x = torch.stack([torch.stack([embed[n] for n in row]) for row in ids.tolist()])
    for layer in range(len(blocks)):
        x = blocks[layer](x)
    x = final_norm(x)
    if unembed is None:
        unembed = embed
    scores = torch.zeros(*ids.shape, len(unembed), dtype=x.dtype)
    for n in range(len(unembed)):
        scores[:, :, n] = (x * unembed[n]).sum(-1)
    return scores
""",
        "p5-answer": """
class Note:
    def __init__(self, shapes, name):
        self.shapes, self.name = shapes, name

    def __call__(self, module, inputs, output):
        self.shapes[self.name] = output.shape

def trace(model, ids):
    shapes = {}
    handles = []
    try:
        for name, module in model.named_modules():
            handles.append(module.register_forward_hook(Note(shapes, name)))
        model(ids)
    finally:
        for handle in handles:
            handle.remove()
    return shapes
""",
        "p6-answer": """
blind = [4, 1]
n_seen = 2

def repaired(x, W_Q, W_K, W_V, W_O, n_heads):
    width = x.shape[-1] // n_heads
    results = []
    for head in range(n_heads):
        own = slice(head * width, (head + 1) * width)
        results.append(attention(x @ W_Q[:, own], x @ W_K[:, own], x @ W_V[:, own], causal=True))
    return torch.cat(results, -1) @ W_O
""",
        "p7-answer": """
ratio = 11.97
most_tokens = 0
while (most_tokens + 1) * 49152 * 12 <= 2**31:
    most_tokens += 1

def loss_in_chunks(states, targets, unembed, n_chunk):
    total = 0.0
    for state, target in zip(states, targets):
        logits = unembed @ state
        top = logits.max()
        total += (top + torch.log(torch.exp(logits - top).sum()) - logits[target]).item()
    return total / len(states)
""",
    },
)

TERSE = Submission(
    "demo-terse",
    {
        "p1-answer": "guess = 12",
        "p3-answer": """
block = lambda x, attn_norm, attn, mlp_norm, mlp: (y := x + attn(attn_norm(x))) + mlp(mlp_norm(y))
""",
        "p4-answer": """
from functools import reduce

def model(ids, embed, blocks, final_norm, unembed):
    x = final_norm(reduce(lambda x, f: f(x), blocks, torch.nn.functional.embedding(ids, embed)))
    return torch.einsum("btd,vd->btv", x, embed if unembed is None else unembed)
""",
        "p5-answer": """
from contextlib import ExitStack

def trace(model, ids):
    found = {}
    with ExitStack() as undo:
        for name, module in model.named_modules():
            hook = module.register_forward_hook(lambda m, i, out, name=name: found.update({name: list(out.shape)}))
            undo.callback(hook.remove)
        model(ids)
    return found
""",
        "p6-answer": """
blind, n_seen = (2, 0), 2

def repaired(x, W_Q, W_K, W_V, W_O, n_heads):
    q, k, v = (torch.einsum("btd,dhk->bhtk", x, W.unflatten(1, (n_heads, -1))) for W in (W_Q, W_K, W_V))
    return torch.einsum("bhtk,hkd->btd", attention(q, k, v, causal=True), W_O.unflatten(0, (n_heads, -1)))
""",
        "p7-answer": """
ratio, most_tokens = 16 * 2048 * 49152 / 134515008, 3640

def loss_in_chunks(states, targets, unembed, n_chunk):
    f = torch.nn.functional.cross_entropy
    rows = zip(states.split(n_chunk), targets.split(n_chunk))
    return sum(f(x @ unembed.T, y, reduction="sum") for x, y in rows) / len(states)
""",
    },
)

# norms after the sum, as in 2017, so that no final norm seems needed; leaves the hooks where they are
POST_NORM = Submission(
    "demo-post-norm",
    {
        "p3-answer": """
def block(x, attn_norm, attn, mlp_norm, mlp):
    x = attn_norm(x + attn(x))
    return mlp_norm(x + mlp(x))
""",
        "p4-answer": """
def model(ids, embed, blocks, final_norm, unembed):
    x = embed[ids]
    for f in blocks:
        x = f(x)
    return x @ (embed if unembed is None else unembed).T
""",
        "p5-answer": """
def trace(model, ids):
    found = {}
    for name, module in model.named_modules():
        module.register_forward_hook(lambda m, i, out, name=name: found.__setitem__(name, tuple(out.shape)))
    model(ids)
    return found
""",
        "p7-answer": """
ratio = 16 * 2048 * 49152 / total(preset("smollm2-135m"))
most_tokens = 2**31 // (4 * 49152)

def loss_in_chunks(states, targets, unembed, n_chunk):
    parts = []
    for start in range(0, len(states), n_chunk):
        logits = states[start : start + n_chunk] @ unembed.T
        parts.append(torch.nn.functional.cross_entropy(logits, targets[start : start + n_chunk]))
    return torch.stack(parts).mean()
""",
    },
    {"p3": 0, "p4": 0, "p5": 1, "p7": 2},
)

# right wherever a shape can tell, wrong where it cannot: views, all logits at once, a table that is always the same
SHAPES_ALONE = Submission(
    "demo-shapes-alone",
    {
        "p1-answer": "guess = 'a lot'",
        "p2-answer": f"""
in_attention = {IN_ATTENTION | {"keys": QUERIES}}
around = {AROUND}
at_the_end = {AT_THE_END | {"last_only": (B, N_VOCAB)}}
""",
        "p4-answer": """
def model(ids, embed, blocks, final_norm, unembed):
    x = embed[ids]
    for f in blocks:
        x = f(x)
    return final_norm(x) @ embed.T
""",
        "p5-answer": """
def trace(model, ids):
    found, handles = {}, []
    for name, module in model.named_modules():
        handles.append(module.register_forward_hook(lambda m, i, out: found.__setitem__(name, tuple(out.shape))))
    model(ids)
    for handle in handles:
        handle.remove()
    return found
""",
        "p6-answer": """
blind = (0, 5)
n_seen = 6

def repaired(x, W_Q, W_K, W_V, W_O, n_heads):
    B, T, d = x.shape
    q, k, v = ((x @ W).view(B, T, n_heads, d // n_heads).transpose(1, 2) for W in (W_Q, W_K, W_V))
    return attention(q, k, v, causal=True).reshape(B, T, d) @ W_O
""",
        "p7-answer": """
ratio = 0.75
most_tokens = 3640

def loss_in_chunks(states, targets, unembed, n_chunk):
    return torch.nn.functional.cross_entropy(states @ unembed.T, targets)
""",
    },
    {"p1": 0, "p2": 1, "p4": 1, "p5": 1, "p6": 0, "p7": 2},
)


SUBMISSIONS = [
    Submission("demo-perfect"),
    LOOPS,
    TERSE,
    Submission("demo-untouched", marks=None, from_reference=False),
    POST_NORM,
    SHAPES_ALONE,
    # a line of a terminal, pasted into every answer cell
    Submission("demo-does-not-run", marks=None, wrap="$ python answer.py\n{}"),
]
