"""Files of others that become checkpoints, and the other way: exact, or refused as reference
readers do."""

import json
import struct
import zipfile

import h5py
import ml_dtypes
import numpy as np
import pytest
import reader
import safetensors
import torch
from regroup import torch_checkpoint
from saving import save, tool

TYPES = [
    "float32", "float64", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu",
    "int8",
    "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool", "complex64",
    "complex128",
]  # fmt: skip
SHAPES = [(), (0,), (3,), (0, 4), (2, 0, 3), (1, 1, 1), (5, 7), (300, 70)]
NAMES = [
    "a/b", "/", "a.b.c", "..", ".", "w.npy", "w", "with blanks ", "ß日本🙂", "100%", "@2F",
    "~packed.float32",
    "two\nlines", "red\x1b[31m", "back\\slash", 'quo"te\'', "__metadata", "data.pkl", "x" * 300,
]  # fmt: skip


def numpy_type(name: str) -> np.dtype:
    return np.dtype(getattr(ml_dtypes, name, None) or name)


def sample(without=()) -> dict:
    """Each type in each shape, in an order that is not sorted, and names that something could take
    amiss."""
    bits = np.random.default_rng(1)
    out = {}
    for number, shape in enumerate(reversed(SHAPES)):
        for kind in TYPES:
            if kind in without:
                continue
            dtype = numpy_type(kind)
            size = int(np.prod(shape)) * dtype.itemsize
            raw = bits.integers(0, 2 if kind == "bool" else 256, size, np.uint8).tobytes()
            out[f"t{number}.{kind}"] = (kind, np.frombuffer(raw, dtype).reshape(shape))
    return out | {name: ("uint8", np.frombuffer(name.encode(), np.uint8)) for name in NAMES}


def listed(place) -> list:
    shown = json.loads(tool("show", place, "--json").stdout)["tensors"]
    return [(tensor["name"], tensor["dtype"], tensor["shape"]) for tensor in shown]


def imported(file, place, *more) -> None:
    done = tool("import", file, place, *more)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("form", ["safetensors", "npz", "torch"])
def test_what_is_exported_is_imported_bit_for_bit(form, tmp_path):
    tensors = sample(without={"complex128"} if form == "safetensors" else ())
    path = save(tmp_path / "a", 5, tensors)
    file = tmp_path / "file"
    assert tool("export", path, file, "--to", form).returncode == 0
    imported(file, tmp_path / "b", "--from", form)
    assert listed(tmp_path / "b") == listed(path)
    differ = tool("diff", path, tmp_path / "b")
    assert differ.returncode == 0, differ.stdout
    if form == "npz":
        with np.load(file) as loaded:
            assert loaded.files == list(tensors)
            for name, (kind, array) in tensors.items():
                if name == "w.npy":  # NumPy takes the key for the member of w
                    continue
                assert loaded[name].view(array.dtype).tobytes() == array.tobytes(), (name, kind)


def test_h5py_reads_every_tensor_under_its_name(tmp_path):
    tensors = sample()
    path = save(tmp_path, 5, tensors, writers=2)
    with h5py.File(path / "model.h5") as view:
        names = []
        view.visititems(lambda name, _: names.append(name))
        assert len(names) == len(tensors)
        for name in ("t0.bfloat16", "t7.bool", "t2.complex128"):
            assert view[name][()].tobytes() == tensors[name][1].tobytes()


def test_the_order_of_tensors_without_elements_is_kept(tmp_path):
    names = ["z", "empty.b", "a", "empty.c", "empty.a"]
    tensors = {n: ("int16", np.zeros((0,) if "." in n else (2,), np.int16)) for n in names}
    path = save(tmp_path / "a", 1, tensors)
    for form in ("safetensors", "npz"):
        tool("export", path, tmp_path / form, "--to", form)
        imported(tmp_path / form, tmp_path / f"{form}.d", "--from", form)
        assert [name for name, _, _ in listed(tmp_path / f"{form}.d")] == names


def test_arrays_of_another_order_are_imported(tmp_path):
    base = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    arrays = {
        "fortran": np.asfortranarray(base),
        "big": base.astype(">f4"),
        "both": np.asfortranarray(base.astype(">f8")),
        "complex": np.asfortranarray((base + 2j * base).astype(">c16")),
        "bytes": np.asfortranarray(base.astype(np.int8)),
        "one": np.arange(5, dtype=">i2"),
        "scalar": np.array(7, ">u8"),
        "empty": np.zeros((0, 3), ">f4", order="F"),
        "bfloat16": np.asfortranarray(base.astype(ml_dtypes.bfloat16)),
        "float8": base.astype(ml_dtypes.float8_e5m2),
    }
    np.savez(tmp_path / "x.npz", **arrays)
    imported(tmp_path / "x.npz", tmp_path / "x")
    loaded = reader.load(reader.newest(str(tmp_path / "x")))[1]
    for name, array in arrays.items():
        plain = np.ascontiguousarray(array.astype(array.dtype.newbyteorder("<")))
        assert loaded[name].shape == array.shape, name
        assert loaded[name].tobytes() == plain.tobytes(), name


