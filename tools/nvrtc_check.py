#!/usr/bin/env python3
"""Compiles CUDA C files by NVRTC for several architectures, without a GPU or a driver.

usage: nvrtc_check.py FILE.cu ...

NVRTC comes from the PyPI package nvidia-cuda-nvrtc, installed or unpacked in the folder RLX_NVRTC. Exits with 1 when a file does not compile, with 2 when the
library is not there.
"""

import ctypes
import glob
import os
import sys

ARCHITECTURES = ["sm_75", "sm_80", "sm_90"]


def find_library():
    """The newest libnvrtc of the installed packages."""
    for folder in [os.environ.get("RLX_NVRTC", ""), *sys.path]:
        found = glob.glob(os.path.join(folder, "nvidia", "*", "lib", "libnvrtc.so.*"))
        found = [f for f in found if "alt" not in os.path.basename(f)]
        if found:
            return sorted(found)[-1]
    return None


def compile_source(nvrtc, source, name, architecture):
    """Size of the machine code, and the compiler's messages."""
    program = ctypes.c_void_p()
    check = lambda code, what: code and sys.exit(f"{name}: {what} failed with {code}")
    check(
        nvrtc.nvrtcCreateProgram(ctypes.byref(program), source, name.encode(), 0, None, None),
        "nvrtcCreateProgram",
    )
    # As `rlx-simt` does.
    given = [f"--gpu-architecture={architecture}", "--fmad=false"]
    options = (ctypes.c_char_p * len(given))(*[option.encode() for option in given])
    failed = nvrtc.nvrtcCompileProgram(program, len(given), options)
    size = ctypes.c_size_t()
    nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetProgramLog(program, log)
    code = ctypes.c_size_t()
    if not failed:
        check(nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(code)), "nvrtcGetCUBINSize")
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    return failed, code.value, log.value.decode(errors="replace").strip()


def main(paths):
    library = find_library()
    if library is None:
        print("libnvrtc is not installed: pip install nvidia-cuda-nvrtc", file=sys.stderr)
        return 2
    nvrtc = ctypes.CDLL(library)
    failures = 0
    for path in paths:
        with open(path, "rb") as f:
            source = f.read()
        for architecture in ARCHITECTURES:
            failed, size, log = compile_source(nvrtc, source, os.path.basename(path), architecture)
            if failed or log:
                print(f"{path} {architecture}: {'failed' if failed else 'warnings'}\n{log}")
            failures += bool(failed)
    print(f"{len(paths)} files, {len(ARCHITECTURES)} architectures, {failures} failed")
    return 1 if failures or not paths else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
