// Spawns the program COMMAND without waiting for it in MPI: with all ranks of its space it fences before that and,
// once the file FLAG exists, after that. usage: pmix_spawner COUNT FLAG COMMAND [ARGUMENT...]; the last rank spawns.
#include <pmix.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  pmix_proc_t me, all;
  pmix_value_t* size = NULL;
  if (PMIx_Init(&me, NULL, 0) != PMIX_SUCCESS) return 1;
  all = me;
  all.rank = PMIX_RANK_WILDCARD;
  if (PMIx_Get(&all, PMIX_JOB_SIZE, NULL, 0, &size) != PMIX_SUCCESS) return 1;
  if (PMIx_Fence(&all, 1, NULL, 0) != PMIX_SUCCESS) return 1;
  if (me.rank + 1 == size->data.uint32) {
    pmix_app_t app;
    pmix_nspace_t space;
    memset(&app, 0, sizeof app);
    app.cmd = argv[3];
    app.argv = argv + 3;
    app.maxprocs = atoi(argv[1]);
    const pmix_status_t status = PMIx_Spawn(NULL, 0, &app, 1, space);
    if (status != PMIX_SUCCESS) fprintf(stderr, "PMIx_Spawn: %s\n", PMIx_Error_string(status));
  }
  while (access(argv[2], F_OK)) usleep(10000);
  if (PMIx_Fence(&all, 1, NULL, 0) != PMIX_SUCCESS) return 1;
  return PMIx_Finalize(NULL, 0) == PMIX_SUCCESS ? 0 : 1;
}
