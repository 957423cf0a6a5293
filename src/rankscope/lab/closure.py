"""What a module's results can depend on: the modules of the package that it imports, read and never run.

Imports inside functions count, those for type checkers do not. A package's `__init__` is taken by name: what
`from rankscope.lab import Cell` needs is the module that defines `Cell`, and not all that the lab exports beside it.
A package on the way to a module counts with the statements that importing it runs, without what it only imports,
defines or names. Code is compared as a tree: docstrings, comments and layout are no code.
"""

import ast
import hashlib
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, TypeGuard

from rankscope.core import RankscopeError

IMPORTS = (ast.Import, ast.ImportFrom)

SCOPES = (
    ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp,
    ast.GeneratorExp,
)  # fmt: skip
"""What has names of its own."""

NOT_CODE = {"ctx", "kind", "type_comment"}
"""Fields of a tree that its other fields decide, or that have no effect."""


class Sources:
    """The modules of a package, read from its folder on first use and then kept."""

    def __init__(self, package: Path) -> None:
        self.package = package
        self.path = cache(self._path)
        self.read = cache(self._read)
        self.names = cache(self._names)
        self.imported = cache(self._imported)
        self.needed = cache(self._needed)

    def closure(self, roots: Iterable[str]) -> dict[str, str]:
        """The modules that results of the roots depend on, with their code.

        A root outside the package counts itself, with what it imports of the package, unless it was installed.
        """
        waiting, found = sorted(roots), dict[str, str]()
        while waiting:
            name = waiting.pop()
            if name not in found and self.path(name) is not None:
                found[name] = self.read(name)[0]
                waiting += self.imported(name)
        on_the_way = {package for name in found if self._owns(name) for package in _packages(name)}
        found |= {name: _code(self._run(name)) for name in on_the_way - set(found)}
        return {name: found[name] for name in sorted(found)}

    def digest(self, roots: Iterable[str]) -> str:
        """A hash of the closure's code."""
        digest = hashlib.sha256()
        for name, code in self.closure(roots).items():
            digest.update(f"{name}\0{code}\0".encode())
        return digest.hexdigest()[:16]

    def _path(self, name: str) -> Path | None:
        """Where a module is; None where that is not known, and for other people's libraries."""
        first, *rest = name.split(".")
        if first != self.package.name:
            file = getattr(sys.modules.get(name), "__file__", None)
            return Path(file) if file and not file.startswith((sys.prefix, sys.base_prefix)) else None
        place = self.package.joinpath(*rest)
        candidates = (place / "__init__.py", place.parent / f"{place.name}.py")
        return next((path for path in candidates if path.is_file()), None)

    def _tree(self, name: str) -> ast.Module:
        path = self.path(name)
        assert path is not None, name
        return ast.parse(path.read_bytes())

    def _read(self, name: str) -> tuple[str, list[ast.AST]]:
        """A module's code as text, and what it imports. The tree is let go: to keep all of them costs more than to parse."""
        tree = self._tree(name)
        return _code(tree), [node for node in _walk([tree], stop=(ast.expr,)) if isinstance(node, IMPORTS)]

    def _is_package(self, name: str) -> bool:
        path = self.path(name)
        return path is not None and path.name == "__init__.py"

    def _imported(self, name: str) -> frozenset[str]:
        """The modules of the package that a module imports, and those that packages on the way to it need."""
        packages = _packages(name) if self._owns(name) else []
        needed = (one for package in packages for one in self.needed(package))
        return frozenset([*self._imports(name, self.read(name)[1]), *needed])

    def _imports(self, name: str, within: Iterable[ast.AST]) -> Iterator[str]:
        """The modules of the package that pieces of a module import."""
        for node in _walk(within, stop=(ast.expr,)):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names if self._owns(alias.name))
            elif isinstance(node, ast.ImportFrom):
                base = self._base(name, node)
                yield from (
                    self._defining(base, alias.name, name) for alias in node.names if self._owns(base)
                )

    def _owns(self, name: str) -> bool:
        return name.partition(".")[0] == self.package.name

    def _base(self, name: str, node: ast.ImportFrom) -> str:
        """The module that is imported from; dots count from the package of the one that imports."""
        if not node.level:
            return node.module or ""
        here = name.split(".")[: None if self._is_package(name) else -1]
        return ".".join([*here[: len(here) - node.level + 1], *filter(None, [node.module])])

    def _defining(self, base: str, wanted: str, importer: str) -> str:
        """The module behind `from base import wanted`: where a package only passes a name on, the one it has it from."""
        if not self._is_package(base) or wanted == "*":
            return base
        known = self.names(base)
        origin = known.get(wanted, (base, wanted))
        if origin is None:
            return base
        if origin != (base, wanted):
            return self._defining(*origin, base)
        if self.path(f"{base}.{wanted}") is None:
            raise RankscopeError(
                f"{importer} imports {wanted!r} from {base}, which does not say where it has it from. Import it "
                "from the module that defines it: changes there would be overlooked."
            )
        return f"{base}.{wanted}"

    def _names(self, package: str) -> dict[str, tuple[str, str] | None]:
        """The names that a package's `__init__` has: from which module of the package it imports them, None for its own."""
        names: dict[str, tuple[str, str] | None] = {}
        for node in _walk([self._tree(package)], stop=SCOPES):
            if isinstance(node, ast.ImportFrom) and self._owns(base := self._base(package, node)):
                names |= {alias.asname or alias.name: (base, alias.name) for alias in node.names}
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                names[node.name] = None
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names[node.id] = None
        return names

    def _run(self, package: str) -> list[ast.stmt]:
        """The statements of a package's `__init__` that do something when it is imported."""
        return [node for node in self._tree(package).body if not _only_names(node)]

    def _needed(self, package: str) -> frozenset[str]:
        """The modules that those statements depend on."""
        statements = self._run(package)
        used = {
            node.id
            for node in _walk(statements)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
        }
        named = (self._defining(package, name, package) for name in used & set(self.names(package)))
        return frozenset([*self._imports(package, statements), *named])


