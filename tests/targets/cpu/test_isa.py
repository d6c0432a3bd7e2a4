"""What is derived from LLVM's feature map and from the system's description of the caches."""

import pytest

from tests.targets.cpu.isas import AVX2, AVX512, CACHES, ISAS
from tests.targets.cpu.recipes import python
from tiercel.targets.cpu import isa, width
from tiercel.targets.cpu.isa import from_features

LINUX = "x86_64-unknown-linux-gnu"


def test_features_choose_the_instruction_set():
    assert list(ISAS) == ["avx2", "avx512", "neon"]
    assert [x.vector_bytes for x in ISAS.values()] == [32, 64, 16]
    assert from_features("arm64-apple-darwin", "apple-m1", {"neon": True}, {}).name == "neon"
    assert from_features(LINUX, "x", AVX512 | {"avx512vl": False}, {}).name == "avx2"


@pytest.mark.parametrize(
    ("triple", "features"),
    [
        (LINUX, {}),
        (LINUX, AVX2 | {"fma": False}),
        ("riscv64-unknown-linux-gnu", {"v": True}),
    ],
)
def test_other_machines_are_refused(triple: str, features: dict[str, bool]):
    with pytest.raises(LookupError):
        from_features(triple, "x", features, {})


def test_flags_name_what_is_on_and_what_is_off():
    made = from_features(LINUX, "x", AVX2 | {"avx512f": False}, {})
    assert {"+avx2", "+fma", "-avx512f"} <= set(made.features.split(","))


def test_caches_have_plausible_defaults():
    known, unknown = (from_features(LINUX, "x", AVX2, caches) for caches in (CACHES, {}))
    assert (known.l1, known.l2, known.l3) == (32 << 10, 1 << 20, 32 << 20)
    assert 0 < unknown.l1 < unknown.l2 < unknown.l3


@pytest.mark.parametrize("made", ISAS.values(), ids=ISAS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_register_tile_leaves_registers_for_the_operands(made: isa.Isa, dtype: str):
    mr, nr = made.register_tile(dtype)
    vectors = nr // made.lanes(dtype)
    assert nr % made.lanes(dtype) == 0
    assert 10 <= mr * vectors <= made.registers - vectors - 1


def test_half_precision_needs_f16c():
    assert ISAS["avx2"].half
    assert not from_features(LINUX, "x", AVX2 | {"f16c": False}, {}).half


def test_host_is_described_once():
    assert isa.host() is isa.host()
    assert isa.host().name in ISAS
    assert isa.machine_name()


def test_caches_of_the_system_are_read(tmp_path, monkeypatch: pytest.MonkeyPatch):
    for index, (kind, level, size) in enumerate(
        [("Data", 1, "48K"), ("Instruction", 1, "32K"), ("Unified", 2, "2048K"),
         ("Unified", 3, "1M"), ("Unified", 4, "")]
    ):  # fmt: skip
        folder = tmp_path / f"index{index}"
        folder.mkdir()
        for name, text in (("type", kind), ("level", level), ("size", size)):
            (folder / name).write_text(f"{text}\n")
    monkeypatch.setattr(isa, "Path", lambda _: tmp_path)
    assert isa.cache_sizes() == {1: 48 << 10, 2: 2 << 20, 3: 1 << 20}


def test_avx512_can_be_left_unused():
    out = python("from tiercel.targets.cpu.isa import host; print(host().name)", TIERCEL_ISA="avx2")
    assert out.strip() in ("avx2", "neon")


def test_vectors_that_multiply_no_faster_are_not_used(monkeypatch: pytest.MonkeyPatch):
    wide, narrow = (from_features(LINUX, "x", on, {}) for on in (AVX512, AVX2))
    rates = {wide.name: 2.0, narrow.name: 1.0}
    monkeypatch.setattr(width, "_rate", lambda isa: rates[isa.name])
    monkeypatch.setattr(width.disk, "get", lambda kind, key, build: build())
    assert width.multiplies_wide(wide, narrow)
    rates[narrow.name] = 1.9
    assert not width.multiplies_wide(wide, narrow)


def test_the_width_of_the_multipliers_is_measured():
    here = isa.host()
    if here.name == "neon":
        pytest.skip("one width only")
    assert not width.multiplies_wide(here, here)


def test_avx512_can_be_asked_for():
    out = python(
        "from tiercel.targets.cpu.isa import host; print(host().name)", TIERCEL_ISA="avx512"
    )
    assert out.strip() in ("avx2", "avx512", "neon")


def test_an_instruction_set_that_is_none_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TIERCEL_ISA", "sse2")
    with pytest.warns(RuntimeWarning, match="TIERCEL_ISA='sse2' is not known here; allowed: "):
        assert isa.host.__wrapped__().name in ISAS
