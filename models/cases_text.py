"""The text, audio and sequence models for export.py."""

import numpy as np
import torch

import nets
import nets_text
import weights
from case import Case

TOKENS = ["batch", "seq"]
LENGTHS = [{"batch": 2, "seq": 9}, {"batch": 1, "seq": 1}, {"batch": 3, "seq": 16}]
# Some tokens after some, the first step, a later step, the first step of one token each.
STEPS = [
    {"batch": 2, "seq": 5, "past": 4}, {"batch": 1, "seq": 6, "past": 0},
    {"batch": 1, "seq": 1, "past": 7}, {"batch": 3, "seq": 1, "past": 0},
]  # fmt: skip
LIMITS = {"seq": nets.POSITIONS // 2, "past": nets.POSITIONS // 2, "source": nets.POSITIONS}


def size(dim, dims):
    """A dimension's size: a number, a name, or a sum of names."""
    return dim if isinstance(dim, int) else sum(dims[name] for name in dim.split(" + "))


def numbers(name, shape, dims):
    """An input in -1.5 … 1.5 made by the formula."""
    actual = [size(d, dims) for d in shape]
    stem = f"golden {name} {'x'.join(map(str, actual))}"
    return {"name": stem, "shape": actual, "scale": 3 * weights.UNIT // 2, "shift": 0}


def by_formula(inputs):
    return lambda dims: {name: numbers(name, shape, dims) for name, shape in inputs.items()}


def case(name, folder, net, exporter, inputs, outputs, runs, sample, opset=None, **more):
    opset = opset or (17 if exporter == "TorchScript" else 18)
    return Case(name, folder, net, exporter, opset, inputs, outputs, runs, sample, **more)


def encoder(name, make, exporter, attention, full=None):
    """`full`: the vocabulary and the hidden size."""
    vocabulary, hidden = full or (nets_text.VOCABULARY, 96)
    explicit = exporter == "TorchScript"

    def sample(dims):
        ids, mask, _ = nets.tokens(dims["batch"], dims["seq"], vocabulary)
        return {"input_ids": ids, "attention_mask": mask}

    return case(
        name, make.__name__, lambda: make(attention, explicit, bool(full)), exporter,
        {"input_ids": TOKENS, "attention_mask": TOKENS}, {"last_hidden_state": [*TOKENS, hidden]},
        LENGTHS[:1] if full else LENGTHS, sample, prefix="net.", limits={"seq": nets.POSITIONS},
        full=bool(full), golden="golden_full" if full else "golden",
    )  # fmt: skip


def pairs(kind, layers, heads, length, width):
    """Names and shapes of a cache's tensors."""
    shape = ["batch", heads, length, width]
    return {f"{kind}.{layer}.{part}": shape for layer in range(layers) for part in ("key", "value")}


def cached(name, make, exporter, attention, layers, heads, width, vocabulary=nets_text.VOCABULARY, full=False):
    explicit = exporter == "TorchScript"
    past = pairs("past_key_values", layers, heads, "past", width)
    present = pairs("present", layers, heads, "past + seq", width)

    def sample(dims):
        ids, mask, _ = nets.tokens(dims["batch"], dims["seq"], vocabulary)
        seen = torch.ones(dims["batch"], dims["past"], dtype=torch.int64)
        values = {n: numbers(n, shape, dims) for n, shape in past.items()}
        return {"input_ids": ids, "attention_mask": torch.cat([seen, mask], 1)} | values

    return case(
        name, make.__name__, lambda: make(attention, explicit, full), exporter,
        {"input_ids": TOKENS, "attention_mask": ["batch", "past + seq"]} | past,
        {"logits": [*TOKENS, vocabulary]} | present, [{"batch": 1, "seq": 2, "past": 3}] if full else STEPS,
        sample, prefix="net.", limits=LIMITS, full=full, golden="golden_full" if full else "golden",
        # Of a large cache the last layer's part tells of all layers before it.
        kept=("logits", *list(present)[-2:]) if full else None,
    )  # fmt: skip


def t5_decoder(name, exporter, attention, vocabulary=nets_text.VOCABULARY, hidden=96, full=False):
    explicit = exporter == "TorchScript"
    states = ["batch", "source", hidden]

    def sample(dims):
        ids, _, _ = nets.tokens(dims["batch"], dims["seq"], vocabulary)
        _, mask, _ = nets.tokens(dims["batch"], dims["source"], vocabulary)
        values = numbers("encoder_hidden_states", states, dims)
        return {"input_ids": ids, "encoder_hidden_states": values, "encoder_attention_mask": mask}

    runs = [
        {"batch": 2, "seq": 5, "source": 9}, {"batch": 1, "seq": 1, "source": 1},
        {"batch": 3, "seq": 16, "source": 4},
    ]  # fmt: skip
    return case(
        name, "t5_decoder", lambda: nets_text.t5_decoder(attention, explicit, full), exporter,
        {"input_ids": TOKENS, "encoder_hidden_states": states, "encoder_attention_mask": ["batch", "source"]},
        {"logits": [*TOKENS, vocabulary]}, [{"batch": 1, "seq": 2, "source": 7}] if full else runs, sample,
        prefix="net.", limits=LIMITS, full=full, golden="golden_full" if full else "golden",
    )  # fmt: skip


def t5_cached(name, exporter, attention):
    explicit = exporter == "TorchScript"
    own = pairs("past_key_values.decoder", 2, 4, "past", 16)
    cross = pairs("past_key_values.encoder", 2, 4, "source", 16)

    def sample(dims):
        ids, _, _ = nets.tokens(dims["batch"], dims["seq"], nets_text.VOCABULARY)
        _, mask, _ = nets.tokens(dims["batch"], dims["source"], nets_text.VOCABULARY)
        values = {n: numbers(n, shape, dims) for n, shape in (own | cross).items()}
        return {"input_ids": ids, "encoder_attention_mask": mask} | values

    return case(
        name, "t5_cached", lambda: nets_text.t5_cached(attention, explicit), exporter,
        {"input_ids": TOKENS, "encoder_attention_mask": ["batch", "source"]} | own | cross,
        {"logits": [*TOKENS, nets_text.VOCABULARY]} | pairs("present", 2, 4, "past + seq", 16),
        [run | {"source": 3 + 2 * i} for i, run in enumerate(STEPS)], sample, prefix="net.", limits=LIMITS,
    )  # fmt: skip


def whisper(name, exporter, attention, full=False):
    mels, frames, out = (80, 3000, [30, 384]) if full else (16, 48, [24, 96])
    inputs = {"input_features": ["batch", mels, frames]}
    return case(
        name, "whisper", lambda: nets_text.whisper(attention, full), exporter, inputs,
        {"last_hidden_state": ["batch", *out]}, [{"batch": 2}] if full else [{"batch": 2}, {"batch": 1}],
        by_formula(inputs), prefix="net.", full=full, golden="golden_full" if full else "golden",
    )  # fmt: skip


def waveform(name, folder, make, exporter, inputs, outputs, lengths, **more):
    runs = [{"batch": 2 - i % 2, "samples": n} for i, n in enumerate(lengths)]
    return case(name, folder, make, exporter, inputs, outputs, runs, by_formula(inputs), **more)


def wav2vec(name, exporter, attention, full=False):
    return waveform(
        name, "wav2vec", lambda: nets_text.wav2vec(attention, full), exporter,
        {"input_values": ["batch", "samples"]},
        {"last_hidden_state": ["batch", "frames", 768 if full else 64]}, [4000] if full else [1200, 777],
        prefix="net.", full=full, golden="golden_full" if full else "golden",
    )  # fmt: skip


def m5(name, exporter, full=False):
    """Norms are kept in what TorchScript writes, and folded beforehand for dynamo, as those of pictures."""
    norms = exporter == "TorchScript"
    return waveform(
        name, "m5", lambda: nets_text.m5(full, norms), exporter, {"x": ["batch", 1, "samples"]},
        {"y": ["batch", 35]}, [16000] if full else [2600, 3001], keep_norms=norms, full=full,
        golden="golden_full" if full else "golden" if norms else "golden_folded",
    )  # fmt: skip


def tagger(name, kind, exporter, full=False):
    vocabulary, tags = (30000, 17) if full else (nets_text.VOCABULARY, 9)

    def sample(dims):
        return {"input_ids": nets.tokens(dims["batch"], dims["seq"], vocabulary)[0]}

    return case(
        name, f"{kind.__name__.lower()}_tagger", lambda: nets_text.tagger(kind, full), exporter,
        {"input_ids": TOKENS}, {"scores": [*TOKENS, tags]}, LENGTHS[:1] if full else LENGTHS, sample,
        full=full, golden="golden_full" if full else "golden",
    )  # fmt: skip


SCRIPT, DYNAMO = "TorchScript", "dynamo"
DISTILBERT, T5, GPT2, LLAMA = nets_text.distilbert, nets_text.t5_encoder, nets_text.gpt2_cached, nets_text.llama_cached
LSTM, GRU = torch.nn.LSTM, torch.nn.GRU

CASES = [
    encoder("distilbert", DISTILBERT, SCRIPT, "eager"),
    encoder("distilbert_dynamo", DISTILBERT, DYNAMO, "sdpa"),
    encoder("distilbert_full", DISTILBERT, DYNAMO, "sdpa", (30522, 768)),
    cached("gpt2_cached", GPT2, SCRIPT, "eager", 2, 4, 32),
    cached("gpt2_cached_dynamo", GPT2, DYNAMO, "sdpa", 2, 4, 32),
    cached("gpt2_cached_full", GPT2, DYNAMO, "sdpa", 12, 12, 64, nets_text.LARGE_VOCABULARY, True),
    encoder("t5_encoder", T5, SCRIPT, "eager"),
    encoder("t5_encoder_dynamo", T5, DYNAMO, "sdpa"),
    encoder("t5_encoder_full", T5, DYNAMO, "sdpa", (nets_text.LARGE_VOCABULARY, 512)),
    t5_decoder("t5_decoder", SCRIPT, "eager"),
    t5_decoder("t5_decoder_dynamo", DYNAMO, "sdpa"),
    t5_decoder("t5_decoder_full", DYNAMO, "sdpa", nets_text.LARGE_VOCABULARY, 512, True),
    t5_cached("t5_cached", SCRIPT, "eager"),
    t5_cached("t5_cached_dynamo", DYNAMO, "sdpa"),
    cached("llama_cached", LLAMA, SCRIPT, "eager", 2, 2, 32),
    cached("llama_cached_dynamo", LLAMA, DYNAMO, "sdpa", 2, 2, 32),
    cached("llama_cached_full", LLAMA, DYNAMO, "sdpa", 6, 3, 64, nets_text.LARGE_VOCABULARY, True),
    whisper("whisper", SCRIPT, "eager"),
    whisper("whisper_dynamo", DYNAMO, "sdpa"),
    whisper("whisper_full", DYNAMO, "sdpa", True),
    wav2vec("wav2vec", SCRIPT, "eager"),
    wav2vec("wav2vec_dynamo", DYNAMO, "sdpa"),
    wav2vec("wav2vec_full", DYNAMO, "sdpa", True),
    m5("m5", SCRIPT),
    m5("m5_dynamo", DYNAMO),
    m5("m5_full", SCRIPT, True),
    # What PyTorch 2.15's newer exporter writes of LSTM and GRU gives other numbers, in ONNX Runtime, too.
    tagger("lstm_tagger", LSTM, SCRIPT),
    tagger("lstm_tagger_full", LSTM, SCRIPT, True),
    tagger("gru_tagger", GRU, SCRIPT),
]  # fmt: skip


def write_greedy():
    """What PyTorch's decoders without a cache say next, eight times over: tests decode the same with one."""
    for folder, make in (("gpt2_cached", nets.gpt2), ("llama_cached", nets.llama)):
        net = make("eager").net
        prompt, _, _ = nets.tokens(1, 6, nets_text.VOCABULARY)
        ids, tokens = prompt, []
        for _ in range(8):
            logits = net(input_ids=ids, use_cache=False).logits[:, -1]
            best = torch.topk(logits, 2).values[0]
            # A test must not hang on a tie.
            assert best[0] - best[1] > 1e-3, folder
            tokens.append(logits.argmax(-1))
            ids = torch.cat([ids, tokens[-1][:, None]], 1)
        (weights.HERE / folder).mkdir(exist_ok=True)
        file = weights.HERE / folder / "greedy.npz"
        np.savez(file, in_input_ids=prompt.numpy(), out_tokens=torch.stack(tokens, 1).numpy())
