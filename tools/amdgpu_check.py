#!/usr/bin/env python3
"""Compiles HIP C files by clang's AMDGPU back end for several architectures, without a GPU, a driver or AMD's libraries.

usage: amdgpu_check.py [--machine-code TABLE] FILE.hip ...

Files of tile programs are named tile.ARCHITECTURE.*.hip by the architecture whose instructions they use. Of those, what is in the machine code is
counted and compared with TABLE; where RLX_WRITE_DOCS is set, the table is written again. Each must multiply by matrix instructions, keep
all values in registers, and load 16 bytes at once where its name does not say that it cannot.

What hiprtc gives every program is in hiprtc.h; functions of AMD's device library stay calls. The compiler is RLX_CLANG, else clang-19.
Exits with 1 when a file does not compile or its code is not as expected, with 2 when there is no compiler.
"""

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from machine_code import finish

ARCHITECTURES = ["gfx90a", "gfx942", "gfx1100", "gfx1201"]
# Of tile programs, by the architecture they are written for: those that it serves.
TILE_ARCHITECTURES = {"gfx90a": ["gfx90a", "gfx942"], "gfx1100": ["gfx1100", "gfx1151"], "gfx1200": ["gfx1200", "gfx1201"]}
# What is counted in assembly: the column, and the instructions' names, older and newer.
COUNTED = {
    "matrix": r"v_(?:mfma|wmma)_",
    "shared16": r"ds_(?:read|load)_b128",
    "shared2": r"ds_(?:read|load)_u16",
    "load16": r"global_load_(?:dwordx4|b128)",
    "load": r"global_load_",
    "store16": r"global_store_(?:dwordx4|b128)",
    "store": r"global_store_",
    "local": r"(?:scratch|buffer)_(?:load|store)_",
    "generic": r"flat_",
    "instructions": r"",
}
# What the compiler says of the kernel.
SAID = {"registers": r"\.vgpr_count:\s+(\d+)", "spilled": r"\.vgpr_spill_count:\s+(\d+)"}

COMPILER = os.environ.get("RLX_CLANG", "clang-19")
# As `rlx-simt` has it: products and sums are rounded one by one.
OPTIONS = ["-x", "hip", "--cuda-device-only", "-O3", "-ffp-contract=off", "-nogpulib", "-nogpuinc"]
PRELUDE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "hiprtc.h")


def compile_source(path, architecture):
    """Whether it failed, the assembly, and the compiler's messages."""
    command = [COMPILER, *OPTIONS, f"--offload-arch={architecture}", "-include", PRELUDE, "-S", path, "-o", "-"]
    made = subprocess.run(command, capture_output=True, text=True)
    return made.returncode != 0, made.stdout, made.stderr


def count(assembly):
    """What is counted of the kernel's instructions, and what the compiler said of its registers."""
    lines = re.findall(r"^\t([a-z][a-z0-9_]+)(?:\s|$)", assembly, re.MULTILINE)
    counts = {name: sum(bool(re.match(what, line)) for line in lines) for name, what in COUNTED.items()}
    for name, what in SAID.items():
        counts[name] = int(re.search(what, assembly).group(1))
    return counts


def judge(name, counts):
    """What is wrong with the machine code of a tile program."""
    if not counts["matrix"]:
        yield "no matrix instructions"
    if counts["spilled"] or counts["local"]:
        yield f"registers spilled: {counts['spilled']}, {counts['local']} accesses to private memory"
    if counts["generic"]:
        yield "accesses of which the compiler does not know to which memory they go"
    if not name.endswith(".odd") and not counts["load16"]:
        yield "no loads of 16 bytes"


def main(arguments):
    table, paths = None, arguments
    if arguments[:1] == ["--machine-code"]:
        table, paths = arguments[1], arguments[2:]
    try:
        subprocess.run([COMPILER, "--version"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        print(f"{COMPILER} is not installed (Debian: clang-19)", file=sys.stderr)
        return 2
    jobs = []
    for path in paths:
        base = os.path.basename(path).removesuffix(".hip")
        written_for = base.split(".")[1] if base.startswith("tile.") else None
        for architecture in TILE_ARCHITECTURES[written_for] if written_for else ARCHITECTURES:
            jobs.append((path, base, written_for is not None, architecture))
    failures, rows = 0, []
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        made = pool.map(lambda job: compile_source(job[0], job[3]), jobs)
        for (path, base, is_tile, architecture), (failed, assembly, said) in zip(jobs, made):
            failures += failed
            if failed or said:
                print(f"{path} {architecture}: {'failed' if failed else 'warnings'}\n{said}")
            if is_tile and not failed:
                name, counts = base.removeprefix("tile."), count(assembly)
                rows.append((name, architecture, counts))
                for wrong in judge(name, counts):
                    print(f"{path} {architecture}: {wrong}")
                    failures += 1
    return finish(table, [*COUNTED, *SAID], rows, len(paths), len(jobs), failures)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
