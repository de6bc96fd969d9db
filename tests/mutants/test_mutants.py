"""Mutants follow the code that they mutate; `make mutants` shows that each is caught."""

import pytest

from tests.mutants.mutants import ROOT, Mutant, load


@pytest.mark.parametrize("mutant", load(), ids=lambda mutant: mutant.name)
def test_a_mutant_applies_to_today_s_code(mutant: Mutant) -> None:
    text = (ROOT / mutant.path).read_text(encoding="utf-8")
    assert mutant.applied_to(text) != text
    assert all((ROOT / test).exists() for test in mutant.tests)
