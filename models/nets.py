"""The PyTorch networks that export.py writes, with inputs to try them on."""

import math
import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd
from torch.nn.utils.fusion import fuse_conv_bn_eval
from torchvision.models import resnet18
from transformers import BertConfig, BertModel, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from weights import packaged_safetensors, rule, values

POSITIONS = 128  # the longest sequence of the small language models


def fill(net, gain=lambda name: 1.0):
    """Give every parameter and statistic of `net` the values of the formula, by its name."""
    with torch.no_grad():
        # Tied parameters are visited once, under their first name.
        for name, tensor in (*net.named_parameters(), *net.named_buffers()):
            if tensor.dtype == torch.float32:
                made = rule(name, list(tensor.shape), gain(name))
                tensor.copy_(torch.from_numpy(values(name, list(tensor.shape), made["scale"], made["shift"])))
    net.gain = gain
    return net.eval()


def gain_of(net, prefix):
    """The gains that `fill` used for the part of `net` whose names begin with `prefix`."""
    return net.get_submodule(prefix.removesuffix(".")).gain


def mlp():
    return fill(nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64)))


def resnet_gain(name):
    """He's gain, less on each residual branch's last filter, so that sums do not grow."""
    if "conv" not in name and "downsample" not in name:
        return 1.0
    return 0.5 if ".conv2." in name else math.sqrt(2)


def resnet():
    return fill(resnet18(weights=None), resnet_gain)


def fold_norms(net):
    """Batch norms folded into the convolutions before them, as networks are usually exported."""
    for parent in list(net.modules()):
        layers = list(parent.named_children())
        for (name, conv), (after, norm) in zip(layers, layers[1:]):
            if isinstance(conv, _ConvNd) and isinstance(norm, _BatchNorm):
                setattr(parent, name, fuse_conv_bn_eval(conv, norm))
                setattr(parent, after, nn.Identity())
    # Every norm follows its convolution in the list of layers, so the pairs above are all.
    assert not any(isinstance(m, _BatchNorm) for m in net.modules())
    return net


def resnet_fused():
    return fill(fold_norms(resnet18(weights=None).eval()), resnet_gain)


class Bert(nn.Module):
    """Token ids and masks to the last hidden state.

    `explicit_mask` builds the additive mask here, in the way older library versions did: the
    TorchScript exporter writes a graph with wrong results for the mask code of the present one.
    """

    def __init__(self, net, explicit_mask):
        super().__init__()
        self.net = net
        self.explicit_mask = explicit_mask

    def forward(self, input_ids, attention_mask, token_type_ids):
        if self.explicit_mask:
            keep = attention_mask[:, None, None, :].to(torch.float32)
            attention_mask = (1.0 - keep) * -10000.0
        out = self.net(input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids)
        return out.last_hidden_state


class Causal(nn.Module):
    """Token ids and a padding mask to logits; `explicit_mask` as for `Bert`."""

    def __init__(self, net, explicit_mask):
        super().__init__()
        self.net = net
        self.explicit_mask = explicit_mask

    def forward(self, input_ids, attention_mask):
        if self.explicit_mask:
            length = input_ids.shape[1]
            causal = torch.ones(length, length, dtype=torch.bool).tril()
            keep = causal[None, None] & attention_mask[:, None, None, :].to(torch.bool)
            zero = torch.zeros((), dtype=torch.float32)
            attention_mask = torch.where(keep, zero, torch.finfo(torch.float32).min)
        return self.net(input_ids=input_ids, attention_mask=attention_mask, use_cache=False).logits


def bert(attention, explicit_mask=False):
    config = BertConfig(
        vocab_size=1000, hidden_size=128, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=512, max_position_embeddings=POSITIONS, attn_implementation=attention,
    )  # fmt: skip
    return Bert(fill(BertModel(config, add_pooling_layer=False)), explicit_mask)


def gpt2(attention, explicit_mask=False):
    config = GPT2Config(
        vocab_size=320, n_embd=128, n_layer=2, n_head=4, n_positions=POSITIONS,
        bos_token_id=0, eos_token_id=0, attn_implementation=attention,
    )  # fmt: skip
    return Causal(fill(GPT2LMHeadModel(config)), explicit_mask).eval()


def llama(attention, explicit_mask=False):
    config = LlamaConfig(
        vocab_size=320, hidden_size=128, intermediate_size=352, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=POSITIONS,
        bos_token_id=0, eos_token_id=0, attn_implementation=attention,
    )  # fmt: skip
    net = LlamaForCausalLM(config)
    frequencies = net.model.rotary_emb.inv_freq.clone()  # a constant of the method, not a weight
    fill(net).model.rotary_emb.inv_freq.copy_(frequencies)
    return Causal(net, explicit_mask).eval()


def minilm(attention="eager", explicit_mask=True):
    """MiniLM-L6 with its real weights."""
    folder = packaged_safetensors().parent
    net = BertModel.from_pretrained(folder, add_pooling_layer=False, attn_implementation=attention)
    return Bert(net.eval(), explicit_mask).eval()


def tokens(batch, length, vocabulary):
    """Random ids; where there is room, all rows but the first are padded at the end."""
    generator = torch.Generator().manual_seed(1000 * batch + length)
    ids = torch.randint(1, vocabulary, (batch, length), generator=generator)
    mask = torch.ones(batch, length, dtype=torch.int64)
    kinds = (torch.arange(length) >= length // 2).to(torch.int64).expand(batch, length).contiguous()
    for row in range(1, batch):
        mask[row, length - min(2 * row + 1, length - 1) :] = 0
    return ids * mask, mask, kinds
