"""What every worker written in Python does; `src/lib.rs` describes the protocol."""

import json
import statistics
import sys
import time

import numpy as np

WARM_UP = 3
LEAST = 5


def one_round(run, seconds):
    for _ in range(WARM_UP):
        run()
    taken, end = [], time.perf_counter() + seconds
    while len(taken) < LEAST or time.perf_counter() < end:
        start = time.perf_counter()
        run()
        taken.append((time.perf_counter() - start) * 1e3)
    taken.sort()
    return {
        "runs": len(taken), "min_ms": taken[0], "median_ms": statistics.median(taken),
        "p95_ms": taken[(len(taken) - 1) * 19 // 20],
    }  # fmt: skip


def serve(load):
    """`load(model, inputs, threads, precision, dims)` gives what runs the model and what returns its outputs in order."""
    begin = time.perf_counter()
    model, inputs, threads, precision, *dims = sys.argv[1:]
    sizes = {name: int(size) for name, _, size in (dim.rpartition("=") for dim in dims)}
    try:
        run, outputs = load(model, dict(np.load(inputs)), int(threads), precision, sizes)
        loaded = time.perf_counter()
        run()
    except Exception as why:  # whatever the peer raises is why it cannot
        sys.exit(" ".join(str(why).split()))
    answer({"load_ms": (loaded - begin) * 1e3, "first_run_ms": (time.perf_counter() - loaded) * 1e3})
    for request in sys.stdin:
        verb, argument = request.strip().split(maxsplit=1)
        if verb == "go":
            answer(one_round(run, float(argument)))
        else:
            np.savez(argument, **{str(i): array for i, array in enumerate(outputs())})
            answer({})


def answer(fields):
    print(json.dumps(fields), flush=True)
