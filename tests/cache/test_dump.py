"""``TIERCEL_DUMP``: generated code as files, and no fault of a product."""

from pathlib import Path

import pytest

from tiercel import cache


def test_text_and_machine_code_become_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TIERCEL_DUMP", str(tmp_path / "new" / "dump"))
    cache.dump("kernel.cu", "Σ")
    cache.dump("kernel.cubin", b"\x7fELF")
    assert (tmp_path / "new/dump/kernel.cu").read_text(encoding="utf-8") == "Σ"
    assert (tmp_path / "new/dump/kernel.cubin").read_bytes() == b"\x7fELF"


@pytest.mark.parametrize("folder", ["/dev/null", "/dev/null/below", "a\0b"])
def test_a_folder_that_cannot_be_written_to_costs_a_warning(folder: str, monkeypatch):
    monkeypatch.setattr("os.environ", {"TIERCEL_DUMP": folder})
    with pytest.warns(RuntimeWarning, match="TIERCEL_DUMP=.* cannot hold kernel.cu"):
        cache.dump("kernel.cu", "text")


def test_nothing_is_written_where_it_is_not_set(tmp_path: Path, monkeypatch):
    monkeypatch.delenv("TIERCEL_DUMP", raising=False)
    monkeypatch.chdir(tmp_path)
    cache.dump("kernel.cu", "text")
    assert not list(tmp_path.iterdir())
