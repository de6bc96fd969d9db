"""How the tests are run: `python -m tests.runner ARGUMENTS OF PYTEST` (`make test`).

`limits` ends a test that takes too long without ending the run. `record` writes down what ran and what failed.
`__main__` runs what failed a second time, alone. `seed` makes two runs alike, `seeded` draws what follows from
the seed.
"""
