"""The demonstration class of exercise 06: eight submissions. Marks are the autograder's; a person adds the essay's."""

from __future__ import annotations

from classroom import terms
from classroom.grading.demo_class.submission import Submission

X, WEIGHT, SHIFT = terms.numbers("norms")
SIZES = f"\nx, weight, shift = {list(X)}, {WEIGHT}, {SHIFT}"  # what a student reads in problem 2

# plain text with numbers in several spellings
TYPED = '''
essay = """
Half of it I would sign. Depth alone does not keep a pre-norm stack from learning: in my stack of 1,000 blocks the
first one still gets a gradient of length 3.4, because the identity path meets nothing but additions. The same blocks
with post-norm leave 3.4 · 10⁻¹⁰ of it. The condition is pre-norm.

But the stream grows. Its RMS is 19.2 after 250 blocks and 37,6 after 1,000, a square root of the depth. Each update
stays as large as it was, so the last blocks hardly move what they are added to. And adding can erase: a block may
write the negative of what stands there.

"Just slower" forgets the price. The weights of Llama 2 7B, spread over 1,000 blocks, leave a width of 733. With equal
weights and equal work my wide model came down to $1.64$ and my deep one to $2.05 \\\\times 10^{0}$. One toy language
and one seed do not prove that wide is best. They do show that training stably and using a budget well are two things.
"""
'''

LOOPS = Submission(
    "demo-loops",
    {
        "p1-answer": "guess = {}\nguess['pre'] = 1000\nguess['post'] = 10**-3",
        "p2-answer": SIZES
        + """
mean = sum(x) / 5
total = 0
squares = 0
for e in x:
    total = total + (e - mean) ** 2
    squares = squares + e**2
deviation = (total / 5) ** 0.5
root_mean_square = (squares / 5) ** 0.5
layer = []
root = []
for e in x:
    layer.append(weight * (e - mean) / deviation + shift)
    root.append(weight * e / root_mean_square)
""",
        "p3-answer": """
def layer_norm(x, weight, bias, eps):
    rows = x.reshape(-1, x.shape[-1])
    done = []
    for row in rows:
        mean = sum(row) / len(row)
        variance = sum((e - mean) ** 2 for e in row) / len(row)
        normed = [(e - mean) / (variance + eps) ** 0.5 for e in row]
        done.append(torch.stack([normed[n] * weight[n] + bias[n] for n in range(len(row))]))
    return torch.stack(done).reshape(x.shape)

def rms_norm(x, weight, eps):
    result = torch.empty_like(x)
    for place in torch.cartesian_prod(torch.tensor([0]), *[torch.arange(n) for n in x.shape[:-1]]).reshape(-1, x.ndim):
        row = tuple(place[1:].tolist())
        square = torch.zeros(1)
        for n in range(x.shape[-1]):
            square = square + x[row][n] ** 2 / x.shape[-1]
        for n in range(x.shape[-1]):
            result[row + (n,)] = x[row][n] * weight[n] / torch.sqrt(square + eps)
    return result
""",
        "p4-answer": """
def pre_norm(x, attn, mlp, norm_1, norm_2):
    stream = x.clone()
    for sublayer, norm in [(attn, norm_1), (mlp, norm_2)]:
        stream += sublayer(norm(stream))
    return stream

def post_norm(x, attn, mlp, norm_1, norm_2):
    stream = x.clone()
    for sublayer, norm in [(attn, norm_1), (mlp, norm_2)]:
        stream += sublayer(stream)
        stream = norm(stream)
    return stream
""",
        "p5-answer": """
harmless = [1, 2, 3, 4]
exposing = [0.003, 0.0, 0.0, 0.0]

def mended(x, weight, eps):
    square = 0
    for n in range(x.shape[-1]):
        square = square + x[..., n] ** 2
    columns = []
    for n in range(x.shape[-1]):
        columns.append(x[..., n] / (square / x.shape[-1] + eps) ** 0.5 * weight[n])
    return torch.stack(columns, dim=-1)
""",
        "p6-answer": """
def first_gradient(model, ids):
    model.zero_grad()
    loss = next_token_loss(model(ids[:, :-1]), ids)
    loss.backward()
    total = 0.0
    for weight in model.blocks[0].parameters():
        total = total + (weight.grad ** 2).sum().item()
    return total ** 0.5

def stream_sizes(model, ids):
    x = model.embed(ids)
    sizes = [x.norm().item() / x.numel() ** 0.5]
    for n in range(len(model.blocks)):
        x = model.blocks[n](x, causal=True)
        sizes.append(x.norm().item() / x.numel() ** 0.5)
    return sizes

gradient = {}
for place in ["pre", "post"]:
    gradient[place] = first_gradient(stack(1000, place), ids)
rms = {}
for n in [250, 1000]:
    rms[n] = stream_sizes(stack(n, "pre"), ids)[n]
exponent = (math.log(rms[1000]) - math.log(rms[250])) / (math.log(1000) - math.log(250))
""",
        "p7-answer": """
n_deep = 1
while n_deep * 8 * 16**2 < 2 * 8 * 48**2:
    n_deep = n_deep + 1
width_1000 = 733
ratio_1000 = 0.73
deep = Config(n_vocab=16, d_model=16, n_heads=2, n_kv_heads=2, d_ff=32, n_context=16, n_layers=n_deep,
              norm="layer", mlp="relu", positions="none")
cost = {}
for name, config in [("wide", wide), ("deep", deep)]:
    cost[name] = 0
    for part, flops in sequence(config, 8).items():
        cost[name] = cost[name] + flops
steps_deep = int(60 * cost["wide"] / cost["deep"] + 0.5)
losses = {}
for name, config, n in [("wide", wide, 60), ("deep", deep, steps_deep)]:
    run = learn(config, n)
    losses[name] = (run[-1] + run[-2] + run[-3] + run[-4] + run[-5]) / 5
""",
        "p8-answer": TYPED,
    },
)

