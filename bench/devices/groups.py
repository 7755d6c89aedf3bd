"""The groups of rows: who is timed on what, and the table that comes of it."""

import importlib.util
import subprocess
import sys
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import report
from rows import ROUND
from timers import Failed, Python, RlxModel, RlxSteps, row_job

ROOT = Path(__file__).resolve().parent.parent.parent

@dataclass
class Group:
    """Rows that are timed together, by turns. `open` starts the peers and gives them; what cannot be started it tells `found`."""

    key: str
    title: str
    rows_are: str
    rows: tuple
    columns: tuple
    open: callable
    goals: callable
    what: str
    # Whether the times are of kernels, in microseconds; else they are of models.
    kernels: bool = True
    # Whether what the machine reaches is measured in the same rounds.
    limits: bool = False
    more: callable = field(default=lambda found: [])
    copied: int = 0
    chain_operations: int = 0
    # Whether goals are for sizes like these.
    judges: bool = True

    def lines(self, found):
        unit, digits = (1e3, 1) if self.kernels else (1.0, 3)
        times = "µs" if self.kernels else "ms"
        lines = [f"## {self.title} ({times})", ""]
        lines += report.reached_table(found, self.what, self.goals, unit, digits)
        lines += self.more(found)
        notes = [*(report.limit_lines(found) if self.limits else []), *report.absences(found)]
        return [*lines, *(["", *notes] if notes else []), ""]


def titles(rows):
    return [row.title for row in rows]


def onnxruntime_offers(provider):
    if importlib.util.find_spec("onnxruntime") is None:
        return False
    import onnxruntime

    return provider in onnxruntime.get_available_providers()


