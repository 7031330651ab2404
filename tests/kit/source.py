"""The package as text: its modules, what they define, import and reach for. For tests of the code's order."""

import ast
import io
import tokenize
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PACKAGES = ("penstock", "pyspark_penstock")

#: Private by name, but of others and without a public way: of named tuples, of the interpreter and its
#: locks and event loops, of Spark's sessions, DataFrames and files.
NOT_PRIVATE = {
    "_asdict", "_replace", "_make", "_fields", "_exit", "_getframe", "_is_owned", "_get_running_loop",
    "_jvm", "_jsc", "_jsparkSession", "_sc", "_jdf", "_is_running_on_worker", "_root_directory",
}  # fmt: skip

#: Bases without methods that a subclass would override.
PLAIN_BASES = {"Generic", "NamedTuple", "Protocol", "TypedDict"}


class Module(NamedTuple):
    """A file of the package."""

    name: str
    path: Path
    text: str
    tree: ast.Module

    @property
    def nodes(self) -> list[ast.AST]:
        """Everything in its tree, in the order of `ast.walk`."""
        return _nodes(self.tree)

    @property
    def is_package(self) -> bool:
        return self.path.name == "__init__.py"

    @property
    def lines(self) -> int:
        return self.text.count("\n")

    @property
    def stem(self) -> str:
        return self.name.rpartition(".")[2]

    @property
    def part(self) -> str:
        """The folder or file directly under `penstock/` that it belongs to."""
        return [*self.name.split("."), ""][1]


class Import(NamedTuple):
    """An import of a module of ours, wherever it stands: at the head, in a function, for type checkers."""

    line: int
    module: str
    #: The dotted name as it was imported.
    what: str


@cache
def _nodes(tree: ast.Module) -> list[ast.AST]:
    return list(ast.walk(tree))


@cache
def modules() -> Mapping[str, Module]:
    """Every module of the package by its dotted name."""
    found = {}
    for path in sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        text = path.read_text(encoding="utf-8")
        found[name] = Module(name, path, text, ast.parse(text))
    return found


def imported_names(tree: ast.Module, *, module: str, is_package: bool = False) -> Iterator[tuple[int, str]]:
    """Yield (line, absolute dotted name) of everything that is imported, also inside functions."""
    package = module.split(".") if is_package else module.split(".")[:-1]
    for node in _nodes(tree):
        match node:
            case ast.Import(names=names):
                yield from ((node.lineno, alias.name) for alias in names)
            case ast.ImportFrom(module=name, names=names, level=level):
                start = package[: len(package) - level + 1] if level else []
                base = ".".join([*start, *([name] if name else [])])
                yield from ((node.lineno, f"{base}.{alias.name}") for alias in names)
            case ast.Call(
                func=ast.Name(id="__import__" | "import_module") | ast.Attribute(attr="import_module"),
                args=[ast.Constant(value=str(name)), *_],
            ):
                yield node.lineno, name


def imports_of(module: Module, known: Mapping[str, Module]) -> Iterator[Import]:
    """What a module imports of the package: the file that holds each name."""
    for line, what in imported_names(module.tree, module=module.name, is_package=module.is_package):
        parts = what.split(".")
        for count in range(len(parts), 0, -1):
            if (target := ".".join(parts[:count])) in known:
                if target != module.name:
                    yield Import(line, target, what)
                break


def graph(known: Mapping[str, Module]) -> dict[str, set[str]]:
    """For each module those that it imports."""
    return {name: {each.module for each in imports_of(module, known)} for name, module in known.items()}


def cycles(edges: Mapping[str, set[str]]) -> list[list[str]]:
    """Groups of modules that import each other, directly or by way of others."""
    reach = {name: _reachable(name, edges) for name in edges}
    groups = {
        tuple(sorted(other for other in reach[name] if name in reach.get(other, set())))
        for name in edges
        if name in reach[name]
    }
    return [list(group) for group in sorted(groups)]


def _reachable(name: str, edges: Mapping[str, set[str]]) -> set[str]:
    seen: set[str] = set()
    todo = list(edges[name])
    while todo:
        found = todo.pop()
        if found not in seen:
            seen.add(found)
            todo += edges.get(found, ())
    return seen


def classes(module: Module) -> Iterator[ast.ClassDef]:
    """Public classes at the top of a module."""
    for node in module.tree.body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield node


def private_reaches(module: Module) -> Iterator[tuple[int, str]]:
    """Yield (line, name) of each private name that a module uses and does not define, or of a base class."""
    own, imported = _private_definitions(module.tree), _imported_names(module)
    for node in module.nodes:
        match node:
            case ast.Attribute(value=ast.Name(id=owner), attr=name) if (
                _is_private(name) and owner in imported
            ):
                yield node.lineno, name  # whatever the module itself calls by that name
            case ast.Attribute(attr=name) if _is_private(name) and name not in own:
                yield node.lineno, name
            case ast.ImportFrom(module=source, names=names) if (source or "").split(".")[0] in PACKAGES:
                yield from ((node.lineno, each.name) for each in names if _is_private(each.name))