TERSE = Submission(
    "demo-terse",
    {
        "p1-answer": "guess = dict(pre=1e-30, post=1e30)",
        "p2-answer": SIZES
        + """
x = torch.tensor(x, dtype=torch.float64)
mean, deviation, root_mean_square = x.mean(), x.std(correction=0), x.square().mean().sqrt()
layer, root = (weight * (x - mean) / deviation + shift).tolist(), (weight * x / root_mean_square).tolist()
""",
        "p3-answer": """
class Norm:
    def __init__(self, centre):
        self.centre = centre

    def __call__(self, x, weight, bias=0.0, eps=None):
        x = x - x.mean(-1, True) * self.centre
        return torch.einsum("...d,...,d->...d", x, (x.square().mean(-1) + eps).rsqrt(), weight) + bias


layer_norm, rms_norm = Norm(1), Norm(0)
""",
        "p4-answer": """
def pre_norm(x, attn, mlp, norm_1, norm_2):
    return (y := x + attn(norm_1(x))) + mlp(norm_2(y))

post_norm = lambda x, attn, mlp, norm_1, norm_2: norm_2((y := norm_1(x + attn(x))) + mlp(y))
""",
        "p5-answer": """
harmless, exposing = (1.0,), (1e-3,)
mended = lambda x, weight, eps: torch.nn.functional.rms_norm(x, x.shape[-1:], weight, eps)
""",
        "p6-answer": """
def first_gradient(model, ids):
    loss = next_token_loss(model(ids[:, :-1]), ids)
    return torch.cat([g.flatten() for g in torch.autograd.grad(loss, [*model.blocks[0].parameters()])]).norm()

@torch.no_grad()
def stream_sizes(model, ids):
    streams = [model.embed(ids)]
    for block in model.blocks:
        streams += [block(streams[-1], causal=True)]
    return torch.stack(streams).square().mean((1, 2, 3)).sqrt()

gradient = {"pre": 3.4, "post": 3.43e-10}
rms = {250: 19.2, 1000: 37.6}
exponent = 0.485
""",
        "p7-answer": """
n_deep, width_1000, ratio_1000, steps_deep = 18, 4096 * 0.032**0.5, 4.096 * 0.032**0.5, 58
losses = {"wide": 1.64, "deep": 2.05}
""",
    },
)

