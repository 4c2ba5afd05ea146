"""The demonstration class of exercise 13: eight submissions."""

from __future__ import annotations

from classroom.checks import pretrained_slips as truth
from classroom.grading.demo_class.submission import Submission

# one byte, one letter, one row at a time
LOOPS = Submission(
    "demo-loops",
    {
        "p1-answer": "guess = 0",
        "p2-answer": f"""
d_head = {truth.D_MODEL} // {truth.N_HEADS}
k_shape = [{truth.N_KV_HEADS} * d_head, {truth.D_MODEL}]
c_attn_shape = [{truth.GPT2_WIDTH}, {truth.GPT2_WIDTH} + {truth.GPT2_WIDTH} + {truth.GPT2_WIDTH}]
q8_bytes = 0
for row in range(k_shape[0]):
    for group in range({truth.D_MODEL} // {truth.GROUP}):
        q8_bytes += {truth.SCALE_BYTES} + {truth.GROUP}
untied_bytes = sum(2 * {truth.D_MODEL} for row in range({truth.N_VOCAB}))
""",
        "p3-answer": """
import struct

def table_of_contents(data):
    n = 0
    for k in range(8):
        n += data[k] * 256**k
    table = {}
    for name, entry in json.loads(data[8 : 8 + n].decode("utf-8").rstrip()).items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        table[name] = [entry["dtype"], tuple(entry["shape"]), begin + n + 8, end + n + 8]
    return table

def read_tensor(data, name):
    kind, shape, start, stop = table_of_contents(data)[name]
    size = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}[kind]
    values = []
    for k in range(start, stop, size):
        part = b"\\0\\0" * (kind == "BF16") + data[k : k + size]  # BF16 is the first half of a float32
        values += struct.unpack({"F64": "<d", "F32": "<f", "F16": "<e", "BF16": "<f"}[kind], part)
    return torch.tensor(values, dtype=torch.float64).reshape(shape)
""",
        "p4-answer": """
def rename(name, table):
    parts = name.split(".")
    stem, last = parts[:-1], parts[-1]
    for row, other in table.items():
        row = row.split(".")
        if len(row) != len(stem):
            continue
        for want, have in zip(row, stem):
            if want == "{}" and have.isdigit():
                other = other.replace("{}", have, 1)
            elif want != have:
                break
        else:
            return other + "." + last
    return None
""",
        "p5-answer": """
def unfuse(stored, widths):
    parts, start = [], 0
    for width in widths:
        if stored.dim() == 1:
            parts.append(stored[start : start + width])
        else:
            parts.append(torch.stack([stored[:, start + i] for i in range(width)]))
        start += width
    return tuple(parts)
""",
        "p6-answer": """
def to_halves(weight, n_heads):
    new = weight.clone()
    d_head = len(weight) // n_heads
    for head in range(n_heads):
        for pair in range(d_head // 2):
            new[head * d_head + pair] = weight[head * d_head + 2 * pair]
            new[head * d_head + d_head // 2 + pair] = weight[head * d_head + 2 * pair + 1]
    return new
""",
        "p7-answer": f"""
culprit = "{truth.CULPRIT}"

def find_transposed(config, weights, ids, streams):
    \"\"\"Try each square matrix of the first block that is wrong: the right one makes one more block right.\"\"\"
    def n_right(weights):
        n = 0
        for mine, theirs in zip(run(config, weights, ids)[0], streams):
            if not torch.allclose(mine.float(), theirs, rtol=0, atol=1e-4 * float(theirs.abs().max())):
                break
            n += 1
        return n

    weights, found = weights.copy(), []
    while (n := n_right(weights)) < len(streams):
        for name in [name for name in weights if name.split(".")[:2] == ["blocks", str(n)]]:
            w = weights[name]
            if w.dim() == 2 and w.size(0) == w.size(1):
                weights[name] = w.t()
                if n_right(weights) > n:
                    found.append(name)
                    break
                weights[name] = w
    return found
""",
        "p8-answer": """
def moved_by(config, weights, ids):
    _, right = run(config, weights, ids)
    def rms(x):
        return (sum(v * v for v in x.flatten().tolist()) / x.numel()) ** 0.5
    moved = {"pairing": rms(run(replace(config, pairing="even-odd"), weights, ids)[1] - right) / rms(right)}
    for one, other in (("gate", "up"), ("key", "value")):
        changed = {}
        for name, w in weights.items():
            if f".{one}." in name:
                w = weights[name.replace(one, other)]
            elif f".{other}." in name:
                w = weights[name.replace(other, one)]
            changed[name] = w
        moved[f"{one} and {other}"] = rms(run(config, changed, ids)[1] - right) / rms(right)
    return moved

noticed = {"G": False, "F": True, "E": False, "D": True, "C": False, "B": False, "A": True}
""",
    },
)

