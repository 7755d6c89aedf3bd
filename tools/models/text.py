"""Text: encoders, decoders, encoder-decoders."""

import torch

from case import Model
from hf import BATCH_SEQ, DECODER, TEXT, config, mask, of, text, tokens


def encoder(net, settings, inputs=text, output="last_hidden_state", dynamic=BATCH_SEQ, **fixed):
    return of(net, settings, inputs, [output], dynamic=dynamic, **fixed)


def causal(net, settings, **fixed):
    return of(net, settings, text, ["logits"], dynamic=BATCH_SEQ, use_cache=False, **fixed)


def both():
    return text() | {"decoder_input_ids": tokens(2, 7)}


def seq2seq(net, settings):
    return of(net, settings, both, ["logits"], dynamic=BATCH_SEQ, use_cache=False)


def layout():
    corner = torch.randint(0, 400, (2, 11, 2))
    return text() | {"bbox": torch.cat([corner, corner + torch.randint(1, 500, (2, 11, 2))], -1)}


BART = dict(
    vocab_size=99, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
    encoder_ffn_dim=64, decoder_ffn_dim=64, max_position_embeddings=64,
)  # fmt: skip
ROTARY = dict(DECODER)
LONG = TEXT | dict(max_position_embeddings=80)

ENCODERS = {
    "longformer": ("LongformerModel", config("LongformerConfig", attention_window=[4, 4], **LONG), lambda: text(2, 16)),
    "bigbird": ("BigBirdModel", config("BigBirdConfig", attention_type="block_sparse", block_size=4, num_random_blocks=1, **LONG), lambda: text(2, 48)),
    "deberta": ("DebertaModel", config("DebertaConfig", relative_attention=True, pos_att_type=["c2p", "p2c"], max_relative_positions=16, **TEXT), text),
    "deberta_v2": ("DebertaV2Model", config("DebertaV2Config", relative_attention=True, pos_att_type=["c2p", "p2c"], position_buckets=8, max_relative_positions=16, conv_kernel_size=3, conv_act="gelu", **TEXT), text),
    "albert": ("AlbertModel", config("AlbertConfig", embedding_size=16, **TEXT), text),
    "modernbert": ("ModernBertModel", config("ModernBertConfig", local_attention=6, global_attn_every_n_layers=2, pad_token_id=0, **TEXT), text),
    "squeezebert": ("SqueezeBertModel", config("SqueezeBertConfig", embedding_size=32, q_groups=2, k_groups=2, v_groups=2, post_attention_groups=1, intermediate_groups=2, output_groups=2, **TEXT), text),
    "convbert": ("ConvBertModel", config("ConvBertConfig", embedding_size=16, conv_kernel_size=5, **TEXT), text),
    "fnet": ("FNetModel", config("FNetConfig", hidden_size=32, num_hidden_layers=2, intermediate_size=64, vocab_size=99, max_position_embeddings=64), lambda: {"input_ids": tokens()}),
    "canine": ("CanineModel", config("CanineConfig", hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, downsampling_rate=4, local_transformer_stride=8, num_hash_buckets=64), lambda: text(1, 32)),
    "funnel": ("FunnelModel", config("FunnelConfig", vocab_size=99, block_sizes=[1, 2], num_decoder_layers=1, d_model=32, n_head=4, d_head=8, d_inner=64), text),
    "xlnet": ("XLNetModel", config("XLNetConfig", vocab_size=99, d_model=32, n_layer=2, n_head=4, d_inner=64), text),
}
DECODERS = {
    "gptj": ("GPTJForCausalLM", config("GPTJConfig", vocab_size=99, n_positions=64, n_embd=32, n_layer=2, n_head=4, rotary_dim=4)),
    "gpt_neox": ("GPTNeoXForCausalLM", config("GPTNeoXConfig", rotary_pct=0.5, max_position_embeddings=64, **TEXT)),
    "gpt_neo": ("GPTNeoForCausalLM", config("GPTNeoConfig", vocab_size=99, hidden_size=32, num_layers=2, num_heads=4, attention_types=[[["global", "local"], 1]], window_size=5, max_position_embeddings=64)),
    "bloom": ("BloomForCausalLM", config("BloomConfig", vocab_size=99, hidden_size=32, n_layer=2, n_head=4)),
    "opt": ("OPTForCausalLM", config("OPTConfig", vocab_size=99, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, ffn_dim=64, word_embed_proj_dim=32, max_position_embeddings=64)),
    "falcon": ("FalconForCausalLM", config("FalconConfig", vocab_size=99, hidden_size=32, num_hidden_layers=2, num_attention_heads=4)),
    "mamba": ("MambaForCausalLM", config("MambaConfig", vocab_size=99, hidden_size=16, state_size=4, num_hidden_layers=2)),
    "gemma2": ("Gemma2ForCausalLM", config("Gemma2Config", query_pre_attn_scalar=8, sliding_window=6, **ROTARY)),
    "gemma3": ("Gemma3ForCausalLM", config("Gemma3TextConfig", query_pre_attn_scalar=8, sliding_window=6, **ROTARY)),
    "qwen2": ("Qwen2ForCausalLM", config("Qwen2Config", **{k: v for k, v in ROTARY.items() if k != "head_dim"})),
    "qwen3": ("Qwen3ForCausalLM", config("Qwen3Config", **ROTARY)),
    "phi3": ("Phi3ForCausalLM", config("Phi3Config", pad_token_id=0, **{k: v for k, v in ROTARY.items() if k != "head_dim"})),
}
SEQ2SEQ = {
    "bart": ("BartForConditionalGeneration", config("BartConfig", **BART)),
    "prophetnet": ("ProphetNetForConditionalGeneration", config("ProphetNetConfig", vocab_size=99, hidden_size=32, num_encoder_layers=2, num_decoder_layers=2, num_encoder_attention_heads=4, num_decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64, num_buckets=8, relative_max_distance=16)),
}
MODELS = [
    *(Model(name, "text encoder", "transformers", encoder(*made)) for name, made in ENCODERS.items()),
    *(Model(name, "text decoder", "transformers", causal(*made)) for name, made in DECODERS.items()),
    *(Model(name, "text to text", "transformers", seq2seq(*made)) for name, made in SEQ2SEQ.items()),
]
