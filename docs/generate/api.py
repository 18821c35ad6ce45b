"""The pages of the API reference: every public module of the package, in groups, from its docstrings."""

import importlib
import inspect
import pkgutil
from types import ModuleType

import pyro_prme

#: file name: (title, what it is for, modules in the order of reading; a package stands for all its modules)
GROUPS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "estimator": (
        "Fit a corpus",
        "From a matrix of counts to topics, with scikit-learn's conventions.",
        ("estimator", "fitted", "build"),
    ),
    "corpora": (
        "Corpora",
        "Counts of words in documents: load, make, cut to size, hold out, save.",
        ("corpus", "readers", "splits", "text", "convert", "counts", "formats"),
    ),
    "answers": (
        "Answers and scores",
        "What a fitted model says: topics, correlations, embeddings, scores, and exports to ArviZ and pyLDAvis.",
        ("posterior", "words_of_topics", "evaluate", "export", "draws"),
    ),
    "plots": ("Pictures", "Every picture returns its axes; the figure belongs to the caller.", ("plots",)),
    "models": (
        "Models",
        "The generative model as a Pyro program, and what it is made of.",
        ("model", "sticks", "distributions", "networks", "encoders", "batch"),
    ),
    "inference": (
        "Inference",
        "The guide asks a rule for each site, the plan says which, the bound adds their terms, the trainer moves them.",
        ("guide", "plan", "elbo", "train", "starts", "optim", "lazy_adam", "prototype"),
    ),
    "closed_forms": (
        "Closed forms",
        "The paper's updates and the terms of its bound, each once as a pure function, and the compiled inner loops.",
        ("updates", "bounds", "kernels"),
    ),
    "rules": (
        "Rules",
        "How one site is updated. Write one of your own, and have it checked.",
        ("rules", "expectations", "testing"),
    ),
    "swaps": (
        "Swaps",
        "Other likelihoods and priors; [their plans](../swaps.md) are on a page of their own.",
        ("swaps",),
    ),
    "measures": (
        "Random measures",
        "Samplers with known laws, for teaching and simulation; [the table of constructions](../measures.md).",
        ("measures",),
    ),
    "runs": (
        "Runs and the command",
        "Folders that hold a fit, and what the `prme` command does with them.",
        ("runs", "run_files", "fitting", "cli", "show", "demo", "files", "locks", "stopping", "checks"),
    ),
}


def modules_of(name: str) -> list[ModuleType]:
    """The module itself, and for a package its public modules after it."""
    module = importlib.import_module(f"pyro_prme.{name}")
    inner = [info.name for info in pkgutil.iter_modules(getattr(module, "__path__", []))]
    return [module, *(importlib.import_module(f"{module.__name__}.{part}") for part in inner if part[0] != "_")]


def ungrouped() -> list[str]:
    """Public modules that no group names; they are shown with the last group, so that none is lost."""
    named = {name for _, _, names in GROUPS.values() for name in names}
    found = (info.name for info in pkgutil.iter_modules(pyro_prme.__path__))
    return sorted(name for name in found if name not in named and not name.startswith("_"))


def first_sentence(thing: object) -> str:
    """The first paragraph of a docstring, in one line."""
    return " ".join((inspect.getdoc(thing) or "").split("\n\n")[0].split())


def _section(module: ModuleType) -> str:
    """A heading and the module's docstrings; of a package, only its own: its names are shown where they are defined."""
    option = "\n   :no-members:" if hasattr(module, "__path__") else ""
    return f"## {module.__name__}\n\n```{{eval-rst}}\n.. automodule:: {module.__name__}{option}\n```\n"


def pages() -> dict[str, str]:
    """Markdown by file name, for the folder api/."""
    out = {}
    for file, (title, purpose, names) in GROUPS.items():
        if file == list(GROUPS)[-1]:
            names = (*names, *ungrouped())
        sections = [_section(module) for name in names for module in modules_of(name)]
        out[f"{file}.md"] = "\n".join([f"# {title}\n\n{purpose}\n", *sections])
    out["index.md"] = _index()
    return out


def _index() -> str:
    rows = []
    for name in sorted(pyro_prme.__all__, key=str.lower):
        thing = getattr(pyro_prme, name)
        rows.append(f"   * - :py:obj:`{name} <{thing.__module__}.{name}>`\n     - {first_sentence(thing)}")
    table = "\n".join(rows)
    groups = "\n".join(f"- [{title}]({file}.md): {purpose}" for file, (title, purpose, _) in GROUPS.items())
    toctree = "\n".join(GROUPS)
    return (
        "# API reference\n\n"
        f"```{{toctree}}\n:hidden:\n\n{toctree}\n```\n\n{groups}\n\n"
        "## What `import pyro_prme as prme` brings\n\n"
        "Pictures, random measures, swaps and rules are imported by their packages, as in "
        "`from pyro_prme import plots`.\n\n"
        f"```{{eval-rst}}\n.. list-table::\n   :widths: 26 74\n   :class: names\n\n{table}\n```\n"
    )