# as short as it goes; one search with hooks of its own
TERSE = Submission(
    "demo-terse",
    {
        "p1-answer": "guess = 77.5",
        "p2-answer": f"""
k_shape, c_attn_shape = ({truth.KV_WIDTH}, {truth.D_MODEL}), torch.Size([{truth.GPT2_WIDTH}, {3 * truth.GPT2_WIDTH}])
q8_bytes, untied_bytes = {truth.Q8_BYTES}, {truth.UNTIED_BYTES}
""",
        "p3-answer": """
def table_of_contents(data):
    end = 8 + int.from_bytes(memoryview(data)[:8], "little")
    return {
        name: (e["dtype"], e["shape"], *(end + o for o in e["data_offsets"]))
        for name, e in json.loads(data[8:end]).items() if not name.startswith("__")
    }

def read_tensor(data, name):
    kind, shape, a, b = table_of_contents(data)[name]
    return torch.tensor(list(data[a:b]), dtype=torch.uint8).view(TYPES[kind]).view(shape)
""",
        "p4-answer": r"""
def rename(name, table):
    for a, b in table.items():
        if m := re.match("^" + re.escape(a).replace(r"\\{\\}", r"(\\d+)") + r"\\.([^.]+)$", name):
            return b.format(*m.groups()[:-1]) + "." + m.groups()[-1]
""".replace("\\\\", "\\"),
        "p5-answer": """
unfuse = lambda stored, widths: list(stored.t().split(widths))
""",
        "p6-answer": """
def to_halves(weight, n_heads):
    order = torch.arange(len(weight)).view(n_heads, -1)
    return weight[torch.cat([order[:, ::2], order[:, 1::2]], 1).flatten()]
""",
        "p7-answer": f"""
culprit = "{truth.CULPRIT}"

def find_transposed(config, weights, ids, streams):
    # a block that gets the published stream can be tried alone: what it hands on is right or it is the block
    with torch.device("meta"):
        model = Transformer(config)
    found, square = [], lambda w: w.dim() == 2 and w.shape == w.T.shape
    feed = [None, *streams.double()]
    def after(n, changed):
        model.load_state_dict(weights | changed, assign=True)
        hooks = []
        if n:
            give = lambda block, args, kwargs: ((feed[n],), kwargs)
            hooks.append(model.blocks[n].register_forward_pre_hook(give, with_kwargs=True))
        kept = []
        hooks.append(model.blocks[n].register_forward_hook(lambda block, args, x: kept.append(x)))
        with torch.no_grad():
            model(ids)
        for hook in hooks:
            hook.remove()
        return (kept[0] - streams[n]).abs().max() < 1e-4 * streams[n].abs().max()
    for n in range(config.n_layers):
        if not after(n, {{}}):
            names = [name for name, w in weights.items() if re.match(rf"blocks\\.{{n}}\\.", name) and square(w)]
            found += [name for name in names if after(n, {{name: weights[name].T}})]
    return found
""",
        "p8-answer": """
def moved_by(config, weights, ids):
    norm = torch.linalg.vector_norm
    right = run(config, weights, ids)[1]
    swap = lambda a, b: {
        re.sub(rf"\\b({a}|{b})\\b", lambda m: b if m[0] == a else a, name): w for name, w in weights.items()
    }
    far = lambda c, w: norm(run(c, w, ids)[1] - right) / norm(right)
    return {
        "pairing": far(replace(config, pairing="even-odd"), weights),
        "key and value": far(config, swap("key", "value")),
        "gate and up": far(config, swap("gate", "up")),
    }

noticed = dict(zip("ABCDEFG", (True, False, False, True, False, True, False)))
""",
    },
)

