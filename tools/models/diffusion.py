"""Diffusion: denoisers, autoencoders, text encoders."""

import diffusers
import torch
import transformers

from case import Model, Net
from hf import TEXT, Call, lively, mask, of, tokens


def made(build, inputs, outputs, **fixed):
    def make():
        values = inputs()
        return Net(Call(lively(build()), list(values), outputs, **fixed), values, [f"y_{name}" for name in outputs])

    return make


BLOCKS = dict(block_out_channels=(16, 32), layers_per_block=1, norm_num_groups=4)


def unet():
    return diffusers.UNet2DConditionModel(
        sample_size=16, cross_attention_dim=32, attention_head_dim=4, down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"), **BLOCKS,
    )  # fmt: skip


def unet_xl():
    return diffusers.UNet2DConditionModel(
        sample_size=16, cross_attention_dim=32, attention_head_dim=(2, 4), use_linear_projection=True, transformer_layers_per_block=(1, 2),
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"), up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        addition_embed_type="text_time", addition_time_embed_dim=8, projection_class_embeddings_input_dim=80, **BLOCKS,
    )  # fmt: skip


class Xl(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = lively(unet_xl())

    def forward(self, sample, timestep, states, text_embeds, time_ids):
        added = {"text_embeds": text_embeds, "time_ids": time_ids}
        return self.net(sample, timestep, states, added_cond_kwargs=added, return_dict=False)[0]


def xl():
    values = {
        "sample": torch.randn(1, 4, 16, 16), "timestep": torch.tensor([10.0]), "states": torch.randn(1, 7, 32),
        "text_embeds": torch.randn(1, 32), "time_ids": torch.rand(1, 6) * 64,
    }  # fmt: skip
    return Net(Xl(), values, ["noise"])


def latent():
    return {"sample": torch.randn(1, 4, 16, 16), "timestep": torch.tensor([10.0]), "encoder_hidden_states": torch.randn(1, 7, 32)}


def plain_unet():
    return diffusers.UNet2DModel(sample_size=16, in_channels=3, out_channels=3, attention_head_dim=4, down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D"), **BLOCKS)


def vae(build):
    return lambda: build(down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2, latent_channels=4, **BLOCKS)


class Half(torch.nn.Module):
    """One half of an autoencoder."""

    def __init__(self, net, decode):
        super().__init__()
        self.net, self.decoding = net, decode

    def forward(self, x):
        return self.net.decode(x).sample if self.decoding else self.net.encode(x).latent_dist.mode()


def half(decode):
    def make():
        net = vae(diffusers.AutoencoderKL)()
        return Net(Half(net, decode), {"x": torch.randn(1, 4, 8, 8) if decode else torch.rand(1, 3, 32, 32)}, ["y"])

    return make


def dit():
    return diffusers.DiTTransformer2DModel(num_attention_heads=2, attention_head_dim=16, in_channels=4, out_channels=4, num_layers=2, sample_size=8, num_embeds_ada_norm=10)


def sd3():
    return diffusers.SD3Transformer2DModel(sample_size=8, patch_size=2, in_channels=4, out_channels=4, num_layers=2, attention_head_dim=8, num_attention_heads=4, joint_attention_dim=32, caption_projection_dim=32, pooled_projection_dim=16, pos_embed_max_size=8)


def sd3_inputs():
    return {"hidden_states": torch.randn(1, 4, 8, 8), "encoder_hidden_states": torch.randn(1, 5, 32), "pooled_projections": torch.randn(1, 16), "timestep": torch.tensor([10.0])}


def flux():
    return diffusers.FluxTransformer2DModel(patch_size=1, in_channels=4, num_layers=1, num_single_layers=1, attention_head_dim=16, num_attention_heads=2, joint_attention_dim=32, pooled_projection_dim=32, axes_dims_rope=(4, 4, 8))


def flux_inputs():
    return {
        "hidden_states": torch.randn(1, 16, 4), "encoder_hidden_states": torch.randn(1, 5, 32), "pooled_projections": torch.randn(1, 32),
        "timestep": torch.tensor([0.5]), "img_ids": torch.rand(16, 3) * 4, "txt_ids": torch.zeros(5, 3),
    }  # fmt: skip


def clip_text():
    return transformers.CLIPTextConfig(max_position_embeddings=16, projection_dim=24, **TEXT)


def prompt():
    return {"input_ids": tokens(2, 16), "attention_mask": mask(2, 16)}


SAMPLE = ["sample"]
MODELS = [
    Model("unet_condition", "diffusion", "diffusers", made(unet, latent, SAMPLE)),
    Model("unet_xl", "diffusion", "diffusers", xl),
    Model("unet_plain", "diffusion", "diffusers", made(plain_unet, lambda: {"sample": torch.randn(1, 3, 16, 16), "timestep": torch.tensor([10.0])}, SAMPLE)),
    Model("vae_encoder", "diffusion", "diffusers", half(False)),
    Model("vae_decoder", "diffusion", "diffusers", half(True)),
    Model("autoencoder_tiny", "diffusion", "diffusers", made(lambda: diffusers.AutoencoderTiny(encoder_block_out_channels=(8, 8), decoder_block_out_channels=(8, 8), num_encoder_blocks=(1, 1), num_decoder_blocks=(1, 1)), lambda: {"sample": torch.rand(1, 3, 16, 16)}, SAMPLE)),
    Model("vq_model", "diffusion", "diffusers", made(lambda: vae(diffusers.VQModel)(), lambda: {"sample": torch.rand(1, 3, 16, 16)}, SAMPLE)),
    Model("dit", "diffusion", "diffusers", made(dit, lambda: {"hidden_states": torch.randn(1, 4, 8, 8), "timestep": torch.tensor([10]), "class_labels": torch.tensor([3])}, SAMPLE)),
    Model("sd3", "diffusion", "diffusers", made(sd3, sd3_inputs, SAMPLE)),
    Model("flux", "diffusion", "diffusers", made(flux, flux_inputs, SAMPLE)),
    Model("clip_text", "diffusion", "transformers", of("CLIPTextModelWithProjection", clip_text, prompt, ["text_embeds", "last_hidden_state"])),
]
