"""Puts statements into a program as a reader would who is told to: in place of what has the same name, else at the end."""

import ast
from itertools import pairwise


def splice(program: str, change: str) -> str:
    """Return ``program`` with each statement of ``change`` in the place of the one that makes the same name.

    A new import goes below the imports, anything else that is new before ``if __name__``, in the order of ``change``.
    """
    pieces = _pieces(program)
    for name, text in _pieces(change):
        places = [place for place, (other, _) in enumerate(pieces) if other == name]
        if places:
            pieces[places[0]] = (name, text)
        elif name.startswith("import "):
            imports = [place for place, (other, _) in enumerate(pieces) if other.startswith("import ")]
            pieces.insert(imports[-1] + 1 if imports else 0, (name, text))
        else:
            mains = [place for place, (other, _) in enumerate(pieces) if other == "__main__"]
            pieces.insert(mains[0] if mains else len(pieces), (name, text))
    return "".join(text + _between(name, following) for (name, text), (following, _) in pairwise([*pieces, ("", "")]))


def _between(name: str, following: str) -> str:
    if not following:
        return "\n"
    return "\n" if name.startswith("import ") and following.startswith("import ") else "\n\n\n"


def _pieces(source: str) -> list[tuple[str, str]]:
    """Return the name and the text of each statement at the top of ``source``."""
    lines = source.splitlines()
    found: list[tuple[str, str]] = []
    for node in ast.parse(source).body:
        first = min([node.lineno, *(decorator.lineno for decorator in getattr(node, "decorator_list", []))])
        assert node.end_lineno is not None
        found.append((_name(node), "\n".join(lines[first - 1 : node.end_lineno])))
    return found


def _name(node: ast.stmt) -> str:
    match node:
        case ast.Import():
            return "import " + ", ".join(alias.name for alias in node.names)
        case ast.ImportFrom():
            return f"import from {node.module}"
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return node.name
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
            return name
        case ast.If() if "__name__" in ast.unparse(node.test):
            return "__main__"
        case _:
            return ast.unparse(node)
