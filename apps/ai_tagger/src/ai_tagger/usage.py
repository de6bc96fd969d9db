"""What calls cost: the tokens of a call are divided among the accounts of its posts."""

from collections.abc import Sequence
from decimal import Decimal

from ai_tagger.settings import Endpoint

_MILLION = Decimal(1_000_000)


def divide(total: int, weights: Sequence[int]) -> list[int]:
    """Divide a whole number in proportion to the weights, without remainder: the sum is the total."""
    whole = sum(weights)
    parts = [total * weight // whole for weight in weights]
    # The largest remainders get what is left, one each.
    by_remainder = sorted(range(len(weights)), key=lambda n: (-(total * weights[n] % whole), n))
    for n in by_remainder[: total - sum(parts)]:
        parts[n] += 1
    return parts


def cost(endpoint: Endpoint | None, input_tokens: int | None, output_tokens: int | None) -> Decimal | None:
    """Return the price of tokens; None if their number is unknown."""
    if endpoint is None:
        return Decimal(0)
    if input_tokens is None or output_tokens is None:
        return None
    return (input_tokens * endpoint.input_price + output_tokens * endpoint.output_price) / _MILLION
