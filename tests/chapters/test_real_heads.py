"""The real heads that chapters ship are what SmolLM2's weights give: of two the queries and keys (chapter 2), of all
the patterns on two short texts (chapter 3).

Hugging Face's Llama runs the model, so neither the weights nor the arithmetic behind the files are ours.
`python tests/chapters/test_real_heads.py` writes the files again (it needs `make weights`).
"""

import importlib.metadata
import json
import os
from pathlib import Path

import pytest
import torch

from classroom import running_sum
from plainformer import masks
from plainformer.attention import attention_weights
from plainformer.config import preset

FILE = Path(__file__).parents[2] / "chapters" / "data" / "smollm2_heads.json"
SENTENCE = "In the morning William made coffee because he was tired"
PATTERNS = FILE.with_name("smollm2_patterns.json")
REPEATED = " river bird thread cloth page wing" * 2  # in no order, said twice: something to continue
HEADS = {"pronoun": (13, 8), "sink": (18, 8)}  # layer and head, both counted from 0


def weights_file() -> Path:
    try:
        return running_sum.weights_file()
    except importlib.metadata.PackageNotFoundError:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip("needs SmolLM2's weights: run `make weights`")


def reference_model(path: Path):
    """Hugging Face's Llama with the file's dequantised weights, and its tokenizer read from the same file."""
    import gguf
    import numpy as np
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

    sizes = preset("smollm2-135m")
    weight = {
        t.name: torch.from_numpy(np.array(gguf.dequantize(t.data, t.tensor_type)))
        for t in gguf.GGUFReader(path).tensors
    }

    def halves(w: torch.Tensor, n_heads: int) -> torch.Tensor:
        """The file pairs a head's rotary features as neighbours; Hugging Face pairs its two halves."""
        return w.reshape(n_heads, sizes.d_head // 2, 2, -1).transpose(1, 2).reshape(w.shape)

    parts = {
        "attn_norm": "input_layernorm",
        "attn_q": "self_attn.q_proj",
        "attn_k": "self_attn.k_proj",
        "attn_v": "self_attn.v_proj",
        "attn_output": "self_attn.o_proj",
        "ffn_norm": "post_attention_layernorm",
        "ffn_gate": "mlp.gate_proj",
        "ffn_up": "mlp.up_proj",
        "ffn_down": "mlp.down_proj",
    }
    state = {
        "model.embed_tokens.weight": weight["token_embd.weight"],
        "lm_head.weight": weight["token_embd.weight"],
        "model.norm.weight": weight["output_norm.weight"],
    }
    for layer in range(sizes.n_layers):
        for theirs, name in parts.items():
            w = weight[f"blk.{layer}.{theirs}.weight"]
            if theirs in ("attn_q", "attn_k"):
                w = halves(w, sizes.n_heads if theirs == "attn_q" else sizes.n_kv_heads)
            state[f"model.layers.{layer}.{name}.weight"] = w
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=sizes.n_vocab,
            hidden_size=sizes.d_model,
            intermediate_size=sizes.d_ff,
            num_hidden_layers=sizes.n_layers,
            num_attention_heads=sizes.n_heads,
            num_key_value_heads=sizes.n_kv_heads,
            max_position_embeddings=sizes.n_context,
            rms_norm_eps=1e-5,
            rope_parameters={"rope_type": "default", "rope_theta": 100_000.0},
            tie_word_embeddings=True,
            attn_implementation="eager",
        )
    )
    model.load_state_dict(state, strict=True)
    return model.eval(), AutoTokenizer.from_pretrained(str(path.parent), gguf_file=path.name)


