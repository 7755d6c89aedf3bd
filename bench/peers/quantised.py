"""Full-size models in 8 bits: ONNX Runtime's quantiser over a model that lies here in f32.

`NAME+qdq` and `NAME+qop` are quantised statically (unsigned activations, signed weights for each channel), calibrated on
one input of random numbers, which is right for timing and says nothing about accuracy; `NAME+int8` dynamically.
"""

from pathlib import Path

import numpy as np
import onnx
from onnxruntime.quantization import (
    CalibrationDataReader, QuantFormat, QuantType, quantize_dynamic, quantize_static,
)  # fmt: skip
from onnxruntime.quantization.shape_inference import quant_pre_process

FORMATS = {"qdq": QuantFormat.QDQ, "qop": QuantFormat.QOperator, "int8": None}


class Once(CalibrationDataReader):
    """One input, once."""

    def __init__(self, feeds):
        self.feeds = [feeds]

    def get_next(self):
        return self.feeds.pop() if self.feeds else None


def quantised(model, how, feeds, folder):
    """The file of `model` quantised so; made when it is not there yet."""
    made = Path(folder) / f"{Path(model).stem}+{how}.onnx"
    if made.is_file() and made.stat().st_mtime >= Path(model).stat().st_mtime:
        return made
    prepared = made.with_suffix(".prepared.onnx")
    whole = made.with_suffix(".whole.onnx")
    onnx.save(onnx.load(model), whole)  # weights inside: the quantiser reads one file
    try:
        if how == "int8":
            quantize_dynamic(whole, made, per_channel=True, weight_type=QuantType.QInt8)
        else:
            quant_pre_process(str(whole), str(prepared), skip_symbolic_shape=True)
            quantize_static(
                str(prepared), str(made), Once(feeds), quant_format=FORMATS[how], per_channel=True,
                activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8,
            )  # fmt: skip
    finally:
        for scratch in (whole, prepared):
            scratch.unlink(missing_ok=True)
    return made
