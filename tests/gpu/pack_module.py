"""What `./dev gpu-test --pack` adds for regroup.torch: python3 tests/gpu/pack_module.py BUILD PACK.

The other machine may have another Python, and has none of our Debian packages. PACK/module gets the
sources and headers of regroup._native, its static libraries as one archive, nanobind's sources, the
Python package, and the words of the compiler that BUILD uses; tests/gpu/build_module.sh compiles
it there. PACK gets the shared libraries that its programs need beyond those of any system.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Debian packages that g++ needs; every system with a compiler has their headers.
OF_THE_COMPILER = (
    "libc6-dev",
    "linux-libc-dev",
    "libcrypt-dev",
    "libstdc++-{}-dev",
    "libgcc-{}-dev",
)
IN_ANY_SYSTEM = re.compile(
    r"(linux-vdso|ld-linux-x86-64|libc|libm|libdl|librt|libpthread|libstdc\+\+|libgcc_s|libcuda)\.so"
)
SEARCH = ("-I", "-isystem")


class PackError(Exception):
    """The module needs something that the pack cannot carry."""


@dataclass
class Unit:
    """Sources that are compiled with the same words."""

    sources: list[Path]
    words: list[str]  # without the compiler, the source and the object


def output_of(*command: object, cwd: Path | None = None) -> str:
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=cwd, capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        raise PackError(f"{' '.join(words[:3])} ...: {done.stderr.strip()[-2000:]}")
    return done.stdout


def units(build: Path) -> tuple[Unit, Unit]:
    """How BUILD compiles the sources of regroup._native, and those of nanobind."""
    found: dict[str, dict[tuple[str, ...], list[Path]]] = {"_native": {}, "nanobind-static": {}}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        target = re.search(r"CMakeFiles/(_native|nanobind-static)[a-z-]*\.dir/", entry["command"])
        if target is None:
            continue
        words = shlex.split(entry["command"])
        del words[: next(i for i, word in enumerate(words) if word.startswith("-"))]
        del words[words.index("-o") :]  # -o OBJECT -c SOURCE
        sources = found[target[1]].setdefault(tuple(words), [])
        sources.append(Path(entry["file"]).resolve())
    for target, ways in found.items():
        if len(ways) != 1:
            raise PackError(f"{build}: {target} is compiled in {len(ways)} ways, expected 1")
    native, nanobind = (
        Unit(sources, list(words)) for ways in found.values() for words, sources in ways.items()
    )
    return native, nanobind


def search_paths(words: list[str]) -> list[tuple[str, Path]]:
    """Each option of SEARCH in the words of a compiler, with its folder."""
    found = []
    for i, word in enumerate(words):
        if word in SEARCH:
            found.append((word, Path(words[i + 1]).resolve()))
        elif word.startswith("-I"):
            found.append(("-I", Path(word[2:]).resolve()))
    return found


def other_words(words: list[str]) -> list[str]:
    """Without search paths, and without warnings: another compiler has others."""
    kept = []
    skip = False
    for word in words:
        if not skip and not word.startswith(("-I", "-W", "-isystem")):
            kept.append(word)
        skip = word in SEARCH
    return [*kept, "-w"]


def headers(sources: Iterable[Path], words: list[str], cwd: Path | None = None) -> set[Path]:
    """Every file that the sources include."""
    told = output_of("g++", "-M", *words, *sources, cwd=cwd).replace("\\\n", " ")
    paths = {Path(word) for rule in told.splitlines() for word in rule.split(":", 1)[-1].split()}
    return {(cwd or Path()).joinpath(path).resolve() for path in paths}


def without_compilers(paths: set[Path]) -> set[Path]:
    """The paths that do not come with a compiler."""
    version = output_of("g++", "-dumpversion").strip()
    packages = [name.format(version) for name in OF_THE_COMPILER]
    listed = output_of("dpkg-query", "-L", *packages).splitlines()
    return paths - {Path(path).resolve() for path in listed if "/include/" in path}


class Layout:
    """Where PACK/module keeps what lies in these folders here."""

    def __init__(self, build: Path, native: Unit):
        searched = [path for _, path in search_paths(native.words)]
        (self.python,) = (path for path in searched if (path / "Python.h").exists())
        (nanobind,) = (path for path in searched if (path / "nanobind/nanobind.h").exists())
        self.nanobind = nanobind.parent
        self.places = {
            self.nanobind: "nanobind",
            build.resolve() / "generated": "source",
            ROOT: "source",
            Path("/usr/include"): "include",
        }

    def place(self, path: Path) -> Path:
        for folder, place in self.places.items():
            if path.is_relative_to(folder):
                return Path(place) / path.relative_to(folder)
        raise PackError(f"{path}: the pack has no place for it")

    def words(self, unit: Unit) -> list[str]:
        """Relative to PACK/module, without Python's headers."""
        found = dict.fromkeys(
            (option, str(self.place(path)))
            for option, path in search_paths(unit.words)
            if path != self.python
        )
        searched = [word for pair in found for word in pair]
        return [*other_words(unit.words), *searched, "-isystem", "include"]


