"""Notebooks as pages of the site: every cell's text or code, and below it what it showed when the page was built."""

import ast
import html
import importlib.util
import io
import re
import textwrap
from pathlib import Path
from typing import Any


def notebook_page(path: Path) -> str:
    """A marimo notebook as Markdown. It is run, and an error in it is an error of the build."""
    source = path.read_text("utf-8")
    outputs = run(path)[0]
    cells = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]
    assert len(cells) == len(outputs), path
    parts = []
    for cell, output in zip(cells, outputs, strict=True):
        text = _markdown(cell)
        if text is not None:
            parts.append(text)
            continue
        parts.append(f"```python\n{_code(cell, source)}\n```")
        if output is not None:
            parts.append(f'<div class="output" style="overflow-x: auto">{shown(output)}</div>')
    return "\n\n".join(
        [*parts, f"This page is the notebook `docs/notebooks/{path.name}`, run when the site was built."]
    )


def run(path: Path) -> tuple[Any, dict[str, Any]]:
    """What the cells of a notebook show, in their order, and the names that they define."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    outputs, names = module.app.run()
    return outputs, dict(names)


def shown(output: Any) -> str:
    """A value as a notebook shows it."""
    if hasattr(output, "savefig"):
        text = io.StringIO()
        output.savefig(text, format="svg", metadata={"Date": None})
        return "".join(text.getvalue().partition("<svg")[1:])
    rich = getattr(output, "_repr_html_", None)
    text = (
        rich() if rich else f"<pre>{html.escape(output if isinstance(output, str) else repr(output))}</pre>"
    )
    text = text.replace('<table border="1" class="dataframe">', "<table>")  # as the site's own tables look
    return re.sub(r"\n\s*\n", "\n", text)  # an empty line would end the block


def _markdown(cell: ast.FunctionDef) -> str | None:
    """The text of a cell that is nothing but text."""
    first = cell.body[0]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Call):
        called, given = first.value.func, first.value.args
        if isinstance(called, ast.Attribute) and called.attr == "md" and isinstance(given[0], ast.Constant):
            return textwrap.dedent(str(given[0].value)).strip()
    return None


def _code(cell: ast.FunctionDef, source: str) -> str:
    """A cell's code, without what hands its names on."""
    body = [node for node in cell.body if not isinstance(node, ast.Return)]
    lines = source.splitlines()[body[0].lineno - 1 : body[-1].end_lineno]
    return textwrap.dedent("\n".join(lines)).replace("  # fmt: skip", "")
