"""The command line as its user meets it: help, manual page, completions, names it is called by,
refusals."""

import contextlib
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import BIN, DEADLINE_S, until

REGROUP = str(BIN / "regroup")


def call(*words: str, program: str = REGROUP, **options) -> subprocess.CompletedProcess:
    return subprocess.run(
        [program, *words], capture_output=True, text=True, timeout=DEADLINE_S, **options
    )


@pytest.fixture
def named(tmp_path):
    """The program under another name."""

    def link(name: str) -> str:
        (tmp_path / name).symlink_to(REGROUP)
        return str(tmp_path / name)

    return link


@pytest.mark.parametrize("words", [["--help"], ["-h"], ["help"], ["-np", "2", "--help"]])
def test_help(words):
    answer = call(*words)
    assert (answer.returncode, answer.stderr) == (0, "")
    assert answer.stdout.startswith("usage: regroup ")
    assert "--oversubscribe" in answer.stdout
    assert "--dvm" not in answer.stdout


@pytest.mark.parametrize(
    "verb", ["status", "top", "resize", "notice", "kill-member", "join", "allocation", "doctor"]
)
def test_help_of_a_command(verb):
    answer = call(verb, "--help")
    assert (answer.returncode, answer.stderr) == (0, "")
    assert answer.stdout.startswith(f"usage: regroup {verb} ")
    assert f"\n  {verb} " in call("--help").stdout


def test_help_of_a_group_and_of_all():
    answer = call("--help", "hosts")
    assert answer.stdout.startswith("Hosts (hosts):\n")
    assert "--tag-output" not in answer.stdout
    assert len(call("--help", "all").stdout) > 3 * len(call("--help").stdout)


@pytest.mark.parametrize("topic", ["map-by", "--map-by", "-map_by"])
def test_help_of_one_option(topic):
    answer = call("--help", topic)
    assert (answer.returncode, answer.stderr) == (0, "")
    assert answer.stdout.startswith("  --map-by OBJECT[:QUALIFIERS]")
    assert "ppr:N:OBJECT" in answer.stdout and "--bind-to" not in answer.stdout


@pytest.mark.parametrize("words", [["--help", "mapby"], ["help", "mapby"]])
def test_help_of_what_is_not_there(words):
    answer = call(*words)
    assert (answer.returncode, answer.stdout) == (1, "")
    assert answer.stderr.startswith(
        "regroup: --help mapby: unknown topic; did you mean map-by?; topics are any option, "
        "members, "
    )


def test_the_manual_page_is_without_fault(tmp_path):
    page = tmp_path / "regroup.1"
    page.write_text(call("--generate", "man").stdout)
    shown = call(
        "--warnings=w", "-l", str(page), program="man", env={**os.environ, "MANWIDTH": "80"}
    )
    assert shown.stderr == ""
    assert "REGROUP(1)" in shown.stdout
    for name in ("--bind-to", "MIN:MAX", "EXIT STATUS", "EXAMPLES"):
        assert name in shown.stdout


def complete(*words: str) -> list[str]:
    """What bash offers for the last word."""
    script = call("--generate", "bash").stdout + (
        "COMP_WORDS=(regroup "
        + " ".join(f"'{word}'" for word in words)
        + f"); COMP_CWORD={len(words)}; compopt() {{ :; }}; _regroup; printf '%s\\n' "
        f'"${{COMPREPLY[@]}}"\n'
    )
    answer = call("-c", script, program="bash")
    assert answer.stderr == ""
    return answer.stdout.split()


def test_bash_completes_options_and_values(tmp_path):
    assert complete("--ovs") == []
    assert complete("--over") == ["--oversubscribe"]
    assert set(complete("-np", "2", "--display-t")) == {"--display-topo"}
    assert complete("--compat", "m") == ["mpich"]
    assert complete("--replace", "") == ["auto", "never"]
    assert "kill-member" in complete("kill-m")
    (tmp_path / "hosts.txt").touch()
    assert complete("--hostfile", f"{tmp_path}/ho") == [f"{tmp_path}/hosts.txt"]


