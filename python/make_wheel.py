"""Packs a build folder into a wheel: the libraries with runtime and compiler, the tools, the module.

Usage: make_wheel.py CMAKE BUILD FOLDER [LEVEL]. Prints the path of the wheel that it wrote in FOLDER.
LEVEL is zlib's, from 1 (quick) to 9. Needs Python's own library only.
"""

import base64
import hashlib
import os
import pathlib
import re
import stat
import subprocess
import sys
import tempfile
import zipfile

# What a system has that a wheel tagged manylinux is for (PEP 600). Other libraries go along.
ON_EVERY_SYSTEM = re.compile(
    r"^(linux-vdso|ld-linux-x86-64|lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+|z))\.so(\.|$)"
)


def output_of(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def cached(build, name):
    for line in (build / "CMakeCache.txt").read_text().splitlines():
        if line.startswith(name + ":"):
            return line.split("=", 1)[1]
    sys.exit(f"{build} is no build folder: its cache has no {name}")


def install(cmake, build, package):
    for component in ("runtime", "compiler", "python"):
        output_of(cmake, "--install", str(build), "--prefix", str(package), "--strip",
                  "--component", component)


def add_needed_libraries(libraries, binaries):
    """Copies what the binaries need and not every system has."""
    for binary in binaries:
        for line in output_of("ldd", str(binary)).splitlines():
            name, arrow, path = line.strip().partition(" => ")
            if not arrow or ON_EVERY_SYSTEM.match(name) or (libraries / name).exists():
                continue
            if path.startswith("not found"):
                sys.exit(f"{binary} needs {name}, which is not here")
            source = pathlib.Path(path.split(" (")[0])
            (libraries / name).write_bytes(source.read_bytes())
            (libraries / name).chmod(0o755)


def oldest_glibc(binaries):
    """(2, 34): no older glibc has all that the binaries ask for."""
    asked = set()
    for binary in binaries:
        text = output_of("readelf", "--wide", "--version-info", str(binary))
        asked.update((int(a), int(b)) for a, b in re.findall(r"\bGLIBC_(\d+)\.(\d+)", text))
    return max(asked)


def files_of(package):
    """(name in the wheel, file): of links the file itself, once, by the name that is looked up."""
    linked = {path.resolve() for path in package.rglob("*") if path.is_symlink()}
    for path in sorted(package.rglob("*")):
        if path.is_dir() or (not path.is_symlink() and path.resolve() in linked):
            continue
        # Completions and manual pages have no place in a wheel; the terms of what is inside do.
        name = path.relative_to(package)
        if name.parts[0] == "share" and "doc" not in name.parts:
            continue
        yield "braze/" + name.as_posix(), path.resolve()


def is_elf(path):
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF"


def write_wheel(path, contents, level):
    """`contents` by name: bytes, and whether they are executable."""
    record = []
    info = next(name for name in contents if name.endswith(".dist-info/WHEEL"))[: -len("WHEEL")]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=level) as archive:
        for name, (data, executable) in contents.items():
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))  # the same wheel from the same files
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (stat.S_IFREG | (0o755 if executable else 0o644)) << 16
            archive.writestr(entry, data)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record.append(f"{name},sha256={digest},{len(data)}")
        record.append(f"{info}RECORD,,")
        archive.writestr(zipfile.ZipInfo(f"{info}RECORD", (1980, 1, 1, 0, 0, 0)),
                         "\n".join(record) + "\n")


def main():
    cmake, build, folder = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
    level = int(sys.argv[4]) if len(sys.argv) > 4 else 9
    version = cached(build, "CMAKE_PROJECT_VERSION")
    libraries = cached(build, "CMAKE_INSTALL_LIBDIR")
    with tempfile.TemporaryDirectory() as temporary:
        package = pathlib.Path(temporary) / "braze"
        install(cmake, build, package)
        binaries = [path for _, path in files_of(package) if is_elf(path)]
        add_needed_libraries(package / libraries, binaries)
        files = dict(files_of(package))
        glibc = oldest_glibc([path for path in files.values() if is_elf(path)])
        tag = "cp39-abi3-manylinux_{}_{}_x86_64".format(*glibc)
        info = f"braze-{version}.dist-info"
        contents = {name: (path.read_bytes(), os.access(path, os.X_OK))
                    for name, path in files.items()}
        metadata = f"""Metadata-Version: 2.1
Name: braze
Version: {version}
Summary: A kernel-fusing compiler for tensor graphs, on CPUs and NVIDIA GPUs
License: Apache-2.0
Requires-Python: >=3.9
Classifier: Operating System :: POSIX :: Linux
"""
        for name, text in {
            "METADATA": metadata,
            "WHEEL": f"Wheel-Version: 1.0\nGenerator: braze\nRoot-Is-Purelib: false\nTag: {tag}\n",
            "entry_points.txt": "[console_scripts]\nbraze = braze.__main__:braze\n"
                                "braze-run = braze.__main__:braze_run\n",
        }.items():
            contents[f"{info}/{name}"] = (text.encode(), False)
        folder.mkdir(parents=True, exist_ok=True)
        wheel = folder / f"braze-{version}-{tag}.whl"
        staged = folder / f".{wheel.name}.{os.getpid()}"
        write_wheel(staged, contents, level)
        staged.replace(wheel)
    print(wheel)


if __name__ == "__main__":
    main()
