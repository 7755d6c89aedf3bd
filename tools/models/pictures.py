"""Pictures, and pictures with text: transformers."""

import torch
import transformers

from case import Model
from hf import TEXT, config, mask, of, pictures, text, tokens

VIT = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64)
SMALL_VIT = VIT | dict(image_size=64, patch_size=16)
RESNET = dict(embedding_size=16, hidden_sizes=[16, 24, 32, 40], depths=[1, 1, 1, 1])
STAGES = dict(out_features=["stage2", "stage3", "stage4"])
SWIN = dict(image_size=64, embed_dim=16, depths=[1, 1, 1, 1], num_heads=[2, 2, 2, 2], window_size=4)
OPEN = {"pixel_values": {0: "batch"}}


def resnet(**options):
    return transformers.ResNetConfig(layer_type="basic", **RESNET, **options)


def rt_detr(version=""):
    def make():
        backbone = transformers.RTDetrResNetConfig(layer_type="basic", **RESNET, **STAGES)
        return getattr(transformers, f"RTDetr{version}Config")(
            backbone_config=backbone, encoder_hidden_dim=32, encoder_in_channels=[24, 32, 40], encoder_ffn_dim=64,
            encoder_attention_heads=2, d_model=32, num_queries=20, decoder_in_channels=[32, 32, 32], decoder_ffn_dim=64,
            decoder_layers=2, decoder_attention_heads=4, num_labels=7,
        )  # fmt: skip

    return make


def detr(kind, **options):
    def make():
        return getattr(transformers, kind)(
            use_timm_backbone=False, use_pretrained_backbone=False, backbone=None, backbone_config=resnet(out_features=["stage4"]), d_model=32,
            encoder_layers=2, decoder_layers=2, encoder_ffn_dim=64, decoder_ffn_dim=64, encoder_attention_heads=4,
            decoder_attention_heads=4, num_queries=12, num_labels=7, **options,
        )  # fmt: skip

    return make


def deformable():
    return transformers.DeformableDetrConfig(
        use_timm_backbone=False, use_pretrained_backbone=False, backbone=None, backbone_config=resnet(**STAGES), d_model=32, encoder_layers=2,
        decoder_layers=2, encoder_ffn_dim=64, decoder_ffn_dim=64, encoder_attention_heads=4, decoder_attention_heads=4,
        num_queries=12, num_feature_levels=3, num_labels=7, disable_custom_kernels=True,
    )  # fmt: skip


def mask2former():
    swin = transformers.SwinConfig(**SWIN, out_features=["stage1", "stage2", "stage3", "stage4"])
    return transformers.Mask2FormerConfig(
        backbone_config=swin, feature_size=32, mask_feature_size=32, hidden_dim=32, encoder_feedforward_dim=64, encoder_layers=1,
        decoder_layers=3, num_attention_heads=4, dim_feedforward=64, num_queries=10, num_labels=5,
    )  # fmt: skip


def maskformer():
    swin = transformers.SwinConfig(**SWIN, out_features=["stage1", "stage2", "stage3", "stage4"])
    decoder = transformers.DetrConfig(
        use_timm_backbone=False, use_pretrained_backbone=False, backbone=None, backbone_config=resnet(), d_model=32, decoder_layers=2, decoder_ffn_dim=64,
        decoder_attention_heads=4, num_queries=10, encoder_layers=1, encoder_attention_heads=4, encoder_ffn_dim=64,
    )  # fmt: skip
    return transformers.MaskFormerConfig(fpn_feature_size=32, mask_feature_size=32, backbone_config=swin, decoder_config=decoder, num_labels=5)


def dino(**options):
    return transformers.Dinov2Config(**(SMALL_VIT | dict(image_size=56, patch_size=14)), **options)


def depth_anything():
    backbone = dino(out_features=["stage1", "stage2"], reshape_hidden_states=False, num_labels=2, apply_layernorm=True)
    return transformers.DepthAnythingConfig(
        backbone_config=backbone, reassemble_hidden_size=32, neck_hidden_sizes=[8, 16], reassemble_factors=[2, 1],
        fusion_hidden_size=16, head_hidden_size=8,
    )  # fmt: skip


