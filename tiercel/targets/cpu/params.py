"""The parameter block that Python hands to the generated driver: int64 fields, by name.

One definition serves both sides, so that a field cannot be read at another place than written.
"""

from __future__ import annotations

#: What changes from step to step: sizes in elements, strides in bytes; ``a``, ``b`` and ``c`` point
#: to records; plane = imaginary part of complex operands.
OPERAND_FIELDS = (
    "K",
    "a", "a_terms", "a_rs", "a_cs", "a_plane",
    "b", "b_terms", "b_rs", "b_cs", "b_plane",
    "c", "c_targets", "c_rs", "c_cs", "c_plane",
)  # fmt: skip

#: What a call is lent: packed B, and packed A unless it is 0, for all threads; a private region for
#: each thread, see the offsets.
LENT_FIELDS = (
    "packed_b", "packed_step", "b_ready", "packed_a", "private",
    "threads", "sync", "tickets", "stats_b", "stats_count",
)  # fmt: skip

#: What the calls of a recipe have in common.
CONSTANT_FIELDS = (
    "M", "N", "bias_plane",
    # program: grid, and per operand the sums of each product (compressed rows: start, block, coef)
    "planes", "m", "k", "n", "products", "plain",
    "a_start", "a_block", "a_coef",
    "b_start", "b_block", "b_coef",
    "c_start", "c_block", "c_coef", "c_first", "c_never",
    # blocking: elements per step of the jc, ic, pc loops; panels and rows per task
    "mc", "nc", "kc", "k_pad", "panels", "task_panels", "pack_panels", "slice",
    "private_bytes", "at_stage_a", "at_pack_a", "at_scratch", "at_stage_b", "at_tables",
    "at_pack_b", "in_turn",
    "a_block_bytes", "c_block_bytes", "b_block_bytes", "packed_a_step",
    "guard", "limit", "headroom",
)  # fmt: skip

FIELDS = OPERAND_FIELDS + LENT_FIELDS + CONSTANT_FIELDS

#: Words of a record: a, b and c point to arrays of these. Coefficients are float64 bits.
TERM = ("at", "coef", "rows", "cols")
TARGET = ("at", "coef", "rows", "cols", "accumulate", "bias", "activate")

OFFSET = {name: 8 * i for i, name in enumerate(FIELDS)}
LINE = 64  # bytes between words that different threads write

#: What ``again`` (``renew.py``) answers: done; the guard gave up; nothing was done, as an array is
#: not aligned or C overlaps A or B.
DONE, REFUSED, UNLIKE = 0, 1, 2

#: What ``known`` (``known.py``) notes: its calls; the plan's number and the thread of the latest;
#: how many of the calls were own products (``own.py``).
CALLS, LATEST, THREAD, OWN_CALLS = range(4)
NOTED = 4
