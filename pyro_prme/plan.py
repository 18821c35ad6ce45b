"""The plan: which site is updated how, and why. Decided once, printable, overridable."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from torch import nn

from pyro_prme.prototype import Prototype
from pyro_prme.rules import REGISTRY, EncodedNormal, MeanFieldNormal, Rule

__all__ = ["Plan", "make_plan"]


@dataclass(frozen=True)
class Plan:
    """The chosen rule of each site, the reasons for refusals, and the sites that need not be drawn.

    Args:
        sites: the model's, in its order.
        rules: by site; observed sites have one only where a closed form holds.
        refusals: by site, why the closed forms offered for it do not hold.
        undrawn: sites whose value nobody reads when the bound is computed.
    """

    sites: tuple[str, ...]
    rules: dict[str, Rule]
    refusals: dict[str, list[str]] = field(default_factory=dict)
    undrawn: frozenset[str] = frozenset()

    def __str__(self) -> str:
        rows = []
        for name in self.sites:
            rule = self.rules.get(name)
            what = "log likelihood of the observed value" if rule is None else rule.summary
            notes = list(self.refusals.get(name, []))
            if name in self.undrawn:
                notes.append("not drawn")
            rows.append((name, what, " ".join(notes)))
        width = [max(len(row[i]) for row in rows) for i in range(2)]
        return "\n".join(f"{a:<{width[0]}}  {b:<{width[1]}}  {c}".rstrip() for a, b, c in rows)


def make_plan(
    prototype: Prototype,
    asked: Mapping[str, Rule | None],
    offered: Mapping[str, Rule] = MappingProxyType({}),
    head: Callable[[int], nn.Module] | None = None,
) -> Plan:
    """Accepts or refuses rules for every site of a model.

    Args:
        prototype: prior draws of the model.
        asked: rules asked for by site name, instead of the registered ones; None asks for the generic posterior.
        offered: rules to try before the registered ones.
        head: makes an encoder for per-document sites without a closed form.

    Returns:
        The plan. Nothing is set up yet.

    Raises:
        ValueError: a rule asked for by name does not hold, or a discrete site has none.
    """
    for name in asked:
        if name not in prototype:
            raise ValueError(
                f"A rule was given for {name!r}, and the model has no such site: it has {', '.join(prototype.names)}."
            )
    chosen: dict[str, Rule] = {}
    refusals: dict[str, list[str]] = {}
    candidates: dict[str, Iterator[Rule | None]] = {
        name: iter([asked[name]] if name in asked else [offered.get(name), *(make() for make in REGISTRY[name])])
        for name in prototype.names
    }

    def choose(name: str) -> None:
        """Takes the first of the remaining candidates that holds."""
        observed = prototype.site(name)["is_observed"]
        for rule in filter(None, candidates[name]):
            if rule.observed != observed and name not in asked:
                continue
            reason = _wrong_kind(rule, observed) or rule.refusal(name, prototype)
            if reason is None:
                chosen[name] = rule
                return
            refusals.setdefault(name, []).append(reason)

    for name in prototype.names:
        choose(name)
    _drop_unsupported(chosen, refusals, choose)
    for name in prototype.names:
        if asked.get(name) is not None and name not in chosen:
            raise ValueError(f"The rule asked for at site {name} does not hold: {' '.join(refusals[name])}")
        if name not in chosen and not prototype.site(name)["is_observed"]:
            chosen[name] = _generic(name, prototype, refusals, head)
    chosen = {name: chosen[name] for name in prototype.names if name in chosen}
    return Plan(prototype.names, chosen, refusals, _undrawn(chosen, prototype))


def _wrong_kind(rule: Rule, observed: bool) -> str | None:
    if rule.observed == observed:
        return None
    return "it is a rule for latent sites and this one is observed." if observed else "it is for observed sites only."


def _drop_unsupported(chosen: dict[str, Rule], refusals: dict[str, list[str]], choose: Callable[[str], None]) -> None:
    """Takes back rules that lean on a site without a closed form, and tries the next ones, until none is left."""
    while True:
        lost = [(name, need) for name, rule in chosen.items() for need in rule.needs if need not in chosen]
        if not lost:
            return
        name, need = lost[0]
        del chosen[name]
        why = " ".join(refusals.get(need, ["no rule holds for it."]))
        refusals.setdefault(name, []).append(f"its closed form leans on that of {need}: {why}")
        choose(name)


def _generic(
    name: str, prototype: Prototype, refusals: dict[str, list[str]], head: Callable[[int], nn.Module] | None
) -> Rule:
    local = any(
        frame.name == "documents" or frame.size != frame.full_size for frame in prototype.site(name)["cond_indep_stack"]
    )
    rule = EncodedNormal(head) if local and head is not None else MeanFieldNormal()
    reason = rule.refusal(name, prototype)
    if reason is not None:
        why = " ".join(refusals.get(name, ["no rule is registered for it."]))
        raise ValueError(
            f"Site {name} has no closed form ({why}) and no generic one ({reason}) "
            "Restore the form that its rule assumes, register a rule for it, or sum it out."
        )
    return rule


def _undrawn(chosen: Mapping[str, Rule], prototype: Prototype) -> frozenset[str]:
    """Sites with a placeholder of which every child only uses moments."""
    return frozenset(
        name
        for name, rule in chosen.items()
        if type(rule).placeholder is not Rule.placeholder
        and all(child in chosen and name in chosen[child].moments for child in prototype.children(name))
    )
