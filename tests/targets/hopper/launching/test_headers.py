"""The kernels' source where NVRTC reads it, wherever the package lies."""

import subprocess
import sys
import zipfile
from pathlib import Path

import tiercel
from tiercel.targets.hopper.launching import compile


def test_headers_are_those_of_the_package():
    folder = Path(tiercel.__file__).parent / "targets/hopper/kernels"
    assert compile.include_folder() == folder
    assert compile.headers() == {path.name: path.read_bytes() for path in folder.glob("*.cuh")}


def test_a_package_in_a_zip_file_has_them_too(tmp_path: Path):
    package = Path(tiercel.__file__).parent
    with zipfile.ZipFile(tmp_path / "tiercel.zip", "w") as archive:
        for path in package.rglob("*"):
            if path.suffix in (".py", ".cuh"):
                archive.write(path, path.relative_to(package.parent))
    use = """
import sys
sys.path.insert(0, sys.argv[1])
from tiercel.targets.hopper.launching import compile
assert sys.argv[1] in compile.__file__
folder = compile.include_folder()
assert compile.headers() == {path.name: path.read_bytes() for path in folder.iterdir()}
print(folder / "gemm.cuh")
"""
    command = [sys.executable, "-c", use, str(tmp_path / "tiercel.zip")]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ran.stdout.strip().endswith("gemm.cuh")
    assert not Path(ran.stdout.strip()).exists(), "copies end with the process"
