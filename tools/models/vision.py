"""Classifiers and other nets of pictures and videos: torchvision, timm."""

import timm
import torch
import torchvision.models as tv

from case import Model, Net


def picture(build, size=64, channels=3, batch=2, **options):
    def make():
        net = build(**options)
        return Net(net, {"x": torch.rand(batch, channels, size, size)}, ["y"], {"x": {0: "batch"}})

    return make


def torchvision_model(name, size=64, **options):
    return picture(lambda: getattr(tv, name)(weights=None, num_classes=10, **options), size)


def timm_model(name, size=64, **options):
    return picture(lambda: timm.create_model(name, pretrained=False, num_classes=10, **options), size)


def video(build, shape):
    def make():
        return Net(build(weights=None, num_classes=10), {"x": torch.rand(shape)}, ["y"])

    return make


TORCHVISION = {
    "googlenet": dict(size=64, init_weights=False, aux_logits=False),
    "inception_v3": dict(size=96, init_weights=False, aux_logits=False),
    "shufflenet_v2_x0_5": {},
    "densenet121": {},
}
TIMM = {
    "mobilevit_xxs": {},
    "levit_128s": dict(size=224),
    "xcit_nano_12_p16_224": dict(size=64, img_size=64),
    "coatnet_nano_rw_224": dict(size=64, img_size=64),
    "eva02_tiny_patch14_224": dict(size=56, img_size=56),
    "focalnet_tiny_srf": {},
}
MODELS = [
    *(Model(name, "classification", "torchvision", torchvision_model(name, **o)) for name, o in TORCHVISION.items()),
    *(Model(name, "classification", "timm", timm_model(name, **o)) for name, o in TIMM.items()),
    Model("swin3d_t", "video", "torchvision", video(tv.video.swin3d_t, (1, 3, 4, 64, 64))),
]
