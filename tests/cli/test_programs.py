"""Several programs in one job: own arguments, folder and environment each, ranks going through
them."""

import subprocess

import pytest
from conftest import DEADLINE_S, rival

WHO = 'echo "$RANK/$WORLD_SIZE $NAME $(pwd)"'


def lines(job):
    return sorted(job.out.splitlines())


def test_ranks_go_through_the_programs_in_order(regroup, tmp_path):
    job = regroup.run(
        *("--oversubscribe", "-np", "2", "-x", "NAME=first", "-wdir", "/", "sh", "-c", WHO),
        *(":", "-np", "1", "-x", "NAME=second", "-wdir", str(tmp_path), "sh", "-c", WHO),
    )
    assert job.wait() == 0, job.err
    assert lines(job) == ["0/3 first /", "1/3 first /", f"2/3 second {tmp_path}"]


def test_an_app_file_names_them_too(regroup, tmp_path):
    apps = tmp_path / "apps"
    apps.write_text("# two programs\n-np 1 echo one\n-np 2 echo two\n")
    job = regroup.run("--oversubscribe", "--app", str(apps))
    assert job.wait() == 0, job.err
    assert lines(job) == ["one", "two", "two"]


def test_a_line_of_an_app_file_may_go_on_and_hold_an_apostrophe(regroup, tmp_path):
    apps = tmp_path / "apps"
    apps.write_text("-n 1 echo it's \\\n# between\n   two\n-n 1 echo 'a  b' x='c  d'\n")
    for words in (["--oversubscribe", "--app"], ["--compat=mpich", "-configfile"]):
        job = regroup.run(*words, str(apps))
        assert job.wait() == 0, job.err
        assert lines(job) == ["a  b x=c  d", "it's two"]


def test_a_parameter_lists_variables_to_export(regroup):
    show = ("sh", "-c", 'echo "$A/$B"')
    job = regroup.run("-np", "1", "--mca", "mca_base_env_list", "A=1;B=2 3", *show)
    assert (job.wait(), job.out) == (0, "1/2 3\n")
    job = regroup.run("-np", "1", "-x", "A=x", *show, env={"OMPI_MCA_mca_base_env_list": "A=e;B"})
    assert (job.wait(), job.out) == (0, "x/\n")
    assert "mca_base_env_list" in job.err and "variable B" in job.err


