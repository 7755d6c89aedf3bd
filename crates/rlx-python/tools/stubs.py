"""Writes the methods of traced tensors into the type stubs, from the extension's own table: ``python tools/stubs.py``.

``tests/test_stubs.py`` checks that they are current.
"""

import pathlib

from rlx import _native

STUBS = pathlib.Path(__file__).parent.parent / "python" / "rlx" / "_native.pyi"
BEGIN, END = "    # methods: made by tools/stubs.py, do not edit\n", "    # end of methods\n"

TYPES = {
    "a tensor": 'Union["Tensor", ArrayLike]',
    "a list of tensors": "Sequence[Tensor]",
    "a tensor or a number": "_Operand",
    "an axis (an integer)": "int",
    "a count (an integer that is not negative)": "int",
    "a number": "float",
    "true or false": "bool",
    "an element type (DType::F32, …)": "str",
    "a list of axes": "Union[int, Sequence[int]]",
    "a list of dimensions (one may be -1)": "Sequence[int]",
    "a list of dimensions": "Sequence[Union[int, str]]",
}
DEFAULTS = {"an axis (an integer)": "-1", "true or false": "False", "a list of axes": "()"}


def method(name, args, doc):
    last = max((i for i, (_, kind) in enumerate(args) if kind not in DEFAULTS), default=-1)
    given = [
        f"{arg}: {TYPES[kind]}" + (f" = {DEFAULTS[kind]}" if i > last else "") for i, (arg, kind) in enumerate(args)
    ]
    return f'    def {name}({", ".join(["self", *given])}) -> Tensor:\n        """{" ".join(doc.split())}"""\n'


def updated(text):
    start, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    return text[:start] + "".join(method(*entry) for entry in _native.method_table()) + text[end:]


if __name__ == "__main__":
    STUBS.write_text(updated(STUBS.read_text(encoding="utf-8")), encoding="utf-8")
