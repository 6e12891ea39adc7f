// What the tests of regroup's MPI services run, built with each MPI. usage: mpi_program WHAT [ARGUMENT]
#include <mpi.h>
#if defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION >= 5
#include <mpi-ext.h>
#endif
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int rank, size;

static int sum_of_ones(MPI_Comm comm) {
  int one = 1, sum = 0;
  MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm);
  return sum;
}

// Prints where this rank stands.
static int hello(void) {
  int *app = NULL, *universe = NULL, flag = 0;
  MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_APPNUM, &app, &flag);
  MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_UNIVERSE_SIZE, &universe, &flag);
  printf("rank %d of %d app %d universe %d sum %d\n", rank, size, app ? *app : -1, universe ? *universe : -1,
         sum_of_ones(MPI_COMM_WORLD));
  MPI_Finalize();
  return 0;
}

// All speak with all, and end at the same time.
static int talk(void) {
  int *to = calloc(size, sizeof *to), *from = calloc(size, sizeof *from);
  MPI_Alltoall(to, 1, MPI_INT, from, 1, MPI_INT, MPI_COMM_WORLD);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Finalize();
  return 0;
}

// Rank 1 ends in the way that is named while the others wait for it.
static int end(const char* how) {
  if (!strcmp(how, "codes")) {
    MPI_Finalize();
    return rank + 3;
  }
  if (rank == 1) {
    if (!strcmp(how, "abort")) MPI_Abort(MPI_COMM_WORLD, 5);
    if (!strcmp(how, "exit0")) exit(0);
    if (!strcmp(how, "exit7")) exit(7);
    if (!strcmp(how, "kill")) raise(SIGKILL);
    if (!strcmp(how, "segv")) signal(SIGSEGV, SIG_DFL), raise(SIGSEGV);
    if (!strcmp(how, "term")) raise(SIGTERM);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Finalize();
  return rank == 1 && !strcmp(how, "code4") ? 4 : 0;
}

// As end(), in the first start of the job only.
static int retry(const char* how) {
  const char* count = getenv("REGROUP_RESTART_COUNT");
  return count && strcmp(count, "0") ? hello() : end(how);
}

// Rank 0 publishes a port, rank 1 looks it up, both meet.
static int meet(void) {
  char port[MPI_MAX_PORT_NAME];
  MPI_Comm other;
  int value = rank + 10, got = -1;
  if (rank == 0) {
    MPI_Open_port(MPI_INFO_NULL, port);
    MPI_Publish_name("regroup-test", MPI_INFO_NULL, port);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) {
    MPI_Comm_accept(port, MPI_INFO_NULL, 0, MPI_COMM_SELF, &other);
  } else {
    MPI_Lookup_name("regroup-test", MPI_INFO_NULL, port);
    MPI_Comm_connect(port, MPI_INFO_NULL, 0, MPI_COMM_SELF, &other);
  }
  MPI_Sendrecv(&value, 1, MPI_INT, 0, 0, &got, 1, MPI_INT, 0, 0, other, MPI_STATUS_IGNORE);
  MPI_Comm_disconnect(&other);
  if (rank == 0) MPI_Unpublish_name("regroup-test", MPI_INFO_NULL, port);
  printf("rank %d got %d\n", rank, got);
  MPI_Finalize();
  return 0;
}

// Rank 0 publishes a name, which the others look up. No port is opened: MPICH cannot over UCX.
static int names(void) {
  char port[MPI_MAX_PORT_NAME] = "a-port";
  if (rank == 0) MPI_Publish_name("regroup-test", MPI_INFO_NULL, port);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank != 0) MPI_Lookup_name("regroup-test", MPI_INFO_NULL, port);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) MPI_Unpublish_name("regroup-test", MPI_INFO_NULL, port);
  printf("rank %d knows %s\n", rank, port);
  MPI_Finalize();
  return 0;
}

