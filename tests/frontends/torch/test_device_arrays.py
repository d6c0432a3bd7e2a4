"""Arrays of other libraries, by a class that says that its memory is on a GPU."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import tiercel
from tiercel import epilogues
from tiercel.errors import TiercelRuntimeError, TiercelTypeError
from tiercel.frontends import device_arrays
from tiercel.frontends.torch.tensors import foreign


class Foreign:
    """An array as CuPy's: memory on "device" 1, its own product, DLPack in both directions."""

    __module__ = "foreignlib.arrays"

    def __init__(self, values) -> None:
        self.values = np.asarray(values)

    def __dlpack_device__(self):
        return (2, 1)

    def __dlpack__(self, **kwargs):
        return self.values.__dlpack__(**kwargs)

    def __getattr__(self, name: str):
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.values, name)

    @property
    def T(self):
        return Foreign(self.values.T)

    def __array_ufunc__(self, ufunc, method, *inputs, **kwargs):
        kwargs.pop("out", None)
        return "its own product"


@pytest.fixture(autouse=True)
def library(monkeypatch: pytest.MonkeyPatch):
    made = SimpleNamespace(from_dlpack=lambda x: Foreign(x.numpy()))
    monkeypatch.setitem(sys.modules, "foreignlib", made)
    monkeypatch.setattr(device_arrays.hopper, "available", lambda device: None)
    # Its memory is the host's after all.
    monkeypatch.setattr(
        foreign, "as_tensor", lambda x: torch.from_numpy(x.values) if type(x) is Foreign else x
    )
    return made


def foreign_arrays(*shapes, dtype="f4"):
    return [Foreign(np.random.default_rng(5).standard_normal(s).astype(dtype)) for s in shapes]


def test_results_are_of_the_same_kind():
    a, b, c = foreign_arrays((6, 4), (4, 8), (6, 8))
    product = a.values @ b.values
    found = tiercel.matmul(a, b, c=c, alpha=2.0)
    assert type(found) is Foreign
    np.testing.assert_allclose(found.values, 2 * product + c.values, rtol=1e-5)
    several = tiercel.matmul(a, b, epilogue=epilogues.rms_statistics)
    assert {type(x) for x in several.values()} == {Foreign}
    rows = tiercel.linear(a, Foreign(b.values.T))
    np.testing.assert_allclose(rows.values, product, rtol=1e-5)


def test_what_torch_does_not_multiply_is_its_librarys():
    a, b = foreign_arrays((6, 4), (4, 8), dtype="i4")
    assert tiercel.matmul(a, b) == "its own product"
    mixed = foreign_arrays((4, 8), dtype="f8")[0]
    assert tiercel.matmul(foreign_arrays((6, 4))[0], mixed) == "its own product"
    with pytest.raises(TiercelRuntimeError, match="a is int32 and b is int32"):
        tiercel.matmul(a, b, target="hopper")


def test_other_devices_are_left_alone(monkeypatch):
    a, b = foreign_arrays((6, 4), (4, 8))
    monkeypatch.setattr(
        device_arrays.hopper, "available", lambda device: f"device {device} is an older one"
    )
    assert tiercel.matmul(a, b) == "its own product"
    with pytest.raises(TiercelRuntimeError, match="device 1 is an older one"):
        tiercel.matmul(a, b, target="hopper")
    monkeypatch.setattr(Foreign, "__dlpack_device__", lambda self: (1, 0))
    with pytest.raises(TiercelRuntimeError, match="a is a Foreign that is not on a CUDA device"):
        tiercel.matmul(a, b, target="hopper")


def test_a_library_that_takes_nothing_back_is_named(library):
    del library.from_dlpack
    a, b = foreign_arrays((6, 4), (4, 8))
    with pytest.raises(TiercelTypeError, match="foreignlib has no from_dlpack"):
        tiercel.matmul(a, b)
    library.cuda = SimpleNamespace(as_cuda_array=lambda x: ("an array of", tuple(x.shape)))
    assert tiercel.matmul(a, b) == ("an array of", (6, 8))


def test_array_namespaces_come_first(monkeypatch):
    a, b = foreign_arrays((6, 4), (4, 8))
    namespace = SimpleNamespace(from_dlpack=lambda x: "by its namespace")
    monkeypatch.setattr(Foreign, "__array_namespace__", lambda self: namespace, raising=False)
    assert tiercel.matmul(a, b) == "by its namespace"


@pytest.mark.parametrize("attribute", ["__dlpack_device__", "__cuda_array_interface__"])
def test_what_does_not_tell_its_shape_is_named(attribute):
    bare = type("Bare", (), {attribute: None})()
    for a, b in ((bare, torch.ones(2, 2).numpy()), (torch.ones(2, 2).numpy(), bare)):
        with pytest.raises(TiercelTypeError, match="is a Bare without shape, ndim and dtype"):
            tiercel.matmul(a, b)


def test_packing_is_refused():
    with pytest.raises(TiercelTypeError, match="b is a Foreign; allowed"):
        tiercel.pack(foreign_arrays((4, 8))[0])


def test_grouped_products_and_outs():
    a, b = foreign_arrays((6, 4), (2, 4, 8))
    ends = Foreign([2, 6])
    wanted = np.concatenate((a.values[:2] @ b.values[0], a.values[2:] @ b.values[1]))
    found = tiercel.grouped_matmul(a, b, ends)
    assert type(found) is Foreign
    np.testing.assert_allclose(found.values, wanted, rtol=1e-5)
    shift = foreign_arrays((2, 1, 8))[0]
    found = tiercel.grouped_matmul(a, b, ends, epilogue=epilogues.bias, bias=shift)
    np.testing.assert_allclose(
        found.values, wanted + np.repeat(shift.values[:, 0], [2, 4], axis=0), rtol=1e-5, atol=1e-6
    )
    out = Foreign(np.zeros((6, 8), "f4"))
    assert tiercel.matmul(a, Foreign(b.values[0]), out=out) is out
    np.testing.assert_allclose(out.values, a.values @ b.values[0], rtol=1e-5)


def test_grouped_products_elsewhere_are_refused(monkeypatch):
    monkeypatch.setattr(device_arrays.hopper, "available", lambda device: "an older one")
    a, b = foreign_arrays((6, 4), (2, 4, 8))
    with pytest.raises(TiercelTypeError, match="run on an H100 or H200: an older one"):
        tiercel.grouped_matmul(a, b, Foreign([2, 6]))
