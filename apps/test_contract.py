"""CONTRACT.md is complete: every line has a test, and every marked test has a line."""

from pathlib import Path

import pytest

from apps.render_contract import PAGE, ContractError, contract_page


def test_the_contract_page_shows_every_line_with_its_tests() -> None:
    assert PAGE.read_text(encoding="utf-8") == contract_page(), "run: python apps/render_contract.py"


def test_a_line_without_a_test_and_a_test_without_its_line_are_errors(tmp_path: Path) -> None:
    app = tmp_path / "shop"
    (app / "tests").mkdir(parents=True)
    (app / "contract.toml").write_text('title = "Shop"\nmust = ["Sells."]\nholes = ["Sold twice."]\n')
    tests = app / "tests" / "test_shop.py"

    tests.write_text('@pytest.mark.contract("Sells.")\ndef test_it_sells(): ...\n')
    with pytest.raises(ContractError, match=r"no test bears the line: Sold twice\."):
        contract_page(tmp_path)

    tests.write_text('@pytest.mark.contract("Sells.", "Sold twice.", "Gives away.")\ndef test_it_sells(): ...\n')
    with pytest.raises(ContractError, match=r"isn't in the contract: Gives away\."):
        contract_page(tmp_path)

    tests.write_text('@pytest.mark.contract("Sells.", "Sold twice.")\ndef test_it_sells(): ...\n')
    assert "| Sold twice. | [test_it_sells](shop/tests/test_shop.py) |" in contract_page(tmp_path)
