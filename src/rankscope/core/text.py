"""Values as people read them."""

import re

import pandas as pd

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    r"""A text whose control characters are spelled out: a name in a file does not steer a terminal.

    >>> print(printable("a\x1b[2J\x9bb"))
    a\u001b[2J\u009bb
    """
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def cell_text(value: object) -> str:
    """A cell as people read it: four digits of a float, nothing where there is no value.

    >>> cell_text(0.123456), cell_text(7), cell_text(float("nan")), cell_text("decoder")
    ('0.1235', '7', '', 'decoder')
    """
    if isinstance(value, float):
        return "" if pd.isna(value) else f"{value:.4g}"
    return (
        "" if value is None or value is pd.NA else printable(" ".join(str(value).splitlines()) or str(value))
    )
