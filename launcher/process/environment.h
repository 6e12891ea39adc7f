// Environments as data, programs found in their PATH, and the variables each member gets.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/status.h"
#include "launcher/process/app.h"

namespace regroup::process {

// "NAME=value" for each, for execve.
[[nodiscard]] std::vector<std::string> to_strings(const spec::Environment& environment);

// The file that `program` means when it is started in `wdir` ("" is the current folder) with
// `environment`. kNotFound names the program, and PATH if it was searched.
[[nodiscard]] base::Result<std::string> find_program(const std::string& program,
                                                     const std::string& wdir,
                                                     const spec::Environment& environment);

// The same for a member's program, which is also looked for in `wdir` itself, after PATH, as Open
// MPI does.
[[nodiscard]] base::Result<std::string> find_member_program(const std::string& program,
                                                            const std::string& wdir,
                                                            const spec::Environment& environment);
// Whether `missing`, the error of one of these two, is about a program that was given by its path.
[[nodiscard]] bool is_about_path(const base::Status& missing);
// Whether a member can start in `wdir`. kInvalidArgument: "--wdir DIR: " and why not.
[[nodiscard]] base::Status check_wdir(const std::string& wdir);

// The path of this program's file, even if the file has been replaced.
[[nodiscard]] std::string own_program();

// The path of program `name` of this installation: in the same folder, or in ../libexec/regroup.
[[nodiscard]] std::string find_helper(const std::string& name);

// Reserves a TCP port of 127.0.0.1 while `socket` is open: the kernel assigns it to nobody. The
// socket is bound with SO_REUSEADDR and never listens, so a program that sets SO_REUSEADDR can bind
// the port meanwhile.
struct HeldPort {
  base::Fd socket;
  std::uint16_t port = 0;
};
[[nodiscard]] base::Result<HeldPort> hold_port();

// The rendezvous address that rank 0 listens on (MASTER_ADDR, MASTER_PORT).
struct Master {
  std::string address = "127.0.0.1";
  std::uint16_t port = 0;
};

// `base` plus RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT and
// OMP_NUM_THREADS (`threads`) if it does not have them, REGROUP_JOB, and for an elastic job
// (`agent_socket` not empty) REGROUP_AGENT and REGROUP_MEMBER, and CUBLAS_WORKSPACE_CONFIG if it
// does not have it, so that a GPU repeats its results. Members of a fixed-size job also get
// OMPI_COMM_WORLD_* and OMPI_UNIVERSE_SIZE, which many scripts read, and what torchrun sets
// besides: GROUP_RANK, ROLE_RANK, ROLE_WORLD_SIZE, TORCHELASTIC_RUN_ID (the job's id; PyTorch
// Lightning takes the rank from RANK then, in a job of Slurm else from SLURM_PROCID),
// TORCHELASTIC_RESTART_COUNT and TORCHELASTIC_MAX_RESTARTS; and OMPI_MCA_orte_hnp_uri and
// JAX_COORDINATOR_PORT, from which JAX knows rank, size and coordinator. SLURM_PROCID and
// SLURM_LOCALID, where `base` has them, become rank and local rank. `base` has no variables of
// an outer launcher: outer_place.h.
[[nodiscard]] spec::Environment member_environment(spec::Environment base, const Place& place,
                                                   const std::string& job, const Master& master,
                                                   const std::string& agent_socket,
                                                   std::uint32_t threads);

// Adds OMPI_COMMAND and OMPI_ARGV, which become "command" and "argv" of MPI_INFO_ENV in Open MPI,
// unless they are there; no OMPI_ARGV above 64 KiB.
void add_program(const std::vector<std::string>& argv, spec::Environment& environment);

}  // namespace regroup::process