def link_words(build: Path) -> tuple[list[str], list[Path]]:
    """Options of the linker, and the archives but nanobind's."""
    command = output_of("ninja", "-C", build, "-t", "commands", "_native").splitlines()[-1]
    if "-shared" not in command:
        raise PackError(f"{build}: regroup._native is not linked by: {command[:200]}")
    options, archives = [], []
    for word in shlex.split(command):
        if word.endswith(".a"):
            archives.append(build / word)
        elif re.search(r"^-l|\.so(\.\d+)*$", word) and "/_native." not in word:
            raise PackError(f"regroup._native links {word}: the pack carries static libraries only")
        elif word.startswith(("-Wl,", "-static-")) and "version-script" not in word:
            options.append(word)
    script = "-Wl,--version-script=source/python/symbols.map"
    return [*options, script], [a for a in archives if "nanobind" not in a.name]


def pack_sources(build: Path, module: Path) -> None:
    """All of PACK/module but the archive. Replaces what is there.

    Raises:
        PackError: the sources include what the pack has no place for.
    """
    native, nanobind = units(build)
    layout = Layout(build, native)
    shutil.rmtree(module, ignore_errors=True)
    here = [word for pair in search_paths(native.words) for word in map(str, pair)]
    wanted = headers(native.sources, [*other_words(native.words), *here])
    wanted = {path for path in wanted if not path.is_relative_to(layout.python)}
    for path in [*without_compilers(wanted), ROOT / "python/symbols.map"]:
        place = module / layout.place(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, place)
    for name in ("include", "src", "ext/robin_map/include"):
        shutil.copytree(layout.nanobind / name, module / "nanobind" / name, dirs_exist_ok=True)
    shutil.copytree(
        build / "python",
        module / "package",
        ignore=lambda folder, names: [
            name
            for name in names
            if name in ("__pycache__", "CMakeFiles") or name.endswith((".so", ".cmake"))
        ],
        ignore_dangling_symlinks=True,
    )
    words = {
        "native": layout.words(native),
        "nanobind": layout.words(nanobind),
        "link": link_words(build)[0],
    }
    for name, said in words.items():
        (module / f"{name}.words").write_text(shlex.join(said) + "\n")
    sources = [
        f"{name} {layout.place(path)}\n"
        for name, unit in (("native", native), ("nanobind", nanobind))
        for path in unit.sources
    ]
    (module / "sources").write_text("".join(sources))


def pack_archive(build: Path, module: Path) -> None:
    """One archive of all that regroup._native links, without what debuggers read."""
    target = module / "libregroup_native.a"
    target.unlink(missing_ok=True)
    orders = [f"create {target}", *(f"addlib {path}" for path in link_words(build)[1]), "save"]
    subprocess.run(["ar", "-M"], input="\n".join([*orders, "end\n"]), text=True, check=True)
    output_of("objcopy", "--strip-debug", target)


def pack_libraries(pack: Path) -> None:
    """The shared libraries of its programs and libraries that not every system has."""
    environment = os.environ | {"LD_LIBRARY_PATH": str(pack)}
    files = [path for path in pack.iterdir() if path.is_file()]
    for file in [path for path in files if path.read_bytes()[:4] == b"\x7fELF"]:
        words = ["ldd", str(file)]
        for line in subprocess.run(
            words, env=environment, capture_output=True, text=True, timeout=60
        ).stdout.splitlines():
            name, _, path = line.strip().partition(" => ")
            if IN_ANY_SYSTEM.match(Path(name.split()[0]).name) or name == "statically linked":
                continue
            if not path.startswith("/"):
                raise PackError(f"{file.name} needs {line.strip()}")
            if not (pack / name).exists():
                shutil.copy(path.split()[0], pack / name)


def main() -> None:
    build, pack = Path(sys.argv[1]), Path(sys.argv[2])
    try:
        pack_sources(build, pack / "module")
        pack_archive(build, pack / "module")
        pack_libraries(pack)
    except PackError as error:
        sys.exit(f"gpu-test --pack: {error}")


if __name__ == "__main__":
    main()
