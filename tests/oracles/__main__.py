"""``python -m tests.oracles``: every comparison with torch's own databases, as one table.

Four parts: the modules in training and in evaluation, the inputs that must raise, the functionals,
and the older list of cases. A line is ``name: passed / total``; a failure follows its line, by name
and with its reason. Everything is run; ``--quick`` runs the choice that the tests run. With
``JAX_ENABLE_X64=1`` in the environment all of it is float64, at the tolerances of that.
"""

import argparse
import os
import sys
import warnings
from collections.abc import Iterator


def main() -> None:
    """Run the comparisons and print the table; exit with 1 if one failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.oracles", description=__doc__)
    parser.add_argument("names", nargs="*", help="classes and functionals; all of them by default")
    parser.add_argument("--quick", action="store_true", help="a choice of the cases of the larger ones")
    options = parser.parse_args()
    if not options.quick:
        os.environ["PURESTATE_ALL_SAMPLES"] = "1"
    warnings.simplefilter("ignore")
    passed = total = 0
    for title, parts in _titled(options.names):
        print(f"\n== {title}")
        for report in parts:
            print(report, flush=True)
            passed, total = passed + report.passed, total + report.total
    print(f"\n{passed} / {total}")
    sys.exit(passed != total)


def _titled(names: list[str]) -> Iterator[tuple[str, Iterator]]:
    from purestate.nn import functional as F
    from tests.oracles import legacy, module_db, op_db
    from tests.oracles.adapters import ADAPTERS, NO_ENTRY

    def wanted(found: list[str]) -> list[str]:
        return [name for name in found if not names or name in names]

    classes = wanted(sorted(module_db.shared_names()))
    functions = wanted(sorted(set(F.__all__) - NO_ENTRY))
    yield "modules, training", (module_db.check(name, True) for name in classes)
    yield "modules, evaluation", (module_db.check(name, False) for name in classes)
    yield (
        "modules, inputs that must raise",
        (module_db.check_errors(name) for name in wanted(module_db.names_with_errors())),
    )
    yield (
        "functionals",
        (
            op_db.run(name, *ADAPTERS.get(name, (getattr(F, name), None)), variant=variant)
            for name in functions
            for variant in op_db.variants(name)
        ),
    )
    yield "older cases", (legacy.check(name) for name in wanted(legacy.subjects()))


if __name__ == "__main__":
    main()
