# %% [markdown]
# # Experiments
#
# A small target language model, drafts trained on its own samples, and the paper's questions at this scale: do LK losses
# lengthen accepted drafts, when does plain TV fail, is the gain larger at temperature 1, and what does it cost?

# %% tags=["parameters"]
preset = "quick"
seed = 0
device = "auto"
text = None  # "stdlib" (this Python's own source) or "shakespeare"
units = None  # "characters" or "bpe" (2048 tokens)
width = None  # of the target, which has `layers` blocks
layers = None
target_steps = None
sequences = None  # samples of the target that drafts learn from
rank = None  # of the MEDUSA-like heads
draft_width = None  # of the EAGLE-like draft model
draft_steps = None
replicates = None  # draft initialisations and batch orders
pretrained = None  # also train heads for SmolLM2-135M

# %%
import platform
from functools import partial

import numpy as np
import torch
from method import (
    LOSSES,
    DraftHeads,
    DraftModel,
    TargetStates,
    expected_accepted_length,
    lk_alpha_loss,
    lk_lambda_loss,
    path_acceptance,
    read_target,
    train_draft,
    tune,
)
from torch.nn import functional as F

from companion import report, start
from companion.data import corpus, token_ids
from companion.models import DecoderLM, LMConfig
from companion.stats import paired_difference
from companion.training import lm_batches, train

PRESETS = {
    "quick": {
        "text": "stdlib", "units": "characters", "width": 64, "layers": 2, "target_steps": 300, "sequences": 512,
        "rank": 16, "draft_width": 16, "draft_steps": 150, "replicates": 3, "pretrained": False,
    },
    "full": {
        "text": "stdlib", "units": "bpe", "width": 128, "layers": 4, "target_steps": 1500, "sequences": 1024,
        "rank": 32, "draft_width": 32, "draft_steps": 200, "replicates": 5, "pretrained": True,
    },
    "gpu": {
        "text": "stdlib", "units": "bpe", "width": 512, "layers": 8, "target_steps": 5000, "sequences": 16_384,
        "rank": 128, "draft_width": 256, "draft_steps": 2000, "replicates": 5, "pretrained": True,
    },
}  # fmt: skip
sizes = {"text": text, "units": units, "width": width, "layers": layers, "target_steps": target_steps}
sizes |= {"sequences": sequences, "rank": rank, "draft_width": draft_width, "draft_steps": draft_steps}
sizes |= {"replicates": replicates, "pretrained": pretrained}
run = start("experiments", PRESETS, preset=preset, seed=seed, device=device, **sizes)
torch.set_flush_denormal(True)  # sharp laws are full of numbers below 1e-38, which are 20 times slower
bf16 = run.preset == "gpu"
K = 4

# %% [markdown]
# ## The target
# Python's standard library as text: predictable in places and open in others, as code is.

# %%
if run.units == "characters":
    training_text = corpus(run.text).train[:3_000_000].encode("ascii", "replace")
    alphabet, ids = np.unique(np.frombuffer(training_text, np.uint8), return_inverse=True)
    vocab = len(alphabet)
else:
    ids, vocab = token_ids("train", 1_000_000, run.text), 2048
