"""A model before and after it was made smaller, as a table and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

    from rankscope.scope.prune import Pruned


def change_table(smaller: Pruned) -> pd.DataFrame:
    """Size, and speed and loss where they were measured, before and after."""
    import pandas as pd

    rows: list[dict[str, Any]] = [
        _change("parameters", *smaller.parameters),
        _change("bytes", *smaller.bytes),
    ]
    if smaller.seconds is not None:
        rows.append(_change("seconds per batch", *smaller.seconds))
    if smaller.loss is not None:
        rows.append(_change("loss", *smaller.loss))
    if smaller.distance is not None:
        rows.append({"what": "distance of embeddings", "before": 0.0, "after": smaller.distance})
    return pd.DataFrame(rows, dtype=object)


def change_content(smaller: Pruned) -> dict[str, Any]:
    """The same for machines; what was not measured is left out."""
    measured = {
        name: getattr(smaller, name) for name in ("parameters", "bytes", "seconds", "loss", "distance")
    }
    return {
        "path": str(smaller.path),
        **{name: value for name, value in measured.items() if value is not None},
    }


def _change(what: str, before: float, after: float) -> dict[str, Any]:
    return {"what": what, "before": before, "after": after, "ratio": after / before}