def export_bert(folder):
    """BERT-base as PyTorch exports it; the other models are made of `models/`."""
    import torch
    from worker import torch_net

    class Hidden(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = torch_net("bert")

        def forward(self, ids):
            return self.model(input_ids=ids).last_hidden_state

    batch = ({0: torch.export.Dim("batch")},)
    ids = torch.randint(0, 30000, (2, 128))
    names = {"input_names": ["ids"], "output_names": ["hidden"]}
    torch.onnx.export(Hidden().eval(), (ids,), folder / "bert.onnx", dynamo=True, dynamic_shapes=batch, **names)


def net_file(name, folder):
    path = folder / f"{name}.onnx"
    if not path.is_file():
        if name == "bert":
            export_bert(folder)
        else:
            subprocess.run([sys.executable, ROOT / "models/weights.py", name, folder], check=True)
    return path


def half(path):
    """The model in f16, as users of ONNX Runtime have it on a GPU."""
    to = path.with_name(f"{path.stem}.f16.onnx")
    if not to.is_file():
        import onnx
        from onnxruntime.transformers.float16 import convert_float_to_float16

        onnx.save(convert_float_to_float16(onnx.load(path)), to)
    return to


def model_peers(found, args, row, path, dims, caches, ort_path):
    """Those of one model: RLX, PyTorch, ONNX Runtime."""
    title, own = [row.title], tuple(column for column in found.group.columns if column.startswith("RLX"))
    yield RlxModel(own, title, args=args, model=path, caches=caches, dims=dims)
    yield Python(("PyTorch compiled", "PyTorch eager"), title, **row_job(row, args, peer="torch"))
    dims = {"past": row.past, **dims} if caches[1] else dims
    job = {"peer": "onnxruntime", "device": args.device, "title": row.title, "dims": dims}
    try:
        yield Python(("ONNX Runtime",), title, model=str(ort_path()), **job)
    except Exception as why:  # whatever the conversion raises is why there is no such row
        found.miss("ONNX Runtime", title, f"{type(why).__name__}: {why}")


def open_nets(found, args):
    for row in found.group.rows:
        try:
            path = net_file(row.name, args.folder)
        except Exception as why:  # whatever keeps the file from being made
            for column in found.group.columns:
                found.miss(column, [row.title], f"no model file: {type(why).__name__}: {why}")
            continue
        to_half = args.device == "cuda" and onnxruntime_offers("CUDAExecutionProvider")
        dims = {"batch": row.batch, **row.dims}
        yield from model_peers(found, args, row, path, dims, (0, 0), lambda path=path: half(path) if to_half else path)


def open_decoders(found, args):
    from graphs import save_decoder

    short = args.device == "cuda" and onnxruntime_offers("CUDAExecutionProvider")

    def made(row, kind, dtype, short_caches):
        path = args.folder / f"{row.stem}.{kind}.onnx"
        if not path.is_file():
            save_decoder(path, row, dtype, short_caches)
        return path

    for row in found.group.rows:
        caches, own = (row.capacity, row.past), made(row, "bf16_caches", "f32", True)
        dtype = "f16" if short else "f32"
        yield from model_peers(found, args, row, own, {}, caches, lambda row=row, t=dtype: made(row, t, t, False))


def open_steps(save, name, precisions, what):
    """RLX's steps on a model of independent parts, by each of `(column, precision, numerics)`, and PyTorch's and Triton's of the same sizes."""

    def opened(found, args):
        path, rows = args.folder / f"{found.group.key}.onnx", found.group.rows
        save(path, rows)
        for column, precision, numerics in precisions:
            of = {"args": args, "model": path, "precision": precision, "numerics": numerics}
            yield RlxSteps((column,), titles(rows), name=name, **of)
        job = {"sizes": [asdict(row) for row in rows], "precision": precisions[0][1], "what": what, "peer": "kernels"}
        others = found.group.columns[len(precisions) :]
        yield Python(others, titles(rows), device=args.device, **job)

    return opened


def open_limits(args, sizes):
    """The process that says what the machine reaches, and how many operations its multiply-adds are."""
    programs = 2048 if args.device == "cuda" else 1
    job = {"copied": sizes.copied, "chain": sizes.chain, "programs": programs, "what": ["limits"], "peer": "kernels"}
    return Python(("copy", "multiply-adds"), ["machine"], device=args.device, **job), sizes.chain * programs * ROUND


def opened_limits(limits, clock):
    """Waits for it; why it is absent if it is."""
    try:
        limits.ready(clock.left())
    except Failed as why:
        return str(why)
    return None


def made(sizes, chain_operations, judges):
    """All groups, in the order in which they are timed where time is short."""
    import graphs

    both = (("RLX, library", "bf16", "fast"), ("RLX, own", "bf16", "strict"))
    exact = (("RLX, library", "f32", "fast"), ("RLX, own", "f32", "strict"))
    one = (("RLX", "bf16", "fast"),)
    of = {"copied": sizes.copied, "chain_operations": chain_operations}
    multiply, peers = "rows × columns × depth", ("PyTorch compiled", "PyTorch eager", "ONNX Runtime")
    products, attend = graphs.save_products, graphs.save_attentions
    # Each shape by itself, since all processes of a group have their weights on the device at once.
    shapes = [
        Group(
            "llama", f"Decoders of Llama's shape, {shape}", "shape, layers, what, batch",
            tuple(row for row in sizes.decoders if row.shape == shape), ("RLX", *peers),
            open_decoders, report.compiled_goals, "compiled / RLX", kernels=False, limits=True,
            more=report.decode_table, **of,
        )
        for shape in dict.fromkeys(row.shape for row in sizes.decoders)
    ]  # fmt: skip
    groups = [
        Group(
            "products", "bf16 matmuls", multiply, sizes.products, ("RLX, library", "RLX, own", "PyTorch", "Triton"),
            open_steps(products, "product", both, ["products", "triton"]), report.product_goals,
            "best library / own", more=report.products_mean,
        ),
        Group(
            "attention", "Attention", "batch × heads, queries × keys, size of a head", sizes.attentions,
            ("RLX", "PyTorch", "cuDNN", "FlashAttention"),
            open_steps(attend, "attention", one, ["attentions"]), report.attention_goals, "best peer / RLX",
        ),
        Group(
            "exact", "f32 matmuls", multiply, sizes.exact, ("RLX, library", "RLX, own", "PyTorch"),
            open_steps(products, "product", exact, ["products"]), report.exact_goals,
            "own / multiply-adds alone", limits=True, **of,
        ),
        Group(
            "rows", "Matmuls of one row", multiply, sizes.steps, ("RLX", "PyTorch"),
            open_steps(products, "product", one, ["products"]), report.step_goals,
            "bytes / copy", limits=True, **of,
        ),
        Group(
            "models", "Models", "model, batch", sizes.nets, ("RLX", "RLX, from the host", *peers),
            open_nets, report.compiled_goals, "compiled / RLX", kernels=False,
        ),
        *shapes,
    ]  # fmt: skip
    return [replace(group, judges=judges) for group in groups]
