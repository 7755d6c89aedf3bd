"""Makes the references of tests/image.rs: pictures, and what Pillow, torchvision and transformers make of them.

    pip install numpy pillow torch torchvision 'transformers<5'
    python make.py

Writes pictures/ (small files of every kind that is read) and references.npz. The test command needs none of these packages.
"""
import io
import json
import os
import numpy as np
import PIL
from PIL import Image
from PIL.PngImagePlugin import PngInfo

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.path.join(HERE, "pictures")
FILTERS = {"nearest": 0, "box": 4, "bilinear": 2, "hamming": 5, "bicubic": 3, "lanczos": 1}
rng = np.random.default_rng(7)
arrays = {}


def picture(height, width, channels, smooth=True):
    """Noise, or a smooth gradient with some noise on it, so that JPEG keeps it."""
    if not smooth:
        return rng.integers(0, 256, (height, width, channels), dtype=np.uint8)
    y, x = np.mgrid[0:height, 0:width]
    planes = [127 + 90 * np.sin(x / (5 + c) + c) + 30 * np.cos(y / (4 + c)) for c in range(channels)]
    noise = rng.integers(-6, 7, (height, width, channels))
    return np.clip(np.stack(planes, -1) + noise, 0, 255).astype(np.uint8)


def save(name, image, **options):
    path = os.path.join(OUT, name)
    image.save(path, **options)
    return path


def decoded(name, path):
    image = Image.open(path)
    arrays[f"decoded/{name}"] = np.asarray(image.convert("RGB"))


def files():
    rgb, grey = picture(13, 17, 3), picture(13, 17, 1)[..., 0]
    alpha = picture(13, 17, 1, smooth=False)
    image = Image.fromarray(rgb)
    for name, options in {
        "444.jpg": dict(quality=95, subsampling=0),
        "422.jpg": dict(quality=90, subsampling=1),
        "420.jpg": dict(quality=90, subsampling=2),
        "progressive.jpg": dict(quality=90, progressive=True, subsampling=2),
        "lossless.webp": dict(lossless=True),
        "lossy.webp": dict(quality=90),
        "rgb.png": {},
    }.items():
        decoded(name, save(name, image, **options))
    decoded("grey.jpg", save("grey.jpg", Image.fromarray(grey), quality=95))
    decoded("cmyk.jpg", save("cmyk.jpg", image.convert("CMYK"), quality=95, subsampling=0))
    decoded("grey.png", save("grey.png", Image.fromarray(grey)))
    decoded("bilevel.png", save("bilevel.png", Image.fromarray(grey).convert("1")))
    decoded("palette.png", save("palette.png", image.quantize(200)))
    decoded("palette4.png", save("palette4.png", image.quantize(11)))
    clear = image.quantize(50)
    decoded("palette-alpha.png", save("palette-alpha.png", clear, transparency=3))
    rgba = Image.fromarray(np.concatenate([rgb, alpha], -1))
    decoded("rgba.png", save("rgba.png", rgba))
    decoded("rgba.webp", save("rgba.webp", rgba, lossless=True, exact=True))
    la = Image.fromarray(np.stack([grey, alpha[..., 0]], -1), "LA")
    decoded("la.png", save("la.png", la))
    sixteen()
    interlaced(rgb)
    # Every orientation, in each format that has EXIF.
    for n in range(1, 9):
        exif = Image.Exif()
        exif[0x0112] = n
        for ending, options in {"jpg": dict(quality=95, subsampling=0), "png": {}, "webp": dict(lossless=True)}.items():
            if ending == "jpg" or n in (3, 6):
                name = f"turned{n}.{ending}"
                path = save(name, image, exif=exif.tobytes(), **options)
                from PIL import ImageOps

                arrays[f"decoded/{name}"] = np.asarray(ImageOps.exif_transpose(Image.open(path)).convert("RGB"))


def png(name, width, height, depth, color, rows, interlace=0):
    """A PNG file by hand: Pillow writes neither 16-bit colours nor interlaced files."""
    import struct
    import zlib

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, interlace)
    body = zlib.compress(b"".join(b"\0" + row for row in rows))
    path = os.path.join(OUT, name)
    with open(path, "wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", body) + chunk(b"IEND", b""))
    return path


def sixteen():
    """16 bits: of what is not grey Pillow keeps the high bytes; of grey it would clip, so the high bytes are written here."""
    for name, color, channels in [("rgb16.png", 2, 3), ("rgba16.png", 6, 4), ("grey16.png", 0, 1)]:
        wide = rng.integers(0, 1 << 16, (13, 17, channels), dtype=np.uint16)
        path = png(name, 17, 13, 16, color, [row.astype(">u2").tobytes() for row in wide])
        if color == 0:
            arrays[f"decoded/{name}"] = np.repeat((wide >> 8).astype(np.uint8), 3, -1)
        else:
            decoded(name, path)


