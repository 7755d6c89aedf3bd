#!/usr/bin/env python3
"""Compiles CUDA C files by NVRTC for several architectures, without a GPU or a driver.

usage: nvrtc_check.py [--machine-code TABLE] FILE.cu ...
       nvrtc_check.py --ptx FILE.cu ...

With --ptx, files of tile programs are compiled to PTX alone, beside each (FILE.ptx).

Files of tile programs are named tile.ARCHITECTURE.*.cu by the least architecture that has their instructions. Of those, what is in the machine code is
counted and compared with TABLE; where RLX_WRITE_DOCS is set, the table is written again. Each must multiply by matrix instructions, keep
all values in registers, and load 16 bytes at once where its name does not say that it cannot; those of sm_90a multiply
by warp groups, those of sm_100a into tensor memory, and both have tensor copies of 29 KiB or more under way. Kernels must multiply and add by one
instruction wherever their text does.

NVRTC comes from the PyPI package nvidia-cuda-nvrtc, installed or unpacked in the folder RLX_NVRTC; the disassembler from nvidia-cuda-nvdisasm, in
RLX_NVDISASM. Exits with 1 when a file does not compile or its code is not as expected, with 2 when the library is not there.
"""

import ctypes
import glob
import os
import re
import stat
import subprocess
import sys
import tempfile

from machine_code import finish

ARCHITECTURES = ["sm_75", "sm_80", "sm_90", "sm_100", "sm_120"]
# Of tile programs, by the least architecture: those that it serves.
TILE_ARCHITECTURES = {
    "sm_75": ["sm_75"],
    "sm_80": ["sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120a"],
    "sm_90a": ["sm_90a"],
    "sm_100a": ["sm_100a"],
}
# These GPUs run programs of sm_80, which need nothing that only `a` has: `rlx-simt` compiles for the plain name, and what is counted is the same.
PLAIN = {"sm_100a": "sm_100", "sm_120a": "sm_120"}
# What is counted in machine code: the column, and the instructions' names.
COUNTED = {
    "matrix": r"HMMA\.",
    "group_matrix": r"HGMMA\.|UTCHMMA\b",
    "ldmatrix": r"LDSM\.",
    "async16": r"LDGSTS\S*\.128",
    "bulk": r"UTMALDG\b",
    "load16": r"LDG\.\S*128",
    "load": r"LDG\.",
    "store": r"STG\.",
    "local": r"(?:LDL|STL)\b",
    "instructions": r"",
}
# Architectures that have programs of the group level.
GROUPS = ["sm_90a", "sm_100a"]
# A call that multiplies and adds, and the instruction that is one; of kernels, looked for in the code for one architecture.
FUSED_CALL, FUSED, FUSED_ARCHITECTURE = rb"\bfmaf\(", r"FFMA\b", "sm_90"
# What the assembler says.
SAID = {"registers": r"Used (\d+) registers", "spilled": r"(\d+) bytes spill stores"}


# What a program's text says of itself: the bytes that its bulk copies may have under way in a workgroup.
TEXT_SAYS = {"in_flight": rb"// (\d+) bytes of bulk copies under way"}
# So many hide the latency of an H100's memory, for each multiprocessor.
IN_FLIGHT = 29 << 10


def find(variable, *path):
    """The newest file of an installed package, or of one unpacked in the folder that a variable names."""
    for folder in [os.environ.get(variable, ""), *sys.path]:
        found = glob.glob(os.path.join(folder, "nvidia", "*", *path))
        found = [f for f in found if "alt" not in os.path.basename(f)]
        if found:
            return sorted(found)[-1]
    return None


def find_disassembler():
    """The path of nvdisasm, made executable: unpacking a package leaves that out."""
    path = find("RLX_NVDISASM", "bin", "nvdisasm")
    if path is not None and not os.access(path, os.X_OK):
        os.chmod(path, os.stat(path).st_mode | stat.S_IXUSR)
    return path


