"""RLX as a backend of the ``onnx`` package, for its test runner and its users.

    import onnx.backend.test, rlx.backend
    tests = onnx.backend.test.BackendTest(rlx.backend, __name__)

``python -m rlx.backend`` runs all test cases of the installed ``onnx`` package and counts them.
"""

from collections import namedtuple

import numpy as np
import onnx
from onnx.backend.base import Backend, BackendRep

import rlx

__all__ = ["RlxBackend", "RlxBackendRep", "is_compatible", "prepare", "run_model", "run_node", "supports_device"]


class RlxBackendRep(BackendRep):
    """A model that is ready to run."""

    def __init__(self, model: rlx.Model):
        self.model = model

    def run(self, inputs, **kwargs):
        """Runs on a list of arrays in the model's order, or on arrays by name; returns the outputs as a named tuple."""
        found = self.model.run(inputs, **kwargs)
        names = list(found)
        return namedtuple("Outputs", names, rename=True)(*found.values())


class RlxBackend(Backend):
    """See `onnx.backend.base.Backend`."""

    @classmethod
    def is_compatible(cls, model, device="CPU", **kwargs):
        """Whether the model can be imported and compiled."""
        try:
            cls.prepare(model, device, **kwargs).model.prepare()
        except rlx.NeedsInputValueError:
            return True
        except rlx.Error:
            return False
        return True

    @classmethod
    def prepare(cls, model, device="CPU", **kwargs):
        """A model of an ONNX file in memory. ``kwargs`` are options of `rlx.load`."""
        super().prepare(model, device)
        return RlxBackendRep(rlx.load(model.SerializeToString(), device=_device(device), **kwargs))

    @classmethod
    def run_node(cls, node, inputs, device="CPU", outputs_info=None, **kwargs):
        """Runs one node on arrays."""
        super().run_node(node, inputs, device=device, outputs_info=outputs_info)
        names = [name for name in node.input if name]
        arrays = dict(zip(names, map(np.asarray, inputs)))
        given = [
            onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in arrays.items()
        ]
        made = [onnx.helper.make_empty_tensor_value_info(name) for name in node.output if name]
        if outputs_info is not None:
            made = [
                onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape)
                for name, (dtype, shape) in zip((n for n in node.output if n), outputs_info)
            ]
        graph = onnx.helper.make_graph([node], node.op_type, given, made)
        options = {"opset_imports": [onnx.helper.make_opsetid(node.domain, kwargs.pop("opset_version", onnx.defs.onnx_opset_version()))]}
        model = onnx.shape_inference.infer_shapes(onnx.helper.make_model(graph, **options))
        return cls.prepare(model, device, **kwargs).run(arrays)

    @classmethod
    def supports_device(cls, device):
        """Whether a device can be used: ``"CPU"``, ``"CUDA"``, ``"VULKAN"``, …"""
        try:
            return rlx.devices().get(_device(device), "") is None
        except ValueError:
            return False


def _device(text: str) -> str:
    kind = text.split(":")[0]
    return kind.lower()


is_compatible = RlxBackend.is_compatible
prepare = RlxBackend.prepare
run_model = RlxBackend.run_model
run_node = RlxBackend.run_node
supports_device = RlxBackend.supports_device
