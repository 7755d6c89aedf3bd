"""What export.py is told of a model: its network, how it is written, the runs that check it."""

from dataclasses import dataclass, field
from typing import Callable

import torch

import weights


@dataclass
class Case:
    """One graph and the runs that check it."""

    name: str
    folder: str
    net: Callable[[], torch.nn.Module]
    exporter: str  # "TorchScript" or "dynamo"
    opset: int
    inputs: dict  # name -> shape: numbers, names of dynamic dimensions, and sums of these ("past + seq")
    outputs: dict
    runs: list  # for each golden, the values of all named dimensions
    sample: Callable  # (dims) -> for each input a tensor, or the formula's arguments
    prefix: str = ""  # what the parameters' names start with inside `net`
    limits: dict = field(default_factory=dict)  # largest value of a dimension, where there is one
    static: bool = False  # bind all named dimensions to the first run's values
    values: str = "formula"  # or "safetensors"
    keep_norms: bool = False  # keep batch norms that the TorchScript exporter would fold away
    golden: str = "golden"  # what the goldens' file names start with
    full: bool = False  # of full size: its tests run with RLX_TEST_ALL=1 only
    kept: tuple | None = None  # the outputs that goldens have; all of them where none is named

    def export_dims(self):
        """The sizes that the exporter sees. PyTorch's newer one takes a size of 1 for a constant."""
        several = [run for run in self.runs if 1 not in run.values()]
        return several[0] if several and not self.static else self.runs[0]


def by_formula(shape, name="x"):
    """An input in -1.5 … 1.5 made by the formula, so that large pictures need not be kept."""

    def sample(dims):
        actual = [dims.get(d, d) for d in shape]
        source = f"golden {'x'.join(map(str, actual))}"
        return {name: {"name": source, "shape": actual, "scale": 3 * weights.UNIT // 2, "shift": 0}}

    return sample
