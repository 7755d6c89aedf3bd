"""ONNX Runtime's side of compare.py: a session that lives as long as the comparison.

Arguments: MODEL.onnx INPUTS.npz THREADS. Reads requests from standard input, a line each, and
answers each with a line of JSON: `go SECONDS` times one round, `save FILE.npz` keeps the outputs.
"""

import json
import resource
import statistics
import sys
import time

import numpy as np
import onnxruntime

WARM_UP = 3


def open_session(model, threads):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def one_round(run, seconds):
    """Run again and again for `seconds`, at least five times."""
    for _ in range(WARM_UP):
        run()
    taken, end, worked = [], time.perf_counter() + seconds, time.process_time()
    while len(taken) < 5 or time.perf_counter() < end:
        start = time.perf_counter()
        run()
        taken.append((time.perf_counter() - start) * 1e3)
    worked = time.process_time() - worked
    taken.sort()
    return {
        "cpu_ms": worked * 1e3 / len(taken),
        "runs": len(taken),
        "min_ms": taken[0],
        "median_ms": statistics.median(taken),
        "p95_ms": taken[int(0.95 * (len(taken) - 1))],
    }


def main():
    model, inputs, threads = sys.argv[1], dict(np.load(sys.argv[2])), int(sys.argv[3])
    start = time.perf_counter()
    session = open_session(model, threads)
    loaded = time.perf_counter()
    names = [output.name for output in session.get_outputs()]
    # Bound inputs and outputs: what is timed is the run, not the conversion of arrays.
    binding = session.io_binding()
    for name, array in inputs.items():
        binding.bind_cpu_input(name, array)
    for name in names:
        binding.bind_output(name)

    def run():
        session.run_with_iobinding(binding)

    run()
    fixed = {"load_ms": (loaded - start) * 1e3, "first_run_ms": (time.perf_counter() - loaded) * 1e3}
    for request in sys.stdin:
        verb, argument = request.split(maxsplit=1)
        if verb == "go":
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
            answer = one_round(run, float(argument)) | fixed | {"peak_rss_bytes": peak}
        else:
            np.savez(argument.strip(), **dict(zip(names, session.run(names, inputs))))
            answer = {}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