def dpt():
    return transformers.DPTConfig(
        **(SMALL_VIT | dict(num_hidden_layers=4)), backbone_out_indices=[0, 1, 2, 3], neck_hidden_sizes=[8, 8, 16, 16],
        fusion_hidden_size=16, reassemble_factors=[4, 2, 1, 0.5], is_hybrid=False,
    )  # fmt: skip


def sam():
    vision = dict(VIT, output_channels=16, image_size=64, patch_size=16, window_size=2, global_attn_indexes=[1], mlp_dim=64, num_pos_feats=8)
    prompt = dict(hidden_size=16, image_size=64, patch_size=16, mask_input_channels=4)
    decoder = dict(hidden_size=16, mlp_dim=32, num_hidden_layers=2, num_attention_heads=2, iou_head_hidden_dim=16)
    return transformers.SamConfig(vision_config=vision, prompt_encoder_config=prompt, mask_decoder_config=decoder)


def points():
    return pictures(64) | {"input_points": torch.rand(1, 1, 2, 2) * 64, "input_labels": torch.ones(1, 1, 2, dtype=torch.int64)}


def clip(kind, part, vocabulary=99):
    words = TEXT | dict(max_position_embeddings=16, vocab_size=vocabulary)
    return lambda: getattr(transformers, kind)(text_config=words, vision_config=SMALL_VIT, **part)


def pair(size=64, seq=9):
    return text(1, seq) | pictures(size)


def trocr():
    encoder = transformers.ViTConfig(**SMALL_VIT)
    decoder = transformers.TrOCRConfig(vocab_size=99, d_model=32, decoder_layers=2, decoder_attention_heads=4, decoder_ffn_dim=64, max_position_embeddings=32, cross_attention_hidden_size=32)
    return transformers.VisionEncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder)


def donut():
    encoder = transformers.DonutSwinConfig(**(SWIN | dict(depths=[1, 1], num_heads=[2, 2])))
    decoder = transformers.MBartConfig(vocab_size=99, d_model=32, decoder_layers=2, decoder_attention_heads=4, decoder_ffn_dim=64, max_position_embeddings=32, is_decoder=True, add_cross_attention=True, scale_embedding=True)
    return transformers.VisionEncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder)


def reading():
    return pictures(64) | {"decoder_input_ids": tokens(1, 7)}


def perceiver():
    return transformers.PerceiverConfig(num_latents=8, d_latents=32, d_model=32, num_blocks=1, num_self_attends_per_block=2, num_self_attention_heads=4, num_cross_attention_heads=4, vocab_size=99, max_position_embeddings=32)


def owlvit():
    return transformers.OwlViTConfig(text_config=TEXT | dict(max_position_embeddings=16), vision_config=SMALL_VIT, projection_dim=32)


def clipseg():
    return transformers.CLIPSegConfig(text_config=TEXT | dict(max_position_embeddings=16), vision_config=SMALL_VIT, projection_dim=24, reduce_dim=16, extract_layers=[0, 1], decoder_num_attention_heads=4, decoder_intermediate_size=32)


def swin2sr():
    return transformers.Swin2SRConfig(image_size=32, embed_dim=16, depths=[2], num_heads=[2], window_size=4, upscale=2)


def net(name, kind, group, outputs, inputs=pictures, attention="eager", dynamic=None, **fixed):
    return Model(name, group, "transformers", of(kind[0], kind[1], inputs, outputs, attention, dynamic, **fixed))


