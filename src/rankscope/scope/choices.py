"""What the instruments can be asked for. Imports nothing heavy, so that the command line's help does not either."""

from enum import StrEnum

ACCEPTED = (
    "Accepted: plain text (the model's folder must hold its tokenizer), .json with lists of token ids, or "
    ".safetensors with the model's inputs by name, such as input_ids (rows × tokens) and labels"
)
"""Files of data."""

RULES = "energy@SHARE (such as energy@0.95), signal, gavish-donoho, rank=N, budget=PARAMETERS, full"
QUERIES = 1000
"""Queries that ask for their neighbours."""


class BaseRounding(StrEnum):
    """How much of an update's noise is the rounding of the base model."""

    AUTO = "auto"
    """as much as the update shows"""
    COUNTED = "counted"
    """all of it: both models were rounded when they were saved"""
    EXACT = "exact"
    """none: training started from the stored base itself"""


class Profile(StrEnum):
    """Which adapters to write."""

    EXACT = "exact"
    """every change that PEFT can hold: ranks of their own, biases, experts, whole norms and embeddings"""
    PORTABLE = "portable"
    """what other servers load too: one rank, linear layers only"""
