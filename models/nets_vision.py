"""Networks for pictures and videos: torchvision's own, and the same parts put together smaller.

What is called reduced has every kind of layer that the full size has, few of each, and few channels.
"""

import math

import torch
from torch import nn
from torch.nn import functional as F
from torchvision import models
from torchvision.models._utils import IntermediateLayerGetter
from torchvision.models.convnext import CNBlockConfig, ConvNeXt
from torchvision.models.efficientnet import EfficientNet, MBConvConfig
from torchvision.models.mobilenetv3 import InvertedResidualConfig, MobileNetV3
from torchvision.models.resnet import Bottleneck, ResNet
from torchvision.models.segmentation.deeplabv3 import ASPP, DeepLabV3
from torchvision.models.swin_transformer import ShiftedWindowAttention
from torchvision.models.video.resnet import BasicBlock, Conv3DSimple

from nets import fill, fold_norms
from weights import UNIT, values

PICTURE = [1, 3, 64, 64]

# The one kernel that PyTorch has for all of attention has no form in ONNX.
torch.backends.mha.set_fastpath_enabled(False)


def settled(net, shape=PICTURE):
    """`net` with the formula's values, its layers scaled such that results neither fade nor explode.

    Deep networks need gains that follow from what lies between their layers. So a picture is run
    through, and each layer's gain brings the spread of its results to about 1: a power of the fourth
    root of 2, so that it does not depend on how sums were rounded.
    """
    names = {module: name for name, module in net.named_modules()}
    gains = {}

    def scale(module, inputs, output):
        gain = 2.0 ** (round(-4 * math.log2(float(output.std()))) / 4)
        gains[f"{names[module]}.weight"] = gain
        module.weight.mul_(gain)
        return module.forward(*inputs)

    fill(net)
    layers = (nn.modules.conv._ConvNd, nn.Linear)
    hooks = [m.register_forward_hook(scale) for m in net.modules() if isinstance(m, layers)]
    with torch.no_grad():
        net(torch.from_numpy(values("settle", shape, 3 * UNIT // 2, 0)))
    for hook in hooks:
        hook.remove()
    return fill(net, lambda name: gains.get(name, 1.0))


def folded(net):
    """How networks with batch norms are usually deployed: these folded into the convolutions before them."""
    return fold_norms(net.eval())


def resnet50():
    return models.resnet50(weights=None)


def resnet50_reduced():
    return ResNet(Bottleneck, [1, 1, 1, 1], num_classes=10, width_per_group=16)


def resnext_reduced():
    """Convolutions in four groups."""
    return ResNet(Bottleneck, [1, 1, 1, 1], num_classes=10, groups=4, width_per_group=8)


def mobilenet_v2():
    return models.mobilenet_v2(weights=None)


def mobilenet_v2_reduced():
    blocks = [[1, 16, 1, 1], [6, 24, 2, 2], [6, 32, 1, 2]]  # expansion, channels, count, stride
    return models.MobileNetV2(num_classes=10, width_mult=0.5, inverted_residual_setting=blocks)


def mobilenet_v3_large():
    return models.mobilenet_v3_large(weights=None)


def mobilenet_v3_reduced():
    """With and without squeeze and excitation, both activations, a dilated depthwise convolution."""
    blocks = [
        InvertedResidualConfig(8, 3, 16, 8, False, "RE", 1, 1, 1.0),
        InvertedResidualConfig(8, 3, 24, 16, False, "RE", 2, 1, 1.0),
        InvertedResidualConfig(16, 5, 48, 16, True, "RE", 1, 1, 1.0),
        InvertedResidualConfig(16, 5, 64, 24, True, "HS", 2, 1, 1.0),
        InvertedResidualConfig(24, 5, 72, 24, True, "HS", 1, 2, 1.0),
    ]
    return MobileNetV3(blocks, last_channel=64, num_classes=10)


def efficientnet_b0():
    return models.efficientnet_b0(weights=None)


def efficientnet_reduced():
    blocks = [MBConvConfig(1, 3, 1, 8, 8, 1), MBConvConfig(6, 3, 2, 8, 16, 2), MBConvConfig(6, 5, 2, 16, 24, 1)]
    return EfficientNet(blocks, dropout=0.2, num_classes=10)


def convnext_tiny():
    return models.convnext_tiny(weights=None)


def convnext_reduced():
    blocks = [CNBlockConfig(16, 32, 1), CNBlockConfig(32, 48, 1), CNBlockConfig(48, None, 1)]
    return ConvNeXt(blocks, num_classes=10)


def vit_b_16():
    return models.vit_b_16(weights=None)


def vit_reduced():
    return models.VisionTransformer(
        image_size=32, patch_size=8, num_layers=2, num_heads=4, hidden_dim=64, mlp_dim=128, num_classes=10
    )


def swin_t():
    """With each block's bias as a parameter: exporters look it up in its table, and keep a megabyte of results."""
    net = models.swin_t(weights=None)
    for block in net.modules():
        if isinstance(block, ShiftedWindowAttention):
            bias = nn.Parameter(block.get_relative_position_bias().detach())
            block.register_parameter("bias_of_positions", bias)
            block.get_relative_position_bias = lambda bias=bias: bias
    return net


def swin_reduced():
    """Windows, shifted windows, and a last stage of one window."""
    return models.SwinTransformer(
        patch_size=[4, 4], embed_dim=24, depths=[2, 2], num_heads=[2, 4], window_size=[4, 4], num_classes=10
    )


class UNet(nn.Module):
    """Down by pooling, up by turns with a transposed convolution, bilinear and nearest interpolation."""

    def __init__(self, widths, classes):
        super().__init__()
        pairs = list(zip(widths, widths[1:]))
        self.first = self.block(3, widths[0])
        self.down = nn.ModuleList(self.block(a, b) for a, b in pairs)
        self.up = nn.ModuleList(self.wider(i, b, a) for i, (a, b) in enumerate(reversed(pairs)))
        self.join = nn.ModuleList(self.block(2 * a, a) for a, _ in reversed(pairs))
        self.last = nn.Conv2d(widths[0], classes, 1)

    @staticmethod
    def block(inputs, outputs):
        return nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(),
        )  # fmt: skip

    @staticmethod
    def wider(i, inputs, outputs):
        if i % 3 == 0:
            return nn.ConvTranspose2d(inputs, outputs, 2, stride=2)
        bilinear = {"mode": "bilinear", "align_corners": False}
        upsample = nn.Upsample(scale_factor=2, **(bilinear if i % 3 == 1 else {"mode": "nearest"}))
        return nn.Sequential(upsample, nn.Conv2d(inputs, outputs, 1))

    def forward(self, x):
        x, skipped = self.first(x), []
        for block in self.down:
            skipped.append(x)
            x = block(F.max_pool2d(x, 2))
        for up, join in zip(self.up, self.join):
            x = join(torch.cat([skipped.pop(), up(x)], 1))
        return self.last(x)


def unet():
    return UNet([64, 128, 256, 512, 1024], 2)


def unet_reduced():
    return UNet([8, 12, 16, 24], 2)


class Segmenter(nn.Module):
    """torchvision's segmentation networks give a dictionary; here the one tensor in it."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x):
        return self.net(x)["out"]


def deeplab_v3():
    net = models.segmentation.deeplabv3_resnet50(weights=None, weights_backbone=None, num_classes=4)
    return Segmenter(net)


def deeplab_v3_reduced():
    backbone = IntermediateLayerGetter(mobilenet_v3_reduced().features, {"5": "out"})
    head = nn.Sequential(
        ASPP(24, [2, 4, 6], 16),
        nn.Conv2d(16, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 4, 1),
    )  # fmt: skip
    return Segmenter(DeepLabV3(backbone, head))


def r3d_18():
    return models.video.r3d_18(weights=None)


class Video(nn.Module):
    """The blocks of r3d_18, two of them."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv3d(3, 8, (3, 7, 7), stride=(1, 2, 2), padding=(1, 3, 3), bias=False), nn.BatchNorm3d(8), nn.ReLU()
        )
        shortcut = nn.Sequential(nn.Conv3d(8, 16, 1, stride=2, bias=False), nn.BatchNorm3d(16))
        self.blocks = nn.Sequential(
            BasicBlock(8, 8, Conv3DSimple), BasicBlock(8, 16, Conv3DSimple, stride=2, downsample=shortcut)
        )
        self.pool = nn.AdaptiveAvgPool3d((1, 1, 1))
        self.fc = nn.Linear(16, 10)

    def forward(self, x):
        return self.fc(self.pool(self.blocks(self.stem(x))).flatten(1))


def r3d_reduced():
    return Video()
