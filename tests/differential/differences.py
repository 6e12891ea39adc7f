"""Where `regroup` means to differ from Open MPI 5.0.11, each with its reason and its source.

Where 5.0.11 and 4.1.4 differ, 5.0.11 decides, since its option words are those that `regroup`
prints and documents (docs/guide/mpirun.md).
"""

import dataclasses
import re
from collections.abc import Callable

from launchers import DOES_NOT_END, HOST

GUIDE = "docs/guide/mpirun.md, Different"
PRRTE = "openpmix/prrte v3.0"


@dataclasses.dataclass(frozen=True)
class Reason:
    text: str
    source: str
    applies: Callable[[object], bool]


def options(found) -> list[tuple[str, ...]]:
    return [option for program in found.line.programs for option in program]


def has(found, *names: str) -> bool:
    return any(option[0] in names for option in options(found))


def value(found, name: str) -> str:
    """Of the last option of this name."""
    values = [option[1] for option in options(found) if option[0] == name and len(option) > 1]
    return values[-1] if values else ""


def words(found) -> str:
    return " ".join(found.line.words("regroup"))


def ours_only(found) -> bool:
    return found.kind == "accept" and found.ours.accepted


def said(found, *texts: str) -> bool:
    return any(text in found.five.said for text in texts)


def asked(found) -> int:
    return sum(int(option[1]) for option in options(found) if option[0] == "-np")


def by_ppr(found) -> bool:
    return value(found, "--map-by").startswith("ppr") or has(
        found, "-N", "--npernode", "--npersocket"
    )


def oversubscribes(found) -> bool:
    return has(found, "--oversubscribe") or "OVERSUBSCRIBE" in value(found, "--map-by")


def crowded(found, host: str = "") -> bool:
    """Some host, or this one, has more members than processors."""
    hosts = [place.host for place in found.ours.places]
    return any(hosts.count(one) > found.cores for one in ([host] if host else hosts))


def rows(found, name: str) -> list[str]:
    """Of a file, without comments."""
    return [
        row for file, lines in found.line.files if file == name for row in lines if row[0] != "#"
    ]


def listed_slots(found) -> dict[str, set[int]]:
    """The slots of hosts as -H and the host file say; a mention is one."""
    out: dict[str, set[int]] = {}
    for option in options(found):
        counts: dict[str, int] = {}
        for word in option[1].split(",") if option[0] == "-H" else []:
            host, _, slots = word.partition(":")
            counts[host] = counts.get(host, 0) + int(slots or 1)
        for host, slots in counts.items():
            out.setdefault(host, set()).add(slots)
    for row in rows(found, "hosts"):
        slots = re.search(r"slots *= *(\d+)", row)
        out.setdefault(row.split()[0], set()).add(int(slots[1]) if slots else found.cores)
    return out


def mentions(found) -> int:
    """The slots of all -H."""
    words = [word for o in options(found) if o[0] == "-H" for word in o[1].split(",")]
    return sum(int(word.partition(":")[2] or 1) for word in words)


def mentions_of_host(found, host: str) -> int:
    words = [word for o in options(found) if o[0] == "-H" for word in o[1].split(",")]
    parts = [word.partition(":") for word in words]
    return sum(int(slots or 1) for name, _, slots in parts if name.replace("{host}", HOST) == host)


def exceeds_mentions(found) -> bool:
    """Some host of -H has more members than -H gives it slots."""
    hosts = [place.host for place in found.ours.places]
    return any(hosts.count(host) > mentions_of_host(found, host) > 0 for host in set(hosts))


def names_hosts_twice(found) -> bool:
    """Two programs have an -H of their own that names the same host."""
    lists = [
        {
            word.partition(":")[0]
            for option in program
            if option[0] == "-H"
            for word in option[1].split(",")
        }
        for program in found.line.programs
    ]
    return any(a & b for i, a in enumerate(lists) for b in lists[i + 1 :])


def full(found) -> bool:
    return said(found, "not enough slots", "already filled")


def bound_in_part(found) -> bool:
    """Where they differ, one of them binds the member and the other does not: ours those of a host
    on which all fit."""
    pairs = zip(found.ours.places, found.five.places, strict=True)
    different = [(ours, five) for ours, five in pairs if ours.binding != five.binding]
    return all(
        crowded(found, ours.host) if ours.binding == "UNBOUND" else five.binding == "UNBOUND"
        for ours, five in different
    )