# what one writes who has seen small files and one head only
SMALL = Submission(
    "demo-small",
    {
        "p3-answer": """
def table_of_contents(data):
    n = data[0] + 256 * data[1]
    header = json.loads(data[8 : 8 + n])
    return {name: (e["dtype"], e["shape"], *e["data_offsets"]) for name, e in header.items() if "dtype" in e}

def read_tensor(data, name):
    kind, shape, start, stop = table_of_contents(data)[name]
    part = data[8 + data[0] + 256 * data[1] :][start:stop]
    return torch.frombuffer(bytearray(part), dtype=TYPES[kind]).reshape(shape)
""",
        "p4-answer": r"""
def rename(name, table):
    for row, other in table.items():
        found = re.match(row.replace("{}", "([0-9])"), name)
        if found:
            return other.format(*found.groups()) + "." + name.split(".")[-1]
    return None
""",
        "p5-answer": """
def unfuse(stored, widths):
    return list(stored.split(widths, -1))
""",
        "p6-answer": """
def to_halves(weight, n_heads):
    return torch.cat([weight[0::2], weight[1::2]])
""",
    },
    {"p3": 2, "p4": 0, "p5": 1, "p6": 1},
)

# finds what it was shown, and mends the file that it was lent
ONE_FAULT = Submission(
    "demo-one-fault",
    {
        "p2-answer": f"""
k_shape, c_attn_shape = ({truth.D_MODEL}, {truth.KV_WIDTH}), ({truth.GPT2_WIDTH}, {3 * truth.GPT2_WIDTH})
q8_bytes, untied_bytes = {truth.KV_WIDTH * truth.D_MODEL}, {truth.UNTIED_BYTES}
""",
        "p7-answer": """
culprit = "blocks.2.attn.out.weight"

def find_transposed(config, weights, ids, streams):
    for n in range(config.n_layers):
        for name, w in list(weights.items()):
            if f"blocks.{n}." in name and w.dim() == 2 and w.shape[0] == w.shape[1]:
                weights[name] = w.T
                if (run(config, weights, ids)[0][-1] - streams[-1]).abs().max() < 1e-3:
                    weights[name] = w
                    return [name]
                weights[name] = w
    return []
""",
        "p8-answer": """
def moved_by(config, weights, ids):
    right = run(config, weights, ids)[1]
    def far(config, weights):
        return (run(config, weights, ids)[1] - right).square().mean().sqrt()
    swapped = lambda a, b: {name.replace(a, "?").replace(b, a).replace("?", b): w for name, w in weights.items()}
    return {
        "pairing": far(replace(config, pairing="even-odd"), weights),
        "key and value": far(config, swapped("key", "value")),
        "gate and up": far(config, swapped("gate", "up")),
    }

noticed = dict.fromkeys("ABCDEFG", False)
""",
    },
    {"p2": 2, "p7": 1, "p8": 0},
)


SUBMISSIONS = [
    Submission("demo-perfect"),
    LOOPS,
    TERSE,
    Submission("demo-untouched", marks=None, from_reference=False),
    SMALL,
    ONE_FAULT,
    # writes the visible answers into the functions
    Submission(
        "demo-visible-answers",
        {
            "p7-answer": f"""
culprit = "{truth.CULPRIT}"

def find_transposed(config, weights, ids, streams):
    for names in (["blocks.1.attn.query.weight"], ["blocks.0.attn.out.weight"], []):
        changed = weights | {{name: weights[name].T for name in names}}
        if torch.allclose(run(config, changed, ids)[0].float(), streams, atol=1e-3):
            return names
    return ["blocks.0.attn.query.weight", "blocks.2.attn.out.weight"]
""",
        },
        {"p7": 1},
    ),
    # a merge that nobody resolved: not one answer cell is Python
    Submission("demo-does-not-run", marks=None, wrap="<<<<<<< HEAD\n{}\n=======\n>>>>>>> mine"),
]
