"""Times models and matmuls on an NVIDIA GPU: RLX beside PyTorch, eager and compiled, in bf16.

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


def save_products(folder):
    """One model of independent matmuls."""
    import numpy as np
    import onnx
    from onnx import TensorProto, helper

    random = np.random.default_rng(1)
    nodes, inputs, outputs, weights = [], [], [], []
    for i, (m, n, k) in enumerate(PRODUCTS):
        weight = (random.standard_normal((k, n), dtype=np.float32) / np.sqrt(k)).astype(np.float32)
        weights.append(onnx.numpy_helper.from_array(weight, f"w{i}"))
        inputs.append(helper.make_tensor_value_info(f"x{i}", TensorProto.FLOAT, [m, k]))
        outputs.append(helper.make_tensor_value_info(f"y{i}", TensorProto.FLOAT, [m, n]))
        nodes.append(helper.make_node("MatMul", [f"x{i}", f"w{i}"], [f"y{i}"], name=f"mm_{m}x{n}x{k}"))
    graph = helper.make_graph(nodes, "products", inputs, outputs, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, folder / "products.onnx", save_as_external_data=True, location="products.data")


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


def torch_products():
    """Microseconds of each product."""
    import torch

    found = []
    for m, n, k in PRODUCTS:
        a = torch.randn(m, k, device="cuda").bfloat16()
        b = torch.randn(k, n, device="cuda").bfloat16()
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
        a @ b
        least = float("inf")
        for _ in range(5):
            marks[0].record()
            for _ in range(10):
                a @ b
            marks[1].record()
            marks[1].synchronize()
            least = min(least, marks[0].elapsed_time(marks[1]) * 100)
        found.append(least)
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


def products_table(args, folder):
    save_products(folder)
    times = []
    for numerics in ["fast", "strict"]:
        report = rlx(args, folder / "products.onnx", {}, numerics, ["--runs", "10", "--profile"])
        named = {f"mm_{m}x{n}x{k}": [] for m, n, k in PRODUCTS}
        for step in report["profile"]["steps"]:
            if step["kind"] == "MatMul":
                named[step["origin"].split(" ")[0]].append(step["us"])
        times.append([min(found) for found in named.values()])
    yield "| rows × columns × depth | PyTorch, µs | through cuBLASLt | own programs |"
    yield "|---|---|---|---|"
    for (m, n, k), peer, library, own in zip(PRODUCTS, torch_products(), *times, strict=True):
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
    for table in (models_table, products_table):
        for line in [*table(args, args.folder), ""]:
            print(line, flush=True)
            lines.append(line)
    if args.markdown:
        args.markdown.write_text("\n".join(lines))
    return None


if __name__ == "__main__":
    main()