LAST, LOGITS = ["last_hidden_state"], ["logits"]
BOXES = ["logits", "pred_boxes"]
MODELS = [
    net("rt_detr", ("RTDetrForObjectDetection", rt_detr()), "detection", BOXES),
    net("rt_detr_v2", ("RTDetrV2ForObjectDetection", rt_detr("V2")), "detection", BOXES),
    net("detr", ("DetrForObjectDetection", detr("DetrConfig")), "detection", BOXES),
    net("conditional_detr", ("ConditionalDetrForObjectDetection", detr("ConditionalDetrConfig")), "detection", BOXES),
    net("deformable_detr", ("DeformableDetrForObjectDetection", deformable), "detection", BOXES),
    net("yolos", ("YolosForObjectDetection", config("YolosConfig", **(SMALL_VIT | dict(image_size=[64, 64])), num_detection_tokens=10, num_labels=7)), "detection", BOXES),
    net("owlvit", ("OwlViTForObjectDetection", owlvit), "detection", BOXES, lambda: pair(64)),
    net("mask2former", ("Mask2FormerForUniversalSegmentation", mask2former), "segmentation", ["class_queries_logits", "masks_queries_logits"]),
    net("maskformer", ("MaskFormerForInstanceSegmentation", maskformer), "segmentation", ["class_queries_logits", "masks_queries_logits"]),
    net("segformer", ("SegformerForSemanticSegmentation", config("SegformerConfig", hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1], num_attention_heads=[1, 2, 3, 4], decoder_hidden_size=16, num_labels=5)), "segmentation", LOGITS, dynamic={"pixel_values": {0: "batch", 2: "height", 3: "width"}}),
    net("sam", ("SamModel", sam), "segmentation", ["iou_scores", "pred_masks"], points),
    net("clipseg", ("CLIPSegForImageSegmentation", clipseg), "segmentation", LOGITS, lambda: pair(64)),
    net("upernet", ("UperNetForSemanticSegmentation", lambda: transformers.UperNetConfig(backbone_config=transformers.ConvNextConfig(hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1], out_features=["stage1", "stage2", "stage3", "stage4"]), hidden_size=16, pool_scales=[1, 2], auxiliary_in_channels=24, auxiliary_channels=8, num_labels=5)), "segmentation", LOGITS),
    net("depth_anything", ("DepthAnythingForDepthEstimation", depth_anything), "depth", ["predicted_depth"], lambda: pictures(56)),
    net("dpt", ("DPTForDepthEstimation", dpt), "depth", ["predicted_depth"]),
    net("dinov2", ("Dinov2Model", dino), "classification", LAST, lambda: pictures(70), dynamic=OPEN),
    net("dinov2_sdpa", ("Dinov2Model", dino), "classification", LAST, lambda: pictures(56), "sdpa", dynamic=OPEN),
    net("swinv2", ("Swinv2ForImageClassification", config("Swinv2Config", **(SWIN | dict(depths=[1, 1], num_heads=[2, 2])))), "classification", LOGITS, dynamic=OPEN),
    net("beit", ("BeitModel", config("BeitConfig", use_relative_position_bias=True, **SMALL_VIT)), "classification", LAST),
    net("convnextv2", ("ConvNextV2ForImageClassification", config("ConvNextV2Config", hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1])), "classification", LOGITS, dynamic=OPEN),
    net("hiera", ("HieraModel", config("HieraConfig", image_size=[64, 64], embed_dim=16, depths=[1, 1, 1, 1], num_heads=[1, 2, 4, 8])), "classification", LAST),
    net("mobilevitv2", ("MobileViTV2ForImageClassification", config("MobileViTV2Config", image_size=64, width_multiplier=0.5)), "classification", LOGITS),
    net("swin2sr", ("Swin2SRForImageSuperResolution", swin2sr), "super-resolution", ["reconstruction"], lambda: pictures(32)),
    net("clip", ("CLIPModel", clip("CLIPConfig", dict(projection_dim=24))), "pictures and text", ["logits_per_image", "text_embeds", "image_embeds"], lambda: pair(64)),
    net("siglip", ("SiglipModel", clip("SiglipConfig", {})), "pictures and text", ["logits_per_image"], lambda: pair(64, 16)),
    net("blip", ("BlipForConditionalGeneration", lambda: transformers.BlipConfig(text_config=TEXT | dict(encoder_hidden_size=32, max_position_embeddings=32), vision_config=SMALL_VIT)), "pictures and text", LOGITS, lambda: pair(64)),
    net("trocr", ("VisionEncoderDecoderModel", trocr), "pictures and text", LOGITS, reading, use_cache=False),
    net("donut", ("VisionEncoderDecoderModel", donut), "pictures and text", LOGITS, reading, use_cache=False),
    net("perceiver", ("PerceiverForMaskedLM", perceiver), "text encoder", LOGITS, lambda: {"inputs": tokens(1, 32), "attention_mask": mask(1, 32)}),
    net("videomae", ("VideoMAEForVideoClassification", config("VideoMAEConfig", **(SMALL_VIT), num_frames=4)), "video", LOGITS, lambda: {"pixel_values": torch.rand(1, 4, 3, 64, 64)}),
]