def interlaced(rgb):
    passes = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]
    rows = []
    for x, y, dx, dy in passes:
        part = rgb[y::dy, x::dx]
        if part.size:
            rows += [row.tobytes() for row in part]
    decoded("interlaced.png", png("interlaced.png", 17, 13, 8, 2, rows, interlace=1))


def resizes():
    """Random pictures and sizes by every filter."""
    for case in range(24):
        channels = (3, 1, 3, 4)[case % 4]
        height, width = (int(n) for n in rng.integers(1, 40, 2))
        to = tuple(int(n) for n in rng.integers(1, 60, 2))
        if case == 0:
            height, width, to = 61, 83, (7, 5)
        if case == 1:
            to = (width, to[1])
        if case == 2:
            to = (to[0], height)
        pixels = picture(height, width, channels, smooth=case % 3 == 0)
        arrays[f"resize/{case}/from"] = pixels
        image = Image.fromarray(pixels[..., 0] if channels == 1 else pixels[..., :3])
        for name, number in FILTERS.items():
            # Pillow multiplies by alpha first; four channels are resized like any others here.
            found = np.asarray(image.resize(to, number))
            if channels == 4:
                last = np.asarray(Image.fromarray(pixels[..., 3]).resize(to, number))
                found = np.concatenate([found, last[..., None]], -1)
            arrays[f"resize/{case}/{name}"] = found.reshape(to[1], to[0], channels)
    colours = picture(9, 11, 3, smooth=False)
    arrays["grey/from"] = colours
    arrays["grey/to"] = np.asarray(Image.fromarray(colours).convert("L"))


def processors():
    """Whole preparations: torchvision's transforms and Hugging Face's processors, with the configurations that these write."""
    import torch
    from torchvision import transforms as T
    from torchvision.transforms import InterpolationMode as I
    from transformers import CLIPImageProcessor, ConvNextImageProcessor, DetrImageProcessor, ViTImageProcessor
    from transformers import DeiTImageProcessor, MobileViTImageProcessor

    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    clip = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
    shapes = [(47, 64), (64, 41), (33, 33), (20, 75)]
    pictures = [picture(h, w, 3, smooth=i % 2 == 0) for i, (h, w) in enumerate(shapes)]
    for i, pixels in enumerate(pictures):
        arrays[f"pictures/{i}"] = pixels
    # The presets, for inputs of 28 x 28.
    torchvision = {
        "imagenet": T.Compose([T.Resize(32), T.CenterCrop(28), T.ToTensor(), T.Normalize(mean, std)]),
        "clip": T.Compose([T.Resize(28, I.BICUBIC), T.CenterCrop(28), T.ToTensor(), T.Normalize(*clip)]),
    }
    for name, transform in torchvision.items():
        for i, pixels in enumerate(pictures):
            arrays[f"preset/{name}/{i}"] = transform(Image.fromarray(pixels)).numpy()
    # Larger than the picture: zeros around it.
    pad = T.Compose([T.CenterCrop((50, 71)), T.ToTensor()])
    arrays["pad/torchvision"] = pad(Image.fromarray(pictures[0])).numpy()
    processors = {
        "clip": CLIPImageProcessor(size={"shortest_edge": 28}, crop_size={"height": 28, "width": 28}),
        "vit": ViTImageProcessor(size={"height": 24, "width": 30}),
        "convnext": ConvNextImageProcessor(size={"shortest_edge": 28}),
        "convnext-large": ConvNextImageProcessor(size={"shortest_edge": 384}),
        "deit": DeiTImageProcessor(size={"height": 32, "width": 32}, crop_size={"height": 27, "width": 27}),
        "detr": DetrImageProcessor(size={"shortest_edge": 40, "longest_edge": 61}, do_pad=False),
        "mobilevit": MobileViTImageProcessor(size={"shortest_edge": 30}, crop_size={"height": 26, "width": 26}),
        "padded": CLIPImageProcessor(do_resize=False, crop_size={"height": 51, "width": 71}),
    }
    configs = {}
    for name, processor in processors.items():
        configs[name] = processor.to_dict()
        if name == "convnext-large":
            # Only a part of it is kept: the file stays small.
            array = processor(Image.fromarray(pictures[0]), return_tensors="np")["pixel_values"][0]
            arrays[f"processor/{name}/0"] = array[:, ::29, ::31].copy()
            continue
        for i, pixels in enumerate(pictures):
            found = processor(Image.fromarray(pixels), return_tensors="np")["pixel_values"][0]
            arrays[f"processor/{name}/{i}"] = found.astype(np.float32)
    with open(os.path.join(HERE, "processors.json"), "w") as file:
        json.dump(configs, file, indent=1, sort_keys=True, default=str)
        file.write("\n")


os.makedirs(OUT, exist_ok=True)
files()
resizes()
processors()
np.savez_compressed(os.path.join(HERE, "references.npz"), **arrays)
print("Pillow", PIL.__version__, len(arrays), "arrays")
