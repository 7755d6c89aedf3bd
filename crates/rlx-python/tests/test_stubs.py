"""The type stubs say what the extension has."""

import ast
import importlib.util
import pathlib

from rlx import _native

ROOT = pathlib.Path(__file__).resolve().parents[1]


def stubs_tool():
    spec = importlib.util.spec_from_file_location("stubs", ROOT / "tools" / "stubs.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_methods_of_tensors_are_current():
    tool = stubs_tool()
    text = tool.STUBS.read_text(encoding="utf-8")
    assert tool.updated(text) == text, "run `python tools/stubs.py`"


def test_every_public_name_is_in_the_stubs():
    tree = ast.parse((ROOT / "python" / "rlx" / "_native.pyi").read_text(encoding="utf-8"))
    stated = {}
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            stated[node.name] = {n.name for n in node.body if isinstance(n, ast.FunctionDef)}
        elif isinstance(node, ast.FunctionDef):
            stated[node.name] = set()
    for name in dir(_native):
        if name.startswith("_"):
            continue
        assert name in stated, name
        value = getattr(_native, name)
        if isinstance(value, type):
            missing = {n for n in vars(value) if not n.startswith("_")} - stated[name]
            assert not missing, (name, missing)
            for member, found in vars(value).items():
                assert member.startswith("_") or found.__doc__, f"{name}.{member} has no documentation"