def script(path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def test_a_program_is_found_in_the_working_folder_after_path(regroup, tmp_path):
    """As under both Open MPIs."""
    script(tmp_path / "own", "#!/bin/sh\necho here\n")
    for words in ((), ("--wdir", str(tmp_path))):
        job = regroup.run("-np", "1", *words, "own", cwd="/" if words else tmp_path)
        assert (job.wait(), job.out) == (0, "here\n"), job.err


def test_path_is_searched_before_path_of_the_environment(regroup, tmp_path):
    job = regroup.run("-np", "1", "--path", str(tmp_path), "echo", "found")
    assert (job.wait(), job.out) == (0, "found\n"), job.err
    script(tmp_path / "echo", "#!/bin/sh\nprintf 'own '; /bin/echo \"$@\"\n")
    job = regroup.run("-np", "1", "--path", str(tmp_path), "echo", "found")
    assert (job.wait(), job.out) == (0, "own found\n"), job.err


def test_a_script_that_names_no_interpreter_is_the_shells_or_pythons(regroup, tmp_path):
    """Hydra and shells run the first one; a program of another machine is refused."""
    script(tmp_path / "plain", "echo $(($1 + 1))\n")
    script(tmp_path / "t.py", "import sys; print('ran', sys.argv[1])\n")
    script(tmp_path / "foreign", "\x7fOLF\0\0\n")
    job = regroup.run("-np", "1", "./plain", "6", cwd=tmp_path)
    assert (job.wait(), job.out) == (0, "7\n"), job.err
    for words in (("-np", "1"), ("--nproc-per-node", "1")):
        job = regroup.run(*words, "t.py", "x", cwd=tmp_path)
        assert (job.wait(), job.out) == (0, "ran x\n"), job.err
    job = regroup.run("-np", "1", "./foreign", cwd=tmp_path)
    assert (job.wait(), "Exec format error" in job.err) == (213, True), job.err


@pytest.mark.parametrize(
    "words",
    [
        ["--local-ranks-filter", "0"],
        ["--local_ranks_filter=0"],
        ["--run-path"],
        ["--shutdown-timeout", "30"],
        ["--signals-to-handle", "SIGTERM,SIGUSR1"],
        ["-r", "3", "-t", "3"],
        ["--event-log-handler", "null", "--logs-specs", "default"],
        ["--numa-binding", "node"],
        ["--duplicate-stdout-filters", "a", "--duplicate-stderr-filters", "b"],
        ["--virtual-local-rank"],
        ["--role", "default"],
    ],
)
def test_options_of_torchrun_are_taken(regroup, tmp_path, words):
    (tmp_path / "t.py").write_text("print('ran')\n")
    job = regroup.run("--nproc-per-node", "1", *words, "t.py", cwd=tmp_path)
    assert (job.wait(), job.out) == (0, "ran\n"), job.err
    assert job.err.count("\n") <= 1


@pytest.mark.parametrize(
    ("second", "status", "message"),
    [
        (["no-such-program"], 66, "program no-such-program was not found"),
        (
            ["-wdir", "/no/such/folder", "true"],
            181,
            "--wdir /no/such/folder: No such file or directory",
        ),
    ],
)
def test_what_is_wrong_with_the_second_starts_nothing_of_the_first(
    regroup, tmp_path, second, status, message
):
    mark = tmp_path / "started"
    job = regroup.run("--oversubscribe", "-np", "1", "touch", str(mark), ":", "-np", "1", *second)
    assert job.wait() == status
    assert message in job.err
    assert not mark.exists()


def test_a_death_in_one_ends_the_other(regroup):
    job = regroup.run(
        "--oversubscribe", "-np", "1", "sleep", "60", ":", "-np", "1", "sh", "-c", "exit 5"
    )
    assert job.wait() == 5
    assert "rank 1" in job.err


@pytest.mark.parametrize("launcher", ["openmpi-4", "openmpi-5"])
def test_do_not_launch_shows_the_map_as_mpirun_does(regroup, launcher):
    assert regroup.run("--do-not-launch", "-np", "1", "true").out.startswith("map: 1 member on ")
    assert "Data for JOB" in subprocess.run(
        [*rival(launcher), "--do-not-launch", "-np", "1", "true"],
        env=regroup.env, capture_output=True, text=True, timeout=DEADLINE_S, check=True,
    ).stdout  # fmt: skip


def test_do_not_launch_starts_nothing(regroup, tmp_path):
    mark = tmp_path / "started"
    assert regroup.run("--do-not-launch", "-np", "1", "touch", str(mark)).wait() == 0
    assert not mark.exists()
    several = ["-H", "a:1,b:1", "--launcher", "fork"]
    refused = regroup.run(*several, "--do-not-launch", "-np", "1:2", "touch", str(mark))
    assert refused.wait() == 1
    assert "places its members as hosts come; use -np N" in refused.err
    assert not mark.exists()


def test_more_members_than_can_be_are_refused(regroup):
    for count in ("65537", "4000000000"):
        job = regroup.run("--oversubscribe", "-np", count, "true")
        assert job.wait() == 1
        assert f"{count} members: expected at most 65536" in job.err


def test_options_of_other_kinds_of_jobs_are_told_of(regroup):
    job = regroup.run("-np", "1", "--max-restarts", "3", "--restart-policy", "restart", "true")
    assert job.wait() == 0
    assert "--max-restarts: ignored; requires -np MIN:MAX or --role" in job.err
    assert "--restart-policy: ignored; requires --role" in job.err
