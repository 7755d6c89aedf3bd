"""Makes one model: the ONNX file, its inputs, and what another program gives for them."""

import json
import random
import warnings

import numpy as np
import onnx

from case import TORCHSCRIPT, File

SEED = 7
OPSETS = {TORCHSCRIPT: 17, "dynamo": 18}


def make(model, exporter, folder):
    """Writes `model.onnx`, `inputs.npz`, `expected.npz` and `about.json` into the folder."""
    warnings.filterwarnings("ignore")
    random.seed(SEED)
    np.random.seed(SEED)
    path = folder / "model.onnx"
    if exporter in OPSETS:
        names, inputs, wanted = by_pytorch(model, exporter, path)
    else:
        made = model.make()
        assert isinstance(made, File)
        onnx.save(made.model, path)
        inputs, wanted, names = made.inputs, None, None
    file = onnx.load(path, load_external_data=False)
    outputs, reference = expected(path, inputs, wanted, [o.name for o in file.graph.output])
    outputs = {name: array.astype(str) if array.dtype == object else array for name, array in outputs.items()}
    # Strings as NumPy stores them without pickling.
    np.savez(folder / "inputs.npz", **{n: a.astype(str) if a.dtype == object else a for n, a in inputs.items()})
    np.savez(folder / "expected.npz", **outputs)
    versions = {o.domain or "ai.onnx": o.version for o in file.opset_import}
    opset = versions.get("ai.onnx") or f"ml {versions['ai.onnx.ml']}"
    about = {
        "opset": opset, "nodes": count(file.graph) + sum(len(f.node) for f in file.functions),
        "bytes": sum(f.stat().st_size for f in folder.iterdir() if f.suffix != ".npz"), "reference": reference,
    }  # fmt: skip
    (folder / "about.json").write_text(json.dumps(about))


def count(graph):
    """The nodes of a graph and of the bodies in it."""
    bodies = (a.g for n in graph.node for a in n.attribute if a.type == onnx.AttributeProto.GRAPH)
    return len(graph.node) + sum(map(count, bodies))


def by_pytorch(model, exporter, path):
    import torch

    torch.manual_seed(SEED)
    made = model.make()
    net = made.net.eval()
    for parameter in net.parameters():
        parameter.requires_grad_(False)
    args, names = tuple(made.inputs.values()), list(made.inputs)
    with torch.no_grad():
        wanted = flat(net(*(a.clone() for a in args)))
        options = {"input_names": names, "opset_version": model.opset or OPSETS[exporter]}
        if made.outputs:
            options["output_names"] = made.outputs
        if exporter == TORCHSCRIPT:
            options["dynamic_axes"] = made.dynamic
            unpacked()
            torch.onnx.export(net, args, path, dynamo=False, **options)
        else:
            dynamo(net, args, path, [made.dynamic.get(n, {}) for n in names], options)
    return names, {n: a.numpy() for n, a in made.inputs.items()}, [t.detach().numpy() for t in wanted]


def dynamo(net, args, path, dynamic, options):
    """By the newer exporter: with dynamic dimensions where it can keep them, else with fixed ones."""
    import torch

    options = options | {"dynamo": True, "external_data": False, "verbose": False}
    if any(dynamic):
        shapes = tuple({i: torch.export.Dim.DYNAMIC for i in axes if a.shape[i] > 1} for axes, a in zip(dynamic, args))
        try:
            return torch.onnx.export(net, args, path, dynamic_shapes=shapes, **options)
        except torch.onnx.errors.OnnxExporterError as error:
            print(f"with dynamic dimensions: {error}")
    return torch.onnx.export(net, args, path, **options)


def unpacked():
    """Removes a check of transformers for several texts in one row, of which the TorchScript exporter has no translation (`diff`)."""
    import transformers.masking_utils

    transformers.masking_utils.find_packed_sequence_indices = lambda position_ids: None


def flat(outputs):
    """The tensors of nested tuples, lists and dictionaries, in the exporters' order."""
    import torch

    if isinstance(outputs, torch.Tensor):
        return [outputs]
    if outputs is None or isinstance(outputs, (int, float, bool)):
        return []
    if isinstance(outputs, dict):
        outputs = outputs.values()
    return [t for o in outputs for t in flat(o)]


def expected(path, inputs, wanted, names):
    """ONNX Runtime's outputs, or PyTorch's where ONNX Runtime has no kernel for an op, and whose they are."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(path, options, ["CPUExecutionProvider"])
        takes = {i.name for i in session.get_inputs()}
        for name in set(inputs) - takes:
            del inputs[name]
        outputs = session.run(None, inputs)
    except Exception as error:
        # What ONNX Runtime cannot run may be right; what it finds wrong is an exporter's fault.
        if wanted is None or "NOT_IMPLEMENTED" not in str(error):
            raise
        return dict(zip(names, wanted)), f"PyTorch (ONNX Runtime: {str(error).splitlines()[0]})"
    return arrays(names, outputs), "ONNX Runtime"


def arrays(names, outputs):
    """Outputs as arrays: a list of maps becomes a row for each, a sequence an array for each element."""
    found = {}
    for name, output in zip(names, outputs, strict=True):
        if isinstance(output, list) and output and isinstance(output[0], dict):
            found[name] = np.array([list(row.values()) for row in output])
        elif isinstance(output, list):
            found |= {f"{name}.{i}": np.asarray(x) for i, x in enumerate(output)}
        else:
            found[name] = np.asarray(output)
    return found
