"""Sound: recognition, codecs, speech from text, and the feature front ends inside the graph."""

import torch
import transformers

from case import Model, Net
from hf import TEXT, Call, config, lively, mask, of, tokens

WAV = dict(
    hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, conv_dim=[16, 16, 16], conv_kernel=[10, 3, 3],
    conv_stride=[5, 2, 2], num_feat_extract_layers=3, num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=4, vocab_size=32,
)  # fmt: skip


def wave(samples=1600, batch=1):
    return {"input_values": torch.randn(batch, samples)}


class Mel(torch.nn.Module):
    """Whisper's features: a short-time Fourier transform, mel bands, logarithm, clamped to the loudest."""

    def __init__(self, bands=16, size=400, hop=160):
        super().__init__()
        from transformers.audio_utils import mel_filter_bank

        self.size, self.hop = size, hop
        bank = mel_filter_bank(size // 2 + 1, bands, 0.0, 8000.0, 16000, norm="slaney", mel_scale="slaney")
        self.register_buffer("bank", torch.tensor(bank, dtype=torch.float32))
        self.register_buffer("window", torch.hann_window(size))

    def forward(self, samples):
        turned = torch.stft(samples, self.size, self.hop, window=self.window, return_complex=False, center=True, pad_mode="reflect")
        power = (turned * turned).sum(-1)[..., :-1]
        bands = torch.log10((self.bank.T @ power).clamp(min=1e-10))
        bands = torch.maximum(bands, bands.amax(dim=(1, 2), keepdim=True) - 8.0)
        return (bands + 4.0) / 4.0


class WithFeatures(torch.nn.Module):
    def __init__(self, net):
        super().__init__()
        self.mel, self.net = Mel(), net

    def forward(self, samples, decoder_input_ids):
        return self.net(input_features=self.mel(samples), decoder_input_ids=decoder_input_ids, use_cache=False).logits


def whisper():
    settings = transformers.WhisperConfig(
        vocab_size=99, num_mel_bins=16, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64, max_source_positions=25, max_target_positions=16,
        pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1,
    )  # fmt: skip
    net = transformers.WhisperForConditionalGeneration._from_config(settings, attn_implementation="eager")
    inputs = {"samples": torch.randn(1, 8000), "decoder_input_ids": tokens(1, 5)}
    return Net(WithFeatures(lively(net)), inputs, ["logits"])


def spectrogram():
    return Net(Mel(bands=40), {"samples": torch.randn(2, 4000)}, ["features"], {"samples": {0: "batch"}})


def vits():
    settings = transformers.VitsConfig(
        vocab_size=40, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, window_size=4, ffn_dim=32, flow_size=16,
        spectrogram_bins=20, duration_predictor_num_flows=2, duration_predictor_filter_channels=16, prior_encoder_num_flows=2,
        prior_encoder_num_wavenet_layers=2, posterior_encoder_num_wavenet_layers=2, wavenet_kernel_size=3, depth_separable_num_layers=1,
        upsample_initial_channel=16, upsample_rates=[4, 4], upsample_kernel_sizes=[8, 8], resblock_kernel_sizes=[3],
        resblock_dilation_sizes=[[1, 3]], noise_scale=0.0, noise_scale_duration=0.0,
    )  # fmt: skip
    net = transformers.VitsModel(settings)
    net.noise_scale = net.noise_scale_duration = 0.0
    inputs = {"input_ids": tokens(1, 9, 40), "attention_mask": mask(1, 9)}
    return Net(Call(net, list(inputs), ["waveform"]), inputs, ["waveform"])


def encodec():
    settings = transformers.EncodecConfig(
        num_filters=4, hidden_size=16, codebook_size=32, codebook_dim=16, upsampling_ratios=[4, 2], num_lstm_layers=1, norm_type="time_group_norm",
        target_bandwidths=[1.5], sampling_rate=2400,
    )  # fmt: skip
    net = transformers.EncodecModel(settings)

    class Codec(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net

        def forward(self, input_values):
            return self.net.decoder(self.net.encoder(input_values))

    return Net(Codec(), {"input_values": torch.randn(1, 1, 320)}, ["audio_values"])


def dac():
    settings = transformers.DacConfig(encoder_hidden_size=8, downsampling_ratios=[2, 4], decoder_hidden_size=32, n_codebooks=2, codebook_size=16, codebook_dim=4, hidden_size=32)
    net = transformers.DacModel(settings)
    return Net(Call(net, ["input_values"], ["audio_values"]), {"input_values": torch.randn(1, 1, 320)}, ["audio_values"])


def clap():
    words = TEXT | dict(max_position_embeddings=32, projection_dim=24)
    sound = dict(
        window_size=4, num_mel_bins=16, spec_size=64, patch_size=4, patch_stride=[4, 4], num_classes=5, hidden_size=64, projection_dim=24, depths=[1, 1],
        num_attention_heads=[2, 2], patch_embeds_hidden_size=32, enable_fusion=False, patch_embed_input_channels=1,
    )  # fmt: skip
    return transformers.ClapConfig(text_config=words, audio_config=sound, projection_dim=24)


def sound_and_text():
    return {"input_ids": tokens(1, 9), "attention_mask": mask(1, 9), "input_features": torch.randn(1, 1, 100, 16)}


def speecht5():
    settings = transformers.SpeechT5HifiGanConfig(model_in_dim=16, upsample_initial_channel=16, upsample_rates=[4, 4], upsample_kernel_sizes=[8, 8], resblock_kernel_sizes=[3], resblock_dilation_sizes=[[1, 3]])
    net = transformers.SpeechT5HifiGan(settings)
    return Net(net, {"spectrogram": torch.randn(2, 20, 16)}, ["waveform"], {"spectrogram": {0: "batch", 1: "frames"}})


HUBERT = {"input_values": {0: "batch", 1: "samples"}}
MODELS = [
    Model("whisper_features", "audio", "transformers", whisper),
    Model("log_mel", "audio", "PyTorch", spectrogram),
    Model("vits", "audio", "transformers", vits),
    Model("encodec", "audio", "transformers", encodec),
    Model("dac", "audio", "transformers", dac),
    Model("hifigan", "audio", "transformers", speecht5),
    Model("clap", "audio", "transformers", of("ClapModel", clap, sound_and_text, ["logits_per_audio", "audio_embeds", "text_embeds"])),
    Model("ast", "audio", "transformers", of("ASTForAudioClassification", config("ASTConfig", hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, patch_size=8, frequency_stride=6, time_stride=6, max_length=40, num_mel_bins=20, num_labels=5), lambda: {"input_values": torch.randn(1, 40, 20)}, ["logits"])),
    Model("hubert", "audio", "transformers", of("HubertForCTC", config("HubertConfig", **WAV), wave, ["logits"], dynamic=HUBERT)),
    Model("wavlm", "audio", "transformers", of("WavLMModel", config("WavLMConfig", num_buckets=16, max_bucket_distance=40, **WAV), wave, ["last_hidden_state"])),
    Model("wav2vec2_conformer", "audio", "transformers", of("Wav2Vec2ConformerModel", config("Wav2Vec2ConformerConfig", position_embeddings_type="relative", conv_depthwise_kernel_size=7, max_source_positions=200, **WAV), wave, ["last_hidden_state"])),
    Model("sew", "audio", "transformers", of("SEWModel", config("SEWConfig", squeeze_factor=2, **WAV), wave, ["last_hidden_state"])),
    Model("moonshine", "audio", "transformers", of("MoonshineForConditionalGeneration", config("MoonshineConfig", vocab_size=99, hidden_size=32, intermediate_size=64, encoder_num_hidden_layers=2, decoder_num_hidden_layers=2, encoder_num_attention_heads=4, decoder_num_attention_heads=4), lambda: {"input_values": torch.randn(1, 4000), "decoder_input_ids": tokens(1, 5)}, ["logits"], use_cache=False)),
]