def disassemble(disassembler, code):
    """The instructions in machine code, in order."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as f:
        f.write(code)
        f.flush()
        text = subprocess.run([disassembler, "-c", f.name], check=True, capture_output=True, text=True).stdout
    lines = re.findall(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?(\S+)", text)
    # The compiler fills up the end.
    return [line for line in lines if not line.startswith("NOP")]


def count(disassembler, source, code, said):
    """What is counted in machine code, what the assembler said (the registers of a lane, the bytes that they did not hold), and what the text says."""
    lines = disassemble(disassembler, code)
    counts = {name: sum(bool(re.match(what, line)) for line in lines) for name, what in COUNTED.items()}
    for name, what in SAID.items():
        counts[name] = int(re.search(what, said).group(1))
    for name, what in TEXT_SAYS.items():
        found = re.search(what, source)
        counts[name] = int(found.group(1)) if found else 0
    return counts


def judge(name, counts):
    """What is wrong with the machine code of a tile program."""
    groups = name.split(".")[0] in GROUPS
    if not groups and not (counts["matrix"] and counts["ldmatrix"]):
        yield "no matrix instructions"
    if groups and not (counts["group_matrix"] and counts["bulk"]):
        yield "no matrix instructions of the group level, or no tensor copies"
    if groups and counts["in_flight"] < IN_FLIGHT:
        yield f"{counts['in_flight']} bytes in flight, fewer than {IN_FLIGHT}"
    if counts["spilled"] or counts["local"]:
        yield f"registers spilled: {counts['spilled']} bytes, {counts['local']} accesses to local memory"
    if not groups and not name.endswith(".odd") and not counts["async16"] + counts["load16"]:
        yield "no loads of 16 bytes"


def judge_kernel(disassembler, source, code):
    """What is wrong with the machine code of a kernel."""
    calls = len(re.findall(FUSED_CALL, source))
    if calls:
        fused = sum(bool(re.match(FUSED, line)) for line in disassemble(disassembler, code))
        if fused < calls:
            yield f"{fused} instructions multiply and add, of {calls} in the text"


def compile_source(nvrtc, source, name, architecture, form="CUBIN"):
    """Whether it failed, the machine code (or PTX), the compiler's messages, and what its assembler says of the code."""
    program = ctypes.c_void_p()
    check = lambda code, what: code and sys.exit(f"{name}: {what} failed with {code}")
    check(
        nvrtc.nvrtcCreateProgram(ctypes.byref(program), source, name.encode(), 0, None, None),
        "nvrtcCreateProgram",
    )
    # As `rlx-simt` does.
    given = [f"--gpu-architecture={architecture}", "--fmad=false", "--ptxas-options=--verbose"]
    options = (ctypes.c_char_p * len(given))(*[option.encode() for option in given])
    failed = nvrtc.nvrtcCompileProgram(program, len(given), options)
    size = ctypes.c_size_t()
    nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetProgramLog(program, log)
    code = b""
    if not failed:
        check(getattr(nvrtc, f"nvrtcGet{form}Size")(program, ctypes.byref(size)), f"nvrtcGet{form}Size")
        buffer = ctypes.create_string_buffer(size.value)
        check(getattr(nvrtc, f"nvrtcGet{form}")(program, buffer), f"nvrtcGet{form}")
        code = buffer.raw
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    lines = log.value.decode(errors="replace").strip().splitlines()
    said = [line for line in lines if line.startswith("ptxas")]
    return failed, code, "\n".join(line for line in lines if line not in said), "\n".join(said)


def write_ptx(nvrtc, paths):
    """Leaves the PTX of tile programs beside them; how many did not compile."""
    failures = 0
    for path in paths:
        base = os.path.basename(path).removesuffix(".cu")
        virtual = base.split(".")[1].replace("sm_", "compute_")
        with open(path, "rb") as f:
            failed, text, log, _ = compile_source(nvrtc, f.read(), base, virtual, "PTX")
        if failed:
            print(f"{path} {virtual}: failed\n{log}")
            failures += 1
            continue
        with open(path.removesuffix(".cu") + ".ptx", "wb") as f:
            f.write(text.rstrip(b"\0"))
    return failures


def main(arguments):
    table, paths = None, arguments
    if arguments[:1] == ["--ptx"]:
        paths = arguments[1:]
    if arguments[:1] == ["--machine-code"]:
        table, paths = arguments[1], arguments[2:]
    library = find("RLX_NVRTC", "lib", "libnvrtc.so.*")
    if library is None:
        print("libnvrtc is not installed: pip install nvidia-cuda-nvrtc", file=sys.stderr)
        return 2
    nvrtc = ctypes.CDLL(library)
    if arguments[:1] == ["--ptx"]:
        return 1 if write_ptx(nvrtc, paths) else 0
    disassembler = find_disassembler() if table else None
    if table and disassembler is None:
        print("nvdisasm is not installed: pip install nvidia-cuda-nvdisasm", file=sys.stderr)
        return 2
    failures, compiled, rows = 0, 0, []
    for path in paths:
        with open(path, "rb") as f:
            source = f.read()
        base = os.path.basename(path).removesuffix(".cu")
        least = base.split(".")[1] if base.startswith("tile.") else None
        for architecture in TILE_ARCHITECTURES[least] if least else ARCHITECTURES:
            failed, code, log, said = compile_source(nvrtc, source, base, architecture)
            compiled += 1
            if failed or log:
                print(f"{path} {architecture}: {'failed' if failed else 'warnings'}\n{log}")
            failures += bool(failed)
            if architecture == FUSED_ARCHITECTURE and disassembler and not failed and not least:
                for wrong in judge_kernel(disassembler, source, code):
                    print(f"{path} {architecture}: {wrong}")
                    failures += 1
            if least and disassembler and not failed:
                name, counts = base.removeprefix("tile."), count(disassembler, source, code, said)
                rows.append((name, architecture, counts))
                wrongs = list(judge(name, counts))
                if least == "sm_80" and architecture in PLAIN:
                    plain = compile_source(nvrtc, source, base, PLAIN[architecture])
                    compiled += 1
                    if plain[0] or count(disassembler, source, plain[1], plain[3]) != counts:
                        wrongs.append(f"other machine code for {PLAIN[architecture]}")
                for wrong in wrongs:
                    print(f"{path} {architecture}: {wrong}")
                    failures += 1
    return finish(table, [*COUNTED, *SAID, *TEXT_SAYS], rows, len(paths), compiled, failures)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
