"""Whatever happens to a database costs its own polls while it lasts, and nothing else."""

from __future__ import annotations

import pytest

from tests.faults.faults import FAULTS, Fault
from tests.faults.stage import Stage
from tests.faults.trial import Record, trial

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("fault", FAULTS.values(), ids=list(FAULTS))
def test_a_fault_costs_its_own_polls_only(
    fault: Fault, victim: Stage, bystander: Stage, record_property: Record
) -> None:
    trial(fault, victim, bystander, record_property)