PROMPT, LENGTH = 8, 40  # tokens of the corpus, then tokens of the target
config = LMConfig(vocab=vocab, d_model=run.width, n_layers=run.layers, n_heads=4, max_len=256)
target = DecoderLM(config, run.torch_generator("target", "cpu")).to(run.device)
batches = lm_batches(ids, 16, 64, run.torch_generator("text", "cpu"), run.device)
history = train(target, batches, steps=run.target_steps, lr=5e-3, warmup=0.1, bf16=bf16)
target.eval()
prompts = torch.as_tensor(ids[: len(ids) // PROMPT * PROMPT], device=run.device).long().view(-1, PROMPT)


def sample_states(stream: str, count: int, temperature: float = 1.0) -> TargetStates:
    """The target's states on `count` of its own samples."""
    generator = run.torch_generator(stream)
    rows = torch.randint(len(prompts), (count,), generator=generator, device=run.device)
    tokens = [target.generate(part, LENGTH, temperature, generator) for part in prompts[rows].split(512)]
    return read_target(target, torch.cat(tokens))


learn = sample_states("training samples", run.sequences)
TEMPERATURES = (0.0, 0.5, 0.8, 1.0)
held_out = {t: sample_states(f"held-out samples {t}", 256, t) for t in TEMPERATURES}
report("loss of the target", float(history.loss[-20:].mean()), unit="nats a token")
print(f"Python {platform.python_version()}, vocabulary {vocab}, loss {history.loss[-20:].mean():.2f} nats")

# %% [markdown]
# ## Training the drafts
# For each loss: the learning rate by accepted length on held-out samples with its own draft, then `replicates` drafts at that
# rate. A replicate's initialisation and batches are the same for all losses. The controls break what makes LK losses work:
# LK$_\alpha$ on labels drawn from $p$ sees no distribution, and LK$_\lambda$ with $\eta = 0$ never leaves KL.

# %%
lk_lambda = partial(lk_lambda_loss, group_dims=1)


def lk_alpha_on_labels(p_logits, q_logits, reduction, **options):
    labels = torch.multinomial(p_logits.softmax(-1).flatten(0, -2), 1, generator=labels_generator)[:, 0]
    one_hot = F.one_hot(labels, p_logits.shape[-1]).view_as(p_logits)
    return lk_alpha_loss(one_hot.float().log(), q_logits, reduction, **options)


def new_draft(kind: str, generator: torch.Generator):
    if kind == "heads":
        return DraftHeads(run.width, run.rank, vocab, K, generator=generator).to(run.device)
    return DraftModel(run.width, run.draft_width, vocab, K, heads=2, generator=generator).to(run.device)


def trained(kind: str, loss, lr: float, replicate: str, log: bool = False):
    generator = run.torch_generator(f"{kind} {replicate}", "cpu")
    draft = new_draft(kind, generator)
    history = train_draft(draft, learn, loss, steps=run.draft_steps, lr=lr, generator=generator, log=log, bf16=bf16)
    return draft, history


def accepted(draft, temperature: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """tau for 1 to K drafted tokens (K,), and mean alpha of each position (K,), along the target's own tokens."""
    alphas, ratios = (x[:, PROMPT:] for x in path_acceptance(draft, held_out[temperature], temperature))
    tau = [expected_accepted_length(alphas[..., :k], ratios[..., : k - 1]).mean() for k in range(1, K + 1)]
    return torch.stack(tau).cpu().numpy(), alphas.mean((0, 1)).cpu().numpy()


losses = dict(LOSSES) | {"LK-lambda": lk_lambda}
main = ["KL", "TV", "LK-alpha", "LK-lambda"]
plan = {"heads": list(losses), "draft model": main}
labels_generator = run.torch_generator("labels")
drafts, rates = {}, {}  # drafts[kind, loss]: one a replicate
for kind, names in plan.items():
    for name in names:
        score = lambda rates, k=kind, n=name: [accepted(trained(k, losses[n], x, "tuning")[0])[0][-1] for x in rates]  # noqa: E731
        (rates[kind, name],) = tune(score, [0.01, 0.03, 0.09])
        each = range(run.replicates)
        drafts[kind, name] = [trained(kind, losses[name], rates[kind, name], f"{i}")[0] for i in each]
    for name, loss in (("LK-alpha", lk_alpha_on_labels), ("LK-lambda", partial(lk_lambda, eta=0.0))):
        drafts[kind, f"{name} broken"] = [trained(kind, loss, rates[kind, name], f"{i}")[0] for i in each]


def taus(kind: str, name: str, temperature: float = 1.0) -> np.ndarray:
    """(replicates,)"""
    return np.array([accepted(draft, temperature)[0][-1] for draft in drafts[kind, name]])


def gain(kind: str, name: str, temperature: float = 1.0):
    """Relative gain in tau over KL, paired over replicates."""
    kl = taus(kind, "KL", temperature)
    return paired_difference(taus(kind, name, temperature) / kl, np.ones_like(kl))
for kind, name in drafts: print(kind,name,rates.get((kind,name)),taus(kind,name),gain(kind,name) if name!="KL" else "", accepted(drafts[kind,name][0])[1])
for kind, name in drafts: print(kind,name,gain(kind,name,0.0) if name!="KL" else "")