@pytest.fixture
def zsh(tmp_path):
    """Types into a zsh that knows the completion, and waits for what it shows."""
    (tmp_path / "_regroup").write_text(call("--generate", "zsh").stdout)
    ours, theirs = pty.openpty()
    shell = subprocess.Popen(
        ["setsid", "--ctty", "zsh", "-f", "-i"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=tmp_path,
    )
    os.close(theirs)
    os.set_blocking(ours, False)
    seen = bytearray()

    def shown(text: bytes) -> bool:
        with contextlib.suppress(BlockingIOError):
            seen.extend(os.read(ours, 65536))
        return text in seen

    def type_in(keys: str, awaited: str) -> None:
        seen.clear()
        os.write(ours, keys.encode())
        until(lambda: shown(awaited.encode()), f"{awaited} after {keys}: {bytes(seen)}")

    type_in(
        f"fpath=({tmp_path} $fpath); autoload -Uz compinit; compinit -u -D; PS1='ready '\n",
        "\x1b[Jready ",
    )
    yield type_in
    shell.kill()
    shell.wait()
    os.close(ours)


def test_zsh_completes_options_and_values(zsh, tmp_path):
    zsh("regroup --oversub\t", "regroup --oversubscribe")
    zsh(" --compat mp\t", " --compat mpich")
    (tmp_path / "hosts.txt").touch()
    zsh(" --hostfile hos\t", " --hostfile hosts.txt")
    zsh("\x15regroup kill-m\t", "regroup kill-member")


@pytest.mark.skipif(
    not (BIN.parent / "cmake_install.cmake").exists(), reason="this is no build folder"
)
def test_dev_build_makes_the_texts_that_are_installed():
    query = ["ninja", "-C", str(BIN.parent), "-t", "query", "programs"]
    assert "regroup_texts" in subprocess.run(query, capture_output=True, text=True).stdout


def test_texts_and_names_are_installed(tmp_path):
    done = call(
        "--install",
        str(BIN.parent),
        "--prefix",
        str(tmp_path),
        "--component",
        "runtime",
        program="cmake",
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "share/man/man1/regroup.1").read_text() == call("--generate", "man").stdout
    bash = tmp_path / "share/bash-completion/completions/regroup"
    assert bash.read_text() == call("--generate", "bash").stdout
    assert (tmp_path / "share/zsh/site-functions/_regroup").read_text() == call(
        "--generate", "zsh"
    ).stdout
    for name, told in (("mpirun", "Open MPI"), ("mpiexec", "Open MPI"), ("mpiexec.hydra", "HYDRA")):
        assert told in call("--version", program=str(tmp_path / "libexec/regroup" / name)).stdout
    assert "OPERATION" in call("bench", "--help", program=str(tmp_path / "bin/regroup")).stdout


def test_names_choose_the_dialect(named):
    mpirun = named("mpirun")
    assert "regroup" in call("--version", program=mpirun).stdout
    assert "program status was not found" in call("-np", "1", "status", program=mpirun).stderr
    # -s takes a value under hydra's name only.
    assert call("-n", "1", "-s", "all", "true", program=named("mpiexec.hydra")).returncode == 0
    answer = call("-np", "1", "-s", "true", program=mpirun)
    assert (answer.returncode, answer.stderr) == (
        0,
        "regroup: ignored, without effect in regroup: -s\n",
    )


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["-np", "two", "true"], "option -np two: expected a whole number"),
        (["--bind-too", "core", "true"], "unknown option --bind-too; did you mean --bind-to?"),
        (["--ntasks", "2", "true"], "unknown option --ntasks, which is srun's; use -np"),
        (
            ["--output-file", "x", "true"],
            "unknown option --output-file; did you mean --output-filen",
        ),
        (
            ["--launcher", "frok", "true"],
            "option --launcher frok: expected ssh or fork; did you mea",
        ),
        (
            ["--map-by", "sofa", "true"],
            "option --map-by sofa: 'sofa' is not a valid mapping; expected slot, ",
        ),
        (["-np", "1", "true", ":"], "no program was given"),
        (
            ["--nproc-per-node", "gpu", "true"],
            "option --nproc-per-node gpu: expected a number, auto or cpu",
        ),
        (["--app", "/no/such/file"], "option --app /no/such/file: open(/no/such/file): "),
    ],
)
def test_refusals(words, told):
    answer = call(*words)
    assert answer.returncode == 1
    assert answer.stdout == ""
    first, second = answer.stderr.splitlines()
    assert first.startswith(f"regroup: {told}")
    assert second == "Try regroup --help."


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["status", "--jsn"], "status: unknown option --jsn; did you mean --json?"),
        (["resize", "two"], 'resize: MEMBERS: expected a whole number >= 1, got "two"'),
        (["kill-member"], "kill-member: MEMBER is missing"),
    ],
)
def test_refusals_of_commands_name_their_own_help(words, told):
    answer = call(*words)
    assert (answer.returncode, answer.stdout) == (1, "")
    assert answer.stderr == f"regroup: {told}\nTry regroup {words[0]} --help.\n"


