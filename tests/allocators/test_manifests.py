"""The manifests of docs/guide/kubernetes.md, read by kubectl without a server: what it does not
know of a kind is missing from what it prints."""

import json
import re
import subprocess
from pathlib import Path

import pytest
from commands import DEADLINE_S

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/guide/kubernetes.md").read_text()
MANIFESTS = dict(re.findall(r'```yaml title="([\w.]+)"\n(.*?)```', PAGE, re.S))
# What changes an object of the kind, which kubectl then prints as it has understood it.
CHANGES = {
    "Job": ["set", "env", "ADDED=1"],
    "Service": ["set", "selector", "added=1"],
    "RoleBinding": ["set", "subject", "--user=added"],
}
NOT_TYPED = {  # kinds that no such command changes: what they may have
    "ServiceAccount": {"apiVersion", "kind", "metadata"},
    "Role": {"apiVersion", "kind", "metadata", "rules"},
}
LATER = {"completionMode"}  # than the kubectl of Debian 12, of Kubernetes 1.20


def kubectl(text: str, *words: str) -> list[dict]:
    done = subprocess.run(
        ["kubectl", *words, "--local", "--output=json", "--filename=-"],
        input=text,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert done.returncode == 0, done.stderr
    decoder, found, rest = json.JSONDecoder(), [], done.stdout.strip()
    while rest:
        each, end = decoder.raw_decode(rest)
        found.append(each)
        rest = rest[end:].lstrip()
    return found


def missing(wanted, got, where: str = "") -> list[str]:
    """Paths of `wanted` that are not in `got`, which may have more."""
    if isinstance(wanted, dict):
        return [
            name
            for key, value in wanted.items()
            if key not in LATER
            for name in (
                missing(value, got[key], f"{where}.{key}")
                if isinstance(got, dict) and key in got
                else [f"{where}.{key}"]
            )
        ]
    if isinstance(wanted, list) and isinstance(got, list) and len(wanted) <= len(got):
        return [m for i, each in enumerate(wanted) for m in missing(each, got[i], f"{where}[{i}]")]
    return [] if wanted == got else [where]


def objects(name: str) -> list[dict]:
    """Those of a manifest; of a JobSet the jobs of its template."""
    found = []
    for each in kubectl(MANIFESTS[name], "patch", "--type=merge", "--patch={}"):
        if each["kind"] != "JobSet":
            found.append(each)
            continue
        for job in each["spec"]["replicatedJobs"]:
            head = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": job["name"]}}
            found.append(head | job["template"])
    return found


@pytest.mark.parametrize("name", MANIFESTS)
def test_kubectl_knows_all_of_it(name):
    found = objects(name)
    assert len(found) == MANIFESTS[name].count("\n---\n") + 1
    for each in found:
        if each["kind"] in NOT_TYPED:
            assert set(each) == NOT_TYPED[each["kind"]]
            continue
        understood = kubectl(json.dumps(each), *CHANGES[each["kind"]])
        if each["kind"] == "Service":
            del each["spec"]["selector"]  # the change has replaced it
        assert missing(each, understood[0]) == []


def test_what_is_unknown_is_found():
    broken = MANIFESTS["job.yaml"].replace("parallelism", "paralelism")
    job = kubectl(broken, "patch", "--type=merge", "--patch={}")[1]
    understood = kubectl(json.dumps(job), *CHANGES["Job"])
    assert missing(job, understood[0]) == [".spec.paralelism"]


def test_they_fit_together():
    account, role, binding = objects("rights.yaml")
    service, job = objects("job.yaml")
    pod = job["spec"]["template"]["spec"]
    name = job["metadata"]["name"]
    variables = {each["name"]: each["value"] for each in pod["containers"][0]["env"]}
    assert pod["serviceAccountName"] == account["metadata"]["name"]
    assert binding["subjects"][0]["name"] == account["metadata"]["name"]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert {each["resources"][0]: each["verbs"] for each in role["rules"]} == {
        "pods": ["get", "list"],
        "pods/exec": ["create", "get"],
    }
    assert service["spec"]["selector"] == {"batch.kubernetes.io/job-name": name}
    assert pod["subdomain"] == service["metadata"]["name"]
    assert variables["REGROUP_SUBDOMAIN"].split(".")[0] == service["metadata"]["name"]
    assert variables["REGROUP_PODS"] == str(job["spec"]["completions"])
    jobset = kubectl(MANIFESTS["jobset.yaml"], "patch", "--type=merge", "--patch={}")[0]
    workers = jobset["spec"]["replicatedJobs"][0]
    container = workers["template"]["spec"]["template"]["spec"]["containers"][0]
    variables = {each["name"]: each["value"] for each in container["env"]}
    assert variables["REGROUP_JOBS"] == str(workers["replicas"])
    assert variables["REGROUP_SUBDOMAIN"] == jobset["metadata"]["name"]
