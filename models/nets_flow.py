"""Networks whose outputs have as many rows as the run finds, or whose graphs branch and loop."""

import math

import torch
from torch import nn
from torchvision.ops import nms

from nets import fill

CLASSES = 4  # the background is the first


def anchors(size, cell, scales):
    """Centres and sizes of the boxes that a head of size×size cells begins with."""
    centres = (torch.arange(size) + 0.5) * cell
    y, x = torch.meshgrid(centres, centres, indexing="ij")
    boxes = [torch.stack([x, y, torch.full_like(x, s), torch.full_like(x, s)], -1) for s in scales]
    return torch.stack(boxes, 2).reshape(-1, 4)


class Detector(nn.Module):
    """An SSD in small: two heads of anchors over a convolutional backbone, boxes decoded, one suppression of overlaps
    within each image and class."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.ReLU()
        )
        self.deeper = nn.Sequential(nn.Conv2d(16, 24, 3, stride=2, padding=1), nn.ReLU())
        self.boxes = nn.ModuleList([nn.Conv2d(16, 8, 3, padding=1), nn.Conv2d(24, 8, 3, padding=1)])
        self.classes = nn.ModuleList(
            [nn.Conv2d(16, 2 * CLASSES, 3, padding=1), nn.Conv2d(24, 2 * CLASSES, 3, padding=1)]
        )

    def forward(self, x):
        fine = self.stem(x)
        features = [fine, self.deeper(fine)]

        def flat(heads, width):
            parts = [head(f).permute(0, 2, 3, 1).reshape(x.shape[0], -1, width) for head, f in zip(heads, features)]
            return torch.cat(parts, 1)

        found, scores = flat(self.boxes, 4), flat(self.classes, CLASSES).softmax(-1)[:, :, 1:]
        first = torch.cat([anchors(8, 4.0, (6.0, 9.0)), anchors(4, 8.0, (12.0, 18.0))])
        centres = first[:, :2] + found[..., :2] * first[:, 2:] * 0.3
        sizes = first[:, 2:] * torch.exp(found[..., 2:].clamp(max=math.log(4.0)) * 0.3)
        boxes = torch.cat([centres - sizes / 2, centres + sizes / 2], -1)

        image, box, label = torch.nonzero(scores > 0.7, as_tuple=True)
        boxes, scores = boxes[image, box], scores[image, box, label]
        # Boxes of different images and classes are moved apart, so that they never overlap.
        apart = (image * CLASSES + label).unsqueeze(1) * 256.0
        kept = nms(boxes + apart, scores, 0.4)
        return boxes[kept], scores[kept], label[kept], image[kept]


def detector():
    return fill(Detector(), lambda name: 2.5 if name.startswith("classes") else math.sqrt(2))


@torch.jit.script
def settled(given, weight, bias):
    """The state tanh(given + W·state + b), computed anew until it no longer changes."""
    state = torch.tanh(given)
    change = torch.ones(1)
    steps = 0
    while bool(change > 1e-4) and steps < 60:
        following = torch.tanh(given + torch.nn.functional.linear(state, weight, bias))
        change = (following - state).abs().max().reshape(1)
        state = following
        steps += 1
    return state


@torch.jit.script
def chosen(state, positive, negative):
    """One of two products, by the state's sum."""
    if bool(state.sum() > 0):
        y = torch.relu(torch.nn.functional.linear(state, positive))
    else:
        y = torch.nn.functional.linear(state, negative) * 2
    return y


class Settle(nn.Module):
    """A loop with a condition, then a choice; both scripted, so that they stay in the graph."""

    def __init__(self):
        super().__init__()
        self.given = nn.Linear(16, 32)
        self.again = nn.Linear(32, 32)
        self.positive = nn.Linear(32, 8, bias=False)
        self.negative = nn.Linear(32, 8, bias=False)

    def forward(self, x):
        state = settled(self.given(x), self.again.weight, self.again.bias)
        return chosen(state, self.positive.weight, self.negative.weight)


def settle():
    return fill(Settle(), lambda name: 0.5 if name.startswith("again") else 1.0)
