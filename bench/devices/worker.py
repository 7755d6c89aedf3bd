"""A peer written in Python: PyTorch, Triton or ONNX Runtime, with what it is timed on.

It is called with a job as JSON, makes everything ready, and writes a line, `{"about", "absent"}`: versions, and which columns it cannot time and why. Then it
answers each `turn SECONDS` with `{"times": [[row, column, ms], …]}`, of each of its rows by each of its columns.
"""

import json
import os
import statistics
import sys
import time
from dataclasses import fields
from pathlib import Path

import rows as sizes

WARM_UP = 3
LEAST = 5
# Runs of a kernel that are timed as one.
IN_A_ROW = 10


class Turns:
    """What is timed: runs by row and column, each of whole models (their median) or of kernels in a row (the shortest)."""

    def __init__(self, device):
        self.device, self.models, self.kernels, self.absent, self.about = device, [], [], {}, {}

    def wait(self):
        import torch

        if self.device == "cuda":
            torch.cuda.synchronize()

    def attempt(self, row, column, make, kernel=False):
        """Adds what `make` gives after its first run, or says why there is none."""
        try:
            run = make()
            run(0)
            self.wait()
        except Exception as why:  # whatever a peer raises is why it cannot
            self.absent.setdefault(column, {})[row] = " ".join(f"{type(why).__name__}: {why}".split())[:200]
            return
        (self.kernels if kernel else self.models).append((row, column, run))

    def model_time(self, run, seconds):
        for _ in range(WARM_UP):
            run(0)
        self.wait()
        taken, end = [], time.perf_counter() + seconds
        while len(taken) < LEAST or time.perf_counter() < end:
            start = time.perf_counter()
            run(0)
            self.wait()
            taken.append(time.perf_counter() - start)
        return statistics.median(taken) * 1e3

    def kernel_time(self, run, seconds):
        """Of one of ten in a row, by the device's own clock where it has one."""
        least, end, count = float("inf"), time.perf_counter() + seconds, 0
        run(0)
        while count < LEAST or time.perf_counter() < end:
            least, count = min(least, self.in_a_row(run)), count + 1
        return least / IN_A_ROW

    def in_a_row(self, run):
        if self.device != "cuda":
            start = time.perf_counter()
            for i in range(IN_A_ROW):
                run(i)
            return (time.perf_counter() - start) * 1e3
        import torch

        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for i in range(IN_A_ROW):
            run(i)
        end.record()
        end.synchronize()
        return begin.elapsed_time(end)

    def turn(self, seconds):
        of = [(self.models, self.model_time), (self.kernels, self.kernel_time)]
        return [[row, column, timed(run, seconds)] for all_, timed in of for row, column, run in all_]


def of_row(kind, row):
    """A row as the job has it; `rows.py` has the classes."""
    of = getattr(sizes, kind)
    return of(**{field.name: row[field.name] for field in fields(of)})


def torch_net(name):
    """The model as PyTorch has it, of random weights."""
    import torchvision.models

    if hasattr(torchvision.models, name):
        return getattr(torchvision.models, name)().eval()
    from transformers import BertConfig, BertModel, DistilBertConfig, DistilBertModel

    made = {
        "distilbert_full": lambda: DistilBertModel(DistilBertConfig()),
        "bert": lambda: BertModel(BertConfig(attn_implementation="eager")),
    }
    return made[name]().eval()


def torch_inputs(net, device):
    import torch

    if "bert" in net.name:
        return torch.randint(0, 30000, (net.batch, 128), device=device)
    side = net.dims.get("height", 224)
    return torch.randn(net.batch, 3, side, side, device=device).bfloat16()


def torch_model(job):
    """A model eager and compiled; captured graphs on a GPU."""
    import torch

    turns = Turns(job["device"])
    row = of_row(job["kind"], job["row"])
    turns.about["PyTorch"] = torch.__version__

    # Not made in inference mode: what is, cannot be changed in place by captured graphs.
    @torch.inference_mode(False)
    @torch.no_grad()
    def made():
        if job["kind"] == "Decoder":
            from llama import llama

            return llama(row, turns.device)
        model, x = torch_net(row.name).to(turns.device).bfloat16(), torch_inputs(row, turns.device)
        if x.ndim == 4:
            model, x = model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
        return model, (x,)

    found = {}

    def eager():
        found["model"], found["given"] = made()
        return lambda _: found["model"](*found["given"])

    def compiled():
        mode = "reduce-overhead" if turns.device == "cuda" else "default"
        run = torch.compile(found["model"], mode=mode, dynamic=False)
        run(*found["given"])
        return lambda _: run(*found["given"])

    turns.attempt(row.title, "PyTorch eager", eager)
    turns.attempt(row.title, "PyTorch compiled", compiled)
    return turns


