"""How many answers can a model remember, and from how many on must it learn the rule?

A batch of `answers` questions, each with `options` possible answers, holds answers · log₂ options bits. A model of P
parameters that remembers b bits per parameter can hold all of k batches up to k = b·P / (answers · log₂ options): the border.
"""

import math

BITS_PER_PARAMETER = 2.0
"""What language models have been reported to store per parameter (Allen-Zhu and Li, 2024, knowledge capacity)."""


def answer_information(right: float, options: int) -> float:
    """Bits that answers of which a share `right` is right carry about the truth: the symmetric channel's capacity.

    log₂ n − H₂(a) − (1 − a) log₂(n − 1), 0 for guesses (a = 1/n) and log₂ n where all are right. By Fano's inequality no
    answers with such a share carry less.

    >>> answer_information(0.25, 4), answer_information(1.0, 4), round(answer_information(0.9, 16), 3)
    (0.0, 2.0, 3.14)
    """
    wrong = 1 - right
    entropy = -sum(share * math.log2(share) for share in (right, wrong) if share > 0)
    return math.log2(options) - entropy - wrong * math.log2(options - 1)


def remembered_bits(recalled: float, answered: float, options: int, questions: int) -> float:
    """Bits about the answers to the `questions` of the training set beyond what the rule gives on new ones.

    The difference of two lower bounds, and so neither a lower nor an upper one. It tends to be too high: the rule says more
    than which answers are right, such as how near the wrong ones are, and that need not be remembered.

    >>> remembered_bits(1.0, 0.25, options=4, questions=100)
    200.0
    """
    return questions * (answer_information(recalled, options) - answer_information(answered, options))


def memory_border(
    parameters: int, answers: int, options: int, bits_per_parameter: float = BITS_PER_PARAMETER
) -> float:
    """Distinct batches of so many answers that fill the memory.

    >>> memory_border(parameters=1000, answers=100, options=4)
    10.0
    """
    return bits_per_parameter * parameters / (answers * math.log2(options))
