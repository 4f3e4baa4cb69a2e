"""The energy of processors, from counters that may be missing, closed or begin again."""

from pathlib import Path

import pytest

from rlcb.run import energy
from rlcb.run.energy import EnergyMeter


def write_zone(folder: Path, zone: str, name: str, microjoules: int, span: int = 10_000_000) -> Path:
    (folder / zone).mkdir(parents=True, exist_ok=True)
    for file, text in (("name", name), ("energy_uj", microjoules), ("max_energy_range_uj", span)):
        (folder / zone / file).write_text(f"{text}\n")
    return folder / zone


def test_packages_and_their_memory_add_up_and_a_counter_may_begin_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(energy.time, "monotonic", lambda: now[0])
    write_zone(tmp_path, "intel-rapl:0", "package-0", 9_000_000)
    write_zone(tmp_path, "intel-rapl:0:0", "core", 0)  # part of the package
    write_zone(tmp_path, "intel-rapl:0:1", "dram", 1_000_000)
    (tmp_path / "intel-rapl").mkdir()  # the kind of counter, none itself
    meter = EnergyMeter(tmp_path)
    assert meter.totals()["processor_watts"] is None  # no time has passed
    now[0] += 2
    write_zone(tmp_path, "intel-rapl:0", "package-0", 3_000_000)
    write_zone(tmp_path, "intel-rapl:0:0", "core", 900_000)
    write_zone(tmp_path, "intel-rapl:0:1", "dram", 2_000_000)
    meter.look()
    assert meter.totals() == {"processor_watts": 2.5, "processor_watts_unknown": None}  # (4 + 1) J in 2 s


def test_what_is_not_known_has_a_reason(tmp_path: Path) -> None:
    def reason(meter: EnergyMeter) -> str:
        meter.look()
        found = meter.totals()
        assert found["processor_watts"] is None
        return str(found["processor_watts_unknown"])

    assert reason(EnergyMeter(tmp_path / "none")) == f"the system has no energy counters ({tmp_path / 'none'})"
    assert "no energy counters of processors" in reason(EnergyMeter(tmp_path))
    closed = write_zone(tmp_path, "intel-rapl:0", "package-0", 5)
    assert "cluster" in reason(EnergyMeter(tmp_path, on_cluster=True))
    (closed / "energy_uj").unlink()
    assert f"{closed}/energy_uj" in reason(EnergyMeter(tmp_path))