def _walk(within: Iterable[ast.AST], stop: tuple[type[ast.AST], ...] = ()) -> Iterator[ast.AST]:
    """Every node that is not inside one to stop at, but for what is there for type checkers only."""
    waiting = list(within)
    while waiting:
        node = waiting.pop()
        yield node
        if _for_checkers(node):
            waiting += node.orelse
        elif not isinstance(node, stop):
            waiting += ast.iter_child_nodes(node)


def _only_names(node: ast.stmt) -> bool:
    """Whether a statement only gives things names: an import, a definition, an assignment that is to no field or item."""
    if isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return all(isinstance(target, ast.Name) for target in targets)
    return isinstance(
        node, ast.Import | ast.ImportFrom | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    )


def _for_checkers(node: object) -> TypeGuard[ast.If]:
    """Whether it is `if TYPE_CHECKING`."""
    test = node.test if isinstance(node, ast.If) else None
    return "TYPE_CHECKING" in (getattr(test, "id", ""), getattr(test, "attr", ""))


def _code(node: Any) -> str:
    """A piece of a tree as text, the same in every version of Python: without places, docstrings and empty fields."""
    if isinstance(node, list):
        return f"[{','.join(filter(None, map(_code, node)))}]"
    if not isinstance(node, ast.AST):
        return repr(node)
    if (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    ):
        return ""
    if _for_checkers(node):
        return _code(node.orelse)
    fields = ((name, getattr(node, name, None)) for name in node._fields if name not in NOT_CODE)
    inner = (f"{name}={_code(value)}" for name, value in fields if value is not None and value != [])
    return f"{type(node).__name__}({','.join(inner)})"


def _packages(name: str) -> list[str]:
    """The packages on the way to a module.

    >>> _packages("rankscope.lab.store")
    ['rankscope', 'rankscope.lab']
    """
    parts = name.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts))]
