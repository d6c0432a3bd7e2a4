"""The public functions: check options, choose the frontend of the arrays, word the errors."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import numpy as np

from tiercel.errors import (
    TiercelError,
    TiercelRuntimeError,
    TiercelTypeError,
)
from tiercel.options import DEFAULT, Options, checked_options, checked_switch
from tiercel.shortcut import known_first
from tiercel.terms import as_given, surrounded


def _numpy_frontend() -> Any:
    from tiercel.frontends import numpy

    return numpy


def _torch_frontend() -> Any:
    # Not "from tiercel.frontends import …": that runs Python each time, 0.5 us.
    import tiercel.frontends.torch as frontend

    return frontend


#: Root package of an array type -> how to get the module that serves it. A framework is imported
#: by nobody here: where an array of its type exists, it is imported already.
_FRONTENDS = {"numpy": _numpy_frontend, "torch": _torch_frontend}

_ndarray = np.ndarray


@known_first
def matmul(
    a: Any,
    b: Any,
    /,
    out: Any = None,
    *,
    epilogue: Any = None,
    bias: Any = None,
    c: Any = None,
    alpha: complex | None = None,
    beta: complex | None = None,
    accuracy: str | float | None = None,
    workspace: int | str | None = None,
    scheme: Any = None,
    threads: int | None = None,
    batch_invariant: bool = False,
    verify: bool = False,
    target: str | None = None,
    **operands: Any,
) -> Any:
    """Matrix product ``epilogue(alpha · a @ b + beta · c + bias)``, as ``np.matmul`` defines it.

    a (..., M, K) and b (..., K, N) give (..., M, N): batch axes broadcast, a 1-D operand is a
    row (a) or a column (b) whose axis is dropped from the result. Every dtype, stride and array
    type that ``np.matmul`` takes is taken; the result has NumPy's dtype. float16, float32,
    float64, complex64 and complex128 are accelerated where a plan is predicted to be faster;
    everything else is NumPy's own product. float16 accumulates in float32. ``b`` may be the
    result of `pack`.

    Tensors give what ``torch.matmul`` gives, gradients and autocast included. Large products of
    ordinary CPU and CUDA tensors are accelerated; subclasses, other devices, and calls that torch
    traces are torch's own.

    Parameters
    ----------
    out
        Array of the result's shape that receives the result and is returned; may overlap the
        operands. A dtype to which the result casts by "same_kind" is allowed for arrays; a tensor
        must have the result's dtype, and no argument may require grad.
    epilogue
        "relu", "gelu", "gelu_tanh" or "silu": applied to every element before it is rounded
        to the result's dtype. Real floating dtypes only. Or an epilogue traced by `epilogue`; its
        output, or a dictionary of its outputs, is then the result.
    bias
        Vector (N,), added to every row before the epilogue.
    c, alpha, beta
        c broadcasts to the product and is not read where beta is 0. alpha is 1 by default, beta 1
        with c. Real products take real numbers.
    operands
        Operands of the traced epilogue, by name. ``bias``, ``c``, ``alpha`` and ``beta`` are
        operands, too, where the epilogue has such parameters.
    accuracy
        "classical" (no fast scheme), "standard" (default), "fast", or a bound >= 1 on the
        predicted growth of the error over the classical product in the same dtype.
    workspace
        Cap on extra memory, in bytes or as "256MiB". Default: the planner's.
    scheme
        Name of a scheme, a ``Scheme``, "classical" (tiercel's own kernel) or "vendor" (NumPy).
        Raises where it cannot run as asked; never replaced silently.
    threads
        Upper bound on tiercel's own threads. Default: all that the process may use. NumPy's
        threads are set with threadpoolctl.
    batch_invariant
        Tensors only: a row of the result has the same bits whatever the other rows are and however
        many, on one machine. Runs the own classical kernel with one order of summation, whatever is
        fastest.
    verify
        Probe every product that tiercel computed, with a random vector (Freivalds; under 3 % of
        4096³). One whose errors exceed ``accuracy`` is computed again with one level less, finally
        by NumPy; later calls of the same kind begin there. Epilogues are then applied after the
        product, and 16-bit operands of a CPU multiplied in float32. On a GPU nothing is waited
        for: the classical product replaces, on the device, what failed.
    target
        "hopper": the own kernels for H100 and H200 multiply, however small the product is; raises
        where they cannot. bfloat16, float16, float8 and, if torch allows TF32, float32.

    Raises
    ------
    TiercelValueError
        Shapes that do not fit, a read-only or mis-shaped ``out``, an unknown option value.
    TiercelTypeError
        dtypes without a product, an ``out`` that cannot hold the result, an option that the
        operands do not allow.
    TiercelRuntimeError
        A named scheme that is not safe for the data, not available on this machine, or found
        inaccurate by ``verify``.

    >>> matmul(np.array([[1.0, 2.0]]), np.array([[3.0], [-4.0]]), epilogue="relu", bias=[6.0])
    array([[1.]])
    """
    default = (
        accuracy is None and workspace is None and scheme is None and threads is None
        and not batch_invariant and not verify and target is None
    )  # fmt: skip
    summed = c is not None or alpha is not None or beta is not None
    after = None
    try:
        if summed or operands or not (epilogue is None or isinstance(epilogue, str)):
            if default and type(a).__module__ == "torch":
                again = None
                if epilogue is None and bias is None and not operands:
                    if type(c).__module__ == "torch":
                        again = _torch_frontend().with_summand(a, b, c, alpha, beta, out)
                elif out is None and not summed:
                    known = _torch_frontend().with_epilogue_again
                    again = known(a, b, bias, epilogue, operands, -1)
                if again is not None:
                    return again
            epilogue, bias, after = surrounded(
                epilogue, bias, c, alpha, beta, operands,
                lambda: _frontend(type(a), type(b)).has_epilogues(a, b),
            )  # fmt: skip
        options = (
            DEFAULT
            if default and epilogue is None
            else checked_options(
                epilogue, accuracy, workspace, scheme, threads, batch_invariant, verify, target
            )
        )
        if after is not None:
            product = _frontend(type(a), type(b), options=options).matmul(a, b, None, None, options)
            return after(product, out)
        return _frontend(type(a), type(b), options=options).matmul(a, b, out, bias, options)
    except TiercelError as error:
        raise _with_operands(error, "matmul", a=a, b=b) from None


def linear(
    x: Any,
    w: Any,
    bias: Any = None,
    *,
    out: Any = None,
    epilogue: Any = None,
    accuracy: str | float | None = None,
    workspace: int | str | None = None,
    scheme: Any = None,
    threads: int | None = None,
    batch_invariant: bool = False,
    verify: bool = False,
    **operands: Any,
) -> Any:
    """Linear layer ``epilogue(x @ w.T + bias)``: x (..., K), w (N, K), bias (N,) -> (..., N).

    ``w`` lies in memory as in ``torch.nn.Linear``; no transposed copy of it is made. A static
    weight may be packed once: pass ``pack(w.T)`` as ``w``. Options, dtypes, errors and the
    ``operands`` of a traced epilogue are those of `matmul`.

    >>> linear(np.ones((1, 2)), np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([0.5, -9.0]))
    array([[ 3.5, -2. ]])
    """
    default = (
        accuracy is None and workspace is None and scheme is None and threads is None
        and not batch_invariant and not verify
    )  # fmt: skip
    try:
        if operands or not (epilogue is None or isinstance(epilogue, str)):
            if default and out is None and type(x).__module__ == "torch":
                again = _torch_frontend().with_epilogue_again(x, w, bias, epilogue, operands, -2)
                if again is not None:
                    return again
            epilogue, bias, _ = surrounded(epilogue, bias, None, None, None, operands, lambda: True)
        options = (
            DEFAULT
            if default and epilogue is None
            else checked_options(
                epilogue, accuracy, workspace, scheme, threads, batch_invariant, verify
            )
        )
        return _frontend(type(x), type(w), options=options).linear(x, w, bias, out, options)
    except TiercelError as error:
        raise _with_operands(error, "linear", x=x, w=w) from None


def grouped_matmul(
    a: Any, b: Any, offsets: Any, /, *, out: Any = None, epilogue: Any = None, **operands: Any
) -> Any:
    """Groups of rows, each times its own matrix: rows of group g of ``a`` times ``b[g]``.

    The product of a mixture of experts, as in ``torch._grouped_mm``: a (M, K), b (G, K, N), of any
    layout, give (M, N). ``offsets``: integers (G,), the row behind the last of each group, or
    (G + 1,), beginning with 0; where a is. They do not decrease and may leave groups empty. Rows
    behind the last group become 0.

    CUDA tensors of 16 bits on an H100 or H200 are one launch, which reads the offsets on the
    device: the host does not wait, and a CUDA graph may replay it with other offsets. Numbers
    outside 0 to M count there as the nearest of these. For that, rows of a, b and ``out`` are
    multiples of 16 bytes, and G is at most 512. Everything else is one product after the other.
    Differentiable with respect to a and b.

    ``epilogue`` as in `matmul`, with one output. Its operands may be (M, N), (M, 1), (N,) or
    numbers, and (G, 1, N) or (G, 1, 1), one for each group. It runs in the same launch, unless a
    gradient is asked for: the groups are then products one after the other.

    Raises ``TiercelValueError`` or ``TiercelTypeError`` for shapes and dtypes that do not fit.

    >>> grouped_matmul(np.ones((3, 1)), np.array([[[2.0]], [[5.0]]]), [1, 3]).ravel()
    array([2., 5., 5.])
    """
    try:
        given = None
        if epilogue is not None or operands:
            after = surrounded(epilogue, None, None, None, None, operands, lambda: True).epilogue
            given = as_given(checked_options(after).epilogue)
        return _frontend(type(a), type(b)).grouped_matmul(a, b, offsets, out, given)
    except TiercelError as error:
        raise _with_operands(error, "grouped_matmul", a=a, b=b) from None


def scaled_matmul(
    a: Any,
    b: Any,
    scale_a: Any,
    scale_b: Any,
    /,
    *,
    out: Any = None,
    out_dtype: Any = None,
    fast_accumulation: bool = False,
) -> Any:
    """Product of float8 tensors with scales, (scale_a · a) @ (scale_b · b); see torch._scaled_mm.

    ``a`` (M, K) and ``b`` (K, N) are tensors of float8_e4m3fn or float8_e5m2, the scales float32
    tensors of either kind:

    - one number or (M, 1) for a, and one number or (1, N) for b;
    - (M, ⌈K/128⌉) for a, of 1 x 128 blocks, and (⌈K/128⌉, ⌈N/128⌉) or (⌈K/128⌉, N) for b, of
      128 x 128 or 128 x 1 blocks.

    The result (M, N) is ``out``, or new, of ``out_dtype``: bfloat16 (the default), float16 or
    float32. On an H100 or H200 the scales are read on the device, by the own kernel where it was
    the faster one (blocks; one number with fast accumulation; all from 4096³), else by cuBLAS. Sums
    of 128 products are added up in float32; with ``fast_accumulation`` the tensor cores add
    everything, with about 14 bits (not where blocks have scales). For that, a and b are contiguous
    along K, in rows of a multiple of 16 bytes. Everything else is converted to float32 and
    multiplied there.

    Raises ``TiercelValueError`` or ``TiercelTypeError`` for shapes and dtypes that do not fit, and
    where a derivative is asked for.

    For example, with one scale for each operand::

        a = torch.tensor([[1.0, 2.0]]).to(torch.float8_e4m3fn)
        tiercel.scaled_matmul(a, a.t(), torch.tensor(0.5), torch.tensor(10.0))  # [[25]], bfloat16
    """
    try:
        if any(type(x).__module__.partition(".")[0] == "torch" for x in (a, b)):
            from tiercel.frontends.torch import scaled

            fast = checked_switch("fast_accumulation", fast_accumulation)
            return scaled.scaled_matmul(a, b, scale_a, scale_b, out, out_dtype, fast)
        raise TiercelTypeError(
            "float8 with scales is for PyTorch tensors; allowed: tensors, or matmul for other types"
        )
    except TiercelError as error:
        raise _with_operands(error, "scaled_matmul", a=a, b=b) from None


def pack(
    b: Any,
    /,
    *,
    rows: int | None = None,
    accuracy: str | float | None = None,
    workspace: int | str | None = None,
    scheme: Any = None,
    threads: int | None = None,
) -> Any:
    """A static right operand b (K, N), packed and summed once, to be passed in place of ``b``.

    The result has ``shape``, ``dtype``, ``ndim`` and ``nbytes``: the memory it holds in addition
    to b, which it refers to and does not copy. b must not be changed while the packed form is in
    use. ``rows`` is the typical number of rows of a, for which the scheme is planned (default
    2048; not used for tensors); any number of rows may be multiplied. The options are those of
    `matmul`. dtypes: the accelerated ones. For `linear`, pack the transposed weight: ``pack(w.T)``.
    A packed tensor notices when b was changed in place, and refuses to be used then.

    Raises ``TiercelTypeError`` or ``TiercelValueError`` for what cannot be packed.

    >>> packed = pack(np.eye(3), rows=2)
    >>> packed.shape, matmul(np.ones((2, 3)), packed).tolist()
    ((3, 3), [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]])
    """
    try:
        options = checked_options(None, accuracy, workspace, scheme, threads)
        return _frontend(type(b)).pack(b, rows, options)
    except TiercelError as error:
        raise _with_operands(error, "pack", b=b) from None


def patch(
    model: Any,
    *,
    filter: Callable[[str, Any], bool] | None = None,
    accuracy: str | float = "standard",
    pack_weights: bool = False,
    workspace: int | str | None = None,
    batch_invariant: bool = False,
    dry_run: bool = False,
) -> Any:
    """Let the linear layers of a PyTorch model run here; nothing else about it changes.

    The ``forward`` of every module that computes as ``torch.nn.Linear`` does (the model itself,
    too), or as the ``Conv1D`` of Transformers, is replaced by `linear` with the given options.
    Modules, parameters, ``state_dict``, hooks, copies and wrappers stay what they are; a pickled
    model is an ordinary one. Returns a report: a table of the layers when printed, with the shapes
    seen until then, their plans and predicted gains; and a context manager that undoes the patch.
    It is falsy, so that ``model = patch(model) or model`` works. `unpatch` undoes it at any time.

    Parameters
    ----------
    filter
        ``filter(name, module)`` says whether a layer may be patched.
    accuracy, workspace, batch_invariant
        As for `matmul`.
    pack_weights
        Keep a packed copy of each weight that does not require grad: 1 to 6 times its memory,
        listed in the report, until `unpatch`. It is renewed when the weight is replaced or changed
        in place, as torch counts changes. Writes through ``weight.data`` are not counted; those
        that change all of a weight are noticed, after others call `patch` again.
    dry_run
        Only report.

    Raises ``TiercelRuntimeError`` without PyTorch, ``TiercelTypeError`` for what is not a module.
    """
    options = checked_options(None, accuracy, workspace, None, None, batch_invariant)
    if not (filter is None or callable(filter)):
        raise TiercelTypeError(f"filter={filter!r} is no function; allowed: filter(name, module)")
    pack, dry = checked_switch("pack_weights", pack_weights), checked_switch("dry_run", dry_run)
    return _installed_torch_frontend().patch(model, filter, options, pack, dry)


def unpatch(model: Any) -> None:
    """Give the layers of a model that `patch` changed their own ``forward`` back."""
    _installed_torch_frontend().unpatch(model)


def _installed_torch_frontend() -> Any:
    try:
        return _torch_frontend()
    except ModuleNotFoundError as missing:
        if missing.name != "torch":
            raise
        raise TiercelRuntimeError(
            "PyTorch is not installed, and models are its modules; install tiercel[torch]"
        ) from None


def numpy_matmul(
    *,
    accuracy: str | float | None = None,
    workspace: int | str | None = None,
    scheme: Any = None,
    threads: int | None = None,
) -> AbstractContextManager:
    """Context in which products of wrapped NumPy arrays run here; NumPy itself is not patched.

    The block's variable wraps an array into a view. Inside the block ``@``, ``np.matmul``,
    ``np.dot``, ``np.inner``, and what NumPy builds on them (``np.linalg.multi_dot``), run as
    `matmul` with the given options wherever one operand is wrapped; results are wrapped too.
    Outside the block, and in threads that did not enter it, wrapped arrays behave as plain ones.

    >>> with numpy_matmul() as wrap:
    ...     y = wrap(np.eye(2)) @ np.array([[1.0, 2.0], [3.0, 4.0]])
    >>> np.asarray(y).tolist()
    [[1.0, 2.0], [3.0, 4.0]]
    """
    checked_options(None, accuracy, workspace, scheme, threads)
    named = {"accuracy": accuracy, "workspace": workspace, "scheme": scheme, "threads": threads}
    asked = {name: value for name, value in named.items() if value is not None}
    return _numpy_frontend().numpy_matmul(partial(matmul, **asked))


def _frontend(*types: type, options: Options = DEFAULT) -> Any:
    """The frontend of the first type that has one of its own; NumPy's for all others."""
    # Not cached, and imported by statements: torch.compile traces this, and can do so.
    for kind in types:
        if kind is _ndarray:
            continue
        if kind.__module__ == "torch":  # torch.Tensor: found 0.5 us sooner than by its bases
            return _torch_frontend()
        for base in kind.__mro__:
            root = base.__module__.partition(".")[0]
            if root != "numpy" and root in _FRONTENDS:
                if options.verify and root != "torch":
                    raise TiercelTypeError(
                        f"verify=True probes products of NumPy arrays and PyTorch tensors; allowed "
                        f"for {root}: leave it out"
                    )
                return _FRONTENDS[root]()
    # Classes of NumPy's own arrays are served by NumPy's protocols, whatever else they offer.
    if any(_is_device_array(kind) for kind in types if not issubclass(kind, _ndarray)):
        from tiercel.frontends import device_arrays

        return device_arrays
    if options.target is not None:
        kinds = " and ".join(kind.__name__ for kind in types)
        raise TiercelTypeError(
            f"target={options.target!r} multiplies arrays on a GPU, not {kinds}; pass CUDA tensors "
            "or arrays with DLPack, or leave target out"
        )
    if options.batch_invariant:
        raise TiercelTypeError(
            "batch_invariant=True is made for tensors; allowed: PyTorch tensors, or leave it out"
        )
    return _numpy_frontend()


def _is_device_array(kind: type) -> bool:
    return hasattr(kind, "__dlpack_device__") or hasattr(kind, "__cuda_array_interface__")


def _with_operands(error: TiercelError, function: str, **operands: Any) -> TiercelError:
    """The same error, its message led by what the function was called with."""
    described = " and ".join(f"{name} {_described(x)}" for name, x in operands.items())
    return type(error)(f"{function} of {described}: {error}")


def _described(x: Any) -> str:
    if hasattr(x, "shape") and hasattr(x, "dtype"):
        return f"{x.dtype} {tuple(x.shape)}"
    return f"({type(x).__name__})"
