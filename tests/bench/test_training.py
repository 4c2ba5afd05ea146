"""One optimiser step of a small model of GPT-2's shape: ours, nanoGPT's way in plain torch, and Hugging Face's.

6 layers, d_model 384, 6 heads, 50,304 entries, 8 sequences of 256 tokens, AdamW.
"""

import functools

import torch
import torch.nn.functional as F
from torch import nn

from plainformer import flops
from plainformer.attention import fast_attention
from plainformer.config import Config
from plainformer.model import Transformer
from plainformer.training import adamw_groups, next_token_loss

N_LAYERS, D_MODEL, N_HEADS, N_VOCAB, T, BATCH = 6, 384, 6, 50_304, 256, 8
SLACK = 0.75
CONFIG = Config(
    n_layers=N_LAYERS, d_model=D_MODEL, n_heads=N_HEADS, n_kv_heads=N_HEADS, d_ff=4 * D_MODEL, n_vocab=N_VOCAB,
    n_context=T, norm="layer", mlp="gelu", positions="learned", bias=True, tied=True,
)  # fmt: skip


class FusedBlock(nn.Module):
    """As nanoGPT writes it: one product for queries, keys and values."""

    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(D_MODEL), nn.LayerNorm(D_MODEL)
        self.qkv, self.out = nn.Linear(D_MODEL, 3 * D_MODEL), nn.Linear(D_MODEL, D_MODEL)
        self.up, self.down = nn.Linear(D_MODEL, 4 * D_MODEL), nn.Linear(4 * D_MODEL, D_MODEL)

    def forward(self, x):
        batch, n, _ = x.shape
        heads = (part.view(batch, n, N_HEADS, -1).transpose(1, 2) for part in self.qkv(self.norm1(x)).split(D_MODEL, 2))
        mixed = F.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, n, D_MODEL))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class PlainTorch(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.positions = nn.Embedding(N_VOCAB, D_MODEL), nn.Embedding(T, D_MODEL)
        self.blocks = nn.Sequential(*(FusedBlock() for _ in range(N_LAYERS)))
        self.norm = nn.LayerNorm(D_MODEL)

    def forward(self, ids):
        x = self.blocks(self.embed(ids) + self.positions(torch.arange(ids.shape[1])))
        return F.linear(self.norm(x), self.embed.weight)


def hugging_face():
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=N_VOCAB, n_positions=T, n_embd=D_MODEL, n_layer=N_LAYERS, n_head=N_HEADS,
        activation_function="gelu",
        embd_pdrop=0.0, attn_pdrop=0.0, resid_pdrop=0.0,
    )  # fmt: skip
    model = GPT2LMHeadModel(config).train()
    return model, lambda ids: model(ids, use_cache=False).logits


def plain_loss(logits: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())


def one_step(optimizer, logits_of, loss, ids: torch.Tensor) -> None:
    optimizer.zero_grad(set_to_none=True)
    loss(logits_of(ids[:, :-1]), ids).backward()
    optimizer.step()


def test_training(in_turn, record):
    torch.manual_seed(0)
    ours, plain, (theirs, their_logits) = Transformer(CONFIG, attend=fast_attention), PlainTorch(), hugging_face()
    assert len({sum(p.numel() for p in model.parameters()) for model in (ours, plain, theirs)}) == 1

    def autocast(ids):
        with torch.autocast("cpu", torch.bfloat16):
            return ours(ids)

    ids = torch.randint(N_VOCAB, (BATCH, T + 1))
    models = {
        "ours": (ours, ours, next_token_loss),
        "ours, bfloat16 autocast": (ours, autocast, next_token_loss),
        "nanoGPT's way": (plain, plain, plain_loss),
        "Hugging Face": (theirs, their_logits, plain_loss),
    }
    works = {
        what: functools.partial(one_step, torch.optim.AdamW(adamw_groups(model, 0.1), lr=1e-4), logits_of, loss, ids)
        for what, (model, logits_of, loss) in models.items()
    }
    works["peak"] = lambda: float(flops.measure_peak())
    rounds = in_turn(works)

    def ratios(slower: str, faster: str) -> list[float]:
        return [seconds[slower] / seconds[faster] for seconds in rounds]

    for what, against, aim in [
        ("ours", "nanoGPT's way", 1.0),
        ("ours", "Hugging Face", 1.05),
        ("ours, bfloat16 autocast", "ours", 1.4),
    ]:
        value = record("training", what, against, ratios(against, what), target=aim)
        assert value > SLACK * aim
    n_flops = 3 * BATCH * sum(flops.sequence(CONFIG, T).values())  # backward costs two forwards
    for what in ("ours", "nanoGPT's way", "Hugging Face"):
        record("training", what, "product peak", [100 * n_flops / row[what] / row["peak"] for row in rounds], "%")