def test_help_on_a_name_of_a_command_and_an_option_shows_both():
    both = call("--help", "checkpoint").stdout
    assert "see regroup checkpoint --help" in both
    assert "--checkpoint DIR " in both
    option = call("--help", "--checkpoint").stdout
    assert option.startswith("  --checkpoint DIR ")


def test_a_mistyped_command_is_answered_with_the_nearest():
    answer = call("statsu")
    assert answer.returncode == 66
    assert answer.stderr.startswith("regroup: program statsu was not found in PATH=")
    assert answer.stderr.endswith("; did you mean regroup status?\n")
    assert "did you mean" not in call("no-such-program").stderr
    answer = call("checkpoint", "verfy", "x")
    assert answer.returncode == 2
    assert answer.stderr.endswith("regroup checkpoint: unknown verb verfy; did you mean verify?\n")
    answer = call("checkpoint", "verify", "--stpe", "3", "x")
    told = "regroup checkpoint: verify: unknown option --stpe; did you mean --step?\n"
    assert (answer.returncode, answer.stderr) == (2, told)
    answer = call("checkpoint", "verify", "--help")
    assert answer.returncode == 0
    assert "verify PLACE" in answer.stdout and "prune" not in answer.stdout


def test_the_manual_page_is_found_beside_the_programs_of_the_build():
    assert (BIN.parent / "share/man/man1/regroup.1").read_text().startswith(".TH REGROUP 1")


def test_a_bad_file_is_told_with_line_and_field(tmp_path):
    hosts = tmp_path / "hosts"
    hosts.write_text("localhost slots=2\nlocalhost slots=many\n")
    field = "field 'slots=many': expected a whole number"
    assert f"regroup: {hosts}, line 2: {field}\n" in call("--hostfile", str(hosts), "true").stderr
    programs = tmp_path / "programs"
    programs.write_text("-np 1 true\n-np 1 --wdri / true\n")
    told = f"regroup: {programs}, line 2: unknown option --wdri; did you mean --wdir?\n"
    assert told in call("--app", str(programs)).stderr


def test_options_without_effect_are_told_in_one_line():
    answer = call("-np", "1", "--launch-agent", "x", "-iface", "eth0", "--preload-binary", "true")
    assert answer.returncode == 0
    told = "ignored, without effect in regroup: --launch-agent, -iface, --preload-binary"
    assert answer.stderr == f"regroup: {told}\n"
    assert call("-q", "-np", "1", "--launch-agent", "x", "true").stderr == ""


def test_host_files_say_how_many_slots(regroup, tmp_path):
    hosts = tmp_path / "hosts"
    hosts.write_text("localhost slots=3\n")
    assert regroup.run("--hostfile", str(hosts), "echo", "here").out == "here\n" * 3
    refused = regroup.run("--hostfile", str(hosts), "-np", "4", "true")
    assert refused.wait() == 1
    assert "4 members requested, 3 slots available; --oversubscribe allows more" in refused.err
    assert regroup.run("-H", "localhost:2,127.0.0.1", "echo", "here").out == "here\n" * 3


