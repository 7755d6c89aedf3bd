"""Detectors, segmentation, optical flow."""

import torch
import torchvision
from torchvision.models.detection import FCOS, FasterRCNN, KeypointRCNN, MaskRCNN, RetinaNet
from torchvision.models.detection.backbone_utils import resnet_fpn_backbone

from case import TORCHSCRIPT, Model, Net

SIZES = {"min_size": 96, "max_size": 128}


class Single(torch.nn.Module):
    """A detector of torchvision on one picture."""

    def __init__(self, net, names):
        super().__init__()
        self.net, self.names = net, names

    def forward(self, image):
        found = self.net([image])
        found = found[1] if isinstance(found, tuple) else found
        return tuple(found[0][name] for name in self.names)


class Scaled:
    """Scales a layer's weights in its first call so that its results have this deviation."""

    def __init__(self, deviation):
        self.deviation, self.done = deviation, False

    def __call__(self, module, _, out):
        if self.done or out.numel() < 2:
            return out
        self.done = True
        factor = self.deviation / float(out.std())
        module.weight.data.mul_(factor)
        return out * factor


def spread(net, images):
    """Random heads whose scores differ clearly, so that no order of boxes depends on the last bits, and whose boxes stay near the anchors."""
    hooks = []
    for name, module in net.named_modules():
        if not isinstance(module, (torch.nn.Linear, torch.nn.Conv2d)) or module.bias is None:
            continue
        is_score = any(w in name for w in ("cls_score", "cls_logits", "classification_head.module_list", "classification_head.cls"))
        is_box = any(w in name for w in ("bbox_pred", "bbox_reg", "regression_head.module_list", "bbox_ctrness"))
        if is_score or is_box:
            torch.nn.init.zeros_(module.bias)
            hooks.append(module.register_forward_hook(Scaled(2.5 if is_score else 0.4)))
    with torch.no_grad():
        net.eval()(images)
    for hook in hooks:
        hook.remove()
    return net


def backbone():
    return resnet_fpn_backbone(backbone_name="resnet18", weights=None, trainable_layers=5)


def detector(build, names=("boxes", "labels", "scores")):
    def make():
        image = torch.rand(3, 90, 120)
        net = Single(spread(build(), [image]), names)
        with torch.no_grad():
            assert len(net.eval()(image)[0]) > 2, "a detector that finds nothing shows nothing"
        return Net(net, {"image": image}, list(names))

    return make


def ssd():
    return torchvision.models.detection.ssd300_vgg16(weights=None, weights_backbone=None, num_classes=7, score_thresh=0.3, topk_candidates=15, detections_per_img=25)


def fcos():
    return FCOS(backbone(), num_classes=7, score_thresh=0.3, **SIZES)


def retinanet():
    return RetinaNet(backbone(), num_classes=7, score_thresh=0.6, **SIZES)


def faster():
    return FasterRCNN(backbone(), num_classes=7, rpn_pre_nms_top_n_test=60, rpn_post_nms_top_n_test=30, **SIZES)


def mask():
    return MaskRCNN(backbone(), num_classes=5, rpn_pre_nms_top_n_test=40, rpn_post_nms_top_n_test=20, **SIZES)


def keypoint():
    return KeypointRCNN(
        backbone(), num_classes=2, num_keypoints=5, rpn_pre_nms_top_n_test=40, rpn_post_nms_top_n_test=20,
        box_score_thresh=0.1, **SIZES,
    )  # fmt: skip


def ssdlite():
    return torchvision.models.detection.ssdlite320_mobilenet_v3_large(
        weights=None, weights_backbone=None, num_classes=5, score_thresh=0.3
    )


class Out(torch.nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, *args):
        out = self.net(*args)
        return tuple(out.values()) if isinstance(out, dict) else out


class Flow(torch.nn.Module):
    """RAFT with few updates, its last flow."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, first, second):
        return self.net(first, second, num_flow_updates=3)[-1]


def raft(large):
    def make():
        build = torchvision.models.optical_flow.raft_large if large else torchvision.models.optical_flow.raft_small
        pictures = {"first": torch.rand(1, 3, 128, 128) * 2 - 1, "second": torch.rand(1, 3, 128, 128) * 2 - 1}
        return Net(Flow(build(weights=None)), pictures, ["flow"])

    return make


def segmentation(build):
    def make():
        net = build(weights=None, weights_backbone=None, num_classes=6)
        return Net(Out(net), {"x": torch.rand(1, 3, 64, 96)}, [], {"x": {0: "batch", 2: "height", 3: "width"}})

    return make


# PyTorch 2.15's newer exporter stops at torchvision's non-maximum suppression, which asks how many boxes there are.
OLDER = (TORCHSCRIPT,)
KEYS = ("boxes", "labels", "scores", "keypoints", "keypoints_scores")
MODELS = [
    Model("fasterrcnn_resnet18_fpn", "detection", "torchvision", detector(faster), OLDER),
    Model("maskrcnn_resnet18_fpn", "detection", "torchvision", detector(mask, ("boxes", "labels", "scores", "masks")), OLDER),
    Model("keypointrcnn_resnet18_fpn", "detection", "torchvision", detector(keypoint, KEYS), OLDER),
    Model("retinanet_resnet18_fpn", "detection", "torchvision", detector(retinanet), OLDER),
    Model("fcos_resnet18_fpn", "detection", "torchvision", detector(fcos), OLDER),
    Model("ssd300_vgg16", "detection", "torchvision", detector(ssd), OLDER),
    Model("ssdlite320_mobilenet", "detection", "torchvision", detector(ssdlite), OLDER),
    Model("raft_small", "optical flow", "torchvision", raft(False)),
    Model("raft_large", "optical flow", "torchvision", raft(True)),
    Model("lraspp_mobilenet", "segmentation", "torchvision", segmentation(torchvision.models.segmentation.lraspp_mobilenet_v3_large)),
]
