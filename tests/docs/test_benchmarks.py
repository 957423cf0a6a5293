"""Benchmarks, most of which need a GPU or hours, use names of the package that are there."""

import ast
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

PROGRAMS = sorted((Path(__file__).parents[2] / "benchmarks").glob("*.py"))


def names(program):
    """What a program takes from a module of the package: (module, name), whether imported or read from the module."""
    nodes = list(ast.walk(ast.parse(program.read_text("utf-8"))))
    imported = [
        (node.module, alias.name, alias.asname or alias.name)
        for node in nodes
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "rankscope"
        for alias in node.names
    ]
    modules = {known: f"{of}.{name}" for of, name, known in imported if is_module(f"{of}.{name}")}
    read = [
        (modules[node.value.id], node.attr)
        for node in nodes
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules
    ]
    return [(of, name) for of, name, known in imported if known not in modules] + read


def is_module(path):
    try:
        return find_spec(path) is not None
    except ModuleNotFoundError:  # a name of a module that is no package
        return False


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.name)
def test_every_name_that_a_benchmark_uses_is_there(program):
    for module, name in names(program):
        assert hasattr(import_module(module), name), f"{module} has no {name}"
