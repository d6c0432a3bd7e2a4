"""What transfers cost, and how many slots fit into registers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Cost:
    """Prices of transfers, in units of one scratch transfer, and the register slots' capacity.

    While a route is searched nobody knows yet which slot will live where: ``save`` and ``load`` are
    the prices then. Routes of about equal cost are compared by where their slots fit: a transfer
    costs ``scratch`` or ``register``. ``take`` is the surcharge of a load that subtracts, so that
    of two routes the one without a cancelling sum wins.

    ``registers``: register slots of a thread block. A 128 × 256 tile packed to half precision takes
    64 registers of each of 256 threads, and two such slots fit beside the accumulator's 128.
    """

    save: float = 1.0
    load: float = 1.0
    take: float = 0.01
    scratch: float = 1.0
    register: float = 0.1
    registers: int = 2
