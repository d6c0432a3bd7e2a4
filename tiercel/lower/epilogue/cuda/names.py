"""Names of the generated CUDA C++: identifiers, storage types, positions of columns."""

from __future__ import annotations

#: dtype -> type that holds its bits in `prelude.cuh`, or a type of CUDA C++.
_STORAGE = {
    "float64": "double", "float32": "float", "float16": "f16", "bfloat16": "bf16",
    "float8_e4m3": "e4m3", "float8_e5m2": "e5m2", "int64": "long long", "int32": "int",
}  # fmt: skip

#: log2 of columns for each column of the product -> where those of column ``col`` begin.
POSITION = {-1: "col / 2", 0: "col", 1: "2 * col"}

#: Words that Python allows as names of parameters and C++ does not, or that CUDA predefines.
_WORDS = """alignas alignof asm auto bool case catch char const constexpr const_cast decltype
    default delete do double dynamic_cast enum explicit export extern false float friend goto inline
    int long mutable namespace new noexcept nullptr operator private protected public register
    reinterpret_cast short signed sizeof static static_assert static_cast struct switch template
    this throw true typedef typeid typename union unsigned using virtual void volatile wchar_t
    columns threadIdx blockIdx blockDim gridDim warpSize"""
_RESERVED = frozenset(_WORDS.split())


def storage(dtype: str) -> str:
    """The C++ type of an element of ``dtype`` in memory."""
    return _STORAGE[dtype]


def value_type(dtype: str) -> str:
    """The C++ type of an element in a register: a float, or the integer itself."""
    return _STORAGE[dtype] if dtype.startswith("int") else "float"


def identifier(name: str) -> str:
    """A C++ identifier for a Python one.

    >>> identifier("bias"), identifier("default"), identifier("γ")
    ('bias', 'default_', 'u03b3')
    """
    plain = "".join(c if c.isascii() else f"u{ord(c):04x}" for c in name)
    return f"{plain}_" if plain in _RESERVED else plain
