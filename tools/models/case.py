"""What a model of the table is."""

from dataclasses import dataclass, field
from typing import Any, Callable

TORCHSCRIPT, DYNAMO = "TorchScript", "dynamo"
BOTH = (TORCHSCRIPT, DYNAMO)


@dataclass
class Net:
    """A network of PyTorch, ready for the exporters."""

    net: Any  # torch.nn.Module whose `forward` takes tensors and returns a tensor or a tuple of them
    inputs: dict  # name -> tensor; the values are what both programs run
    outputs: list = field(default_factory=list)  # names, where they matter
    dynamic: dict = field(default_factory=dict)  # input name -> {axis: name of the dimension}


@dataclass
class File:
    """A model that another library wrote as ONNX."""

    model: Any  # onnx.ModelProto
    inputs: dict  # name -> numpy array


@dataclass
class Model:
    """A line of the table, or two: one for each exporter."""

    name: str
    group: str
    source: str  # the library that the network is from
    make: Callable[[], Net | File]  # called with all random generators seeded
    exporters: tuple = BOTH
    opset: int | None = None  # where it is not the exporter's usual one

    def lines(self):
        return [(self, exporter) for exporter in self.exporters]

