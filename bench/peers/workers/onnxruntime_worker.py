"""ONNX Runtime's worker."""

import onnxruntime
from serve import serve


def load(model, inputs, threads, precision, dims):
    assert precision == "f32", f"{precision} is not offered"
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    for name, size in dims.items():
        options.add_free_dimension_override_by_name(name, size)
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    # Bound inputs and outputs: what is timed is the run, not the conversion of arrays.
    binding = session.io_binding()
    for name, array in inputs.items():
        binding.bind_cpu_input(name, array)
    for name in names:
        binding.bind_output(name)
    return lambda: session.run_with_iobinding(binding), lambda: session.run(names, inputs)


serve(load)
