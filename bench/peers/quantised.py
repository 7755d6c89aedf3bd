"""Full-size models in 8 and 4 bits: ONNX Runtime's quantiser over a model that lies here in f32.

`NAME+qdq` and `NAME+qop` are quantised statically (unsigned activations, signed weights for each channel), calibrated on
one input of random numbers, which is right for timing and says nothing about accuracy; `NAME+int8` dynamically. `NAME+w4` and
`NAME+w8` have weights of 4 and 8 bits in blocks of 32 (`MatMulNBits`) beside activations in f32, `NAME+w4a8` and `NAME+w8a8` beside
activations that the model allows to be quantised to 8 bits (`accuracy_level = 4`).
"""

import logging
from pathlib import Path

import numpy as np
import onnx
from onnxruntime.quantization import (
    CalibrationDataReader, QuantFormat, QuantType, quantize_dynamic, quantize_static,
)  # fmt: skip
from onnxruntime.quantization.shape_inference import quant_pre_process

STATIC = {"qdq": QuantFormat.QDQ, "qop": QuantFormat.QOperator}
# Bits of a weight, and the level of accuracy that matmuls need (0: none is given, 4: activations of 8 bits).
WEIGHTS = {"w4": (4, 0), "w8": (8, 0), "w4a8": (4, 4), "w8a8": (8, 4)}
FORMATS = (*STATIC, "int8", *WEIGHTS)


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
        elif how in WEIGHTS:
            quantise_weights(whole, made, *WEIGHTS[how])
        else:
            quant_pre_process(str(whole), str(prepared), skip_symbolic_shape=True)
            quantize_static(
                str(prepared), str(made), Once(feeds), quant_format=STATIC[how], per_channel=True,
                activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8,
            )  # fmt: skip
    finally:
        for scratch in (whole, prepared):
            scratch.unlink(missing_ok=True)
    return made


def quantise_weights(model, made, bits, accuracy):
    """`model` with the weights of its matmuls in blocks of `bits` bits, and this level of accuracy."""
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer, logger

    logger.setLevel(logging.WARNING)  # else a line for each node
    quantiser = MatMulNBitsQuantizer(onnx.load(model), bits=bits, block_size=32, accuracy_level=accuracy or None)
    quantiser.process()
    quantiser.model.save_model_to_file(str(made), use_external_data_format=False)
