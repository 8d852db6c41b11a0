#!/usr/bin/env python3
"""Cases that clients of gRPC in five languages, and frames by hand, were found to meet: each with what today's API answers. `tests/clients/cases_test.py --table` prints
them as a table."""
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "deploy"))

from call_cases import Calls  # noqa: E402, F401
from cases import CASES, report, table  # noqa: E402
from connection_cases import Connections  # noqa: E402, F401
from identity_cases import Identity  # noqa: E402, F401
from stub_cases import Stubs  # noqa: E402, F401


class Numbers(unittest.TestCase):
    def test_each_case_is_there_once(self):
        self.assertEqual([one.number for one in sorted(CASES, key=lambda one: one.number)], list(range(1, 85)))


if __name__ == "__main__":
    if sys.argv[1:] == ["--table"]:
        print(table())
    else:
        ran = unittest.main(exit=False)
        print(report(), file=sys.stderr)
        sys.exit(not ran.result.wasSuccessful())