def test_elements_whose_type_no_file_says_are_refused(tmp_path):
    np.savez(tmp_path / "x.npz", w=np.ones(3, ml_dtypes.float8_e4m3fn))
    np.savez(tmp_path / "y.npz", w=np.ones(3, np.uint16).view("V2"))
    for file in ("x.npz", "y.npz"):
        done = tool("import", tmp_path / file, tmp_path / "d")
        assert done.returncode == 2 and "without a type in the file" in done.stderr, done.stderr


def test_tensors_of_torch_that_lie_strangely_are_imported_as_they_are(tmp_path):
    base = torch.arange(24, dtype=torch.float32).reshape(2, 3, 4)
    both = torch.complex(base, -base)
    state = {
        "transposed": base.mT,
        "every second": base[..., ::2],
        "expanded": base[:, :1, :1].expand(2, 3, 4),
        "offset": base.reshape(-1)[5:9],
        "conjugate": both.conj(),
        "negative": both.clone().conj().imag,
        "tied": base,
        "tied again": base,
        "scalar": torch.tensor(3, dtype=torch.uint16),
    }
    torch.save(state, tmp_path / "x.pt")
    imported(tmp_path / "x.pt", tmp_path / "x")
    loaded = torch_checkpoint.load(torch_checkpoint.newest_checkpoint(tmp_path / "x"))
    assert list(loaded) == list(state)
    for name, tensor in state.items():
        assert loaded[name].dtype == tensor.dtype and torch.equal(loaded[name], tensor), name


def write_safetensors(
    path, header: object, data: bytes = b"", pad: bytes = b"", length=None
) -> None:
    text = (header if isinstance(header, bytes) else json.dumps(header).encode()) + pad
    path.write_bytes(struct.pack("<Q", len(text) if length is None else length) + text + data)


ONE = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
EIGHT = bytes(range(8))
BAD_SAFETENSORS = {
    "overlap": ({"w": ONE, "x": {"dtype": "U8", "shape": [4], "data_offsets": [4, 8]}}, EIGHT),
    "the same bytes": ({"w": ONE, "x": ONE}, EIGHT),
    "hole": (
        {"w": ONE, "x": {"dtype": "U8", "shape": [1], "data_offsets": [9, 10]}},
        EIGHT + b"\0\1",
    ),
    "hole before": ({"w": {**ONE, "data_offsets": [4, 12]}}, EIGHT + b"\0\1\2\3"),
    "bytes behind": ({"w": ONE}, EIGHT + b"\0"),
    "bytes of nothing": ({}, b"\0"),
    "cut off": ({"w": ONE}, EIGHT[:7]),
    "backwards": ({"w": {**ONE, "data_offsets": [8, 0]}}, EIGHT),
    "no offsets": ({"w": {"dtype": "F32", "shape": [2]}}, EIGHT),
    "three offsets": ({"w": {**ONE, "data_offsets": [0, 4, 8]}}, EIGHT),
    "too few bytes": ({"w": {**ONE, "shape": [3]}}, EIGHT),
    "overflow": ({"w": {**ONE, "shape": [2**62, 4], "data_offsets": [0, 0]}}, b""),
    "overflow of bits": ({"w": {**ONE, "shape": [2**61], "data_offsets": [0, 0]}}, b""),
    "negative": ({"w": {**ONE, "shape": [-2]}}, EIGHT),
    "fraction": ({"w": {**ONE, "shape": [2.0]}}, EIGHT),
    "beyond 64 bits": (
        b'{"w":{"dtype":"F32","shape":[18446744073709551616],"data_offsets":[0,8]}}',
        EIGHT,
    ),
    "unknown type": ({"w": {**ONE, "dtype": "F33"}}, EIGHT),
    "type is a number": ({"w": {**ONE, "dtype": 32}}, EIGHT),
    "no object": ({"w": 3}, EIGHT),
    "metadata of numbers": ({"__metadata__": {"step": 3}, "w": ONE}, EIGHT),
    "metadata is a list": ({"__metadata__": ["a"], "w": ONE}, EIGHT),
    "a list": ([], b""),
    "nothing": (b"", b""),
    "no JSON": (b"{w}", EIGHT),
    "two objects": (b"{}{}", b""),
    "type twice": (b'{"w":{"dtype":"U8","dtype":"F32","shape":[2],"data_offsets":[0,8]}}', EIGHT),
    "no UTF-8": (b'{"\xff":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}', EIGHT),
    "byte order mark": (b"\xef\xbb\xbf{}", b""),
}


