"""An independent reader of checkpoints (docs/reference/formats/checkpoint.md): json, numpy and a
CRC library.

usage: reader.py DIRECTORY [STEP]     prints name, type, shape
                                      and CRC32C of each tensor of the newest one
"""

import json
import os
import re
import sys

import google_crc32c
import numpy as np

BLOCK = 8 << 20
RAW = {
    "bfloat16": "u2",
    "float8_e4m3fn": "u1",
    "float8_e5m2": "u1",
    "float8_e8m0fnu": "u1",
}  # no types of numpy's


class Damaged(Exception):
    """The bytes are not those that were written."""


def dtype_of(name: str) -> np.dtype:
    return np.dtype(RAW.get(name, name)).newbyteorder("<")


def read_manifest(path: str) -> dict:
    with open(os.path.join(path, "MANIFEST"), "rb") as file:
        content = file.read()
    body, trailer = content[:-16], content[-16:]
    if trailer != b"crc32c=%08x\n" % google_crc32c.value(body):
        raise Damaged(f"{path}: checksum of MANIFEST")
    manifest = json.loads(body)
    known = manifest["version"] == 1 or (
        manifest["version"] == 2 and manifest["content"] == "tables"
    )
    if not known or (manifest["format"], manifest["block"]) != ("regroup-checkpoint", BLOCK):
        raise ValueError(f"{path}: format {manifest['format']} {manifest['version']}")
    return manifest


def read_range(path: str, file: str, where: dict) -> bytes:
    out = bytearray()
    with open(os.path.join(path, file), "rb") as source:
        source.seek(where["offset"])
        for index, crc in enumerate(where["crc32c"]):
            block = source.read(min(BLOCK, where["bytes"] - index * BLOCK))
            if google_crc32c.value(block) != crc:
                raise Damaged(f"{path}/{file}: block {index} from byte {where['offset']}")
            out += block
    if len(out) != where["bytes"]:
        raise Damaged(f"{path}/{file}: cut off")
    return bytes(out)


def read_tensor(path: str, tensor: dict) -> np.ndarray:
    dtype = dtype_of(tensor["dtype"])
    out = np.empty(tensor["shape"], dtype)
    seen = 0
    for piece in tensor["pieces"]:
        start, count = piece["box"]["start"], piece["box"]["count"]
        values = np.frombuffer(read_range(path, piece["file"], piece), dtype).reshape(count)
        out[tuple(slice(s, s + c) for s, c in zip(start, count, strict=True))] = values
        seen += values.size
    if seen != out.size:
        raise Damaged(f"{path}: tensor {tensor['name']} is not whole")
    return out


def check_files(path: str, manifest: dict) -> None:
    """Sizes, and every byte that belongs to no tensor."""
    for file in manifest["files"]:
        if os.path.getsize(os.path.join(path, file["name"])) != file["bytes"]:
            raise Damaged(f"{path}/{file['name']}: size")
        covered = sum(r["bytes"] for r in file["rest"])
        covered += sum(
            p["bytes"]
            for t in manifest["tensors"]
            for p in t["pieces"]
            if p["file"] == file["name"]
        )
        if covered != file["bytes"]:
            raise Damaged(
                f"{path}/{file['name']}: {covered} of {file['bytes']} bytes have checksums"
            )
        for where in file["rest"]:
            read_range(path, file["name"], where)


def load(path: str) -> tuple[dict, dict[str, np.ndarray]]:
    """The manifest and all tensors of the checkpoint `path`."""
    manifest = read_manifest(path)
    check_files(path, manifest)
    return manifest, {tensor["name"]: read_tensor(path, tensor) for tensor in manifest["tensors"]}


def newest(directory: str) -> str:
    names = [name for name in os.listdir(directory) if re.fullmatch(r"step-\d{8,}", name)]
    return os.path.join(directory, max(names, key=lambda name: int(name[5:])))


if __name__ == "__main__":
    where = (
        f"{sys.argv[1]}/step-{int(sys.argv[2]):08d}" if len(sys.argv) > 2 else newest(sys.argv[1])
    )
    for name, array in load(where)[1].items():
        print(name, array.dtype, list(array.shape), f"{google_crc32c.value(array.tobytes()):08x}")