def goes_on_here(found) -> bool:
    """The first member elsewhere is one of a later program, and on this host."""
    first = next((int(o[1]) for o in found.line.programs[0] if o[0] == "-np"), 0)
    pairs = zip(found.ours.places, found.five.places, strict=False)
    at, five = next(
        ((rank, five) for rank, (ours, five) in enumerate(pairs) if ours.host != five.host),
        (0, None),
    )
    return five is not None and at >= first > 0 and five.host == HOST


def leaves_used_object(found) -> bool:
    """The first member elsewhere is one of a later program, where 5.0.11 has gone to a next host
    although this one has slots left."""
    counts = [int(o[1]) for p in found.line.programs for o in p if o[0] == "-np"]
    pairs = zip(found.ours.places, found.five.places, strict=False)
    at, hosts = next(
        (
            (rank, (ours.host, five.host))
            for rank, (ours, five) in enumerate(pairs)
            if ours.host != five.host
        ),
        (0, None),
    )
    before = [place.host for place in found.five.places[:at]]
    return hosts is not None and len(counts) > 1 and at >= counts[0] and hosts[0] in before


# What regroup and 5.0.11, which says nothing of some, say of one and the same fault.
SAME_FAULTS = [
    (r"-np is missing or 0", r"^\s*$"),
    (r"requested.* slots? .*available", r"not enough slots available"),
    (r"with \d+ on each host need", r"not enough slots available|processes than the ppr for"),
    (r"expected a rank N=HOST", r"error in the rankfile"),
]


def both_refuse(found) -> bool:
    return found.kind == "status" and not found.ours.accepted and found.ours.status != 0


def same_fault(found) -> bool:
    if found.five.status in (252, 255) and not found.five.said.strip():
        return False  # --nolocal without another host; a directive that is given twice
    return any(
        re.search(ours, found.ours.said) and re.search(theirs, found.five.said)
        for ours, theirs in SAME_FAULTS
    )