# the norms of a copied page: epsilon outside, std as torch gives it, and a stream that is normed itself
COPIED = Submission(
    "demo-copied",
    {
        "p2-answer": SIZES
        + """
mean, root_mean_square = sum(x) / 5, (sum(e * e for e in x) / 5) ** 0.5
deviation = (sum((e - mean) ** 2 for e in x) / 4) ** 0.5
layer = [weight * (e - mean) / deviation + shift for e in x]
root = [weight * e / root_mean_square for e in x]
""",
        "p3-answer": """
def layer_norm(x, weight, bias, eps):
    return weight * (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + eps) + bias

def rms_norm(x, weight, eps):
    return weight * x / (x.pow(2).mean(-1, keepdim=True).sqrt() + eps)
""",
        "p4-answer": """
def pre_norm(x, attn, mlp, norm_1, norm_2):
    x = norm_1(x)
    x = x + attn(x)
    x = norm_2(x)
    return x + mlp(x)

def post_norm(x, attn, mlp, norm_1, norm_2):
    x = norm_1(x + attn(x))
    return norm_2(x + mlp(x))
""",
        "p5-answer": "harmless = [1.0, 2.0]\nexposing = [0.0, 0.0]\nmended = suspect",
    },
    {"p2": 0, "p3": 0, "p4": 1, "p5": 0},
)

# measures at another place: gradients that add up over calls, lengths for sizes; cites numbers of the chapter
ELSEWHERE = Submission(
    "demo-elsewhere",
    {
        "p6-answer": """
def first_gradient(model, ids):
    next_token_loss(model(ids[:, :-1]), ids).backward()
    return math.sqrt(sum((weight.grad**2).sum().item() for weight in model.blocks[0].parameters()))

def stream_sizes(model, ids):
    x = model.embed(ids)
    sizes = [x.norm(dim=-1).mean().item()]
    for block in model.blocks:
        x = block(x, causal=True)
        sizes.append(x.norm(dim=-1).mean().item())
    return sizes

gradient = {"pre": 3.43, "post": 3.4e-10}
rms = {250: 108.0, 1000: 211.0}
exponent = 0.485
""",
        "p8-answer": TYPED.replace("3.4", "1.6").replace("10⁻¹⁰", "10⁻⁶"),
    },
    {"p6": 0, "p8": 1},
)

# takes weights to grow with the width, equal steps for equal FLOPs, and writes two sentences
HASTY = Submission(
    "demo-hasty",
    {
        "p7-answer": """
n_deep = 6
width_1000 = 131
ratio_1000 = 0.131
deep = replace(wide, n_layers=18, d_model=16, d_ff=32)
steps_deep = 60
losses = {"wide": 1.64, "deep": 2.02}
""",
        "p8-answer": 'essay = "It trains, with 3.4 against 3.4e-10, but 1.64 beats 2.02. RMS 37.6, width 131."',
    },
    {"p7": 0, "p8": 1},
)


SLIPS_IN = "demo-terse"  # the reference trains for seconds

SUBMISSIONS = [
    Submission("demo-perfect"),
    LOOPS,
    TERSE,
    Submission("demo-untouched", marks=None, from_reference=False),
    COPIED,
    ELSEWHERE,
    HASTY,
    # a merge that nobody resolved: not one answer cell is Python
    Submission(
        "demo-does-not-run",
        marks=None,
        wrap="<<<<<<< HEAD\n{}\n=======\n>>>>>>> mine",
    ),
]
