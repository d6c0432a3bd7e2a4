"""What takes the place of the ``forward`` of a patched layer."""

from __future__ import annotations

import copy
from sys import is_finalizing
from typing import Any

import torch
from torch.compiler import is_dynamo_compiling
from torch.nn import functional as F

from tiercel.frontends.torch.engine import engine_for
from tiercel.frontends.torch.linear import linear, looked_up
from tiercel.frontends.torch.models.frozen import FrozenWeight, why_not_packable
from tiercel.frontends.torch.ops.option_text import encode, with_packed
from tiercel.frontends.torch.routing import repeated
from tiercel.frontends.torch.routing.operands import are_plain
from tiercel.frontends.torch.routing.route import (
    in_training,
    insisted,
    is_trained,
    without_schemes,
)
from tiercel.frontends.torch.routing.shortcut import TORCHS, look_up
from tiercel.options import Options

#: Numbers of rows that a layer remembers for its report.
MOST_SEEN = 64


class PlannedForward:
    """``forward`` of one ``nn.Linear``, bound to it as a method is; nothing of it is cached.

    Weight and bias are read when called, after the hooks that gather or replace them. A copy of
    the layer gets a forward of its own; a pickled layer is an ordinary one that loads without
    tiercel.
    """

    # A model's next layer finds caches cold: nothing is looked up that an attribute can hold.
    __slots__ = (
        "_dtype",
        "_few",
        "_last",
        "_left",
        "frozen",
        "layer",
        "options",
        "rows_seen",
        "text",
        "trained",
    )

    def __init__(self, layer: Any, options: Options, pack: bool) -> None:
        self.layer = layer
        self.options = options
        self.text = encode(options)
        self.trained = encode(without_schemes(options))
        self.frozen = FrozenWeight(options) if pack else None
        self.rows_seen: dict[int, bool] = {}  # and whether they are few
        # Elements of the last input, of the last one of few rows, and of the last one whose product
        # with a weight of this dtype a plan left to torch.
        self._last = self._few = self._left = -1
        self._dtype: torch.dtype | None = None

    def __call__(self, input: torch.Tensor) -> torch.Tensor:
        layer = self.layer
        # Half of what the more general question takes, which ``_product`` asks: in other traces
        # inputs are no ordinary tensors.
        if is_dynamo_compiling():
            return self._traced(input, layer.weight, layer.bias)
        # Past ``nn.Module.__getattr__``, which takes 0.5 us for each, and pays for what is asked
        # here: a decode step has hundreds of products that are too small for anything else.
        parameters = layer._parameters
        try:
            w, bias = parameters["weight"], parameters["bias"]
        except KeyError:  # made when read
            w, bias = layer.weight, layer.bias
        if type(input) is torch.Tensor:
            elements = input.numel()
            if elements == self._few or (elements == self._left and self._is_left(w)):
                return F.linear(input, w, bias)
        return self._product(input, w, bias)

    def _traced(self, x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        # A graph is not to depend on what was seen, and guards little: the text, not its parts.
        if are_plain(x, w, bias) and x.dim() >= 2:
            text = self.trained if is_trained(w) else self.text
            return torch.ops.tiercel.linear(x, w, bias, text)
        return linear(x, w, bias, None, self.options)

    def _product(self, x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        if torch.compiler.is_compiling():
            return self._traced(x, w, bias)
        if torch._C._is_tracing():  # torch.jit.trace: it looks twice, and must see the same lines
            return linear(x, w, bias, None, self.options)
        if is_finalizing():  # in a __del__: what a product needs is gone, in part
            return F.linear(x, w, bias)
        if x.numel() != self._last and w.numel():
            self._see(x, w)
        if self.frozen is not None:
            calls = self.frozen.calls(w)
            if calls is None:
                self.keep(w)
            elif calls:
                result = repeated.run_kept(calls, x, w, bias, self.options)
                if result is not None:
                    return result
        options = in_training(w, self.options)
        known = look_up(x, w, bias, 0, options)
        if known is TORCHS and options is self.options:
            self._left, self._dtype = x.numel(), w.dtype
        return looked_up(known, x, w, bias, None, options)

    def _is_left(self, w: torch.Tensor) -> bool:
        # Looking up what is known takes 5 us, and more in a decode step, beside cold caches.
        return w.dtype is self._dtype and not torch._C._is_any_autocast_enabled()

    def _see(self, x: torch.Tensor, w: torch.Tensor) -> None:
        """Remember the input's rows, and whether its product is too small for any plan."""
        self._last = x.numel()
        rows = self._last // w.shape[1]
        small = self.rows_seen.get(rows)
        if small is None and len(self.rows_seen) < MOST_SEEN:
            engine = engine_for(x.device.type)
            least = 0 if engine is None else min(engine.LEAST_WORK.values())  # of all dtypes
            small = self._last * w.shape[0] < least and not insisted(self.options)
            self.rows_seen[rows] = small
        if small:
            self._few = self._last

    def keep(self, w: torch.Tensor) -> None:
        """Let w's packed form be found, or give it up when w is no longer frozen."""
        assert self.frozen is not None, "called where weights are packed"
        if self.frozen.is_of(w):
            return
        if why_not_packable(w):
            self.frozen.release()
        else:
            self.frozen.keep(w)

    def pack(self, w: torch.Tensor) -> None:
        """Pack w, which is packable, now; a compiler's graph then counts on it."""
        assert self.frozen is not None, "called where weights are packed"
        self.frozen.keep(w)
        packed = self.frozen.packed(w)
        if packed is not None:
            self.text = with_packed(self.text, packed.algorithm)

    @property
    def __globals__(self) -> Any:
        raise AttributeError(
            "torch.jit.script reads the source of a layer's forward, and tiercel.patch has put "
            "another in its place; call tiercel.unpatch(model) before: a scripted layer is torch's"
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> PlannedForward:
        layer = copy.deepcopy(self.layer, memo)
        return type(self)(layer, self.options, self.frozen is not None)

    def __reduce__(self) -> tuple[Any, ...]:
        # As for a bound method. The layer is still empty when this is loaded, so that the
        # attribute found is the method of its class.
        return getattr, (self.layer, "forward")


class PlannedConv1D(PlannedForward):
    """``forward`` of one ``Conv1D``, whose weight is (K, N) and whose argument is called x."""

    __slots__ = ()

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        layer = self.layer
        return self._product(x, layer.weight.t(), layer.bias)


class Replicate:
    """``_replicate_for_data_parallel`` of a patched layer: ``nn.DataParallel`` copies ``vars``.

    A replica reads its own weights, by a forward of its own.
    """

    __slots__ = ("layer",)

    def __init__(self, layer: Any) -> None:
        self.layer = layer

    def __call__(self) -> Any:
        replica = type(self.layer)._replicate_for_data_parallel(self.layer)
        forward = planned_forward(self.layer)
        if forward is not None:
            vars(replica)["forward"] = type(forward)(replica, forward.options, pack=False)
        return replica

    def __deepcopy__(self, memo: dict[int, Any]) -> Replicate:
        return Replicate(copy.deepcopy(self.layer, memo))

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (self.layer, "_replicate_for_data_parallel")


def planned_forward(layer: torch.nn.Module) -> PlannedForward | None:
    """The forward that ``patch`` gave to the layer, None if there is none."""
    forward = vars(layer).get("forward")
    return forward if isinstance(forward, PlannedForward) else None