@torch.no_grad()
def queries_and_keys(model, ids: torch.Tensor, layer: int, head: int) -> tuple[torch.Tensor, torch.Tensor]:
    """What one head compares, rotations included; query heads share keys in groups."""
    from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

    attn = model.model.layers[layer].self_attn
    x = model(ids, output_hidden_states=True).hidden_states[layer]
    normed = model.model.layers[layer].input_layernorm(x)
    shape = (1, ids.shape[1], -1, attn.head_dim)
    q = attn.q_proj(normed).view(shape).transpose(1, 2)
    k = attn.k_proj(normed).view(shape).transpose(1, 2)
    cos, sin = model.model.rotary_emb(x, torch.arange(ids.shape[1])[None])
    q, k = apply_rotary_pos_emb(q, k, cos, sin)
    return q[0, head], k[0, head // attn.num_key_value_groups]


@pytest.fixture(scope="module")
def reference():
    """Reading the model takes longer than running it."""
    return reference_model(weights_file())


@pytest.mark.weights
def test_shipped_heads_are_what_the_real_weights_give(reference):
    model, tokenizer = reference
    shipped = json.loads(FILE.read_text(encoding="utf-8"))
    ids = tokenizer(SENTENCE, return_tensors="pt").input_ids
    assert shipped["sentence"] == SENTENCE
    assert shipped["tokens"] == [tokenizer.decode([i]) for i in ids[0]]
    with torch.no_grad():
        theirs = model(ids, output_attentions=True).attentions
    for name, (layer, head) in HEADS.items():
        entry = shipped["heads"][name]
        assert (entry["layer"], entry["head"]) == (layer, head)
        weights = attention_weights(torch.tensor(entry["q"]), torch.tensor(entry["k"]), masks.causal(len(ids[0])))
        # the file keeps three decimals: scores of width 64 move by at most about 0.01
        torch.testing.assert_close(weights, theirs[layer][0, head], atol=0.01, rtol=0)


@torch.no_grad()
def all_patterns(model, tokenizer, text: str) -> tuple[list[str], torch.Tensor]:
    """The tokens of a text, and the weights of every head on it: (layer, head, looking, looked at)."""
    ids = tokenizer(text, return_tensors="pt").input_ids
    return [tokenizer.decode([i]) for i in ids[0]], torch.cat(model(ids, output_attentions=True).attentions)


@pytest.mark.weights
def test_shipped_patterns_are_what_the_real_weights_give(reference):
    model, tokenizer = reference
    shipped = json.loads(PATTERNS.read_text(encoding="utf-8"))
    for name, text in {"sentence": SENTENCE, "repeated": REPEATED}.items():
        entry = shipped[name]
        tokens, weights = all_patterns(model, tokenizer, text)
        assert (entry["text"], entry["tokens"]) == (text, tokens)
        rows, columns = torch.tril_indices(len(tokens), len(tokens))
        assert not weights.triu(1).any()
        # rounded to hundredths
        hundredths = torch.tensor(entry["hundredths"])
        torch.testing.assert_close(hundredths / 100, weights[..., rows, columns], atol=0.0051, rtol=0)
    half = len(shipped["repeated"]["tokens"]) // 2
    assert shipped["repeated"]["tokens"][:half] == shipped["repeated"]["tokens"][half:]


def write() -> None:
    model, tokenizer = reference_model(weights_file())
    ids = tokenizer(SENTENCE, return_tensors="pt").input_ids
    heads = {}
    for name, (layer, head) in HEADS.items():
        q, k = queries_and_keys(model, ids, layer, head)
        rounded = {
            letter: [[round(x, 3) for x in row] for row in rows.tolist()] for letter, rows in (("q", q), ("k", k))
        }
        heads[name] = {"layer": layer, "head": head, **rounded}
    content = {
        "model": running_sum.SOURCE,
        "sentence": SENTENCE,
        "tokens": [tokenizer.decode([i]) for i in ids[0]],
        "heads": heads,
    }
    FILE.write_text(json.dumps(content, separators=(",", ":")) + "\n", encoding="utf-8")
    content = {"model": running_sum.SOURCE}
    for name, text in {"sentence": SENTENCE, "repeated": REPEATED}.items():
        tokens, weights = all_patterns(model, tokenizer, text)
        rows, columns = torch.tril_indices(len(tokens), len(tokens))
        hundredths = (100 * weights[..., rows, columns]).round().int().tolist()  # the lower triangle, row by row
        content[name] = {"text": text, "tokens": tokens, "hundredths": hundredths}
    PATTERNS.write_text(json.dumps(content, separators=(",", ":")) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write()
