// Environments and files of jobs, recorded or as the documentation named with each describes them.
#pragma once

#include <fmt/format.h>

#include <map>
#include <string>
#include <utility>

#include "base/status.h"
#include "launcher/alloc/allocators.h"

namespace regroup::alloc {

struct Recorded {
  spec::Environment environment;
  std::map<std::string, std::string> files;
  std::string host_name = "n1";
  std::string printed;  // by a command

  [[nodiscard]] AllocInput input() const {
    AllocInput in;
    in.environment = environment;
    in.host_name = host_name;
    in.read_file = [files = files](const std::string& path) -> base::Result<std::string> {
      const auto found = files.find(path);
      if (found == files.end()) return base::not_found("open(" + path + "): No such file");
      return found->second;
    };
    in.run = [printed = printed](const std::vector<std::string>&) -> base::Result<std::string> {
      return printed;
    };
    return in;
  }
};

// "n1:2* n2:3" and the warnings, or the error.
inline std::string understood(const Recorded& recorded, std::string_view name = "") {
  const auto granted = find_allocation(recorded.input(), name);
  if (!granted.ok()) return "error: " + granted.status().message();
  std::string out = granted->by == nullptr ? "none" : granted->by->name;
  for (const Host& host : granted->reading.allocation.hosts)
    out += fmt::format(" {}:{}{}", host.name, host.slots, host.here ? "*" : "");
  for (const std::string& warning : granted->reading.warnings) out += "\nnote: " + warning;
  return out;
}

// Recorded on Debian 12's Slurm 22.05.8: sbatch -N3 --ntasks-per-node=2 -n5.
inline Recorded slurm_job() {
  return {{{"SLURM_JOB_ID", "7"},
           {"SLURM_JOB_NODELIST", "n[1-3]"},
           {"SLURM_JOB_NUM_NODES", "3"},
           {"SLURM_NTASKS", "5"},
           {"SLURM_TASKS_PER_NODE", "2(x3)"},
           {"SLURM_JOB_CPUS_PER_NODE", "8(x3)"},
           {"SLURMD_NODENAME", "n1"}}};
}
// IBM Spectrum LSF 10.1.0 reference, "Environment variables set for job execution".
inline Recorded lsf_job() {
  return {{{"LSB_JOBID", "1234"},
           {"LSB_MCPU_HOSTS", "hA 2 hB 4"},
           {"LSB_DJOB_NUMPROC", "6"},
           {"LSB_DJOB_HOSTFILE", "/lsf/hostfile"}},
          {{"/lsf/hostfile", "hA\nhA\nhB\nhB\nhB\nhB\n"}},
          "hA"};
}
// PBS Professional 2022.1 User's Guide, 5.1 "Submitting Multiprocessor Jobs".
inline Recorded pbs_job() {
  return {{{"PBS_JOBID", "9.server"}, {"PBS_NODEFILE", "/pbs/nodes"}},
          {{"/pbs/nodes", "vmA\nvmA\nvmB\n"}},
          "vmA.example.org"};
}
// Recorded on Debian 12's Grid Engine 8.1.9: qsub -pe rg 3.
inline Recorded grid_engine_job() {
  return {{{"JOB_ID", "12"},
           {"PE_HOSTFILE", "/sge/pe"},
           {"NSLOTS", "3"},
           {"NHOSTS", "1"},
           {"PE", "rg"}},
          {{"/sge/pe", "vm 3 all.q@vm UNDEFINED\n"}},
          "vm"};
}
// Flux RFC 20, "Resource Set Specification Version 1", example.
inline Recorded flux_job() {
  return {
      {{"FLUX_URI", "local:///run/flux/local"}},
      {},
      "fluke82",
      R"({"version": 1, "execution": {"R_lite": [{"rank": "19-22", "children": {"gpu": "0-1", "core": "0-3"}}],
              "starttime": 0.0, "expiration": 0.0, "nodelist": ["fluke[82-83,8-9]"]}})"};
}
// MPI Operator v2, pkg/controller/mpi_job_controller_test.go: TestNewConfigMap.
inline Recorded operator_job() {
  return {{{"KUBERNETES_SERVICE_HOST", "10.96.0.1"},
           {"OMPI_MCA_orte_default_hostfile", "/etc/mpi/hostfile"}},
          {{"/etc/mpi/hostfile",
            "mpi-worker-0.mpi.default.svc slots=2\nmpi-worker-1.mpi.default.svc slots=2\n"}},
          "mpi-launcher"};
}

}  // namespace regroup::alloc
