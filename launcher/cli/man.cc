// The manual page regroup(1), in the language of man(7).
#include <fmt/format.h>

#include "launcher/cli/spec.h"

namespace regroup::cli {
namespace {

// Text of a page: no line begins with a dot or a quote, a backslash is one, and - is the minus that
// can be searched for.
std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if ((out.empty() || out.back() == '\n') && (c == '.' || c == '\'')) out += "\\&";
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      out += c;
    }
  }
  return out;
}

std::string entry(const Spec& spec) {
  std::string names;
  for (const std::string& name : spec.names) {
    names += fmt::format("{}\\fB{}\\fR", names.empty() ? "" : ", ", escaped(dashed(name)));
  }
  if (!spec.value.empty()) names += fmt::format(" \\fI{}\\fR", escaped(spec.value));
  return fmt::format(".TP\n{}\n{}.\n", names, escaped(spec.help));
}

constexpr std::string_view kBegin = R"(.SH NAME
regroup, mpirun, mpiexec \- run MPI programs, training jobs and TensorFlow clusters
.SH SYNOPSIS
.B regroup
[\fIOPTIONS\fR] \fIPROGRAM\fR [\fIARGUMENTS\fR] [: [\fIOPTIONS\fR] \fIPROGRAM\fR ...]
.br
.B regroup \-\-role
\fINAME\fR=\fIN\fR [\-\-role ...] \fIPROGRAM\fR [\fIARGUMENTS\fR]
.br
.B regroup \-\-job
\fIFILE\fR
.br
.B regroup \-np
\fIN\fR regroup bench \fIOPERATION\fR [\fIOPTIONS\fR]
.br
.B regroup checkpoint
\fIVERB\fR ...
.br
.B regroup topo
[\-\-machine \fIFILE\fR] [\-\-svg \fIFILE\fR|\-\-png \fIFILE\fR]
.br
.B regroup status
[\-\-json|\-\-follow|\-\-prometheus] [\fIJOB\fR]
.br
.B regroup top
[\-\-once] [\-\-interval \fISECONDS\fR] [\fIJOB\fR]
.br
.B regroup resize
\fIMEMBERS\fR|ps=\fIN\fR [\fIJOB\fR]
.br
.B regroup join
[\fIJOB\fR]
.br
.B regroup allocation
[\-\-json]
.br
.B regroup doctor
[\-\-json] [\-\-python \fIPROGRAM\fR]
.br
.B regroup notice
\fIMEMBER\fR [\fIJOB\fR]
.br
.B regroup kill\-member
\fIMEMBER\fR [\fIJOB\fR]
.SH DESCRIPTION
Starts the members of a job, forwards their output and signals, and ends all of them when the job ends.
It takes the command lines of Open MPI 4 and 5, with
.B \-\-compat=mpich
or called as mpiexec.hydra those of MPICH, and torchrun's most used options.
With
.B \-np
\fIMIN\fR:\fIMAX\fR the job is elastic: members may die, leave and join while training continues.
.PP
.B regroup bench
measures collective operations between the ranks of a job on one host;
.B regroup bench \-\-help
lists its options.
.PP
.B regroup checkpoint
lists, verifies, compares, exports, imports and removes checkpoints;
.B regroup checkpoint \-\-help
lists its verbs.
.PP
.B regroup topo
shows the processors, GPUs and NICs of a machine and the speed of the paths between them, as text or a picture;
.B regroup topo \-\-help
lists its options.
.PP
spec::JobSpec may be written with one or two dashes and with = or a blank before their value.
A colon ends a program's arguments and begins another program of the same job, with options of its own;
options of the whole job stand before the first program.
)";

constexpr std::string_view kEnd = R"(.SH EXIT STATUS
As in Open MPI 5: 0 if all members succeeded, otherwise the status of the first member that failed, or 128 plus
the number of the signal that killed it.
1: the command line is wrong; 66: the program was not found; 181: the working directory was not found.
With
.B \-\-compat=mpich
as in MPICH's mpiexec.
.SH ENVIRONMENT
.TP
.B MPIEXEC_TIMEOUT
default of \-\-timeout.
.TP
.B RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT
are set for each member, as by torchrun.
.SH EXAMPLES
.nf
regroup \-np 4 ./a.out
regroup \-np 2:8 python train.py
regroup \-np 1 ./server : \-np 4 ./client
regroup \-\-role chief=1 \-\-role worker=3 \-\-role ps=2 python train.py
.fi
)";

}  // namespace

std::string man_page(const std::string& version) {
  std::string out =
      fmt::format(".TH REGROUP 1 \"\" \"regroup {}\"\n{}.SH OPTIONS\n", version, kBegin);
  for (const GroupText& group : groups()) {
    out += fmt::format(".SS {}\n", group.title);
    for (const Spec& spec : table()) {
      if (spec.group == group.group) out += entry(spec);
    }
  }
  return out.append(kEnd);
}

}  // namespace regroup::cli
