"""The text, audio and sequence networks that export.py writes, with inputs to try them on."""

import nets  # first: it keeps transformers off the network
import torch
from torch import nn
from transformers import (
    DistilBertConfig, DistilBertModel, DynamicCache, EncoderDecoderCache, GPT2Config, GPT2LMHeadModel,
    LlamaConfig, LlamaForCausalLM, T5Config, T5ForConditionalGeneration, Wav2Vec2Config, Wav2Vec2Model,
    WhisperConfig,
)  # fmt: skip
from transformers.models.whisper.modeling_whisper import WhisperEncoder

from nets import fill

VOCABULARY = 320  # of the small models
LARGE_VOCABULARY = 8000  # of full-size ones that give a number for each word: goldens stay small


def additive(keep):
    """A mask of truth values as what is added to scores: 0, or the least number there is.

    As in nets.py: the TorchScript exporter writes wrong results for the library's own mask code.
    """
    zero = torch.zeros((), dtype=torch.float32)
    return torch.where(keep, zero, torch.finfo(torch.float32).min)


def padding(attention_mask):
    return additive(attention_mask[:, None, None, :].to(torch.bool))


def causal(past, length, attention_mask=None):
    """The additive mask of `length` queries that come after `past` keys."""
    seen = torch.arange(past + length)[None, :] <= torch.arange(length)[:, None] + past
    keep = seen[None, None]
    if attention_mask is not None:
        keep = keep & attention_mask[:, None, None, :].to(torch.bool)
    return additive(keep)


def filled_cache(pairs):
    """A cache that holds these keys and values, one after the other for each layer.

    The cache's own way of taking them would concatenate them with an empty vector.
    """
    cache = DynamicCache()
    for i in range(0, len(pairs), 2):
        layer = cache.layer_class_to_replicate()
        layer.keys, layer.values = pairs[i], pairs[i + 1]
        layer.dtype, layer.device, layer.is_initialized = pairs[i].dtype, pairs[i].device, True
        cache.layers.append(layer)
    return cache


def pairs_of(cache):
    return [tensor for layer in cache.layers for tensor in (layer.keys, layer.values)]


# Encoders


class Encoder(nn.Module):
    """Token ids and a padding mask to the last hidden state; `explicit_mask` builds the additive mask here."""

    def __init__(self, net, explicit_mask):
        super().__init__()
        self.net = net
        self.explicit_mask = explicit_mask

    def forward(self, input_ids, attention_mask):
        mask = padding(attention_mask) if self.explicit_mask else attention_mask
        return self.net(input_ids=input_ids, attention_mask=mask).last_hidden_state


def distilbert(attention, explicit_mask, full=False):
    size = {} if full else {
        "vocab_size": VOCABULARY, "dim": 96, "n_layers": 2, "n_heads": 4, "hidden_dim": 192,
        "max_position_embeddings": nets.POSITIONS,
    }  # fmt: skip
    config = DistilBertConfig(**size, attn_implementation=attention)
    return Encoder(fill(DistilBertModel(config)), explicit_mask).eval()


def t5_whole(attention, full):
    # t5-small; the small one has half its heads' size and few buckets, so that all are used.
    size = {"vocab_size": LARGE_VOCABULARY} if full else {
        "vocab_size": VOCABULARY, "d_model": 96, "d_kv": 16, "d_ff": 192, "num_layers": 2, "num_heads": 4,
        "relative_attention_num_buckets": 8, "relative_attention_max_distance": 20,
    }  # fmt: skip
    config = T5Config(**size, decoder_start_token_id=0, attn_implementation=attention)
    return fill(T5ForConditionalGeneration(config))


class T5Encoder(Encoder):
    """The first half of a whole network, whose parameters keep the whole network's names."""

    def forward(self, input_ids, attention_mask):
        mask = padding(attention_mask) if self.explicit_mask else attention_mask
        return self.net.encoder(input_ids=input_ids, attention_mask=mask).last_hidden_state


def t5_encoder(attention, explicit_mask, full=False):
    return T5Encoder(t5_whole(attention, full), explicit_mask).eval()


# Decoders


class Cached(nn.Module):
    """Token ids, a padding mask of all that was seen, and each layer's keys and values to logits and the
    keys and values with those of the tokens appended."""

    def __init__(self, net, explicit_mask):
        super().__init__()
        self.net = net
        self.explicit_mask = explicit_mask

    def forward(self, input_ids, attention_mask, *past):
        cache = filled_cache(past)
        mask = attention_mask
        if self.explicit_mask:
            mask = causal(past[0].shape[2], input_ids.shape[1], attention_mask)
        out = self.net(input_ids=input_ids, attention_mask=mask, past_key_values=cache, use_cache=True)
        return out.logits, *pairs_of(cache)


