"""Classifies images of digits; written for ONNX Runtime.

    python classify_digits.py MODEL IMAGE.npy LABEL...
"""

import sys

import numpy as np
import onnxruntime as ort

model, images, *labels = sys.argv[1:]

options = ort.SessionOptions()
options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
options.intra_op_num_threads = 1
providers = [p for p in ("CUDAExecutionProvider", "CPUExecutionProvider") if p in ort.get_available_providers()]
session = ort.InferenceSession(model, sess_options=options, providers=providers)

(given,) = session.get_inputs()
(result,) = session.get_outputs()
assert given.type == "tensor(float)" and given.shape[1:] == [1, 8, 8], given
print("running", session.get_modelmeta().producer_name, "on", session.get_providers()[0])

batch = np.load(images)
(probabilities,) = session.run([result.name], {given.name: batch})
classes = probabilities.argmax(axis=1)
print("classes", *classes)

# The same with inputs and outputs bound.
binding = session.io_binding()
binding.bind_cpu_input(given.name, batch)
out = ort.OrtValue.ortvalue_from_shape_and_type(probabilities.shape, np.float32, "cpu")
binding.bind_ortvalue_output(result.name, out)
session.run_with_iobinding(binding, ort.RunOptions())
assert np.array_equal(out.numpy(), probabilities)

assert list(map(str, classes)) == labels, (classes, labels)
