"""PyTorch's side of `graphs.py`: a decoder of Llama's shape, its first rows or one token behind cached ones."""

import torch
from torch import nn
from torch.nn import functional as F

POSITIONS = 4096


def turn(x, cos, sin):
    """Rotary embedding of the two halves of each head."""
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


class Mix(nn.Module):
    """Attention. With caches it replaces one row of them, and sees those before it."""

    def __init__(self, d):
        super().__init__()
        self.of = d
        keys = d.key_heads * d.size
        self.q, self.o = (nn.Linear(d.hidden, d.hidden, bias=False) for _ in range(2))
        self.k, self.v = (nn.Linear(d.hidden, keys, bias=False) for _ in range(2))
        if d.past:
            for name in ("keys", "values"):
                self.register_buffer(name, torch.zeros(d.batch, d.key_heads, d.capacity, d.size))

    def heads(self, x, count):
        return x.view(self.of.batch, self.of.length, count, self.of.size).transpose(1, 2)

    def forward(self, x, cos, sin, place, seen):
        d = self.of
        q = turn(self.heads(self.q(x), d.heads), cos, sin)
        k = turn(self.heads(self.k(x), d.key_heads), cos, sin)
        v = self.heads(self.v(x), d.key_heads)
        if d.past:
            k, v = self.keys.index_copy_(2, place, k), self.values.index_copy_(2, place, v)
        grouped = d.heads // d.key_heads
        if d.past and grouped > 1:
            # PyTorch's fast kernels take shared heads or a mask, not both.
            k, v = k.repeat_interleave(grouped, 1), v.repeat_interleave(grouped, 1)
        y = F.scaled_dot_product_attention(
            q, k, v, attn_mask=seen, is_causal=not d.past, enable_gqa=not d.past and grouped > 1
        )
        return self.o(y.transpose(1, 2).reshape(d.batch, d.length, d.hidden))


class Gated(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.gate, self.up = (nn.Linear(d.hidden, d.inner, bias=False) for _ in range(2))
        self.down = nn.Linear(d.inner, d.hidden, bias=False)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Layer(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.mix_norm, self.mlp_norm = (nn.RMSNorm(d.hidden, eps=1e-5) for _ in range(2))
        self.mix, self.mlp = Mix(d), Gated(d)

    def forward(self, x, *places):
        x = x + self.mix(self.mix_norm(x), *places)
        return x + self.mlp(self.mlp_norm(x))


class Llama(nn.Module):
    """Token ids to the logits of the last one."""

    def __init__(self, d):
        super().__init__()
        self.of = d
        self.embedding = nn.Embedding(d.vocabulary, d.hidden)
        self.layers = nn.ModuleList(Layer(d) for _ in range(d.layers))
        self.norm, self.logits = nn.RMSNorm(d.hidden, eps=1e-5), nn.Linear(d.hidden, d.vocabulary, bias=False)
        frequencies = 1.0 / 10000 ** (torch.arange(0, d.size, 2) / d.size)
        turned = torch.outer(torch.arange(POSITIONS), frequencies)
        for name, table in (("cos", turned.cos()), ("sin", turned.sin())):
            self.register_buffer(name, table)

    def forward(self, ids, place):
        """`place` has the row of each token, the same for all sequences."""
        seen = (torch.arange(self.of.capacity, device=ids.device) <= place)[None, None] if self.of.past else None
        x = self.embedding(ids)
        for layer in self.layers:
            x = layer(x, self.cos[place], self.sin[place], place, seen)
        return self.logits(self.norm(x[:, -1]))


def llama(decoder, device):
    """The model and what it is given, in bf16."""
    with torch.device(device):
        model = Llama(decoder).bfloat16().eval()
        ids = torch.ones(decoder.batch, decoder.length, dtype=torch.long)
        place = torch.arange(decoder.past, decoder.past + decoder.length)
    return model, (ids, place)