def gpt2_cached(attention, explicit_mask, full=False):
    size = {"vocab_size": LARGE_VOCABULARY, "bos_token_id": 0, "eos_token_id": 0} if full else {
        "vocab_size": VOCABULARY, "n_embd": 128, "n_layer": 2, "n_head": 4, "n_positions": nets.POSITIONS,
        "bos_token_id": 0, "eos_token_id": 0,
    }  # fmt: skip
    config = GPT2Config(**size, attn_implementation=attention)
    return Cached(fill(GPT2LMHeadModel(config)), explicit_mask).eval()


def llama_cached(attention, explicit_mask, full=False):
    """As nets.llama, so that the two can be compared; full: the sizes of a model of 135 million parameters,
    with a few of its layers."""
    size = {
        "vocab_size": LARGE_VOCABULARY, "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 6,
        "num_attention_heads": 9, "num_key_value_heads": 3, "max_position_embeddings": 2048,
    } if full else {
        "vocab_size": VOCABULARY, "hidden_size": 128, "intermediate_size": 352, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": nets.POSITIONS,
    }  # fmt: skip
    config = LlamaConfig(**size, bos_token_id=0, eos_token_id=0, attn_implementation=attention)
    net = LlamaForCausalLM(config)
    frequencies = net.model.rotary_emb.inv_freq.clone()  # a constant of the method, not a weight
    fill(net).model.rotary_emb.inv_freq.copy_(frequencies)
    return Cached(net, explicit_mask).eval()


class T5Decoder(nn.Module):
    """Token ids, the encoder's states and their padding mask to logits."""

    def __init__(self, net, explicit_mask):
        super().__init__()
        self.net = net
        self.explicit_mask = explicit_mask

    def forward(self, input_ids, encoder_hidden_states, encoder_attention_mask):
        own, other = None, encoder_attention_mask
        if self.explicit_mask:
            own, other = causal(0, input_ids.shape[1]), padding(encoder_attention_mask)
        out = self.net(
            encoder_outputs=(encoder_hidden_states,), attention_mask=other,
            decoder_input_ids=input_ids, decoder_attention_mask=own, use_cache=False,
        )  # fmt: skip
        return out.logits


