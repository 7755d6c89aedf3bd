"""docs/guide/python.md: its code runs, and prints what the page shows. In a ``text`` block, ``…`` matches anything."""

import contextlib
import io
import os
import re

from conftest import MODELS, ROOT


def appears(pattern, line):
    return re.search(".*".join(map(re.escape, pattern.split("…"))), line) is not None


def test_the_guide_says_what_happens(tmp_path, monkeypatch):
    page = (ROOT / "docs" / "guide" / "python.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```(\w+)\n(.*?)```", page, re.S)
    os.symlink(MODELS, tmp_path / "models")
    monkeypatch.chdir(tmp_path)
    scope, count = {"__name__": "guide"}, 0
    said = None
    for language, text in blocks:
        if language == "python":
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                exec(compile(text, f"python.md, block {count}", "exec"), scope)
            said, count = out.getvalue().splitlines(), count + 1
        else:
            assert language == "text" and said is not None, language
            want = [line for line in text.splitlines() if line]
            assert len(want) == len(said), (want, said)
            for pattern, line in zip(want, said):
                assert appears(pattern, line), (pattern, line)
            said = None
    assert count >= 9


def test_the_readmes_run(tmp_path, monkeypatch):
    os.symlink(MODELS, tmp_path / "models")
    os.symlink(MODELS / "digits" / "digits.onnx", tmp_path / "model.onnx")
    monkeypatch.chdir(tmp_path)
    for readme in (ROOT / "README.md", ROOT / "crates" / "rlx-python" / "README.md"):
        (code,) = re.findall(r"```python\n(.*?)```", readme.read_text(encoding="utf-8"), re.S)
        exec(compile(code, str(readme), "exec"), {"__name__": "readme"})
