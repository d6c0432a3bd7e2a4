"""The one instruction whose operand list is too long to write by hand."""

from __future__ import annotations

# dtype → name in PTX and of the C++ tag, values of K that one instruction takes (32 bytes)
KINDS = {
    "bfloat16": ("bf16", 16),
    "float16": ("f16", 16),
    "float32": ("tf32", 8),
    "float8_e4m3fn": ("e4m3", 32),
    "float8_e5m2": ("e5m2", 32),
}


def specialisation(
    dtype: str,
    n: int,
    a_mn_major: bool,
    b_mn_major: bool,
    fragments: bool = False,
    dtype_b: str | None = None,
) -> str:
    r"""CUDA text of ``Wgmma<kind>``: a product of two shared-memory tiles.

    ``fragments``: A is in registers, whatever its layout in memory. ``dtype_b``: of B, if it is
    another kind of float8.

    >>> print(specialisation("bfloat16", 8, False, True))
    template <>
    struct Wgmma<bf16> {
      // d (=|+=) A (64 × 16) · B (16 × 8); `accumulate` 0 overwrites
      static __device__ void issue(float (&d)[4], u64 a, u64 b,
                                   int accumulate) {
        asm volatile(
            "{\n"
            ".reg .pred p;\n"
            "setp.ne.b32 p, %6, 0;\n"
            "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 "
            "{%0, %1, %2, %3}, "
            "%4, %5, p, 1, 1, 0, 1;\n"
            "}"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
            : "l"(a), "l"(b), "r"(accumulate));
      }
    };
    """
    (kind, k), count = KINDS[dtype], n // 2
    kind_b = KINDS[dtype_b or dtype][0]
    # Only 16-bit types can be transposed on the way from shared memory.
    major = (f", {int(a_mn_major)}" * (not fragments) + f", {int(b_mn_major)}") * (k == 16)
    after = count + (4 if fragments else 1)  # number of the operand behind A
    a = f"{{%{count}, %{count + 1}, %{count + 2}, %{count + 3}}}" if fragments else f"%{count}"
    inputs = ", ".join(f'"r"(a[{i}])' for i in range(4)) if fragments else '"l"(a)'
    registers = "\n".join(
        f'        "{line}"'
        for line in _lines([f"%{i}" for i in range(count)], 16, opening="{", closing="}, ")
    )
    values = "\n          ".join(_lines([f'"+f"(d[{i}])' for i in range(count)], 6))
    a_type = "const u32 (&a)[4]" if fragments else "u64 a"
    return f"""\
template <>
struct Wgmma<{kind}> {{
  // d (=|+=) A (64 × {k}) · B ({k} × {n}); `accumulate` 0 overwrites
  static __device__ void issue(float (&d)[{count}], {a_type}, u64 b,
                               int accumulate) {{
    asm volatile(
        "{{\\n"
        ".reg .pred p;\\n"
        "setp.ne.b32 p, %{after + 1}, 0;\\n"
        "wgmma.mma_async.sync.aligned.m64n{n}k{k}.f32.{kind}.{kind_b} "
{registers}
        "{a}, %{after}, p, 1, 1{major};\\n"
        "}}"
        : {values}
        : {inputs}, "l"(b), "r"(accumulate));
  }}
}};"""


def _lines(items: list[str], per_line: int, opening: str = "", closing: str = "") -> list[str]:
    """Items joined by commas, ``per_line`` to a line."""
    rows = [", ".join(items[i : i + per_line]) for i in range(0, len(items), per_line)]
    lines = [row + ", " for row in rows[:-1]] + [rows[-1] + closing]
    return [opening + lines[0], *lines[1:]]