def test_environment_options(regroup):
    script = 'echo "$A|$B|$C|$OMPI_MCA_btl|$HOME"'
    options = ["-x", "A=1", "--append-env", "B[,]", "2", "--mca", "btl", "self,tcp"]
    job = regroup.start(
        "-np", "1", *options, "--unset-env", "HOM*", "sh", "-c", script, env={"B": "1"}
    )
    job.wait()
    assert job.out == "1|1,2||self,tcp|\n"
    assert regroup.run("-np", "1", "-x", "A=1", "-x", "A=2", "sh", "-c", script).out.startswith(
        "2|"
    )
    job = regroup.run("-n", "1", "-envnone", "-env", "A", "1", "env")
    names = {line.split("=")[0] for line in job.out.splitlines()}
    assert "A" in names
    assert "REGROUP_TEST_MARK" not in names


def test_programs_are_found_in_path_though_it_is_not_passed_on(regroup, tmp_path):
    (tmp_path / "only-here").write_text("#!/bin/sh\necho ${PATH_SEEN-found}\n")
    (tmp_path / "only-here").chmod(0o755)
    path = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    for options in (["-envnone"], ["-genvlist", "HOME"], []):
        job = regroup.start("-n", "1", *options, "only-here", env=path)
        assert (job.wait(), job.out) == (0, "found\n"), job.err
    assert regroup.run("-n", "1", "--path", str(tmp_path), "only-here").out == "found\n"


def test_a_script_is_run_by_python(regroup, tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import sys\nprint(sys.argv[1:])\n")
    env = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    job = regroup.start("--nproc_per_node=1", str(script), "--lr", "1", env=env)
    assert job.wait() == 0
    assert job.out == "['--lr', '1']\n"
    job = regroup.start(
        "--nproc-per-node", "1", "-m", "script", "x", env={**env, "PYTHONPATH": str(tmp_path)}
    )
    assert job.wait() == 0
    assert job.out == "['x']\n"


def test_the_environment_sets_the_timeout(regroup):
    job = regroup.start("-np", "1", "sleep", "60", env={"MPIEXEC_TIMEOUT": "0.2"})
    assert job.wait() != 0
    assert "0.2" in job.err


RED = "\x1b[31m\x9b"


@pytest.mark.parametrize(
    "words",
    [
        ["-np", "1", "--hostfile", "names", "true"],
        ["-np", "1", "--hostfile", "fields", "true"],
        ["--app", "programs"],
        ["--app", "options"],
        ["-np", "1", "-H", RED, "true"],
        ["-np", "1", f"./{RED}"],
        ["-np", RED, "true"],
        [f"--{RED}"],
        [RED],
        ["status", RED],
        ["kill-member", RED],
        ["topo", f"--{RED}"],
        ["allocation", RED],
        ["doctor", RED],
        ["checkpoint", "ls", RED],
        ["bench", RED],
    ],
    ids=" ".join,
)  # fmt: skip
def test_what_others_have_written_reaches_no_terminal_as_it_is(words, tmp_path):
    lines = {
        "names": f"{RED} slots=2",
        "fields": f"a {RED}=3",
        "programs": f"-np 1 ./{RED}",
        "options": f"--{RED}",
    }
    for name, line in lines.items():
        (tmp_path / name).write_text(line + "\n")
    done = call(*words, cwd=tmp_path, env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)})
    said = done.stdout + done.stderr
    assert done.returncode != 0 and "\\x1b[31m" in said, said
    assert not set(said) & set(RED[:1] + RED[-1:]), said


def test_a_renamed_option_is_accepted_with_a_note():
    command = ["--hung-after", "5", "-np", "1", "true"]
    done = call(*command)
    assert (done.returncode, done.stderr) == (
        0,
        "regroup: --hung-after 5 is now --hang-timeout 5\n",
    )
    assert call("-q", *command).stderr == ""
