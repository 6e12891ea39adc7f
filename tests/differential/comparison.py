"""Compares the answers of launchers to a command line, and makes what fails smaller."""

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path

import launchers
from command_lines import CommandLine
from differences import explained
from launchers import Answer
from machines import load


@dataclasses.dataclass(frozen=True)
class Difference:
    kind: str  # "accept", "host", "processors" or "status"
    line: CommandLine
    ours: Answer
    five: Answer  # of Open MPI 5.0.11
    four: Answer  # of Open MPI 4.1.4
    as_four: bool
    cores: int  # of the machine

    def __str__(self) -> str:
        return "\n".join(
            [
                f"{self.kind}: {self.line}",
                f"  regroup:        {shown(self.ours)}",
                f"  Open MPI 5.0.11: {shown(self.five)}",
                f"  Open MPI 4.1.4:  {shown(self.four)}{', as regroup' if self.as_four else ''}",
            ]
        )


def shown(answer: Answer) -> str:
    if not answer.accepted:
        said = [row for row in answer.said.splitlines() if row.strip("- ")]
        return f"status {answer.status}: {' / '.join(said[:4])}"
    return " | ".join(f"{place.host} {bound(place)}" for place in answer.places)


def bound(place: launchers.Place) -> str:
    return place.binding or (str(sorted(place.processors)) if place.processors else "any")


def kind_of(ours: Answer, theirs: Answer, peer: str) -> str:
    """What differs first; "": nothing."""
    if ours.accepted != theirs.accepted:
        return "accept"
    if [place.host for place in ours.places] != [place.host for place in theirs.places]:
        return "host"
    if processors(ours, peer) != processors(theirs, peer):
        return "processors"
    # With --do-not-launch Open MPI 4 ends with 0 also when it refuses.
    return "status" if ours.status != theirs.status and peer == "openmpi-5" else ""


def processors(answer: Answer, peer: str) -> list:
    """With --do-not-launch Open MPI 4 binds no rank of another host, unless told to, and counts on
    all hosts what one uses: only this host counts, and only as the first."""
    first = answer.places[0].host if answer.places else ""
    if peer != "openmpi-4":
        return [place.binding for place in answer.places]
    return [place.processors for place in answer.places if place.host == first == launchers.HOST]


def compare(line: CommandLine, folder: Path) -> Difference | None:
    """Whether it is explained or not. Where `regroup` does as Open MPI 5, 4 is not asked."""
    machine = load(folder, line.machine)
    ours = launchers.regroup(line, machine)
    five = launchers.openmpi_5(line, machine)
    kind = kind_of(ours, five, "openmpi-5")
    if not kind:
        return None
    four = launchers.openmpi_4(line, machine)
    as_four = not kind_of(ours, four, "openmpi-4")
    return Difference(kind, line, ours, five, four, as_four, len(machine.cores))


def unexplained(line: CommandLine, folder: Path) -> Difference | None:
    found = compare(line, folder)
    return None if found is None or explained(found) else found


def smaller(line: CommandLine) -> Iterator[CommandLine]:
    """Command lines with one part less."""
    programs = line.programs
    if len(programs) > 1:
        for i in range(len(programs)):
            yield dataclasses.replace(line, programs=(*programs[:i], *programs[i + 1 :]))
    for name, rows in line.files:
        for i in range(len(rows)):
            fewer = (*rows[:i], *rows[i + 1 :])
            files = tuple((n, fewer if n == name else r) for n, r in line.files)
            yield dataclasses.replace(line, files=files)
    for i, options in enumerate(programs):
        for j in range(len(options)):
            fewer = (*options[:j], *options[j + 1 :])
            yield dataclasses.replace(line, programs=(*programs[:i], fewer, *programs[i + 1 :]))
        for j, option in enumerate(options):
            for word in simpler_words(option):
                changed = (*options[:j], word, *options[j + 1 :])
                yield dataclasses.replace(
                    line, programs=(*programs[:i], changed, *programs[i + 1 :])
                )
    for name in ("2p2c", "1p4c2t"):
        if line.machine not in ("2p2c", name):
            yield dataclasses.replace(line, machine=name)


def simpler_words(option: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    if len(option) < 2:
        return
    name, value = option[0], option[1]
    for separator in (",", ":"):
        parts = value.split(separator)
        if len(parts) > 1 and name in ("-H", "--map-by", "--bind-to", "--rank-by"):
            first = 1 if separator == ":" else 0  # the object, or the host
            for i in range(first, len(parts)):
                yield name, separator.join([*parts[:i], *parts[i + 1 :]])
    if value.isdigit() and int(value) > 1:
        yield name, str(int(value) - 1)


def shrink(
    line: CommandLine, fails: Callable[[CommandLine], bool], most_tries: int = 200
) -> CommandLine:
    """The smallest command line of those tried that still fails."""
    tries = 0
    again = True
    while again:
        again = False
        for candidate in smaller(line):
            tries += 1
            if tries > most_tries:
                return line
            if fails(candidate):
                line, again = candidate, True
                break
    return line
