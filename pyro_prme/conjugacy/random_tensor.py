"""Random tensors: what a Pyro model computes with when it is asked for its expected log density and not for a draw.

A `Random` is a torch.Tensor without storage: a sum of terms (`terms`), built by running ordinary torch code. A discrete
variable is a constant, the tensor of its values along one more index, with a pending `Selection` of one of them, so
that every torch function of it is exact. What is not followed becomes opaque: a tensor of the right shape that only
remembers which variables to blame, and why.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from pyro_prme.conjugacy.indices import (
    Entry,
    Index,
    Indices,
    indices_of,
    laid_along,
    position,
    same_entries,
    substitute,
)
from pyro_prme.conjugacy.operation_names import ELEMENTWISE, READS, SHAPE_QUESTIONS
from pyro_prme.conjugacy.refusal import Refused
from pyro_prme.conjugacy.terms import (
    POWER,
    Constant,
    Factor,
    Selection,
    Term,
    constant,
    in_dtype,
    renamed,
    term_indices,
    term_variables,
)
from pyro_prme.conjugacy.variables import Variable

__all__ = [
    "Random",
    "align",
    "as_table",
    "broadcast_shape",
    "fresh",
    "inner_indices",
    "is_lifted",
    "lift",
    "lifted_values",
    "of_variable",
    "rename",
    "variables_in",
]

Dims = tuple[Index | None, ...]

_MOST_VALUES = 20_000_000  # numbers in a table of the values of several discrete variables


class Random(Tensor):
    """A tensor of which only the expectation is ever asked for.

    Attributes:
        dims: the index of each dimension, None where the size is one.
        terms: the sum that it is; None where it is opaque or known by its logarithm only.
        selections: pending choices of discrete variables.
        logarithm: the same tensor's logarithm, where that has been found too.
        blame: of an opaque tensor, why, for each variable.
    """

    dims: Dims
    terms: tuple[Term, ...] | None
    selections: tuple[Selection, ...]
    logarithm: Random | None
    blame: dict[Variable, str]

    @staticmethod
    def make(
        shape: Iterable[int],
        dims: Iterable[Index | None],
        terms: Iterable[Term] | None,
        selections: Iterable[Selection] = (),
        *,
        logarithm: Random | None = None,
        blame: Mapping[Variable, str] | None = None,
        dtype: torch.dtype | None = None,
    ) -> Random:
        """A random tensor from its parts."""
        out: Any = torch.Tensor._make_wrapper_subclass(
            Random, torch.Size(shape), dtype=dtype or torch.get_default_dtype()
        )
        out.dims, out.selections, out.logarithm = tuple(dims), tuple(selections), logarithm
        out.terms = None if terms is None else tuple(term for term in terms if term.coefficient)
        out.blame = dict(blame or {})
        return out

    @staticmethod
    def opaque(shape: Iterable[int], blame: Mapping[Variable, str], dtype: torch.dtype | None = None) -> Random:
        """A tensor that knows nothing but whom to blame."""
        return Random.make(shape, (), None, blame=blame, dtype=dtype)

    @property
    def is_opaque(self) -> bool:
        """Whether nothing is known of it."""
        return self.terms is None and self.logarithm is None

    @property
    def variables(self) -> frozenset[Variable]:
        """All latent variables that it depends on."""
        found = {v for term in self.terms or () for v in term_variables(term)}
        found |= {s.variable for s in self.selections} | set(self.blame)
        return frozenset(found) | (self.logarithm.variables if self.logarithm is not None else frozenset())

    def __repr__(self) -> str:  # type: ignore[override]
        return f"Random{tuple(self.shape)}"

    def __format__(self, form: str) -> str:
        return repr(self)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        """The safety net: nothing computes with a value that does not exist."""
        raise Refused(variables_in(args, kwargs), f"it reaches {func} below the level where it is followed")

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", str(func))
        if name == "__get__":
            name = func.__self__.__name__
            if name not in ("T", "mT", "H", "mH"):
                with torch._C.DisableTorchFunctionSubclass():
                    return func(*args, **kwargs)
        if name in READS:
            raise Refused(variables_in(args, kwargs), f"the model reads its value ({name})")
        name = name[2:-2] if name.startswith("__") else name
        if name in SHAPE_QUESTIONS:
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **kwargs)
        in_place = name.endswith("_") and name not in ("requires_grad_",)
        if name == "setitem" or in_place or (isinstance(kwargs.get("out"), Tensor)):
            raise Refused(variables_in(args, kwargs), f"it is written into a tensor in place ({name})")
        return _follow(func, name, args, kwargs)


def _follow(func: Any, name: str, args: Any, kwargs: Any) -> Any:
    """The result of an operation: by its entry in the table, on all values of discrete variables, or opaque."""
    from pyro_prme.conjugacy.operations import OPERATIONS, SHAPE_OPERATIONS

    randoms = [a for a in flattened(args, kwargs) if isinstance(a, Random)]
    opaque = [r for r in randoms if r.is_opaque]
    operation = OPERATIONS.get(name)
    reason = f"it goes through {name}"
    if operation is not None and (not opaque or name in SHAPE_OPERATIONS):
        try:
            return operation(*args, **kwargs)
        except Refused as refused:
            if refused.why:
                return opaque_result(func, args, kwargs, refused.why)
            reason = refused.reason
        except (TypeError, ValueError, LookupError, ArithmeticError, RuntimeError, AttributeError) as error:
            reason = f"it goes through {name} in a form that is not followed ({str(error)[:60]})"
    if name in ELEMENTWISE and all(is_lifted(r) for r in randoms):
        try:
            return on_all_values(func, args, kwargs)
        except Refused as refused:
            reason = refused.reason
    blame = {variable: why for r in opaque for variable, why in r.blame.items()}
    return opaque_result(func, args, kwargs, blame or dict.fromkeys(variables_in(args, kwargs), reason))


def flattened(args: Any, kwargs: Mapping[str, Any] | None = None) -> Iterator[Any]:
    """The arguments of a call, lists and tuples opened."""
    for value in itertools.chain(args, (kwargs or {}).values()):
        if isinstance(value, tuple | list):
            yield from flattened(value)
        else:
            yield value


def variables_in(args: Any, kwargs: Mapping[str, Any] | None = None) -> frozenset[Variable]:
    """All latent variables on which the arguments of a call depend."""
    found: set[Variable] = set()
    for value in flattened(args, kwargs):
        if isinstance(value, Random):
            found |= value.variables
    return frozenset(found)


def opaque_result(func: Any, args: Any, kwargs: Mapping[str, Any], blame: Mapping[Variable, str]) -> Any:
    """Opaque tensors of the shapes that the call would return."""

    def on_meta(value: Any) -> Any:
        if isinstance(value, Tensor):
            return torch.empty(value.shape, dtype=value.dtype, device="meta")
        return type(value)(map(on_meta, value)) if isinstance(value, tuple | list) else value

    try:
        out = func(*on_meta(list(args)), **{key: on_meta(value) for key, value in kwargs.items()})
    except Exception as error:
        raise Refused(blame) from error
    if isinstance(out, tuple | list) and all(isinstance(part, Tensor) for part in out):
        return type(out)([Random.opaque(part.shape, blame, part.dtype) for part in out])
    if not isinstance(out, Tensor):
        raise Refused(blame)
    return Random.opaque(out.shape, blame, out.dtype)


def of_variable(variable: Variable) -> Random:
    """The variable itself as a random tensor."""
    if variable.values is not None:
        return _discrete(variable)
    dims = _new_dims(variable.shape)
    factor = Factor(variable, POWER, 1.0, _entries(dims))
    return Random.make(variable.shape, dims, (Term(1.0, (), (factor,)),), dtype=variable.dtype)


def _discrete(variable: Variable) -> Random:
    """All values along one more index, with the choice among them pending."""
    values: Tensor = variable.values  # type: ignore[assignment]
    event_values = values.dim() - 1  # dimensions of one value: 1 for one-hot vectors
    outside = variable.shape[: len(variable.shape) - event_values]
    dims, value = _new_dims(outside), Index(len(values))
    inner = tuple(Index(n) for n in values.shape[1:])
    term = Term(1.0, (Constant(values, (value, *inner)),))
    selection = Selection(variable, _entries(dims), value)
    return Random.make(variable.shape, (*dims, *inner), (term,), (selection,), dtype=values.dtype)


def _new_dims(shape: Sequence[int]) -> Dims:
    return tuple(Index(n) if n != 1 else None for n in shape)


def _entries(dims: Dims) -> tuple[Entry, ...]:
    return tuple(position(0) if index is None else index for index in dims)


def lift(x: Any) -> Random:
    """A plain tensor or number as a `Random`; dimensions along which it does not vary are not carried."""
    if isinstance(x, Random):
        return x
    x = torch.as_tensor(x)
    dims, kept, tensor = _new_dims(x.shape), list[Index](), x
    for d in range(x.dim() - 1, -1, -1):
        index = dims[d]
        if index is None or x.stride(d) == 0:
            tensor = tensor.select(d, 0) if x.shape[d] else tensor.sum(d)
        else:
            kept.insert(0, index)
    return Random.make(x.shape, dims, (constant(tensor, tuple(kept)),), dtype=x.dtype)


def all_indices(r: Random) -> set[Index]:
    """All indices of a tensor, its terms and its selections."""
    found = {i for i in r.dims if i is not None}
    for term in r.terms or ():
        found |= term_indices(term)
    for s in r.selections:
        found |= {s.value, *indices_of(s.entries)}
    return found | (all_indices(r.logarithm) if r.logarithm is not None else set())


def fresh(r: Random) -> Random:
    """The same tensor under new indices."""
    return rename(r, {i: Index(i.size) for i in all_indices(r)})


def rename(
    r: Random, names: Mapping[Index, Entry], dims: Dims | None = None, shape: Sequence[int] | None = None
) -> Random:
    """Replaces indices by indices or gathers; selections that become the same are one."""
    if not names and dims is None and shape is None:
        return r
    selections: list[Selection] = []
    joined: dict[Index, Entry] = {}
    for s in r.selections:
        value: Any = names.get(s.value, s.value)
        moved = Selection(s.variable, tuple(substitute(e, names) for e in s.entries), value)
        twin = twin_of(moved, selections)
        if twin is None:
            selections.append(moved)
        else:
            joined[s.value] = twin.value
    names = {**names, **joined} if joined else names
    new: Any = tuple(None if i is None else names.get(i, i) for i in r.dims) if dims is None else dims
    return Random.make(
        r.shape if shape is None else shape,
        new,
        None if r.terms is None else tuple(renamed(term, names) for term in r.terms),
        selections,
        logarithm=None if r.logarithm is None else rename(r.logarithm, names, new, shape),
        blame=r.blame,
        dtype=r.dtype,
    )


def twin_of(selection: Selection, others: Iterable[Selection]) -> Selection | None:
    """The selection of the same variable at the same entries."""
    same = (o for o in others if o.variable is selection.variable and same_entries(o.entries, selection.entries))
    return next(same, None)


def broadcast_shape(*shapes: Sequence[int]) -> torch.Size:
    """The shape that tensors of these shapes have together."""
    if all(shape == shapes[0] for shape in shapes):
        return torch.Size(shapes[0])
    out = [1] * max(map(len, shapes))
    for shape in shapes:
        for d, n in enumerate(shape, len(out) - len(shape)):
            if n != 1 and out[d] not in (1, n):
                raise ValueError(f"shapes {', '.join(str(tuple(x)) for x in shapes)} do not go together")
            out[d] = n if n != 1 else out[d]
    return torch.Size(out)


def align(*xs: Any) -> tuple[list[Random], Dims, torch.Size]:
    """Broadcasts: one index for each dimension and one for each selection; apart from these, no index is shared."""
    rs = [lift(x) for x in xs]
    shape = broadcast_shape(*(r.shape for r in rs))
    dtype = rs[0].dtype
    for r in rs[1:]:
        dtype = torch.promote_types(dtype, r.dtype)
    dims: list[Index | None] = [None] * len(shape)
    selections: list[Selection] = []
    used: set[Index] = set()
    out: list[Random] = []
    for r in rs:
        own = all_indices(r)
        names: dict[Index, Entry] = {}
        offset = len(shape) - len(r.dims)
        for d, index in enumerate(r.dims, offset):
            shared = dims[d]
            if index is not None and shared is not None:
                if shared is not index:
                    names[index] = shared
            elif index is not None:
                if index in used:
                    names[index] = Index(index.size)
                dims[d] = names.get(index, index)  # type: ignore[assignment]
        placed = {i for i in r.dims if i is not None}
        names |= {i: Index(i.size) for i in own - placed if i in used}
        for s in r.selections:
            moved = s._replace(entries=tuple(substitute(e, names) for e in s.entries))
            twin = twin_of(moved, selections)
            if twin is None:
                value: Any = names.get(s.value, s.value)
                selections.append(moved._replace(value=value))
            elif twin.value is not s.value:
                names[s.value] = twin.value
            else:
                names.pop(s.value, None)
        r = rename(r, names)
        used |= own | {i for i in all_indices(r)} if names else own
        out.append(r)
    aligned = [
        Random.make(shape, dims, terms_in(r, dtype), selections, logarithm=r.logarithm, blame=r.blame, dtype=dtype)
        for r in out
    ]
    return aligned, tuple(dims), shape


def terms_in(r: Random, dtype: torch.dtype) -> tuple[Term, ...] | None:
    """The terms of a tensor that is to have another type."""
    return r.terms if r.terms is None or r.dtype == dtype else tuple(in_dtype(t, dtype) for t in r.terms)


def inner_indices(r: Random, term: Term) -> set[Index]:
    """Indices of a term that are summed within the tensor."""
    return term_indices(term) - {i for i in r.dims if i is not None} - {s.value for s in r.selections}


def is_lifted(r: Random) -> bool:
    """Whether it is, so far, a constant or a function of discrete variables alone."""
    if r.terms is None:
        return False
    return not any(t.factors or t.bounds or inner_indices(r, t) for t in r.terms)


def lifted_values(r: Random, indices: Sequence[Index]) -> Tensor:
    """The values of a constant or a lifted tensor, of its own type, laid out along indices."""
    carried = {i for t in r.terms or () for i in term_indices(t)}
    if math.prod(i.size for i in indices if i in carried) > _MOST_VALUES:
        raise Refused((), "it depends on too many values of discrete sites at once")
    out: Tensor | None = None
    for term in r.terms or ():
        value: Tensor | None = None
        for c in term.constants:
            laid = laid_along(c.tensor, c.indices, indices)
            value = laid if value is None else value * laid
        if value is None:
            value = torch.full([1] * len(indices), term.coefficient)
        elif term.coefficient != 1:
            value = value * term.coefficient
        out = value if out is None else out + value
    return torch.zeros([1] * len(indices), dtype=r.dtype) if out is None else out.to(r.dtype)


def as_table(r: Random) -> Random:
    """A sum of constants and functions of discrete variables as one table of its values; others as they are."""
    if r.terms is None or len(r.terms) < 2 or not is_lifted(r):
        return r
    indices = tuple(dict.fromkeys(i for t in r.terms for c in t.constants for i in c.indices))
    term = Term(1.0, (Constant(lifted_values(r, indices), indices),))
    return Random.make(r.shape, r.dims, (term,), r.selections, dtype=r.dtype)


def on_all_values(func: Callable, args: Any, kwargs: Mapping[str, Any]) -> Random:
    """Applies an elementwise function to all values of the discrete variables that its arguments depend on."""
    args = list(args)
    where = [i for i, a in enumerate(args) if isinstance(a, Tensor)]
    if any(isinstance(v, Tensor) for v in kwargs.values()) or any(isinstance(a, tuple | list) for a in args):
        raise Refused((), f"it goes through {getattr(func, '__name__', func)} in a form that is not followed")
    rs, dims, shape = align(*(args[i] for i in where))
    chosen = tuple(dict.fromkeys(s.value for r in rs for s in r.selections))
    indices: Indices = (*chosen, *(i for i in dims if i is not None))
    for i, r in zip(where, rs, strict=True):
        args[i] = lifted_values(r, indices)
    out = func(*args, **kwargs)
    if not isinstance(out, Tensor) or out.dim() != len(indices):
        raise Refused((), f"it goes through {getattr(func, '__name__', func)}")
    kept = [d for d in range(len(indices)) if out.shape[d] != 1 or indices[d].size == 1]
    values = Constant(out.reshape([out.shape[d] for d in kept]), tuple(indices[d] for d in kept))
    return Random.make(shape, dims, (Term(1.0, (values,)),), rs[0].selections, dtype=out.dtype)
