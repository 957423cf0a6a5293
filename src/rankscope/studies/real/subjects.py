"""The two things put to the test, in words."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Subject:
    """What claims and figures call a model and its data; `name` is that of the experiment."""

    name: str
    tuned: str
    title: str
    held_out: str
    before: str

    @property
    def experiment(self) -> str:
        """The experiment's full name."""
        return f"li2024/{self.name}"


SENTENCES = Subject(
    name="real",
    tuned="MiniLM fine-tuned",
    title="A real model on real sentences",
    held_out="sentences",
    before="the published encoder",
)

DIGITS = Subject(
    name="digits",
    tuned="A small ViT fine-tuned on digits",
    title="A small ViT on real digits",
    held_out="images",
    before="the pretrained encoder",
)

SUBJECTS = (SENTENCES, DIGITS)
