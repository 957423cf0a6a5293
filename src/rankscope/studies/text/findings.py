"""What the tables answer: how much rank words need."""

from rankscope.lab.finding import Finding, Question, decimals
from rankscope.lab.paper import Results
from rankscope.studies.text.sources import WORDS


def findings(results: Results) -> list[Finding]:
    """One, where the projections were computed."""
    table = results.tables.get("amsel2024/text-projections")
    if table is None or not (table["law"] == WORDS).any():
        return []
    words, flat = table[table["law"] == WORDS], table[table["law"] == "power 0"]
    kept = {rank: words[words["rank"] == rank]["agreement"].mean() for rank in (32, 64)}
    sphere = flat[flat["rank"] == 64]["agreement"].mean()
    return [
        Finding(
            name="text",
            question=Question.HEADS,
            answer="Points that look like text are easier than the sphere, and still need most of their dimensions.",
            sentence=f"On MiniLM's word vectors a score of rank 32 keeps {decimals(kept[32])} and one of rank 64 keeps "
            f"{decimals(kept[64])} of the answers, farthest of 15; on isotropic points rank 64 keeps {decimals(sphere)}. "
            f"Words need rank {decimals(words['needed'].mean())} of {decimals(words['dim'].mean())} to keep 0.9, with an "
            f"effective dimension of {decimals(words['participation'].mean())}.",
            claims=("amsel2024.text-easier", "amsel2024.text-half"),
            figure="amsel2024-text-projections",
            link="docs/text-like-points.md",
            seeds=int(words["seed"].nunique()),
        )
    ]
