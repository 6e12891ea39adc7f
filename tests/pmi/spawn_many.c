// Starts processes that are not of MPI, and prints by how many KiB regroup-pmi has grown for each.
// usage: spawn_many COUNT
#include <pmix.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// Resident KiB of the process of our launcher that is named so, or -1.
static long resident_of(const char* name) {
  char path[64], word[64], line[256];
  snprintf(path, sizeof path, "/proc/%d/task/%d/children", getppid(), getppid());
  FILE* children = fopen(path, "r");
  long pid, size = -1;
  while (children && size < 0 && fscanf(children, "%ld", &pid) == 1) {
    snprintf(path, sizeof path, "/proc/%ld/status", pid);
    FILE* status = fopen(path, "r");
    int meant = 0;
    while (status && fgets(line, sizeof line, status)) {
      if (sscanf(line, "Name: %63s", word) == 1) meant = !strcmp(word, name);
      if (meant) sscanf(line, "VmRSS: %ld", &size);
    }
    if (status) fclose(status);
  }
  if (children) fclose(children);
  return size;
}

static int spawn(int count) {
  char* argv[] = {"true", NULL};
  pmix_app_t app = {.cmd = "true", .argv = argv, .maxprocs = 1};
  char space[PMIX_MAX_NSLEN + 1];
  while (count-- > 0) {
    if (PMIx_Spawn(NULL, 0, &app, 1, space) != PMIX_SUCCESS) return 1;
  }
  return 0;
}

int main(int argc, char** argv) {
  pmix_proc_t me;
  const int count = argc > 1 ? atoi(argv[1]) : 100;
  if (PMIx_Init(&me, NULL, 0) != PMIX_SUCCESS || spawn(count)) return 1;
  const long before = resident_of("regroup-pmi");
  if (before < 0 || spawn(count)) return 1;
  printf("%.1f KiB each\n", (double)(resident_of("regroup-pmi") - before) / count);
  return PMIx_Finalize(NULL, 0) != PMIX_SUCCESS;
}
