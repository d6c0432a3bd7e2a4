"""Layers that autograd follows, repeated: which of their products take the short way."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import tiercel
from tiercel.frontends.torch.routing import differentiated


class Fake:
    """An engine of the CPU that notes the products run and repeated, by rows and columns."""

    STEADY = True
    LEAST_FOLLOWED, seconds = 0.0, 1.0
    LEAST_WORK = dict.fromkeys((torch.float32, torch.bfloat16, torch.complex64), 0)

    def __init__(self) -> None:
        self.accuracies: list[Any] = []
        self.ran, self.repeated, self.torchs, self.able, self.reason = [], [], [], True, ""

    def begin(self):
        pass

    def why_not(self, dtype):
        return self.reason

    def plan(self, request):
        if tuple(request.b.shape) in self.torchs:
            return None
        return SimpleNamespace(chosen=SimpleNamespace(seconds=self.seconds))

    def direct(self, plan, request, given, result):
        lie = [(x.shape, x.stride()) for x in (request.a, request.b)]

        def repeat(a, b, bias):
            if not self.able:
                return None
            self.repeated.append((request.a.shape[0], request.b.shape[1]))
            left, right = (x.as_strided(*lies) for x, lies in zip((a, b), lie, strict=True))
            out = left @ right
            return (out if bias is None else out + bias).view(result.shape)

        return repeat

    def run(self, plan, request, out):
        self.ran.append((request.a.shape[0], request.b.shape[1]))
        self.accuracies.append(request.options.accuracy)
        torch.matmul(request.a.detach(), request.b.detach(), out=out)
        if request.bias is not None:
            out += request.bias.detach()

    def why_not_packed(self, w):
        return "not here"


X, W, BIAS = torch.randn(2, 3, 5), torch.randn(7, 5), torch.randn(7)
PRODUCTS = [(6, 7), (6, 5), (7, 5)]  # y, gradients of x and w


def leaves(*arrays, frozen=()):
    return [x.clone().requires_grad_(i not in frozen) for i, x in enumerate(arrays)]


def step(linear, arrays, loss=lambda y: (y * y).sum()):
    """The gradients of a loss."""
    x, w, *bias = arrays
    y = linear(x, w, *bias)
    return torch.autograd.grad(loss(y), [x for x in arrays if x.requires_grad])


def compare(arrays, loss=lambda y: (y * y).sum()):
    torch.testing.assert_close(step(tiercel.linear, arrays, loss), step(F.linear, arrays, loss))


@pytest.mark.parametrize("bias", [False, True])
def test_from_the_third_step_on_all_products_take_the_short_way(fake, bias):
    arrays = leaves(X, W, *([BIAS] if bias else []))
    compare(arrays)
    assert sorted(fake.ran) == sorted(PRODUCTS)
    compare(arrays)
    fake.repeated.clear()
    compare(leaves(X + 1, W + 1, *([BIAS] if bias else [])))
    assert fake.repeated == PRODUCTS
    assert len(fake.ran) == 3


def test_only_gradients_that_are_wanted_are_computed(fake):
    for frozen, wanted in ((0, [(6, 7), (7, 5)]), (1, [(6, 7), (6, 5)])):
        for _ in range(3):
            fake.repeated.clear()
            compare(leaves(X, W, frozen=[frozen]))
        assert fake.repeated == wanted


def test_a_transposed_parameter_gets_a_gradient_that_lies_like_it(fake):
    for _ in range(3):
        fake.repeated.clear()
        x, w = X.clone().requires_grad_(), W.t().contiguous().requires_grad_()
        y = tiercel.linear(x, w.t())
        (grad,) = torch.autograd.grad((y * y).sum(), w)
        torch.testing.assert_close(grad, 2 * x.reshape(6, 5).t() @ y.reshape(6, 7))
        assert grad.is_contiguous()
    assert fake.repeated == [(6, 7), (6, 5), (5, 7)]


def test_other_gradients_are_looked_at(fake):
    def transposed(y):
        return (y.transpose(0, 2) * torch.ones(7, 3, 2)).sum()

    arrays = leaves(X, W)
    for _ in range(3):
        compare(arrays)
        compare(arrays, transposed)
        compare(arrays, lambda y: y.sum())


def test_a_product_of_the_same_squares_is_not_a_gradient(fake):
    x, w = leaves(torch.randn(4, 4), torch.randn(4, 4))
    for _ in range(3):
        torch.testing.assert_close(tiercel.matmul(x.detach(), w.detach()), (x @ w).detach())
        compare([x, w])


def test_a_short_product_is_torchs_where_autograd_follows_it(fake):
    fake.LEAST_FOLLOWED = 2 * fake.seconds
    for already in (0, 0, 1):
        compare(leaves(X, W))
        assert len(fake.repeated) == already
        torch.testing.assert_close(tiercel.linear(X, W), F.linear(X, W))
    assert fake.ran == PRODUCTS[:1]
    assert fake.repeated == PRODUCTS[:1] * 2


def test_what_is_torchs_stays_so(fake):
    fake.torchs = [(6, 5)]  # the right operand of w's gradient
    for _ in range(3):
        fake.repeated.clear()
        compare(leaves(X, W))
    assert fake.repeated == PRODUCTS[:2]


def test_where_the_short_way_ends_products_are_computed_all_the_same(fake):
    arrays = leaves(X, W)
    for _ in range(2):
        compare(arrays)
    fake.able = False
    compare(arrays)
    fake.able, fake.reason = True, "another switch"
    compare(arrays)


def test_second_derivatives_and_transforms_are_as_before(fake):
    arrays = leaves(X, W)
    for _ in range(3):
        compare(arrays)

    def twice(linear):
        x, w = arrays
        y = linear(x, w)
        (grad,) = torch.autograd.grad((y**3).sum(), x, create_graph=True)
        return torch.autograd.grad((grad * grad).sum(), [x, w])

    torch.testing.assert_close(twice(tiercel.linear), twice(F.linear))

    def gradient(linear):
        return torch.func.grad(lambda x: (linear(x, W) ** 2).sum())(X)

    torch.testing.assert_close(gradient(tiercel.linear), gradient(F.linear))


def test_a_graph_may_be_gone_through_twice(fake):
    arrays = leaves(X, W)
    for _ in range(2):
        compare(arrays)
    loss = (tiercel.linear(*arrays) ** 2).sum()
    first = torch.autograd.grad(loss, arrays, retain_graph=True)
    torch.testing.assert_close(torch.autograd.grad(loss, arrays), first)


def test_checkpoints_compute_it_again(fake):
    arrays = leaves(X, W)

    def checkpointed(x, w):
        return checkpoint(tiercel.linear, x, w, use_reentrant=False)

    for _ in range(3):
        fake.repeated.clear()
        torch.testing.assert_close(step(checkpointed, arrays), step(F.linear, arrays))
    assert fake.repeated == [PRODUCTS[0], *PRODUCTS]


def test_an_operand_that_was_changed_is_an_error_as_torchs(fake):
    arrays = leaves(X, W)
    for _ in range(2):
        compare(arrays)
    y = tiercel.linear(*arrays)
    with torch.no_grad():
        arrays[1].add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_nothing_is_kept_of_what_is_not_known(fake):
    x, w = leaves(X, W)
    assert differentiated.linear(None, x, w, None, tiercel.options.DEFAULT) is None


@pytest.mark.parametrize(
    ("dtype", "asked", "frozen", "accuracy"),
    [
        (torch.bfloat16, None, [], "classical"),
        (torch.bfloat16, "fast", [], "fast"),
        (torch.bfloat16, None, [1], "standard"),
        (torch.float32, None, [], "standard"),
    ],
)
def test_weights_of_16_bits_are_trained_without_schemes(fake, dtype, asked, frozen, accuracy):
    x, w = leaves(X.to(dtype), W.to(dtype), frozen=frozen)
    layer = torch.nn.Linear(5, 7, bias=False, dtype=dtype)
    layer.weight = torch.nn.Parameter(w.detach(), requires_grad=not frozen)
    for _ in range(3):
        tiercel.linear(x, w, accuracy=asked).sum().backward()
    with tiercel.patch(layer, accuracy=asked or "standard"):
        layer(x).sum().backward()
        assert set(fake.accuracies) == {accuracy}
        fake.accuracies.clear()
        with torch.no_grad():
            layer(x + 1)
    assert set(fake.accuracies) <= {asked or "standard"}


def test_complex_numbers_too(fake):
    x, w = torch.randn(6, 5, dtype=torch.complex64), torch.randn(7, 5, dtype=torch.complex64)
    for _ in range(3):
        compare(leaves(x, w), lambda y: y.abs().square().sum())


def test_a_layer_of_a_model_takes_it(fake):
    layer = torch.nn.Linear(5, 7)
    tiercel.patch(layer)
    for _ in range(3):
        fake.repeated.clear()
        layer(X.clone().requires_grad_()).square().sum().backward()
    assert fake.repeated == PRODUCTS
