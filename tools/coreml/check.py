"""Reads Core ML packages by coremltools, which checks every operation's operands, and compares what it infers with what is declared.

    python check.py FOLDER

Reads every .mlpackage of the folder: the model by `coremltools.utils.load_spec`, the program by coremltools' own reader of MIL, with the
file of weights. One line for each that is rejected; the exit status is 1 if any is.
"""

import logging
import pathlib
import sys
import warnings

warnings.filterwarnings("ignore")
logging.disable(logging.CRITICAL)

import coremltools as ct  # noqa: E402
from coremltools.converters.mil.frontend.milproto.load import load  # noqa: E402


def count(block):
    """The number of a block's operations, with those of the blocks inside."""
    return sum(1 + sum(count(inner) for inner in op.blocks) for op in block.operations)


def check(path):
    """Loads one package; the number of its operations."""
    spec = ct.utils.load_spec(str(path))
    weights = path / "Data" / "com.apple.CoreML" / "weights"
    program = load(spec, specification_version=spec.specificationVersion, file_weights_dir=str(weights))
    block = program.functions["main"]
    declared = {out.name: out for f in spec.mlProgram.functions.values() for b in f.block_specializations.values()
                for op in b.operations for out in op.outputs}
    for output in block.outputs:
        sizes = [d.constant.size for d in declared[output.name].type.tensorType.dimensions]
        if list(output.shape) != sizes:
            raise ValueError(f"{output.name} is {list(output.shape)}, declared {sizes}")
    described = [feature.name for feature in spec.description.output]
    if described != [output.name for output in block.outputs]:
        raise ValueError(f"the outputs {described} are described")
    return count(block)


def main(folder):
    paths = sorted(pathlib.Path(folder).glob("*.mlpackage"))
    rejected = 0
    for path in paths:
        try:
            print(f"{path.stem}: {check(path)} operations", flush=True)
        except Exception as e:  # noqa: BLE001: whatever coremltools raises is its verdict
            rejected += 1
            print(f"{path.stem}: {type(e).__name__}: {str(e)[:300]}", flush=True)
    print(f"{len(paths) - rejected} of {len(paths)} packages read by coremltools {ct.__version__}")
    return 1 if rejected or not paths else 0


sys.exit(main(sys.argv[1]))