// Two programs are started, one process and two; all are added up.
static int spawn(char* self) {
  MPI_Comm parent, children, everybody;
  int sum = 0, *app = NULL, flag = 0;
  MPI_Comm_get_parent(&parent);
  if (parent == MPI_COMM_NULL) {
    char* commands[] = {self, self};
    char* arguments[] = {"spawn", NULL};
    char** argvs[] = {arguments, arguments};
    int counts[] = {1, 2};
    MPI_Info infos[] = {MPI_INFO_NULL, MPI_INFO_NULL};
    MPI_Comm_spawn_multiple(2, commands, argvs, counts, infos, 0, MPI_COMM_WORLD, &children,
                            MPI_ERRCODES_IGNORE);
    MPI_Intercomm_merge(children, 0, &everybody);
  } else {
    MPI_Intercomm_merge(parent, 1, &everybody);
  }
  sum = sum_of_ones(everybody);
  MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_APPNUM, &app, &flag);
  printf("%s %d of %d app %d sum %d\n", parent == MPI_COMM_NULL ? "parent" : "child", rank, size,
         app ? *app : -1, sum);
  MPI_Comm_free(&everybody);
  if (parent == MPI_COMM_NULL) {
    MPI_Comm_disconnect(&children);
  } else {
    MPI_Comm_disconnect(&parent);
  }
  MPI_Finalize();
  return 0;
}

// One process is started; HOW says whether it parts from its parent, and how it ends. The parent tells of a
// spawn that fails.
static int one_child(char* self, const char* how) {
  MPI_Comm parent, child;
  long self_id = getpid(), child_id = 0;
  MPI_Comm_get_parent(&parent);
  if (parent != MPI_COMM_NULL) {
    printf("child\n");
    fflush(stdout);
    if (!strncmp(how, "part-", 5)) {
      MPI_Send(&self_id, 1, MPI_LONG, 0, 0, parent);
      MPI_Comm_disconnect(&parent), how += 5;
    }
    if (!strcmp(how, "kill")) raise(SIGKILL);
    if (!strcmp(how, "abort")) MPI_Abort(MPI_COMM_WORLD, 5);
    if (!strcmp(how, "wait")) pause();
    MPI_Finalize();
    return !strcmp(how, "exit7") ? 7 : 0;
  }
  char* arguments[] = {"child", (char*)how, NULL};
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  if (MPI_Comm_spawn(self, arguments, !strcmp(how, "many") ? 1000 : 1, MPI_INFO_NULL, 0, MPI_COMM_SELF,
                     &child, MPI_ERRCODES_IGNORE)) {
    printf("refused\n");
  } else if (!strncmp(how, "part-", 5)) {
    MPI_Recv(&child_id, 1, MPI_LONG, 0, 0, child, MPI_STATUS_IGNORE);
    MPI_Comm_disconnect(&child);
    while (kill(child_id, 0) == 0) usleep(10000);  // its end comes first
    printf("parent goes on\n");
  } else {
    MPI_Barrier(child);
  }
  MPI_Finalize();
  return 0;
}

// Rank 1 dies; the others shrink and go on.
static int shrink(void) {
#ifdef OMPI_HAVE_MPI_EXT_FTMPI
  MPI_Comm smaller;
  int error;
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 1) raise(SIGKILL);
  do {
    error = MPI_Barrier(MPI_COMM_WORLD);
  } while (error == MPI_SUCCESS);
  MPIX_Comm_revoke(MPI_COMM_WORLD);
  MPIX_Comm_shrink(MPI_COMM_WORLD, &smaller);
  printf("rank %d sum %d\n", rank, sum_of_ones(smaller));
  fflush(stdout);
  MPI_Finalize();
#endif
  return 0;
}

// A communicator without MPI_Init: from a session's process set. Ranks 0 and 1 make `pairs` of their own first.
static int session(int pairs) {
#if MPI_VERSION >= 4 || (defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION >= 5)
  MPI_Session session;
  MPI_Group group;
  MPI_Comm comm;
  MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &session);
  MPI_Group_from_session_pset(session, "mpi://WORLD", &group);
  MPI_Group_rank(group, &rank);
  for (int i = 0, first[] = {0, 1}; i < pairs && rank < 2; ++i) {
    MPI_Group pair;
    char name[] = "pair 0";
    name[5] += i;
    MPI_Group_incl(group, 2, first, &pair);
    if (MPI_Comm_create_from_group(pair, name, MPI_INFO_NULL, MPI_ERRORS_RETURN, &comm)) return 1;
    if (sum_of_ones(comm) != 2) return 1;
    MPI_Comm_free(&comm);
    MPI_Group_free(&pair);
  }
  if (MPI_Comm_create_from_group(group, "regroup", MPI_INFO_NULL, MPI_ERRORS_RETURN, &comm)) return 1;
  printf("sum %d\n", sum_of_ones(comm));
  MPI_Comm_free(&comm);
  MPI_Group_free(&group);
  MPI_Session_finalize(&session);
