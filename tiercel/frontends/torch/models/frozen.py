"""Frozen weights in packed form, found by the weight's address wherever its product is computed.

A packed form serves one state of one weight: its address, torch's version counter, which every
in-place change raises, and a few of its values. The counter does not see writes through
``weight.data``; the values see those that change (nearly) all of a weight, as merging an adapter
does. Writes through ``.data`` to a part of a packed weight are the caller's to announce, by calling
``patch`` again.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakValueDictionary

import torch

from tiercel.frontends.torch.engine import engine_for
from tiercel.frontends.torch.routing.operands import are_plain, transformed
from tiercel.options import Options

#: Values of a weight that are compared at each use: 5 us beside a product of a millisecond.
SAMPLES = 64

#: A weight's place in memory -> its packed form. A layer's forward holds it, until ``unpatch``.
_FROZEN: WeakValueDictionary[Any, FrozenWeight] = WeakValueDictionary()


class FrozenWeight:
    """The packed form of one weight w (N, K), renewed when it is used in another state."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self._calls: dict[Any, Any] = {}
        self._state: Any = None
        self._samples: torch.Tensor | None = None
        self._packed: Any = None
        self._place: Any = None
        # Held, so that no other tensor takes its address unseen. Not by a weak reference: with one
        # `torch.utils.swap_tensors`, by which modules may convert their parameters, refuses it.
        self._weight: torch.Tensor | None = None

    @property
    def nbytes(self) -> int:
        """Memory of the packed form, in bytes."""
        return 0 if self._packed is None else self._packed.nbytes

    def keep(self, w: torch.Tensor) -> None:
        """Let the products of w find its packed form from now on, those of earlier ones no more."""
        place = _place(w)
        if self._place != place:
            self.release()
            self._place = place
            _FROZEN[place] = self
        self._weight = w if w._base is None else None

    def is_of(self, w: torch.Tensor) -> bool:
        """Whether w was found to be packable, and still is, without asking all over again.

        (While a CUDA graph is captured nothing can be packed; what is packed stays.)
        """
        return self._weight is w and not w.requires_grad and self._place == _place(w)

    def release(self) -> None:
        """Forget the weight and free its packed form."""
        if _FROZEN.get(self._place) is self:
            del _FROZEN[self._place]
        self._place, self._state, self._samples, self._packed = None, None, None, None
        self._calls, self._weight = {}, None

    def calls(self, w: torch.Tensor) -> dict[Any, Any] | None:
        """Products of w that have run (``routing/repeated.py``); None unless w is as then."""
        same = self._weight is w and not w.requires_grad and self._state == _state(w)
        return self._calls if same else None

    def packed(self, w: torch.Tensor) -> Any:
        """The packed form of ``w.T``; None where packing gains nothing."""
        state, samples = _state(w), _samples(w)
        if self._state != state or not _same(samples, self._samples):
            if w.is_cuda and torch.cuda.is_current_stream_capturing():
                return None  # packing waits for the device
            engine = engine_for(w.device.type)
            assert engine is not None, "why_not_packable has been asked"
            self._packed = engine.pack(w, self.options)
            self._state, self._samples, self._calls = state, samples, {}
        return self._packed if self._packed.panels is not None else None


def packed_form(w: torch.Tensor, options: Options) -> tuple[Any, dict[Any, Any] | None]:
    """The packed form of ``w.T`` where a patched layer keeps one, and calls that have run with it.

    None for what there is not.
    """
    if not _FROZEN or transformed():  # tensors of torch.func have no place
        return None, None
    frozen = _FROZEN.get(_place(w))
    if frozen is None or not (frozen.options is options or frozen.options == options):
        return None, None
    if not frozen.is_of(w) and why_not_packable(w):
        return None, None
    return frozen.packed(w), frozen.calls(w)


def why_not_packable(w: torch.Tensor) -> str:
    """Why a weight (N, K) cannot be packed; "" if it is frozen and its changes are counted."""
    parameter = w if w._base is None else w._base
    engine = engine_for(w.device.type)
    if parameter.requires_grad:
        return "the weight is not frozen (requires_grad)"
    if not are_plain(w) or w.dim() != 2 or w.numel() == 0 or not _is_counted(w):
        return "the weight is not an ordinary matrix whose changes torch counts"
    if engine is None:
        return f"no packed form on {w.device.type}"
    return engine.why_not_packed(w)


def _is_counted(w: torch.Tensor) -> bool:
    return w.layout is torch.strided and not w.is_inference() and not w.is_neg()


def _state(w: torch.Tensor) -> Any:
    return w.data_ptr(), w.shape, w.stride(), w._version, w.dtype


def _place(w: torch.Tensor) -> Any:
    """Where w lies; its transpose, which a backward pass multiplies, is another matrix."""
    return w.data_ptr(), w.shape, w.stride()


def _same(samples: torch.Tensor | None, before: torch.Tensor | None) -> bool:
    return samples is before or (samples is not None and torch.equal(samples, before))  # type: ignore[arg-type]


def _samples(w: torch.Tensor) -> torch.Tensor | None:
    """Values of w spread over it, copied; None on a GPU, where the engine compares them itself."""
    if w.is_cuda:
        return None
    flat = w.detach() if w.is_contiguous() else w.detach().t()
    flat = flat.reshape(-1)
    return flat[:: max(1, flat.numel() // SAMPLES)].clone()