def _imported_names(module: Module) -> set[str]:
    """Names that a module has from elsewhere in the package, as it calls them."""
    return {
        each.asname or each.name
        for node in module.nodes
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in PACKAGES
        for each in node.names
    }


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__") and name not in NOT_PRIVATE


def _private_definitions(tree: ast.Module) -> set[str]:
    """Private names that a module defines: functions, classes, fields and attributes of its own classes."""
    own = set()
    for node in _nodes(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                own.add(name)
            case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name, ctx=ast.Store()):
                own.add(name)
            case ast.Name(id=name, ctx=ast.Store()):
                own.add(name)
            case ast.Constant(value=str(name)):  # __slots__
                own.add(name)
    return own


def words_of(module: Module) -> Iterator[tuple[int, str]]:
    """Yield (line, text) of every comment and docstring."""
    for token in tokenize.generate_tokens(io.StringIO(module.text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in module.nodes:
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            yield getattr(node, "lineno", 1), ast.get_docstring(node) or ""


def names_in(module: Module) -> Iterator[str]:
    """Every name that a module defines, uses or imports, and the words of its own name."""
    yield from module.name.split(".")
    for node in module.nodes:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case (
                ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name) | ast.keyword(arg=str(name))
            ):
                yield name
            case ast.alias(name=name):
                yield from name.split(".")


def undocumented(module: Module) -> Iterator[str]:
    """Public things without a docstring: the module, its classes, functions and methods."""
    yield from (name for name, text in docstrings(module) if not text)


def docstrings(module: Module) -> Iterator[tuple[str, str]]:
    """Yield (name, docstring or "") of the module and of every public class, function and method in it."""
    yield module.name, ast.get_docstring(module.tree) or ""
    for node in module.tree.body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            if node.name.startswith("_"):
                continue
            yield f"{module.name}.{node.name}", ast.get_docstring(node) or ""
            if isinstance(node, ast.ClassDef):
                yield from _methods(module.name, node)


def _methods(module: str, owner: ast.ClassDef) -> Iterator[tuple[str, str]]:
    """Public methods of a class; one that has no docstring may have that of its base class."""
    inherits = any(ast.unparse(base).partition("[")[0] not in PLAIN_BASES for base in owner.bases)
    for node in owner.body:
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) or node.name.startswith("_"):
            continue
        if inherits and not ast.get_docstring(node):
            continue
        if not any(_is_overload(each) or _is_mirrored(each) for each in node.decorator_list):
            yield f"{module}.{owner.name}.{node.name}", ast.get_docstring(node) or ""


def _is_overload(decorator: ast.expr) -> bool:
    """Whether a definition repeats another one: an overload, or a property's setter."""
    return ast.unparse(decorator).rpartition(".")[2] in {"overload", "setter"}


def _is_mirrored(decorator: ast.expr) -> bool:
    """Whether a definition has the documentation of its blocking twin."""
    return isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "mirrored"


def used_of(module: Module, kind: str, attribute: str) -> Iterator[str]:
    """Names that a module asks objects of a class for.

    Known as such are parameters and fields annotated with `kind`, what they are assigned to in `self`,
    and everything called `attribute`.
    """
    fields = {attribute, *_fields_of(module.tree, kind)}
    for function in module.nodes:
        if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        given = _parameters_of(function, kind)
        for node in ast.walk(function):
            match node:
                case ast.Attribute(value=ast.Name(id=name), attr=used) if name in given:
                    yield used
                case ast.Attribute(value=ast.Attribute(attr=field), attr=used) if field in fields:
                    yield used


def _parameters_of(function: ast.FunctionDef | ast.AsyncFunctionDef, kind: str) -> set[str]:
    every = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    return {each.arg for each in every if _names(each.annotation, kind)}


def _fields_of(tree: ast.Module, kind: str) -> set[str]:
    found = set()
    for function in _nodes(tree):
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            given = _parameters_of(function, kind)
            for node in ast.walk(function):
                match node:
                    case ast.Assign(
                        targets=[ast.Attribute(value=ast.Name(id="self"), attr=field)],
                        value=ast.Name(id=name),
                    ) if name in given:
                        found.add(field)
                    case ast.AnnAssign(target=ast.Attribute(attr=field), annotation=annotation):
                        if _names(annotation, kind):
                            found.add(field)
    return found


def _names(annotation: ast.expr | None, kind: str) -> bool:
    """Whether an annotation is the class, or the class or nothing; not a container of them."""
    match annotation:
        case ast.Name(id=name):
            return name == kind
        case ast.BinOp(left=left, right=right):
            return _names(left, kind) or _names(right, kind)
    return False
