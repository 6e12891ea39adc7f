// Another user of a host connects to regroup-pmi as a process of the job: in libpmix's protocol a client sends its
// own uid, so this one can send any. usage: pmix_stranger NAME RANK URI UID WHAT; prints "init" and the status of
// PMIx_Init and, if that succeeds, of WHAT: "get", "abort". "tool": it connects as a tool, such as a debugger.
#define _GNU_SOURCE
#include <pmix.h>
#include <pmix_tool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static uid_t said;

// In place of the system's, for libpmix as well.
uid_t geteuid(void) { return said; }
gid_t getegid(void) { return said; }
uid_t getuid(void) { return said; }
gid_t getgid(void) { return said; }

int main(int argc, char** argv) {
  if (argc != 6) return 2;
  said = (uid_t)atoi(argv[4]);
  setenv("PMIX_NAMESPACE", argv[1], 1);
  setenv("PMIX_RANK", argv[2], 1);
  const char* uris[] = {"PMIX_SERVER_URI41", "PMIX_SERVER_URI4", "PMIX_SERVER_URI3", "PMIX_SERVER_URI2",
                        "PMIX_SERVER_URI21"};
  for (unsigned i = 0; i < sizeof uris / sizeof *uris; ++i) setenv(uris[i], argv[3], 1);
  setenv("PMIX_SECURITY_MODE", "native", 1);
  setenv("PMIX_MCA_gds", "hash", 1);
  setenv("PMIX_GDS_MODULE", "hash", 1);
  setenv("PMIX_BFROP_BUFFER_TYPE", "PMIX_BFROP_BUFFER_NON_DESC", 1);
  setenv("PMIX_MCA_ptl_base_handshake_wait_time", "2", 1);
  pmix_proc_t me;
  memset(&me, 0, sizeof me);
  pmix_status_t status = PMIX_SUCCESS;
  if (!strcmp(argv[5], "tool")) {
    pmix_info_t to;
    PMIX_INFO_LOAD(&to, PMIX_SERVER_URI, argv[3], PMIX_STRING);
    status = PMIx_tool_init(&me, &to, 1);
  } else {
    status = PMIx_Init(&me, NULL, 0);
  }
  printf("init %d %s\n", (int)status, PMIx_Error_string(status));
  if (status != PMIX_SUCCESS) return 1;
  if (!strcmp(argv[5], "abort")) status = PMIx_Abort(3, "by a stranger", NULL, 0);
  if (!strcmp(argv[5], "get")) {
    pmix_value_t* value = NULL;
    pmix_proc_t job = me;
    job.rank = PMIX_RANK_WILDCARD;
    status = PMIx_Get(&job, PMIX_JOB_SIZE, NULL, 0, &value);
  }
  printf("%s %d %s\n", argv[5], (int)status, PMIx_Error_string(status));
  fflush(stdout);
  _exit(0);
}
