"""Frozen, strict configurations: a field that is not known is an error, never ignored."""

import hashlib
import json
from typing import Any, Literal, Self, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError

from rankscope.core.errors import InputError, suggest


class Config(BaseModel):
    """Base of all configurations: immutable, hashable, no unknown fields, no silent conversions."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, validate_default=True)

    def __init__(self, **fields: Any) -> None:
        try:
            super().__init__(**fields)
        except ValidationError as error:
            raise InputError(_one_line(type(self), error)) from None

    def replace(self, **changes: Any) -> Self:
        """A copy with some fields changed, validated anew."""
        return type(self)(**{**{name: getattr(self, name) for name in type(self).model_fields}, **changes})

    def chosen(self) -> dict[str, Any]:
        """The fields that are not at their defaults, as plain data; a variant's one-valued tag always.

        >>> class Noise(Config):
        ...     kind: Literal["bounded"] = "bounded"
        ...     level: float = 0.1
        ...     seed: int = 0
        >>> Noise(level=0.2).chosen()
        {'kind': 'bounded', 'level': 0.2}
        """
        plain, chosen = self.model_dump(mode="json"), {}
        for name, field in type(self).model_fields.items():
            value = getattr(self, name)
            if (
                value != field.get_default(call_default_factory=True)
                or get_origin(field.annotation) is Literal
            ):
                chosen[name] = value.chosen() if isinstance(value, Config) else plain[name]
        return chosen

    def digest(self) -> str:
        """A hash of the contents, equal for equal configurations across processes and machines."""
        canonical = json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()[:16]


def _one_line(cls: type[Config], error: ValidationError) -> str:
    first = error.errors()[0]
    field = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        return f"{cls.__name__} has no field {field!r}. {suggest(field, cls.model_fields)}"
    if first["type"] == "missing":
        return f"{cls.__name__} needs {field!r}: pass it by name."
    reason = first["msg"].removeprefix("Value error, ")
    where = f"{cls.__name__}.{field}: " if field else f"{cls.__name__}: "
    given = f" (got {first['input']!r})" if field else ""
    return where + reason + given
