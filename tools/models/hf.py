"""What the networks of Hugging Face's libraries have in common."""

import torch
import transformers

from case import Model, Net

VOCABULARY = 99
TEXT = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64, "vocab_size": VOCABULARY}
DECODER = TEXT | {"num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 64}


class Call(torch.nn.Module):
    """A network called by keywords, whose outputs of these names are a tuple."""

    def __init__(self, net, names, outputs, **fixed):
        super().__init__()
        self.net, self.names, self.outputs, self.fixed = net, names, outputs, fixed

    def forward(self, *args):
        out = self.net(**dict(zip(self.names, args)), **self.fixed)
        if not self.outputs:
            return out
        return tuple(out[name] for name in self.outputs)


def tokens(batch=2, seq=11, vocabulary=VOCABULARY):
    return torch.randint(3, vocabulary, (batch, seq))


def mask(batch=2, seq=11):
    keep = torch.ones(batch, seq, dtype=torch.int64)
    keep[-1, seq - 3 :] = 0
    return keep


def text(batch=2, seq=11, vocabulary=VOCABULARY):
    return {"input_ids": tokens(batch, seq, vocabulary), "attention_mask": mask(batch, seq)}


def pictures(size=64, batch=1, channels=3):
    return {"pixel_values": torch.rand(batch, channels, size, size) * 2 - 1}


def lively(net, factor=4.0):
    """Initial weights of this library are so small that all outputs are alike; these are not."""
    for parameter in net.parameters():
        if parameter.dim() > 1 and float(parameter.std()) < 0.05:
            parameter.data.mul_(factor)
    return net


def of(net, config, inputs, outputs, attention="eager", dynamic=None, **fixed):
    """A function that makes `transformers.NET(transformers.CONFIG)`; both may be functions of their own."""

    def make():
        settings = config() if callable(config) else config
        build = getattr(transformers, net) if isinstance(net, str) else net
        if attention is not None:
            settings._attn_implementation = attention
        made = build(settings) if not hasattr(build, "_from_config") else build._from_config(settings, **({"attn_implementation": attention} if attention else {}))
        values = inputs()
        named = {k: v for k, v in (dynamic or {}).items() if k in values}
        call = Call(lively(made), list(values), outputs, **fixed)
        return Net(call, values, [f"y_{n}" for n in outputs], named)

    return make


def config(name, **options):
    return lambda: getattr(transformers, name)(**options)


BATCH_SEQ = {n: {0: "batch", 1: "seq"} for n in ("input_ids", "attention_mask")}