REASONS = [
    Reason(
        "Both refuse; 5.0.11 dies of a signal while it does",
        f"{PRRTE}: prun_common.c",
        lambda found: both_refuse(found) and found.five.status < 0,
    ),
    Reason(
        "Both refuse, for another fault: of several faults in a line 5.0.11 finds the one first "
        "whose module is asked first",
        f"{PRRTE}: rmaps_base_map_job.c, prun_common.c; tests/cli/test_exit_status.py",
        lambda found: both_refuse(found) and not same_fault(found),
    ),
    Reason(
        "--rank-by takes objects, as 4.1.4 does; 5.0.11 takes slot, node, fill and span only",
        "mpirun(1) of 4.1.4",
        lambda found: ours_only(found) and said(found, "The specified rankby directive"),
    ),
    Reason(
        "--rank-by span and fill do nothing without objects to rank by; 5.0.11 refuses them",
        f"{PRRTE}: help-prte-rmaps-base.txt",
        lambda found: ours_only(found) and said(found, "When ranking by FILL or by SPAN"),
    ),
    Reason(
        "5.0.11 makes old options qualifiers of --map-by, and refuses two of them",
        f"{GUIDE}: --cpu-set may be combined with --map-by; the last of two counts",
        lambda found: (
            ours_only(found) and (said(found, "too many directives") or found.five.status == 255)
        ),
    ),
    Reason(
        "Where -H has more slots than cores nobody is bound, and nothing is refused, as in 4.1.4",
        GUIDE,
        lambda found: ours_only(found) and said(found, "require binding"),
    ),
    Reason(
        "A host takes as many members as it has slots, as in 4.1.4; 5.0.11 goes to the next host "
        "once all cores of one are used",
        f"{GUIDE}; {PRRTE}: prte_rmaps_rr_byobj()",
        lambda found: found.kind == "host" and crowded(found),
    ),
    Reason(
        "A job that has as many slots on this host contacts no other; 5.0.11 goes there once all "
        "cores are used, 4.1.4 refuses, too",
        f"{GUIDE}: Hosts of a list that a job does not need",
        lambda found: (
            found.kind == "accept"
            and "not needed and not used" in found.ours.said
            and "permits sharing" in found.ours.said
        ),
    ),
    Reason(
        "A later program fills the slots of a host; 5.0.11 goes to the next one where earlier "
        "programs have used the cores of some object",
        f"{GUIDE}; {PRRTE}: prte_rmaps_rr_byobj(), outofcpus",
        lambda found: found.kind == "host" and leaves_used_object(found),
    ),
    Reason(
        "A core of a package is counted within it; 5.0.11 takes all packages to be as large",
        "findings/openmpi-rankfile-uneven-packages.sh",
        lambda found: (
            found.kind == "processors"
            and found.line.machine == "uneven"
            and any(re.search(r"slot=[1-9]\d*:", row) for row in rows(found, "ranks"))
        ),
    ),
    Reason(
        "PE=N that no object has is refused, as in 4.1.4; with overload-allowed 5.0.11 binds to "
        "fewer",
        "mpirun(1) of 4.1.4",
        lambda found: (
            not found.ours.accepted
            and "overload-allowed" in words(found)
            and re.search(r"no \w+ has \d+ (cores|hardware)", found.ours.said)
        ),
    ),
    Reason(
        "ppr starts no more members than -np says",
        GUIDE,
        lambda found: by_ppr(found) and len(found.five.places) > asked(found) > 0,
    ),
    Reason(
        "ppr says how many members a program without -np has, also beside others, as in 4.1.4",
        "mpirun(1) of 4.1.4",
        lambda found: ours_only(found) and by_ppr(found) and found.five.status == 251,
    ),
    Reason(
        "With --oversubscribe slots are filled first, as in 4.1.4; 5.0.11 does not look at them "
        "where it maps by objects",
        f"{PRRTE}: prte_rmaps_base_check_oversubscribed()",
        lambda found: (
            found.kind in ("host", "processors", "accept")
            and oversubscribes(found)
            and found.ours.accepted
        ),
    ),
    Reason(
        "A program that needs fewer members than ppr gives needs no more slots",
        GUIDE,
        lambda found: (
            ours_only(found) and by_ppr(found) and said(found, "more processes than the ppr")
        ),
    ),
    Reason(
        "A list of processors may span packages",
        GUIDE,
        lambda found: ours_only(found) and said(found, "CPUs in more than one"),
    ),
    Reason(
        "The lines of a rank file stand in any order, as in 4.1.4",
        "mpirun(1) of 4.1.4",
        lambda found: has(found, "--rankfile") and said(found, "is already assigned"),
    ),
    Reason(
        "5.0.11 dies of a signal; 4.1.4 does the same as we, or refuses",
        f"{PRRTE}: prte_rmaps_seq()",
        lambda found: found.five.status < 0 and (found.as_four or not found.four.accepted),
    ),
    Reason(
        "5.0.11 looks for room for ever where each host has its max_slots; 4.1.4 does the same as "
        "we, or refuses",
        f"{PRRTE}: prte_rmaps_rr_byobj()",
        lambda found: (
            found.five.status == DOES_NOT_END
            and any("max_slots" in row for row in rows(found, "hosts"))
            and (found.as_four or not found.four.accepted)
        ),
    ),
    Reason(
        "^HOST leaves out a host that the same file lists; 4 and 5 call it a parse error and use "
        "the host, or say that its slots are given twice. Beside -H they do not heed it",
        "findings/openmpi-hostfile-exclusion.sh",
        lambda found: (
            any(row.startswith("^") for row in rows(found, "hosts"))
            and (said(found, "multiple definitions", "parse error") or has(found, "-H"))
        ),
    ),
    Reason(
        "A relative host has the slots of its host, as in 4.1.4; 5.0.11 gives it none",
        "findings/openmpi-relative-hosts-have-no-slots.sh",
        lambda found: (
            "+" in value(found, "-H") and found.ours.accepted and found.kind in ("accept", "host")
        ),
    ),
    Reason(
        "max_slots of the host file holds also where -H gives the host more slots",
        "mpirun(1): max_slots is a hard limit",
        lambda found: (
            found.kind == "accept" and not found.ours.accepted and "max_slots" in found.ours.said
        ),
    ),
    Reason(
        "A job that needs more slots than -H names takes those of the host file, too; 4 and 5 "
        "refuse",
        "docs/design/command_lines.md",
        lambda found: (
            ours_only(found)
            and has(found, "-H")
            and has(found, "--hostfile")
            and full(found)
            and (len(found.ours.places) > mentions(found) or exceeds_mentions(found))
        ),
    ),
    Reason(
        "--map-by seq takes the rows of the host file, and refuses one that -H leaves out, as "
        "4.1.4; 5.0.11 takes those of -H",
        "mpirun(1) of 4.1.4",
        lambda found: found.as_four and "--map-by seq: host" in found.ours.said,
    ),
    Reason(
        "A host that several programs name with -H has the slots of all of them together; in 4 and "
        "5 each program has its own",
        "docs/design/command_lines.md",
        lambda found: (
            names_hosts_twice(found)
            and (found.kind == "host" or (ours_only(found) and full(found)))
        ),
    ),
    Reason(
        "--bind-to of an object larger than that of --map-by is refused; 5.0.11 accepts it where "
        "the machine has as many of both",
        f"{PRRTE}: help-prte-rmaps-base.txt",
        lambda found: "lies within a" in found.ours.said and found.five.accepted,
    ),
    Reason(
        "The members of a host are bound if all fit; 5.0.11 looks at the slots of a host, or at "
        "what ppr could start there, and at the members of one program",
        f"{PRRTE}: prte_rmaps_rr_byslot(), rmaps_ppr.c",
        lambda found: found.kind == "processors" and bound_in_part(found),
    ),
    Reason(
        "ppr:N:hwthread binds to its object; 5.0.11 to the core",
        "mpirun(1) of 5.0.11, --bind-to: the mapped object is the default",
        lambda found: (
            re.match(r"ppr:\d+:hwthread", value(found, "--map-by"))
            and (found.kind == "processors" or (ours_only(found) and found.five.status == 77))
        ),
    ),
    Reason(
        "--bind-to hwthread needs no --use-hwthread-cpus, as in 4.1.4; 5.0.11 then finds no "
        "available cpus",
        "tests/launcher/placement/golden_test.cc",
        lambda found: (
            ours_only(found)
            and value(found, "--bind-to").startswith("hwthread")
            and said(found, "we found no available cpus")
        ),
    ),
    Reason(
        "--cpu-set may be combined with --bind-to",
        GUIDE,
        lambda found: (
            ours_only(found) and has(found, "--cpu-set") and said(found, "cannot be combined with")
        ),
    ),
    Reason(
        "A core that a package lacks is refused; 5.0.11 takes one of the next package",
        "tests/launcher/placement/golden_test.cc",
        lambda found: "rank file, rank" in found.ours.said and " has cores " in found.ours.said,
    ),
    Reason(
        "5.0.11 gives up although hosts have slots left: --map-by node gives each the fewest slots "
        "of those before it",
        f"{PRRTE}: prte_rmaps_rr_bynode()",
        lambda found: (
            ours_only(found)
            and value(found, "--map-by").startswith("node")
            and said(found, "Out of resource", "failed to map")
            and len(set().union(*listed_slots(found).values())) > 1
        ),
    ),
    Reason(
        "--bind-to of an object that the machine lacks is refused, also with a rank file",
        GUIDE,
        lambda found: (
            found.kind == "accept"
            and not found.ours.accepted
            and "this machine has no" in found.ours.said
        ),
    ),
    Reason(
        "--map-by hwthread makes hardware threads slots",
        "docs/reference/options.md",
        lambda found: (
            ours_only(found)
            and re.search(r"hwthread|HWTCPUS", words(found))
            and full(found)
            and len(found.ours.places) > found.cores
        ),
    ),
    Reason(
        "A rank file that gives a core to two ranks is refused, as in 4.1.4",
        "mpirun(1) of 4.1.4, --bind-to: overload-allowed",
        lambda found: (
            "rank file: ranks" in found.ours.said and "permits sharing" in found.ours.said
        ),
    ),
    Reason(
        "--cpu-set 0-3 names four processors, and without -np four members, or as many as slots; "
        "5.0.11 counts a range as one member",
        f"{PRRTE}: rmaps_base_map_job.c",
        lambda found: (
            has(found, "--cpu-set") and ("-" in value(found, "--cpu-set") or not has(found, "-np"))
        ),
    ),
    Reason(
        "A rank file that names a core which the machine lacks is refused; with --oversubscribe "
        "5.0.11 binds nobody",
        "mpirun(1) of 4.1.4",
        lambda found: (
            has(found, "--rankfile")
            and oversubscribes(found)
            and not found.ours.accepted
            and re.search("does not exist|is not available|has cores", found.ours.said)
            and all(place.binding == "UNBOUND" for place in found.five.places)
        ),
    ),
    Reason(
        "--bind-to none binds nobody; with a qualifier 5.0.11 takes the processors of a rank file",
        "mpirun(1) of 5.0.11, --bind-to",
        lambda found: has(found, "--rankfile") and value(found, "--bind-to").startswith("none:"),
    ),
    Reason(
        "--bind-to hwthread makes the numbers of a rank file and of --cpu-set hardware threads; in "
        "5.0.11 only --use-hwthread-cpus does",
        "docs/reference/options.md",
        lambda found: (
            found.kind == "processors"
            and has(found, "--rankfile", "--cpu-set")
            and value(found, "--bind-to").startswith("hwthread")
        ),
    ),
    Reason(
        "--nolocal excludes this host from rank files, too, as in 4.1.4",
        "mpirun(1) of 4.1.4",
        lambda found: found.as_four and "nolocal: excludes this host" in found.ours.said,
    ),
    Reason(
        "A program of ppr takes as many slots as -np says; in 5.0.11 as many as ppr gives, so that "
        "later programs find too few",
        GUIDE,
        lambda found: (
            ours_only(found)
            and by_ppr(found)
            and len(found.line.programs) > 1
            and said(found, "not enough slots")
        ),
    ),
    Reason(
        "ppr counts the members of each program, as in 4.1.4; in 5.0.11 those of all",
        "mpirun(1) of 4.1.4",
        lambda found: (
            ours_only(found)
            and by_ppr(found)
            and len(found.line.programs) > 1
            and said(found, "already filled")
        ),
    ),
    Reason(
        "5.0.11 leaves a member of a later program of ppr unbound where cores are free",
        f"{PRRTE}: rmaps_ppr.c",
        lambda found: (
            found.kind == "processors"
            and by_ppr(found)
            and len(found.line.programs) > 1
            and all(place.binding != "UNBOUND" for place in found.ours.places)
            and any(place.binding == "UNBOUND" for place in found.five.places)
        ),
    ),
    Reason(
        "--bind-to hwthread is written in hardware threads, also where these are whole cores",
        "mpirun(1) of 5.0.11, --display bind",
        lambda found: (
            found.kind == "processors"
            and found.as_four
            and value(found, "--bind-to").startswith("hwthread")
        ),
    ),
    Reason(
        "A processor of --cpu-set that the machine lacks is refused, as in 4.1.4",
        GUIDE,
        lambda found: (
            found.as_four
            and has(found, "--cpu-set")
            and "is not available to this job" in found.ours.said
        ),
    ),
    Reason(
        "Members that outnumber the cores are not bound, whatever processors --cpu-set names",
        GUIDE,
        lambda found: ours_only(found) and has(found, "--cpu-set") and crowded(found),
    ),
    Reason(
        "A rank file names hosts of -H or --hostfile, as in 4.1.4; 5.0.11 invents the host",
        GUIDE,
        lambda found: "is not in -H or --hostfile" in found.ours.said,
    ),
    Reason(
        "All slots of a host are used before the next one; 5.0.11 leaves those in which the "
        "members of one more object do not fit",
        f"{PRRTE}: rmaps_ppr.c",
        lambda found: found.kind == "host" and by_ppr(found),
    ),
    Reason(
        "PE=N and --bind-to refuse to share processors, with --oversubscribe too; 5.0.11 binds "
        "nobody",
        GUIDE,
        lambda found: (
            oversubscribes(found)
            and "permits sharing" in found.ours.said
            and all(place.binding == "UNBOUND" for place in found.five.places)
        ),
    ),
    Reason(
        "overload-allowed shares processors; 5.0.11 refuses once all are used",
        "mpirun(1) of 5.0.11, --bind-to",
        lambda found: (
            ours_only(found)
            and "overload-allowed" in words(found)
            and said(found, "we found no available cpus")
        ),
    ),
    Reason(
        "A later program takes the next slots in the order of the hosts; 5.0.11 goes on with this "
        "host, wherever it is listed",
        f"{PRRTE}: prte_rmaps_base_get_starting_point()",
        lambda found: found.kind == "host" and goes_on_here(found),
    ),
    Reason(
        "NOT YET: --map-by seq binds more than two members to NUMA nodes, if -np says how many",
        f"{PRRTE}: prte_hwloc_base_set_default_binding()",
        lambda found: found.kind == "processors" and "seq" in value(found, "--map-by"),
    ),
]


def explained(found) -> str:
    """The reason; "": none is known."""
    return next((reason.text for reason in REASONS if reason.applies(found)), "")
