"""Times models, matmuls and attention on an NVIDIA GPU: RLX beside PyTorch, eager and compiled, in bf16.

    cargo build --release -p rlx --features cuda
    python bench/gpu.py --rlx target/release/rlx --markdown target/gpu.md

It needs PyTorch, torchvision, transformers and onnx, as the machine has them, and installs nothing. Each peer has a process for each model, which compiles first;
they are timed one after the other, with nothing else on the GPU. PyTorch's inputs are on the GPU before it is timed; RLX is timed so, too (`--bind-inputs`), and
with inputs that are copied from the host each time.
`--numerics strict` in the second table is RLX without a vendor's library: its own programs for matrix units.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# The model, the sizes of its dimensions besides the batch, and how PyTorch makes it.
MODELS = {
    "resnet50": ({"height": 224, "width": 224}, "image"),
    "vit_b_16": ({}, "image"),
    "distilbert_full": ({"seq": 128}, "text"),
    "bert": ({}, "text"),
}
BATCHES = [1, 32]
# Rows, columns, depth.
PRODUCTS = [
    (4096, 4096, 4096),
    (2048, 5120, 5120),
    (2048, 11008, 4096),
    (1024, 4096, 4096),
    (512, 4096, 4096),
    (256, 4096, 4096),
    (128, 4096, 4096),
    (4096, 768, 3072),
    (4096, 3072, 768),
    (6304, 768, 3072),
    (6304, 3072, 768),
    (4096, 1024, 1024),
]


# The same of a decoder's step, as Llama of 7 B and of 1 B has them: what is read is the right matrix.
ROWS = [(1, 4096, 4096), (1, 11008, 4096), (1, 4096, 11008), (1, 32000, 4096), (1, 2048, 2048), (1, 5632, 2048)]
# Batch, heads, queries, keys, elements of a head, and whether it is causal.
ATTENTIONS = [
    (32, 12, 128, 128, 64, False),
    (32, 12, 197, 197, 64, False),
    (4, 16, 2048, 2048, 64, True),
    (1, 32, 4096, 4096, 128, True),
    (8, 32, 1, 4096, 128, False),
]


def torch_model(name):
    import torchvision.models
    from transformers import BertConfig, BertModel, DistilBertConfig, DistilBertModel

    made = {
        "resnet50": torchvision.models.resnet50,
        "vit_b_16": torchvision.models.vit_b_16,
        "distilbert_full": lambda: DistilBertModel(DistilBertConfig()),
        "bert": lambda: BertModel(BertConfig(attn_implementation="eager")),
    }
    return made[name]().eval()


def torch_inputs(name, batch, device):
    import torch

    if MODELS[name][1] == "text":
        return torch.randint(0, 30000, (batch, 128), device=device)
    return torch.randn(batch, 3, 224, 224, device=device).bfloat16()


def export_bert(folder):
    """BERT-base as PyTorch exports it; the other models are made of `models/`."""
    import torch

    class Hidden(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = torch_model("bert")

        def forward(self, ids):
            return self.model(input_ids=ids).last_hidden_state

    batch = ({0: torch.export.Dim("batch")},)
    inputs = torch_inputs("bert", 2, "cpu")
    names = {"input_names": ["ids"], "output_names": ["hidden"]}
    torch.onnx.export(Hidden().eval(), (inputs,), folder / "bert.onnx", dynamo=True, dynamic_shapes=batch, **names)


def save_attentions(folder):
    """One model of independent attentions; a sum behind each keeps results off the host."""
    import numpy as np
    import onnx
    from onnx import TensorProto, helper

    nodes, inputs, outputs = [], [], []
    axes = onnx.numpy_helper.from_array(np.array([1, 2, 3], dtype=np.int64), "axes")
    for i, (batch, heads, queries, keys, size, causal) in enumerate(ATTENTIONS):
        for name, rows in (("q", queries), ("k", keys), ("v", keys)):
            dims = [batch, heads, rows, size]
            inputs.append(helper.make_tensor_value_info(f"{name}{i}", TensorProto.FLOAT, dims))
        of = [f"q{i}", f"k{i}", f"v{i}"]
        nodes.append(helper.make_node("Attention", of, [f"a{i}"], name=f"attention{i}", is_causal=int(causal)))
        nodes.append(helper.make_node("ReduceMax", [f"a{i}", "axes"], [f"y{i}"], name=f"max{i}", keepdims=0))
        outputs.append(helper.make_tensor_value_info(f"y{i}", TensorProto.FLOAT, [batch]))
    graph = helper.make_graph(nodes, "attentions", inputs, outputs, [axes])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
    onnx.save(model, folder / "attentions.onnx")


def save_products(folder, products, file):
    """One model of independent matmuls."""
    import numpy as np
    import onnx
    from onnx import TensorProto, helper

    random = np.random.default_rng(1)
    nodes, inputs, outputs, weights = [], [], [], []
    for i, (m, n, k) in enumerate(products):
        weight = (random.standard_normal((k, n), dtype=np.float32) / np.sqrt(k)).astype(np.float32)
        weights.append(onnx.numpy_helper.from_array(weight, f"w{i}"))
        inputs.append(helper.make_tensor_value_info(f"x{i}", TensorProto.FLOAT, [m, k]))
        outputs.append(helper.make_tensor_value_info(f"y{i}", TensorProto.FLOAT, [m, n]))
        nodes.append(helper.make_node("MatMul", [f"x{i}", f"w{i}"], [f"y{i}"], name=f"mm_{m}x{n}x{k}"))
    graph = helper.make_graph(nodes, "products", inputs, outputs, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, folder / f"{file}.onnx", save_as_external_data=True, location=f"{file}.data")


def median(run, count):
    import torch

    for _ in range(10):
        run()
    torch.cuda.synchronize()
    times = []
    for _ in range(count):
        start = time.perf_counter()
        run()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return sorted(times)[count // 2] * 1e3


def serve_torch(name, batch):
    """Compiles, says so, and times when it is told to: eager and compiled, in milliseconds."""
    import torch

    model, x = torch_model(name).to("cuda").bfloat16(), torch_inputs(name, batch, "cuda")
    if name == "resnet50":
        model, x = model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    with torch.inference_mode():
        compiled = torch.compile(model, mode="reduce-overhead", dynamic=False)
        for _ in range(2):
            compiled(x)
        print("compiled", flush=True)
        sys.stdin.readline()
        print(json.dumps([median(lambda: model(x), 20), median(lambda: compiled(x), 60)]), flush=True)


def least_time(run):
    """Microseconds of one of ten in a row, at best."""
    import torch

    marks = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
    run(0)
    least = float("inf")
    for _ in range(5):
        marks[0].record()
        for i in range(10):
            run(i)
        marks[1].record()
        marks[1].synchronize()
        least = min(least, marks[0].elapsed_time(marks[1]) * 100)
    return least


def torch_products(products):
    """Microseconds of each product, by matrices that are not all in the caches."""
    import torch

    found = []
    for m, n, k in products:
        a = torch.randn(m, k, device="cuda").bfloat16()
        count = 1 if m > 1 else max(1, (1 << 28) // (n * k * 2))
        b = [torch.randn(k, n, device="cuda").bfloat16() for _ in range(count)]
        found.append(least_time(lambda i, a=a, b=b: a @ b[i % len(b)]))
    return found


def torch_attentions():
    """Microseconds of each attention."""
    import torch
    from torch.nn.functional import scaled_dot_product_attention

    found = []
    for batch, heads, queries, keys, size, causal in ATTENTIONS:
        of = [torch.randn(batch, heads, n, size, device="cuda").bfloat16() for n in (queries, keys, keys)]
        found.append(least_time(lambda _, of=of, causal=causal: scaled_dot_product_attention(*of, is_causal=causal)))
    return found


def rlx(args, model, dims, numerics, more=()):
    sizes = [part for name, size in dims.items() for part in ("--dim", f"{name}={size}")]
    command = [args.rlx, "--json", "bench", str(model), "--device", "cuda", "--precision", "bf16"]
    done = subprocess.run([*command, "--numerics", numerics, *sizes, *more], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{model.name}: {done.stderr or done.stdout}")
    return json.loads(done.stdout.splitlines()[-1])


def models_table(args, folder):
    jobs = [(name, batch) for name in MODELS for batch in BATCHES]
    command = [sys.executable, __file__, "--serve"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    peers = {job: subprocess.Popen([*command, job[0], str(job[1])], **pipes) for job in jobs}
    for name in MODELS:
        if name == "bert":
            export_bert(folder)
        else:
            subprocess.run([sys.executable, ROOT / "models/weights.py", name, folder], check=True)
    for (name, _), peer in peers.items():
        if not peer.stdout.readline():
            sys.exit(f"PyTorch does not compile {name}: python {__file__} --serve {name} 1")
    yield "| model, batch | RLX, ms | from the host | PyTorch compiled | PyTorch eager | compiled / RLX |"
    yield "|---|---|---|---|---|---|"
    for (name, batch), peer in peers.items():
        dims, times = {"batch": batch, **MODELS[name][0]}, []
        for more in (["--bind-inputs"], []):
            own = rlx(args, folder / f"{name}.onnx", dims, "fast", ["--runs", "60", *more])
            times.append(own["median_ms"])
        eager, compiled = json.loads(peer.communicate("now\n")[0])
        (ours, host), ratio = times, compiled / times[0]
        yield f"| {name}, {batch} | {ours:.3f} | {host:.3f} | {compiled:.3f} | {eager:.3f} | {ratio:.2f} |"


def steps(args, model, numerics, kind):
    """Microseconds of the steps of a kind, in the order of their nodes."""
    report = rlx(args, model, {}, numerics, ["--runs", "10", "--profile", "--bind-inputs"])
    return [step["us"] for step in report["profile"]["steps"] if step["kind"] == kind]


def rows_table(args, folder):
    save_products(folder, ROWS, "rows")
    times = steps(args, folder / "rows.onnx", "fast", "MatMul")
    yield "| columns × depth of one row | PyTorch, GB/s | RLX, GB/s |"
    yield "|---|---|---|"
    for (_, n, k), peer, own in zip(ROWS, torch_products(ROWS), times, strict=True):
        yield f"| {n} × {k} | {n * k * 2e-3 / peer:.0f} | {n * k * 2e-3 / own:.0f} |"


def attention_table(args, folder):
    save_attentions(folder)
    times = steps(args, folder / "attentions.onnx", "fast", "Attention")
    yield "| batch × heads, queries × keys, size of a head | PyTorch, µs | RLX, µs |"
    yield "|---|---|---|"
    for (batch, heads, queries, keys, size, causal), peer, own in zip(ATTENTIONS, torch_attentions(), times, strict=True):
        what = ", causal" if causal else ""
        yield f"| {batch} × {heads}, {queries} × {keys}, {size}{what} | {peer:.1f} | {own:.1f} |"


def products_table(args, folder):
    save_products(folder, PRODUCTS, "products")
    times = [steps(args, folder / "products.onnx", numerics, "MatMul") for numerics in ("fast", "strict")]
    yield "| rows × columns × depth | PyTorch, µs | through cuBLASLt | own programs |"
    yield "|---|---|---|---|"
    for (m, n, k), peer, library, own in zip(PRODUCTS, torch_products(PRODUCTS), *times, strict=True):
        yield f"| {m} × {n} × {k} | {peer:.1f} | {library:.1f} | {own:.1f} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rlx", default=str(ROOT / "target/release/rlx"), help="the program, built with the feature cuda")
    parser.add_argument("--folder", type=Path, default=ROOT / "target/gpu", help="where models are made (target/gpu)")
    parser.add_argument("--markdown", type=Path, help="also write the tables to this file")
    parser.add_argument("--serve", nargs=2, metavar=("MODEL", "BATCH"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        return serve_torch(args.serve[0], int(args.serve[1]))
    os.makedirs(args.folder, exist_ok=True)
    lines = []
    for table in (models_table, products_table, rows_table, attention_table):
        for line in [*table(args, args.folder), ""]:
            print(line, flush=True)
            lines.append(line)
    if args.markdown:
        args.markdown.write_text("\n".join(lines))
    return None


if __name__ == "__main__":
    main()
