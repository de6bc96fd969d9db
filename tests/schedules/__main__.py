"""Run schedules: `python -m tests.schedules --seeds 0..2000`, or one with its trace: `--seed 17 --trace`."""

import argparse
import sys
from time import monotonic

from tests.schedules.schedule import schedule_of, shrunk
from tests.schedules.simulation import Run, violations
from tests.schedules.virtual_modules import virtual_modules


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="0..1000", help="a range of seeds")
    parser.add_argument("--seed", type=int, help="one seed; a schedule that fails is shrunk")
    parser.add_argument("--trace", action="store_true", help="print what happened")
    options = parser.parse_args()
    with virtual_modules():
        if options.seed is not None:
            return _one(options.seed, options.trace)
        first, last = map(int, options.seeds.split(".."))
        began = monotonic()
        failed = 0
        for seed in range(first, last):
            if found := violations(schedule_of(seed)):
                failed += 1
                print(f"seed {seed}: {found}", flush=True)
        took = monotonic() - began
    print(f"{last - first} schedules in {took:.1f} s, {60 * (last - first) / took:,.0f} a minute; {failed} failed")
    return 1 if failed else 0


def _one(seed: int, trace: bool) -> int:
    schedule = schedule_of(seed)
    found = violations(schedule)
    if found:
        schedule = shrunk(schedule, lambda smaller: bool(violations(smaller).keys() & found.keys()))
    run = Run(schedule, trace=trace)
    found = run.execute()
    print(schedule)
    if trace:
        print(*(run.world.trace or ()), sep="\n")
    for name, sentences in found.items():
        print(f"{name}:", *sentences, sep="\n  ")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