@pytest.mark.parametrize("case", BAD_SAFETENSORS)
def test_safetensors_that_the_reference_refuses_are_refused(case, tmp_path):
    header, data = BAD_SAFETENSORS[case]
    write_safetensors(tmp_path / "bad", header, data)
    with pytest.raises(safetensors.SafetensorError):
        safetensors.deserialize((tmp_path / "bad").read_bytes())
    done = tool("import", tmp_path / "bad", tmp_path / "d", "--from", "safetensors")
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1, (
        done.returncode,
        done.stderr,
    )
    assert not list(tmp_path.glob("d/step-*"))


def test_headers_of_safetensors_that_lie_about_their_length_are_refused(tmp_path):
    for length in (10**8 + 1, 2**63, 2**64 - 8, 200, 0):
        write_safetensors(tmp_path / "bad", {"w": ONE}, EIGHT, length=length)
        done = tool("import", tmp_path / "bad", tmp_path / "d", "--from", "safetensors")
        assert done.returncode == 2, (length, done.stderr)
    write_safetensors(tmp_path / "bad", {"w": ONE}, EIGHT, pad=b"\0\0")
    assert (
        "byte 0" in tool("import", tmp_path / "bad", tmp_path / "d", "--from", "safetensors").stderr
    )
    write_safetensors(tmp_path / "good", {"__metadata__": None, "w": ONE}, EIGHT, pad=b"  \n")
    imported(tmp_path / "good", tmp_path / "d", "--from", "safetensors")


def test_names_that_a_format_does_not_have_are_refused_by_name(tmp_path):
    path = save(tmp_path / "a", 1, {"__metadata__": ("uint8", np.zeros(1, np.uint8))})
    done = tool("export", path, tmp_path / "x", "--to", "safetensors")
    assert done.returncode == 2 and "__metadata__" in done.stderr
    wide = save(tmp_path / "b", 1, {"w": ("complex128", np.zeros(1, np.complex128))})
    done = tool("export", wide, tmp_path / "x", "--to", "safetensors")
    assert done.returncode == 2 and "tensor w: safetensors has no type complex128" in done.stderr
    write_safetensors(tmp_path / "x", {"": ONE}, EIGHT)
    done = tool("import", tmp_path / "x", tmp_path / "d", "--from", "safetensors")
    assert done.returncode == 2 and "empty name" in done.stderr


def npy(header: bytes, data: bytes = EIGHT, version=(1, 0)) -> bytes:
    length = struct.pack("<H" if version[0] == 1 else "<I", len(header))
    return b"\x93NUMPY" + bytes(version) + length + header + data


HEADER = b"{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }\n"
BAD_ARRAYS = {
    "magic": b"\x93NUMPZ" + npy(HEADER)[6:],
    "version 4": npy(HEADER, version=(4, 0)),
    "version 1.1": npy(HEADER, version=(1, 1)),
    "version 0": npy(HEADER, version=(0, 0)),
    "header cut off": npy(HEADER)[:40],
    "nothing": b"",
    "no dictionary": npy(b"[]\n"),
    "a key twice": npy(HEADER.replace(b", }", b", 'descr': '<f4'}")),
    "a fourth key": npy(HEADER.replace(b", }", b", 'more': 1}")),
    "no shape": npy(HEADER.replace(b"'shape': (2,), ", b"")),
    "shape is a number": npy(HEADER.replace(b"(2,)", b"(2)")),
    "shape is negative": npy(HEADER.replace(b"(2,)", b"(-2,)")),
    "order is a number": npy(HEADER.replace(b"False", b"0")),
    "objects": npy(HEADER.replace(b"<f4", b"|O")),
    "fields": npy(HEADER.replace(b"'<f4'", b"[('a', '<f4')]")),
    "no such type": npy(HEADER.replace(b"<f4", b"<f3")),
    "text": npy(HEADER.replace(b"<f4", b"<U1")),
    "other bytes behind": npy(HEADER + b""[:0], EIGHT + b"\0"),
    "too few bytes": npy(HEADER, EIGHT[:7]),
    "no line feed": npy(HEADER.replace(b"\n", b" ")),
    "text behind": npy(HEADER.replace(b"\n", b"x\n")),
    "a long header": npy(HEADER.replace(b"\n", b" " * 11_000 + b"\n")),
}