#endif
  return 0;
}

#ifdef OMPI_MAJOR_VERSION
static int size_of(int type) {
  MPI_Comm part;
  int members = 0;
  MPI_Comm_split_type(MPI_COMM_WORLD, type, 0, MPI_INFO_NULL, &part);
  if (part == MPI_COMM_NULL) return 0;
  MPI_Comm_size(part, &members);
  MPI_Comm_free(&part);
  return members;
}
#endif

// With how many ranks this one shares the parts of the machine.
static int share(void) {
#ifdef OMPI_MAJOR_VERSION
  const int types[] = {OMPI_COMM_TYPE_NODE,    OMPI_COMM_TYPE_NUMA,    OMPI_COMM_TYPE_SOCKET,
                       OMPI_COMM_TYPE_L3CACHE, OMPI_COMM_TYPE_L2CACHE, OMPI_COMM_TYPE_L1CACHE,
                       OMPI_COMM_TYPE_CORE,    OMPI_COMM_TYPE_HWTHREAD};
  int sizes[8];
  for (int i = 0; i < 8; ++i) sizes[i] = size_of(types[i]);
  printf("rank %d node %d numa %d socket %d l3 %d l2 %d l1 %d core %d thread %d\n", rank, sizes[0], sizes[1],
         sizes[2], sizes[3], sizes[4], sizes[5], sizes[6], sizes[7]);
#endif
  MPI_Finalize();
  return 0;
}

// The processors of this rank, and of `count` that it spawns, which last as long as it does.
static int seats(char* self, char* count) {
  MPI_Comm parent, children;
  char line[256] = "";
  MPI_Comm_get_parent(&parent);
  FILE* status = fopen("/proc/self/status", "r");
  while (strncmp(line, "Cpus_allowed_list:", 18) && fgets(line, sizeof line, status)) {
  }
  fclose(status);
  // No tab: a terminal, which mpirun of Open MPI 4 gives each rank, passes on what stands before a
  // tab at once, and mpirun then writes the two parts of a line apart.
  char* processors = line + 18 + strspn(line + 18, "\t ");
  printf("%s %d: %s", parent == MPI_COMM_NULL ? "parent" : "child", rank, processors);
  if (parent == MPI_COMM_NULL) {
    char* arguments[] = {"seats", NULL};
    MPI_Comm_spawn(self, arguments, atoi(count), MPI_INFO_NULL, 0, MPI_COMM_WORLD, &children,
                   MPI_ERRCODES_IGNORE);
    MPI_Barrier(children);
  } else {
    MPI_Barrier(parent);
  }
  MPI_Finalize();
  return 0;
}

// What MPI_INFO_ENV says about this rank's program.
static int program_info(void) {
  const char* const keys[] = {"command", "argv", "ompi_num_apps", "ompi_np", "ompi_first_rank"};
  char value[MPI_MAX_INFO_VAL] = "";
  int found = 0;
  for (int i = 0; i < 5; ++i) {
    MPI_Info_get(MPI_INFO_ENV, keys[i], sizeof value - 1, value, &found);
    printf("%d %s: %s\n", rank, keys[i], found ? value : "none");
  }
  MPI_Finalize();
  return 0;
}

int main(int argc, char** argv) {
  const char* what = argc > 1 ? argv[1] : "hello";
  if (!strcmp(what, "session")) return session(argc > 2 ? atoi(argv[2]) : 0);
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (!strcmp(what, "end")) return end(argv[2]);
  if (!strcmp(what, "talk")) return talk();
  if (!strcmp(what, "info")) return program_info();
  if (!strcmp(what, "share")) return share();
  if (!strcmp(what, "retry")) return retry(argv[2]);
  if (!strcmp(what, "meet")) return meet();
  if (!strcmp(what, "names")) return names();
  if (!strcmp(what, "spawn")) return spawn(argv[0]);
  if (!strcmp(what, "seats")) return seats(argv[0], argv[2]);
  if (!strcmp(what, "child")) return one_child(argv[0], argv[2]);
  if (!strcmp(what, "shrink")) return shrink();
  return hello();
}
