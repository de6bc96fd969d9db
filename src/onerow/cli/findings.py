"""Findings of checks, as every command prints them."""

import sys
from collections.abc import Sequence

from onerow.cli.output import Output
from onerow.ports import Finding

_MARK = {"good": ("✓", "green"), "slow": ("!", "yellow"), "bad": ("✗", "bold red")}


def report_findings(out: Output, findings: Sequence[Finding]) -> None:
    """Print findings; exit with 1 if one is bad."""
    if out.as_json:
        out.json([Finding(each.level, each.what, each.fix) for each in findings])
    else:
        for finding in findings:
            mark, style = _MARK[finding.level]
            out.line(f"{mark} {finding.what}", style)
            if finding.fix:
                out.line(f"  → {finding.fix}")
    if any(finding.level == "bad" for finding in findings):
        sys.exit(1)
