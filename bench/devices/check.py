"""Whether the decoders that `bench/gpu.py` times are the same model for all: the graph by ONNX Runtime and PyTorch's module, with equal weights, on the CPU."""

import sys
import tempfile
from pathlib import Path

import graphs
import llama
import numpy as np
import onnx
import onnxruntime
import rows
import torch

NEAR = 1e-5


def parameters(decoder, weights, random):
    """PyTorch's names, with the graph's weights; caches are of random numbers."""
    made = {"embedding.weight": weights["embedding"]}
    made |= {"norm.weight": weights["norm.scale"], "logits.weight": weights["logits.w"].T}
    for layer in range(decoder.layers):
        for part, names in (("mix", "q k v o"), ("mlp", "gate up down")):
            at = f"layer{layer}.{part}"
            made[f"layers.{layer}.{part}_norm.weight"] = weights[f"{at}.norm.scale"]
            for name in names.split():
                made[f"layers.{layer}.{part}.{name}.weight"] = weights[f"{at}.{name}.w"].T
        for cache in ("keys", "values") if decoder.past else ():
            dims = (decoder.batch, decoder.key_heads, decoder.capacity, decoder.size)
            made[f"layers.{layer}.mix.{cache}"] = random.standard_normal(dims, dtype=np.float32)
    return {name: torch.tensor(np.ascontiguousarray(array)) for name, array in made.items()}


def difference(decoder, folder, random):
    """The largest of any logit."""
    path = folder / f"{decoder.stem}.onnx"
    graphs.save_decoder(path, decoder)
    model = onnx.load(path)
    onnx.checker.check_model(model)
    weights = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    matrices = sum(array.size for name, array in weights.items() if name.endswith(".w"))
    cached = 2 * decoder.layers * decoder.batch * decoder.past * decoder.key_heads * decoder.size
    assert matrices + cached == decoder.read, f"{decoder.title}: {matrices + cached} elements, not {decoder.read}"
    module = llama.Llama(decoder).eval()
    given = parameters(decoder, weights, random)
    module.load_state_dict(given, strict=False)
    places = np.arange(decoder.past, decoder.past + decoder.length)
    ids = random.integers(0, decoder.vocabulary, (decoder.batch, decoder.length))
    feeds = {"ids": ids, "position": np.tile(places, (decoder.batch, 1))}
    for layer in range(decoder.layers if decoder.past else 0):
        for name, cache in (("k", "keys"), ("v", "values")):
            rows_used = given[f"layers.{layer}.mix.{cache}"][:, :, : decoder.past]
            feeds[f"past.layer{layer}.mix.{name}"] = rows_used.numpy().copy()
    with torch.inference_mode():
        ours = module(torch.tensor(ids), torch.tensor(places)).numpy()
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return float(np.abs(ours - session.run(["logits"], feeds)[0]).max())


def main():
    random = np.random.default_rng(0)
    for decoder in rows.tiny().decoders:
        with tempfile.TemporaryDirectory() as folder:
            found = difference(decoder, Path(folder), random)
        print(f"{decoder.title}: {found:.1e}")
        if not found < NEAR:
            sys.exit(f"{decoder.title}: the graph and the module differ by {found}")


if __name__ == "__main__":
    main()
