"""Messages of one style: those about files and corpora are sentences with a full stop."""

import ast
from pathlib import Path

import pytest

import pyro_prme.corpora

_PHRASES = ("it is ", "it does not ")  # these go into the brackets of another message


def _last(message):
    """The end of a message in the source, where it is written out."""
    if isinstance(message, ast.Constant):
        return message.value
    if isinstance(message, ast.JoinedStr):
        end = message.values[-1]
        return end.value if isinstance(end, ast.Constant) else None
    return None


def _first(message):
    begin = message.values[0] if isinstance(message, ast.JoinedStr) else message
    return begin.value if isinstance(begin, ast.Constant) else ""


@pytest.mark.parametrize(
    "file", sorted(Path(pyro_prme.corpora.__file__).parent.glob("*.py")), ids=lambda file: file.name
)
def test_messages_end_with_a_full_stop_or_a_question(file):
    if file.name == "h5ad_reader.py":  # what it says goes into the brackets of another message
        return
    for call in ast.walk(ast.parse(file.read_text())):
        if not (isinstance(call, ast.Call) and getattr(call.func, "id", "") == "ValueError" and call.args):
            continue
        last = _last(call.args[0])
        if last is not None and not _first(call.args[0]).startswith(_PHRASES):
            assert last.rstrip().endswith((".", "?")), f"line {call.lineno}: {last!r}"
            assert not last.endswith(".."), f"line {call.lineno}: {last!r}"