class T5Cached(nn.Module):
    """Token ids, the encoder's padding mask, each layer's own keys and values, then each layer's keys and
    values of the encoder's states, to logits and the layers' own keys and values with the tokens' appended."""

    def __init__(self, net, explicit_mask):
        super().__init__()
        self.net = net
        self.explicit_mask = explicit_mask

    def forward(self, input_ids, encoder_attention_mask, *past):
        own, cross = past[: len(past) // 2], past[len(past) // 2 :]
        cache = EncoderDecoderCache(filled_cache(own), filled_cache(cross))
        cache.is_updated = {layer: True for layer in range(len(cross) // 2)}
        mask, other = None, encoder_attention_mask
        if self.explicit_mask:
            mask, other = causal(past[0].shape[2], input_ids.shape[1]), padding(encoder_attention_mask)
        # Stands for the encoder's states, of which only the length is looked at.
        states = cross[0][:, 0]
        out = self.net(
            encoder_outputs=(states,), attention_mask=other, decoder_input_ids=input_ids,
            decoder_attention_mask=mask, past_key_values=cache, use_cache=True,
        )  # fmt: skip
        return out.logits, *pairs_of(cache.self_attention_cache)


def t5_decoder(attention, explicit_mask, full=False):
    return T5Decoder(t5_whole(attention, full), explicit_mask).eval()


def t5_cached(attention, explicit_mask, full=False):
    return T5Cached(t5_whole(attention, full), explicit_mask).eval()


# Audio


class Whisper(nn.Module):
    """Mel spectrograms to the encoder's states, every `stride`-th of them."""

    def __init__(self, net, stride):
        super().__init__()
        self.net = net
        self.stride = stride

    def forward(self, input_features):
        states = self.net(input_features).last_hidden_state
        return states if self.stride == 1 else states[:, :: self.stride]


def whisper(attention, full=False):
    """Whisper's encoder; full: whisper-tiny, whose 1,500 states are thinned so that the golden stays small."""
    size = {} if full else {
        "num_mel_bins": 16, "d_model": 96, "encoder_layers": 2, "encoder_attention_heads": 4,
        "encoder_ffn_dim": 192, "max_source_positions": 24,
    }  # fmt: skip
    config = WhisperConfig(**size, attn_implementation=attention)
    return Whisper(fill(WhisperEncoder(config)), 50 if full else 1).eval()


class Wav2Vec(nn.Module):
    """A waveform to the last hidden state."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, input_values):
        return self.net(input_values).last_hidden_state


def wav2vec(attention, full=False):
    """wav2vec 2.0: strided convolutions of the waveform, a grouped one for positions, attention."""
    size = {} if full else {
        "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128,
        "conv_dim": (32, 32, 32), "conv_stride": (5, 4, 2), "conv_kernel": (10, 8, 3),
        "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4,
    }  # fmt: skip
    net = Wav2Vec2Model(Wav2Vec2Config(**size, attn_implementation=attention)).eval()
    # The filter as one weight, as it is used once training is over.
    nn.utils.parametrize.remove_parametrizations(net.encoder.pos_conv_embed.conv, "weight")
    return Wav2Vec(fill(net)).eval()


def m5(full=False, norms=True):
    """M5 (Dai and others, 2017): four blocks of 1-D convolution over a waveform, and classes; with batch norms,
    or as they are folded into the convolutions."""
    width = 128 if full else 24
    layers = []
    for inside, outside, kernel, stride in [
        (1, width, 80, 4), (width, width, 3, 1), (width, 2 * width, 3, 1), (2 * width, 4 * width, 3, 1)
    ]:  # fmt: skip
        norm = [nn.BatchNorm1d(outside)] if norms else []
        layers += [nn.Conv1d(inside, outside, kernel, stride), *norm, nn.ReLU(), nn.MaxPool1d(4)]
    return fill(nn.Sequential(*layers, Mean(), nn.Linear(4 * width, 35)))


class Mean(nn.Module):
    """The mean over time."""

    def forward(self, x):
        return x.mean(-1)


# Taggers


class Tagger(nn.Module):
    """Embedding, a recurrent network in both directions, and a score for each tag of each token."""

    def __init__(self, kind, vocabulary, size, hidden, layers, tags):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, size)
        self.rnn = kind(size, hidden, num_layers=layers, bidirectional=True, batch_first=True)
        self.out = nn.Linear(2 * hidden, tags)
        # ONNX keeps the gates in another order and both directions in one tensor. The formula makes these
        # tensors, and PyTorch's parameters are cut from them.
        gates = self.gates()
        for layer in range(layers):
            inside = size if layer == 0 else 2 * hidden
            shapes = {"W": (2, len(gates) * hidden, inside), "R": (2, len(gates) * hidden, hidden)}
            for name, shape in (*shapes.items(), ("B", (2, 2 * len(gates) * hidden))):
                self.register_buffer(f"rnn_{name}_l{layer}", torch.zeros(shape))

    def gates(self):
        """Which of ONNX's gates each of PyTorch's is: i, f, g, o of i, o, f, c, or r, z, n of z, r, h."""
        return [0, 2, 3, 1] if isinstance(self.rnn, nn.LSTM) else [1, 0, 2]

    def fill(self):
        fill(self, rnn_gain)
        gates = self.gates()

        def ordered(tensor):
            """PyTorch's order of the gates."""
            parts = tensor.chunk(len(gates))
            return torch.cat([parts[gate] for gate in gates])

        with torch.no_grad():
            for layer in range(self.rnn.num_layers):
                w, r, b = (getattr(self, f"rnn_{name}_l{layer}") for name in "WRB")
                for direction, suffix in enumerate(("", "_reverse")):
                    end = f"l{layer}{suffix}"
                    getattr(self.rnn, f"weight_ih_{end}").copy_(ordered(w[direction]))
                    getattr(self.rnn, f"weight_hh_{end}").copy_(ordered(r[direction]))
                    first, second = b[direction].chunk(2)
                    getattr(self.rnn, f"bias_ih_{end}").copy_(ordered(first))
                    getattr(self.rnn, f"bias_hh_{end}").copy_(ordered(second))
        return self.eval()

    def forward(self, input_ids):
        states, _ = self.rnn(self.embed(input_ids))
        return self.out(states)


def rnn_gain(name):
    """The formula counts all the gates of a recurrent network's stacked weights as its fan-in."""
    return 16.0 if name.startswith(("rnn_W", "rnn_R")) else 1.0


def tagger(kind, full=False):
    sizes = (30000, 300, 512, 2, 17) if full else (VOCABULARY, 48, 64, 1, 9)
    return Tagger(kind, *sizes).fill()
