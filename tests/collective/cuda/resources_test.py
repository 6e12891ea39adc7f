"""What the device kernels take of a GPU, as its compiler says: no local memory, at most 64
registers; and that nothing is fused or flushed to zero.

usage: resources_test.py ROOT
Compiles collective/cuda/kernels.cu for sm_80, sm_90 and compute_90. The exit status is 77 where
there is no nvcc.
"""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

MOST_REGISTERS = 64  # a multiprocessor then holds 1,024 threads
TARGETS = ["arch=compute_80,code=sm_80", "arch=compute_90,code=[sm_90,compute_90]"]
LOCAL = re.compile(r"\b[1-9]\d* bytes (stack frame|spill)")
ENTRY = re.compile(r"Compiling entry function '(\w+)' for '(\w+)'")
REGISTERS = re.compile(r"Used (\d+) registers")
INEXACT = re.compile(r"\bfma\S*|\S+\.ftz\S*|\S+\.approx\S*")  # instructions of PTX


def compiler() -> str | None:
    return shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")


def refused_in(told: str) -> tuple[int, list[str]]:
    """How many kernels ptxas told of, and what is wrong with them."""
    entries, found, name = 0, [], ""
    for line in told.splitlines():
        if entry := ENTRY.search(line):
            entries, name = entries + 1, f"{entry[1]} for {entry[2]}"
        elif LOCAL.search(line):
            found.append(f"{name}: {line.strip()}")
        elif (used := REGISTERS.search(line)) and int(used[1]) > MOST_REGISTERS:
            found.append(f"{name}: {used[1]} registers, more than {MOST_REGISTERS}")
    return entries, found


def self_test() -> None:
    told = (
        "ptxas info    : Compiling entry function 'sum' for 'sm_90'\n"
        "ptxas info    : Function properties for sum\n"
        "    {} bytes stack frame, 0 bytes spill stores, {} bytes spill loads\n"
        "ptxas info    : Used {} registers, used 0 barriers\n"
    )
    assert refused_in(told.format(0, 0, 64)) == (1, [])
    for values in [(160, 0, 64), (0, 8, 64), (0, 0, 65)]:
        assert len(refused_in(told.format(*values))[1]) == 1, values
    assert INEXACT.search("\tfma.rn.f32 %f1, %f2, %f3, %f4;")
    assert INEXACT.search("\tadd.rn.ftz.f32 %f1, %f2, %f3;")
    assert not INEXACT.search("\tdiv.rn.f32 %f1, %f2, %f3;")


def main() -> int:
    root = pathlib.Path(sys.argv[1]).resolve()
    self_test()
    nvcc = compiler()
    if nvcc is None:
        print("skipped: nvcc is missing, the compiler for GPUs")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        command = [nvcc, "-std=c++17", f"-I{root}", "-fmad=false", "-Xptxas", "-v"]
        command += ["-fatbin", "--keep", "--keep-dir", folder, "-o", f"{folder}/kernels.fatbin"]
        for target in TARGETS:
            command += ["-gencode", target]
        command.append(str(root / "collective/cuda/kernels.cu"))
        done = subprocess.run(command, capture_output=True, text=True)
        told = done.stdout + done.stderr
        if done.returncode != 0:
            print(f"nvcc: status {done.returncode}:\n{told}")
            return 1
        texts = [path.read_text() for path in pathlib.Path(folder).glob("*.ptx")]
    entries, found = refused_in(told)
    names = set(re.findall(r"\.entry (\w+)", "\n".join(texts)))
    if not names or entries != len(TARGETS) * len(names):
        found.append(f"ptxas told of {entries} kernels, the source has {len(names)}")
    found += [f"{match[0]} in the PTX" for text in texts for match in INEXACT.finditer(text)]
    print("\n".join(found) or f"{len(names)} kernels for {len(TARGETS)} chips")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
