"""Nets that PyTorch exports when they are timed: full-size ones of torchvision that `models/` does not keep, and two of common makes.

The first that is asked for installs PyTorch into the environment (some gigabytes). Weights are random, from a fixed seed; the batch is
dynamic, other sizes are in the file.
"""

import warnings

import environment

# Name -> the net, the shape of its input without the batch.
NETS = {
    "shufflenet_v2_x1_0": (lambda: torchvision("shufflenet_v2_x1_0"), (3, 224, 224)),
    "regnet_y_400mf": (lambda: torchvision("regnet_y_400mf"), (3, 224, 224)),
    "resnext50_32x4d": (lambda: torchvision("resnext50_32x4d"), (3, 224, 224)),
    "densenet121": (lambda: torchvision("densenet121"), (3, 224, 224)),
    "efficientnet_v2_s": (lambda: torchvision("efficientnet_v2_s"), (3, 224, 224)),
    "swin_v2_t": (lambda: torchvision("swin_v2_t"), (3, 224, 224)),
    "maxvit_t": (lambda: torchvision("maxvit_t"), (3, 224, 224)),
    "yolo_320": (lambda: yolo(), (3, 320, 320)),
    "yolo_640": (lambda: yolo(), (3, 640, 640)),
    "hifigan": (lambda: hifigan(), (80, 64)),
}


def torchvision(name):
    import torchvision.models

    return getattr(torchvision.models, name)(weights=None)


def yolo(width=16, classes=80):
    """A detector with the layers of YOLOv8's smallest: blocks whose halves are concatenated, pooling by three sizes, a pyramid that goes
    down and up again, and a head of boxes and classes for each of three scales."""
    import torch
    from torch import nn

    def conv(inputs, outputs, kernel=1, stride=1):
        layer = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
        return nn.Sequential(layer, nn.BatchNorm2d(outputs), nn.SiLU())

    class Split(nn.Module):
        def __init__(self, inputs, outputs, depth, residual):
            super().__init__()
            half = outputs // 2
            self.first, self.last = conv(inputs, outputs), conv((depth + 2) * half, outputs)
            self.inner = nn.ModuleList(nn.Sequential(conv(half, half, 3), conv(half, half, 3)) for _ in range(depth))
            self.residual = residual

        def forward(self, x):
            parts = list(self.first(x).chunk(2, 1))
            for block in self.inner:
                made = block(parts[-1])
                parts.append(parts[-1] + made if self.residual else made)
            return self.last(torch.cat(parts, 1))

    class Pooled(nn.Module):
        def __init__(self, channels):
            super().__init__()
            self.first, self.last = conv(channels, channels // 2), conv(2 * channels, channels)
            self.pool = nn.MaxPool2d(5, 1, 2)

        def forward(self, x):
            parts = [self.first(x)]
            for _ in range(3):
                parts.append(self.pool(parts[-1]))
            return self.last(torch.cat(parts, 1))

    class Head(nn.Module):
        def __init__(self, inputs, inner, outputs):
            super().__init__()
            self.layers = nn.Sequential(conv(inputs, inner, 3), conv(inner, inner, 3), nn.Conv2d(inner, outputs, 1))

        def forward(self, x):
            return self.layers(x).flatten(2)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            w = [width << i for i in range(5)]
            self.stem = nn.Sequential(conv(3, w[0], 3, 2), conv(w[0], w[1], 3, 2), Split(w[1], w[1], 1, True))
            self.third = nn.Sequential(conv(w[1], w[2], 3, 2), Split(w[2], w[2], 2, True))
            self.fourth = nn.Sequential(conv(w[2], w[3], 3, 2), Split(w[3], w[3], 2, True))
            self.fifth = nn.Sequential(conv(w[3], w[4], 3, 2), Split(w[4], w[4], 1, True), Pooled(w[4]))
            self.up = nn.Upsample(scale_factor=2)
            self.up4, self.up3 = Split(w[4] + w[3], w[3], 1, False), Split(w[3] + w[2], w[2], 1, False)
            self.down3, self.down4 = conv(w[2], w[2], 3, 2), conv(w[3], w[3], 3, 2)
            self.out4, self.out5 = Split(w[3] + w[2], w[3], 1, False), Split(w[4] + w[3], w[4], 1, False)
            self.boxes = nn.ModuleList(Head(n, 64, 64) for n in w[2:])
            self.classes = nn.ModuleList(Head(n, max(w[2], classes), classes) for n in w[2:])

        def forward(self, x):
            p3 = self.third(self.stem(x))
            p4 = self.fourth(p3)
            p5 = self.fifth(p4)
            n4 = self.up4(torch.cat([self.up(p5), p4], 1))
            n3 = self.up3(torch.cat([self.up(n4), p3], 1))
            n4 = self.out4(torch.cat([self.down3(n3), n4], 1))
            n5 = self.out5(torch.cat([self.down4(n4), p5], 1))
            scales = list(zip(self.boxes, self.classes, (n3, n4, n5)))
            return torch.cat([b(n) for b, _, n in scales], 2), torch.cat([c(n) for _, c, n in scales], 2).sigmoid()

    return Net()


def hifigan(channels=512, rates=((8, 16), (8, 16), (2, 4), (2, 4)), kernels=(3, 7, 11), dilations=(1, 3, 5)):
    """The decoder of VITS, HiFi-GAN's generator: 80 lines of a spectrogram to samples, by transposed and dilated convolutions in one
    dimension."""
    from torch import nn

    class Residual(nn.Module):
        def __init__(self, n, kernel):
            super().__init__()
            spread = [nn.Conv1d(n, n, kernel, padding=d * (kernel // 2), dilation=d) for d in dilations]
            self.layers = nn.ModuleList(
                nn.Sequential(nn.LeakyReLU(0.1), conv, nn.LeakyReLU(0.1), nn.Conv1d(n, n, kernel, padding=kernel // 2))
                for conv in spread
            )

        def forward(self, x):
            for layer in self.layers:
                x = x + layer(x)
            return x

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            widths = [channels >> i for i in range(len(rates) + 1)]
            self.first, self.last = nn.Conv1d(80, channels, 7, padding=3), nn.Conv1d(widths[-1], 1, 7, padding=3)
            self.up = nn.ModuleList(
                nn.Sequential(nn.LeakyReLU(0.1), nn.ConvTranspose1d(a, b, kernel, stride, (kernel - stride) // 2))
                for a, b, (stride, kernel) in zip(widths, widths[1:], rates)
            )
            self.residual = nn.ModuleList(nn.ModuleList(Residual(n, k) for k in kernels) for n in widths[1:])

        def forward(self, x):
            x = self.first(x)
            for up, blocks in zip(self.up, self.residual):
                x = up(x)
                x = sum(block(x) for block in blocks) / len(kernels)
            return self.last(nn.functional.leaky_relu(x, 0.1)).tanh()

    return Net()


def exported(name, folder):
    """The net's file; made when it is not there yet."""
    path = folder / f"{name}.onnx"
    if path.is_file():
        return path
    environment.install_torch()
    import torch

    warnings.filterwarnings("ignore")
    torch.manual_seed(7)
    build, shape = NETS[name]
    net = build().eval()
    scratch = path.with_suffix(".part")
    with torch.no_grad():
        torch.onnx.export(
            net, (torch.rand(1, *shape),), scratch, input_names=["x"], dynamic_axes={"x": {0: "batch"}},
            opset_version=17, dynamo=False,
        )  # fmt: skip
    scratch.rename(path)
    return path
