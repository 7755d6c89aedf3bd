"""Pictures and videos: each network in full size, and reduced by both exporters."""

import nets_vision as nets
from case import Case, by_formula

FULL = {"batch": 1, "height": 224, "width": 224}
SQUARE = {"batch": 1, "height": 64, "width": 64}
PAIR = {"batch": 2, "height": 32, "width": 48}


def picture(name, folder, net, exporter="TorchScript", *, runs, size=("height", "width"), outputs, **more):
    """A network from pictures of 3 channels; `runs` bind what of batch, height and width is open."""
    shape = ["batch", 3, *size]
    opset = 17 if exporter == "TorchScript" else 18
    first = [runs[0].get(d, d) for d in shape]
    return Case(
        name, folder, lambda: nets.settled(net(), first), exporter, opset, {"x": shape}, {"y": outputs},
        runs, by_formula(shape), **more,
    )  # fmt: skip


def classifier(full, reduced, folder, *, size=None, large=224, runs=(SQUARE, PAIR), norms=True, exporter="TorchScript"):
    """The full network by `exporter`, the reduced one by both; `size` where only the batch is open.

    Batch norms (`norms`) are kept in what TorchScript writes, and folded beforehand for dynamo.
    """
    runs = [{"batch": 1}, {"batch": 3}] if size else list(runs)
    once = FULL if exporter == "TorchScript" else {"batch": 2}
    square = {"size": (size, size)} if size else {}
    whole = {"size": (large, large)} if size else {}
    name = reduced.__name__
    return [
        picture(
            full.__name__, folder, full, exporter, runs=[once], outputs=["batch", 1000],
            keep_norms=norms, full=True, **whole,
        ),
        picture(
            name, folder, reduced, runs=runs, outputs=["batch", 10], keep_norms=norms,
            golden="golden_reduced", **square,
        ),
        picture(
            f"{name}_dynamo", folder, (lambda: nets.folded(reduced())) if norms else reduced, "dynamo", runs=runs,
            outputs=["batch", 10], golden="golden_folded" if norms else "golden_reduced", **square,
        ),
    ]  # fmt: skip


def resnext():
    """Its groups beside ResNet-50's; otherwise the same network."""
    return picture(
        "resnext_reduced", "resnet50", nets.resnext_reduced, runs=[SQUARE, PAIR], outputs=["batch", 10],
        keep_norms=True, golden="golden_resnext",
    )  # fmt: skip


def segmentation(full, reduced, folder, classes):
    """From pictures to pictures. The newer exporter wants sizes that it can prove to fit: they are fixed there."""
    open_size, square = ["batch", classes, "height", "width"], ["batch", classes, 64, 64]
    name = reduced.__name__
    return [
        picture(
            full.__name__, folder, full, runs=[{"batch": 1, "height": 96, "width": 128}], outputs=open_size,
            keep_norms=True, full=True,
        ),
        picture(
            name, folder, reduced, runs=[SQUARE, PAIR], outputs=open_size, keep_norms=True,
            golden="golden_reduced",
        ),
        picture(
            f"{name}_dynamo", folder, lambda: nets.folded(reduced()), "dynamo", runs=[{"batch": 1}, {"batch": 2}],
            size=(64, 64), outputs=square, golden="golden_folded",
        ),
    ]  # fmt: skip


def video(name, net, exporter, runs, shape, classes, **more):
    opset = 17 if exporter == "TorchScript" else 18
    first = [runs[0].get(d, d) for d in shape]
    return Case(
        name, "r3d", lambda: nets.settled(net(), first), exporter, opset, {"x": shape},
        {"y": ["batch", classes]}, runs, by_formula(shape), **more,
    )  # fmt: skip


CLIP = ["batch", 3, "frames", "height", "width"]
CLIPS = [
    {"batch": 1, "frames": 8, "height": 32, "width": 32},
    {"batch": 2, "frames": 5, "height": 24, "width": 32},
]
LONG_CLIP = [{"batch": 1, "frames": 16, "height": 112, "width": 112}]

CASES = [
    *classifier(nets.resnet50, nets.resnet50_reduced, "resnet50"),
    resnext(),
    *classifier(nets.mobilenet_v2, nets.mobilenet_v2_reduced, "mobilenet_v2"),
    *classifier(nets.mobilenet_v3_large, nets.mobilenet_v3_reduced, "mobilenet_v3"),
    *classifier(nets.efficientnet_b0, nets.efficientnet_reduced, "efficientnet"),
    *classifier(nets.convnext_tiny, nets.convnext_reduced, "convnext", norms=False),
    # TorchScript writes down how each shape and each mask comes about, in thousands of nodes.
    *classifier(nets.vit_b_16, nets.vit_reduced, "vit", size=32, norms=False, exporter="dynamo"),
    *classifier(nets.swin_t, nets.swin_reduced, "swin", size=32, norms=False, exporter="dynamo"),
    *segmentation(nets.unet, nets.unet_reduced, "unet", 2),
    *segmentation(nets.deeplab_v3, nets.deeplab_v3_reduced, "deeplab_v3", 4),
    video("r3d_18", nets.r3d_18, "TorchScript", LONG_CLIP, CLIP, 400, keep_norms=True, full=True),
    video("r3d_reduced", nets.r3d_reduced, "TorchScript", CLIPS, CLIP, 10, keep_norms=True, golden="golden_reduced"),
    video(
        "r3d_reduced_dynamo", lambda: nets.folded(nets.r3d_reduced()), "dynamo", CLIPS, CLIP, 10,
        golden="golden_folded",
    ),
]  # fmt: skip
