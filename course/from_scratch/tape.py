"""Reverse-mode autograd for single numbers: a tape like torch's, small enough to read.

    >>> w, x, b = Value(3.0), Value(2.0), Value(1.0)
    >>> h = w * x + b
    >>> loss = h * h
    >>> loss.data
    49.0
    >>> loss.backward()
    >>> w.grad, x.grad, b.grad
    (28.0, 42.0, 14.0)

Source: ledger N14, N15, N17, S12.
"""

from __future__ import annotations


class Value:
    """A number that remembers what it was made from, and its slope with respect to each of these.

    Attributes:
        data: The number.
        grad: The sum of the gradients from all calls of `backward()` so far; 0.0 at first. Only
        leaves, made by `Value(data)`, keep one, as in torch.
    """

    def __init__(self, data: float, made_from: tuple[tuple[Value, float], ...] = ()) -> None:
        self.data, self.grad = float(data), 0.0
        self.made_from = made_from

    def __add__(self, other: Value) -> Value:
        return Value(self.data + other.data, ((self, 1.0), (other, 1.0)))

    def __mul__(self, other: Value) -> Value:
        return Value(self.data * other.data, ((self, other.data), (other, self.data)))

    def relu(self) -> Value:
        """max(0, self), with slope 0 at 0."""
        return Value(max(self.data, 0.0), ((self, float(self.data > 0)),))

    def backward(self) -> None:
        """Add the slope of this value with respect to each leaf to the leaf's `grad`.

        The slopes of this pass are kept separate from `grad`: what an earlier pass left there must
        not be passed on a second time.
        """
        slopes = {id(self): 1.0}
        for value in reversed(self._in_order()):  # complete before it is passed on
            slope = slopes[id(value)]
            if not value.made_from:
                value.grad += slope
            for source, local in value.made_from:
                slopes[id(source)] = slopes.get(id(source), 0.0) + slope * local

    def _in_order(self) -> list[Value]:
        """All values that this one was made from, each after its own sources; itself last."""
        order: list[Value] = []
        seen: set[int] = set()
        waiting = [(self, False)]
        while waiting:
            value, ready = waiting.pop()
            if ready:
                order.append(value)
            elif id(value) not in seen:
                seen.add(id(value))
                waiting.append((value, True))
                waiting += [(source, False) for source, _ in value.made_from]
        return order
