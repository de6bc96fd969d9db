"""Render docs/capacity-scaling.svg and docs/capacity-compare.svg from the example plans: python docs/render_capacity.py"""

from pathlib import Path

from onerow.simulator.charts import write_chart
from onerow.simulator.reading import read_plan
from onerow.simulator.simulation import simulate

HERE = Path(__file__).parent
PLANS = HERE.parent / "examples" / "plans"


def main() -> None:
    fixed, scaling = (simulate(read_plan(PLANS / f"reports-{name}.toml")) for name in ("fixed", "scaling"))
    write_chart([scaling], HERE / "capacity-scaling.svg")
    write_chart([fixed, scaling], HERE / "capacity-compare.svg")


if __name__ == "__main__":
    main()
