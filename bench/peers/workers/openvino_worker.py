"""OpenVINO's worker. With `--f32-activations` it quantises no activations that are f32 in the model."""

import sys

import openvino
from serve import serve

F32_ACTIVATIONS = "--f32-activations" in sys.argv
if F32_ACTIVATIONS:
    sys.argv.remove("--f32-activations")


def load(path, inputs, threads, precision, _dims):
    core = openvino.Core()
    model = core.read_model(path)
    model.reshape({name: list(array.shape) for name, array in inputs.items()})
    options = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": precision}
    if F32_ACTIVATIONS:
        options["DYNAMIC_QUANTIZATION_GROUP_SIZE"] = 0
    compiled = core.compile_model(model, "CPU", options)
    got = compiled.get_property("INFERENCE_PRECISION_HINT").to_string()
    assert got == {"f32": "f32", "bf16": "bf16"}[precision], f"{got} instead of {precision}"
    request = compiled.create_infer_request()
    tensors = {name: openvino.Tensor(array) for name, array in inputs.items()}
    for name, tensor in tensors.items():
        request.set_tensor(name, tensor)

    def outputs():
        request.infer()
        return [request.get_output_tensor(i).data.copy() for i in range(len(compiled.outputs))]

    return request.infer, outputs


serve(load)
