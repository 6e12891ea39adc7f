"""A job of MIN:MAX members whose program does not use the runtime: launched again with what is
left."""

import os
import shutil
import signal
import subprocess
import time

from conftest import until


def test_a_death_is_answered_by_a_launch_with_the_rest(regroup, tmp_path):
    script = f"""
    echo "$REGROUP_RESTART_COUNT $RANK/$WORLD_SIZE" >> {tmp_path}/starts
    if [ $REGROUP_RESTART_COUNT = 0 ]; then [ $RANK = 2 ] && exit 9; exec sleep 60; fi
    """
    job = regroup.run("--oversubscribe", "--initial-size", "3", "-np", "2:3", "sh", "-c", script)
    assert job.wait() == 0, job.err
    starts = sorted((tmp_path / "starts").read_text().splitlines())
    assert starts[-2:] == ["1 0/2", "1 1/2"]
    assert "0 2/3" in starts
    assert "relaunch with 2 members instead of 3" in job.err


def test_a_program_that_always_fails_ends_with_its_status(regroup):
    began = time.monotonic()
    job = regroup.run("--oversubscribe", "--max-restarts", "2", "-np", "1:3", "sh", "-c", "exit 7")
    assert job.wait() == 7
    assert time.monotonic() - began < 20
    assert "restarted 2 times already (--max-restarts)" in job.err
    assert "attempt 2 of 3" in job.err and "attempt 3 of 3" in job.err
    assert job.err.count("exited with status 7") == 3  # each failure is reported once


def test_without_restarts_the_first_death_ends_it(regroup):
    job = regroup.run("--oversubscribe", "--max-restarts", "0", "-np", "1:2", "sh", "-c", "exit 5")
    assert job.wait() == 5
    assert "relaunch" not in job.err


def test_a_job_that_is_ended_before_a_member_has_joined_announces_no_launch(regroup, tmp_path):
    script = f"echo > {tmp_path}/started.$RANK; exec sleep 60"
    job = regroup.start("--oversubscribe", "--initial-size", "3", "-np", "2:3", "sh", "-c", script)
    until(lambda: len(list(tmp_path.glob("started.*"))) == 3, "all members")
    job.process.send_signal(signal.SIGINT)
    assert job.wait() != 0
    assert "relaunch" not in job.err, job.err


def test_restarts_without_progress_end_with_93(regroup):
    job = regroup.run(
        "--oversubscribe", "--max-restarts", "100", "-np", "1:8", "sh", "-c", "exit 7"
    )
    assert job.wait() == 93
    assert "no progress, 5 launches in a row" in job.err


def test_each_launch_of_an_mpi_program_is_a_world(regroup, tmp_path):
    mpicc = shutil.which("mpicc.openmpi")
    assert mpicc, "no mpicc.openmpi: ./dev test installs it"
    source = tmp_path / "world.c"
    source.write_text("""
        #include <mpi.h>
        #include <stdio.h>
        #include <stdlib.h>
        int main(int argc, char** argv) {
          int rank, size, sum, one = 1;
          MPI_Init(&argc, &argv);
          MPI_Comm_rank(MPI_COMM_WORLD, &rank);
          MPI_Comm_size(MPI_COMM_WORLD, &size);
          MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
          printf("launch %s: rank %d of %d, sum %d\\n", getenv("REGROUP_RESTART_COUNT"), rank, size,
                 sum);
          fflush(stdout);
          if (atoi(getenv("REGROUP_RESTART_COUNT")) == 0) {
            MPI_Barrier(MPI_COMM_WORLD);
            if (rank == 2) _Exit(9);
            MPI_Barrier(MPI_COMM_WORLD);
          }
          MPI_Finalize();
          return 0;
        }
    """)
    subprocess.run([mpicc, "-o", str(tmp_path / "world"), str(source)], check=True, timeout=60)
    job = regroup.run(
        "--oversubscribe", "--initial-size", "3", "-np", "2:3", str(tmp_path / "world")
    )
    assert job.wait() == 0, job.err
    said = set(job.out.splitlines())
    assert said >= {f"launch 0: rank {rank} of 3, sum 3" for rank in range(3)}
    assert said >= {f"launch 1: rank {rank} of 2, sum 2" for rank in range(2)}


def test_what_the_user_says_of_yielding_holds_in_relaunched_jobs_too(regroup):
    name = "OMPI_MCA_mpi_yield_when_idle"
    many = str(os.cpu_count() + 1)
    for options, said in (([], "1"), (["-x", f"{name}=0"], "0")):
        command = [
            "--oversubscribe",
            *options,
            "--initial-size",
            many,
            "-np",
            f"1:{many}",
            "sh",
            "-c",
            f"echo ${name}",
        ]
        job = regroup.run(*command)
        assert job.wait() == 0, job.err
        assert job.out.split() == [said] * int(many)