@pytest.mark.parametrize("case", BAD_ARRAYS)
def test_arrays_that_numpy_does_not_read_are_refused(case, tmp_path):
    with zipfile.ZipFile(tmp_path / "bad.npz", "w") as archive:
        archive.writestr("red\x1b[31m.npy", BAD_ARRAYS[case])
    done = tool("import", tmp_path / "bad.npz", tmp_path / "d")
    assert done.returncode == 2 and "array red\\x1b[31m: " in done.stderr, done.stderr


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_headers_of_every_version_of_numpy_are_read(version, tmp_path):
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("w.npy", npy(HEADER.replace(b"(2,)", b"( 2L , )"), version=version))
    imported(tmp_path / "x.npz", tmp_path / "x")
    assert listed(tmp_path / "x") == [("w", "float32", [2])]


def changed(archive: bytes, at: int, value: bytes) -> bytes:
    return archive[:at] + value + archive[at + len(value) :]


def test_archives_that_say_two_things_are_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("w.npy", npy(HEADER))
    good = (tmp_path / "x.npz").read_bytes()
    central = good.index(b"PK\1\2")
    end = good.index(b"PK\5\6")
    bad = {
        "another name before the bytes": changed(good, 30, b"v"),
        "another size before the bytes": changed(good, 22, b"\7"),
        "another checksum before the bytes": changed(good, 14, b"\0\0"),
        "encrypted": changed(changed(good, 6, b"\1"), central + 8, b"\1"),
        "encrypted in one place": changed(good, central + 8, b"\1"),
        "compressed": changed(changed(good, 8, b"\x08"), central + 10, b"\x08"),
        "LZMA": changed(changed(good, 8, b"\x0e"), central + 10, b"\x0e"),
        "another size in the archive": changed(good, central + 20, b"\1"),
        "beyond the file": changed(good, central + 42, b"\xf0\xff\xff\x7f"),
        "not at a record": changed(good, central + 42, b"\1"),
        "fewer files than there are": changed(changed(good, end + 8, b"\0"), end + 10, b"\0"),
        "more files than there are": changed(changed(good, end + 8, b"\2"), end + 10, b"\2"),
        "cut off": good[:-1],
        "cut off in the middle": good[: len(good) // 2],
        "damaged": changed(good, good.index(EIGHT), b"\7"),
    }
    for what, content in bad.items():
        (tmp_path / "bad.npz").write_bytes(content)
        done = tool("import", tmp_path / "bad.npz", tmp_path / "d")
        assert done.returncode in (1, 2) and len(done.stderr.splitlines()) == 1, (what, done.stderr)
        assert not list(tmp_path.glob("d/step-*")), what
    with (
        pytest.warns(UserWarning, match="Duplicate"),
        zipfile.ZipFile(tmp_path / "bad.npz", "w") as archive,
    ):
        archive.writestr("w.npy", npy(HEADER))
        archive.writestr("w.npy", npy(HEADER))
    assert "twice" in tool("import", tmp_path / "bad.npz", tmp_path / "d").stderr


def test_names_reach_no_terminal_as_they_are(tmp_path):
    name = "red\x1b[31m\ntwo\x9b3\u202e\r"
    escaped = "red\\x1b[31m\\ntwo\\xc2\\x9b3\\xe2\\x80\\xae\\r"
    one = save(
        tmp_path / "a",
        1,
        {name: ("uint8", np.zeros(1, np.uint8)), "x": ("uint8", np.ones(1, np.uint8))},
    )
    two = save(tmp_path / "b", 1, {name: ("uint8", np.ones(1, np.uint8))}, job=name, model=name)
    said = [
        tool("show", one),
        tool("show", two),
        tool("ls", two.parent),
        tool("diff", one, two),
        tool("show", tmp_path / name),
        tool("export", one, tmp_path / name / "no", "--to", "npz"),
        tool("import", tmp_path / name, tmp_path / "c", "--from", "npz"),
        tool(name),
    ]
    for done in said:
        text = done.stdout + done.stderr
        assert escaped in text, text
        assert not set(text) & {"\x1b", "\x9b", "\u202e", "\r"}, text
        assert "\ntwo" not in text, text
    shown = json.loads(tool("show", two, "--json").stdout)
    assert shown["tensors"][0]["name"] == shown["job"] == name
    assert tool("show", two, "--json").stdout.isascii()
    damaged = save(tmp_path / name / "d", 1, {"x": ("uint8", np.zeros(1, np.uint8))})
    (damaged / "model.h5").write_bytes(b"x" * (damaged / "model.h5").stat().st_size)
    text = tool("verify", damaged).stdout
    assert text.count(escaped) == 2 and not set(text) & {"\x1b", "\x9b", "\u202e", "\r"}, text
    write_safetensors(tmp_path / "bad", {name: {**ONE, "dtype": name}}, EIGHT)
    assert (
        escaped in tool("import", tmp_path / "bad", tmp_path / "c", "--from", "safetensors").stderr
    )
