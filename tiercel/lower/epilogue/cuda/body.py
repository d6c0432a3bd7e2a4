"""CUDA C++ for the body of an epilogue: which values get variables, in which order, in which loops.

A call has two lanes of the accumulator, so a value has 1, 2 or 4: statements of the same number of
lanes share a loop. A value that is used once is written where it is used.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from tiercel.lower.epilogue.cuda.expression import Index, Named, expression
from tiercel.lower.epilogue.cuda.names import identifier
from tiercel.lower.epilogue.graph import Node, Reduction, node_of
from tiercel.lower.epilogue.instance import Instance, Partial

_LEAVES = ("acc", "operand", "constant", "repeat", "index")

_TYPES = {"float": "float", "bool": "bool", "int": "long long"}

#: What changes no result of a reduction.
NEUTRAL = {"sum": "0.0f", "max": "-infinity()", "logsumexp": "-infinity()"}


def lanes(width: int | None) -> int:
    """Elements of a value of this width that a call computes.

    >>> [lanes(width) for width in (-1, 0, 1)]
    [1, 2, 4]
    """
    return 2 ** (1 + (width or 0))


@dataclass(eq=False)
class _Statement:
    """``target = of`` for every lane; lanes 0: once, for a value that no column changes.

    ``target``: "variable", "output" (a tile's name) or "partial". Values that a row reduces are
    kept for the kernel, which folds many at a time; those of a column are folded here.
    """

    lanes: int
    of: Node
    target: str
    name: str = ""
    partial: Partial | None = None
    needs: frozenset[Node] = frozenset()
    group: int = -1


def picked_column(x: Partial, instance: Instance) -> str:
    """The operand whose value is the one column that counts in a sum over a row; "" for others.

    The sum of ``where(column_index(value) == target, value, 0)``: a comparison of each element is
    spared where the column is not near.
    """
    of = node_of(instance.epilogue.outputs[x.name])
    if (x.kind, x.over, of.op) != ("sum", "row", "where"):
        return ""
    condition, _, otherwise = of.args
    if condition.op != "equal" or otherwise.op != "constant" or otherwise.value != 0:
        return ""
    index, column = condition.args
    if (index.op, column.op) != ("index", "operand") or instance.width[index.args[0]] != 0:
        return ""
    operand = instance.operand(column.value)
    return operand.name if operand.kind == "column" and operand.dtype.startswith("int") else ""


def body(instance: Instance) -> list[str]:
    """The lines that compute the outputs and fold the partial results of one call."""
    return _Body(instance).lines()


class _Body:
    """The statements of one instance, while they are named, ordered and printed."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.width = instance.width
        self.named = _named(instance)
        self.statements = self._statements()
        self.order = self._ordered()
        self.names = self._variables()

    def lines(self) -> list[str]:
        arrays = [
            f"{_TYPES[self.instance.type[x]]} {named.name}[{lanes(self.width[x])}];"
            for x, named in self.names.items()
            if named.indexed
        ]
        groups: dict[int, list[_Statement]] = {}
        for statement in self.order:
            groups.setdefault(statement.group, []).append(statement)
        return arrays + [line for group in groups.values() for line in self._printed(group)]

    def _statements(self) -> list[_Statement]:
        made: list[_Statement] = []
        for x in self.instance.nodes:
            if x in self.named:
                made.append(self._statement(x, "variable"))
        for name, out in self.instance.epilogue.outputs.items():
            partials = [p for p in self.instance.partials if p.name == name]
            x = node_of(out)
            if not partials:
                made.append(self._statement(x, "output", name))
            else:
                x = x.args[1] if picked_column(partials[0], self.instance) else x
                made.append(self._statement(x, "partial", name, partials[0]))
        return made

    def _statement(
        self, x: Node, target: str, name: str = "", partial: Partial | None = None
    ) -> _Statement:
        wide = self.width[x]
        count = 0 if wide is None and target == "variable" else lanes(wide)
        if x.op == "interleave" and (target == "variable" or x not in self.named):
            count //= 2  # written two at a time
        needs = frozenset(self._read(x, inside=target == "variable"))
        return _Statement(count, x, target, name, partial, needs)

    def _read(self, x: Node, inside: bool = False) -> set[Node]:
        """The named values that the expression of x reads."""
        if x in self.named and not inside:
            return {x}
        return {name for arg in x.read for name in self._read(arg)}

    def _ordered(self) -> list[_Statement]:
        """Every statement after what it needs, with as few changes of the number of lanes."""
        left, done, order = list(self.statements), set[Node](), list[_Statement]()
        current, group = 0, 0
        while left:
            ready = [s for s in left if s.needs <= done]
            same = [s for s in ready if s.lanes == current]
            chosen = (same or ready)[0]
            if not same:
                group, current = group + 1, chosen.lanes
            chosen.group = group
            left.remove(chosen)
            order.append(chosen)
            if chosen.target == "variable":
                done.add(chosen.of)
        return order

    def _variables(self) -> dict[Node, Named]:
        """Names in order of definition; an array where a value is read outside its own loop."""
        names: dict[Node, Named] = {}
        for s in self.order:
            if s.target != "variable":
                continue
            readers = {other.group for other in self.order if s.of in other.needs}
            apart = s.lanes > 1 and readers != {s.group}
            names[s.of] = Named(f"t{len(names)}", apart or s.of.op == "interleave")
        return names

    def _printed(self, group: list[_Statement]) -> list[str]:
        count = group[0].lanes
        index = Index(1, 0) if count > 1 else Index(0, 0)
        inner = [line for s in group for line in self._assignments(s, index)]
        if count <= 1:
            return inner
        head = ["#pragma unroll", f"for (int i = 0; i < {count}; ++i) {{"]
        return [*head, *(f"  {line}" for line in inner), "}"]

    def _assignments(self, s: _Statement, index: Index) -> list[str]:
        x, text = s.of, partial(self._text, s)
        if x.op == "interleave" and (s.target == "variable" or x not in self.names):
            to = self.names[x].name if s.target == "variable" else f"outputs.{identifier(s.name)}"
            if s.target in ("output", "variable"):
                return [
                    f"{to}[{index.of(lane)}] = {text(index, of=x.args[lane])};" for lane in (0, 1)
                ]
        if s.target == "variable":
            named = self.names[x]
            if named.indexed:
                return [f"{named.name}[{index}] = {text(index)};"]
            return [f"const {_TYPES[self.instance.type[x]]} {named.name} = {text(index)};"]
        if s.target == "output":
            return [f"outputs.{identifier(s.name)}[{index}] = {text(index)};"]
        return [self._reduced(s, text(index), index)]

    def _reduced(self, s: _Statement, text: str, index: Index) -> str:
        assert s.partial is not None
        name = identifier(s.name)
        value = self._masked(text, index, NEUTRAL[s.partial.kind])
        if s.partial.over == "row":
            return f"row_values.{name}[{index}] = {value};"
        to = f"column_partials.{name}[{index}]"
        return f"{to} = maximum({to}, {value});" if s.partial.kind == "max" else f"{to} += {value};"

    def _masked(self, text: str, index: Index, neutral: str) -> str:
        """The value, or what changes no result for a column beyond the last."""
        return text if self.instance.even else f"{index} < valid ? {text} : {neutral}"

    def _text(self, s: _Statement, index: Index, of: Node | None = None) -> str:
        inside = of is None and s.target == "variable"
        return expression(s.of if of is None else of, index, self.instance, self.names, inside)[0]


def _named(instance: Instance) -> set[Node]:
    """Values that get a variable: used more than once, read by pairs, or the same for all lanes."""
    outputs = instance.epilogue.outputs.values()
    uses = dict.fromkeys(instance.nodes, 0)
    read_wide: set[Node] = set()
    reduced = {out.of for out in outputs if isinstance(out, Reduction)}
    for out in outputs:
        uses[node_of(out)] += 1
    for x in instance.nodes:
        for arg in x.read:
            uses[arg] += 1
            if instance.width[x] is not None:
                read_wide.add(arg)
    named: set[Node] = set()
    for x in instance.nodes:
        if x.op in _LEAVES:
            continue
        source = x.args[0]
        if x.op in ("even", "odd") and (source.op in _LEAVES or source in named):
            continue  # an element of an array: as short as a name
        same_everywhere = instance.width[x] is None and (x in read_wide or x in reduced)
        stored_only = uses[x] == 1 and x in {node_of(out) for out in outputs} - reduced
        if uses[x] > 1 or same_everywhere or (x.op == "interleave" and not stored_only):
            named.add(x)
    return named
