"""`regroup status --prometheus` prints what Prometheus reads and the reference describes."""

import os
import re
import signal

from conftest import BIN, ROOT, until
from prometheus_client.parser import text_string_to_metric_families

MEMBER = BIN.parent / "tests/bin/ps_member"


def described() -> dict[str, str]:
    """The type of each metric of the reference."""
    page = (ROOT / "docs/reference/metrics.md").read_text()
    return dict(re.findall(r"^\| `(regroup_\w+)` \| (\w+) \|", page, re.MULTILINE))


def metrics_of(regroup) -> dict[tuple[str, str], dict[str, float]]:
    """By name and type: the values, by the labels besides the job's as text."""
    text = regroup.control("status", "--prometheus").stdout
    found: dict[tuple[str, str], dict[str, float]] = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation, family
        for sample in family.samples:
            labels = dict(sample.labels)
            assert labels.pop("job"), sample
            key = ",".join(f"{name}={value}" for name, value in sorted(labels.items()))
            values = found.setdefault((sample.name, family.type), {})
            assert key not in values, f"{sample}: a second line"
            values[key] = sample.value
    return found


def test_the_reference_has_every_metric_that_the_source_names():
    source = (ROOT / "launcher/metrics/usage_text.cc").read_text()
    assert set(re.findall(r"\bregroup_[a-z_]+\b", source)) - {"regroup_"} == set(described())


def test_metrics_of_a_parameter_server_are_read_by_the_parser_of_prometheus(regroup, tmp_path):
    end = tmp_path / "end"
    job = regroup.start(
        "--role", "ps=2", "--role", "worker=2", "--ps-memory", "192M", str(MEMBER), str(end)
    )

    def value(name: str, labels: str = "", kind: str = "gauge") -> float:
        return metrics_of(regroup).get((name, kind), {}).get(labels, -1.0)

    until(lambda: value("regroup_ps_ranges", "state=served") > 0, "ranges that are served")
    until(lambda: value("regroup_ps_clients_total", kind="counter") == 2, "both workers")
    found = metrics_of(regroup)
    for name, kind in found:
        assert described().get(name) == kind, name
    assert value("regroup_ps_ranges", "state=waiting") == 0
    stores = found["regroup_ps_store_bytes", "gauge"]
    assert set(stores) == {"kind=tables", "kind=free", "kind=log"}
    assert sum(stores.values()) == 192 << 20 and min(stores.values()) > 0
    before = found["regroup_ps_updates_total", "counter"][""]
    until(lambda: value("regroup_ps_updates_total", kind="counter") > before, "more updates")
    os.kill(job.the("regroup-ps"), signal.SIGKILL)
    until(lambda: value("regroup_ps_restarts_total", kind="counter") == 1, "a restart")
    until(lambda: value("regroup_ps_ranges", "state=waiting") == 0, "a successor that serves")
    end.touch()
    assert job.wait() == 0, job.out + job.err