def onnxruntime_model(job):
    """A model by ONNX Runtime, with inputs and outputs that stay on the device."""
    import numpy as np
    import onnxruntime

    turns = Turns(job["device"])
    turns.about["ONNX Runtime"] = onnxruntime.__version__
    column, title = "ONNX Runtime", job["title"]
    provider = {"cuda": "CUDAExecutionProvider", "cpu": "CPUExecutionProvider"}[turns.device]
    if provider not in onnxruntime.get_available_providers():
        turns.absent[column] = {title: f"{provider} is not in this build of ONNX Runtime"}
        return turns

    def made():
        options = onnxruntime.SessionOptions()
        for name, size in job["dims"].items():
            options.add_free_dimension_override_by_name(name, size)
        session = onnxruntime.InferenceSession(job["model"], options, providers=[provider])
        if session.get_providers()[0] != provider:
            raise RuntimeError(f"{provider} does not load")
        binding = session.io_binding()
        random = np.random.default_rng(0)
        for info in session.get_inputs():
            shape = [job["dims"].get(d, d) for d in info.shape]
            if info.type == "tensor(int64)":
                array = np.ones(shape, np.int64)
            else:
                dtype = {"tensor(float)": np.float32, "tensor(float16)": np.float16}[info.type]
                array = random.standard_normal(shape, dtype=np.float32).astype(dtype)
            value = onnxruntime.OrtValue.ortvalue_from_numpy(array, turns.device, 0)
            binding.bind_ortvalue_input(info.name, value)
        for output in session.get_outputs():
            binding.bind_output(output.name, turns.device)

        def run(_):
            session.run_with_iobinding(binding)
            binding.synchronize_outputs()

        return run

    # What waits for PyTorch has nothing to do here.
    turns.wait = lambda: None
    turns.attempt(title, column, made)
    return turns


def kernels(job):
    """Single kernels: PyTorch's matmuls and attentions, a Triton matmul, and what the machine reaches (a copy, multiply-adds alone)."""
    import torch

    turns = Turns(job["device"])
    turns.about["PyTorch"] = torch.__version__
    if turns.device == "cuda":
        turns.about["GPU"] = torch.cuda.get_device_name()
    torch.backends.cuda.matmul.allow_tf32 = False
    for what in job["what"]:
        {"limits": limits, "products": products, "attentions": attentions, "triton": triton_products}[what](turns, job)
    return turns


def limits(turns, job):
    import torch

    def copy():
        count = job["copied"] // 4
        a, b = (torch.zeros(count, device=turns.device) for _ in range(2))
        return lambda _: b.copy_(a)

    def chains():
        from kernels import run_multiply_adds

        out = torch.zeros(sizes.WIDTH, device=turns.device)
        return lambda _: run_multiply_adds(out, job["chain"], job["programs"])

    turns.attempt("machine", "copy", copy, kernel=True)
    turns.attempt("machine", "multiply-adds", chains, kernel=True)


def operands(row, job, device):
    """Matrices; of a single row, right ones that are not all in the caches."""
    import torch

    dtype = {"bf16": torch.bfloat16, "f32": torch.float32}[job["precision"]]
    copies = 1 if row.rows > 1 or device == "cpu" else max(1, (1 << 28) // (row.columns * row.depth * 2))
    a = torch.randn(row.rows, row.depth, device=device).to(dtype)
    return a, [torch.randn(row.depth, row.columns, device=device).to(dtype) for _ in range(copies)]


def products(turns, job):
    for row in (of_row("Product", row) for row in job["sizes"]):

        def made(row=row):
            a, b = operands(row, job, turns.device)
            return lambda i: a @ b[i % len(b)]

        turns.attempt(row.title, "PyTorch", made, kernel=True)


def triton_products(turns, job):
    column = "Triton"
    try:
        import triton

        from kernels import Matmul

        multiply = Matmul(turns.device)
        turns.about["Triton"] = triton.__version__
    except Exception as why:
        turns.absent[column] = {"all": f"{type(why).__name__}: {why}"}
        return
    for row in (of_row("Product", row) for row in job["sizes"]):

        def made(row=row):
            a, b = operands(row, job, turns.device)
            if turns.device == "cpu":
                # Triton's interpreter has no bf16.
                a, b = a.float(), [x.float() for x in b]
            found, right = multiply(a, b[0]).float(), a.float() @ b[0].float()
            if (found - right).abs().max() > 0.02 * right.abs().max():
                raise ArithmeticError("not the product")
            return lambda i: multiply(a, b[i % len(b)])

        turns.attempt(row.title, column, made, kernel=True)


def attentions(turns, job):
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention as attend

    ways = {"PyTorch": None, "cuDNN": SDPBackend.CUDNN_ATTENTION, "FlashAttention": SDPBackend.FLASH_ATTENTION}
    for row in (of_row("Attention", row) for row in job["sizes"]):
        counts = (row.queries, row.keys, row.keys)
        of = [torch.randn(row.batch, row.heads, n, row.size, device=turns.device).bfloat16() for n in counts]
        for column, way in ways.items():

            def made(of=of, row=row, way=way):
                def run(_):
                    if way is None:
                        return attend(*of, is_causal=row.causal)
                    with sdpa_kernel(way):
                        return attend(*of, is_causal=row.causal)

                return run

            turns.attempt(row.title, column, made, kernel=True)


def main():
    job = json.loads(sys.argv[1])
    # What peers print is not part of the protocol.
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    if job["device"] == "cpu":
        os.environ["TRITON_INTERPRET"] = "1"
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "2")
    sys.path.insert(0, str(Path(__file__).resolve().parent))

    def answer(fields):
        print(json.dumps(fields), file=out, flush=True)

    def serve(make):
        turns = make(job)
        answer({"about": turns.about, "absent": turns.absent})
        for request in sys.stdin:
            answer({"times": turns.turn(float(request.split()[1]))})

    if job["peer"] == "onnxruntime":
        return serve(onnxruntime_model)
    try:
        import torch
    except ImportError as why:
        sys.exit(str(why))
    with torch.inference_mode():
        return serve({"torch": torch_model, "kernels": kernels}[job["peer"]])


if __name__ == "__main__":
    main()
