/* The rival of hosts_member.cc: the same allreduces by MPI.
 * usage: hosts_mpi BYTES:TIMES... */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static int rank, size;

static void expect(const float* sum, size_t count) {
  const float want = (float)(size * (size + 1)) / 2;
  for (size_t i = 0; i < count; ++i) {
    if (sum[i] != want) {
      fprintf(stderr, "hosts_mpi: a wrong sum\n");
      MPI_Abort(MPI_COMM_WORLD, 1);
    }
  }
}

static void measure(size_t bytes, int times) {
  const size_t count = bytes / sizeof(float);
  float* in = malloc(bytes);
  float* out = malloc(bytes);
  for (size_t i = 0; i < count; ++i) in[i] = (float)(rank + 1);
  for (int i = -2; i < times; ++i) {
    const double began = MPI_Wtime();
    MPI_Allreduce(in, out, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    const double took = MPI_Wtime() - began;
    if (i == -2 || i + 1 == times) expect(out, count);
    if (i >= 0 && rank == 0) printf("%zu %.0f\n", bytes, took * 1e9);
  }
  free(in);
  free(out);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  for (int i = 1; i < argc; ++i) {
    size_t bytes;
    int times;
    if (sscanf(argv[i], "%zu:%d", &bytes, &times) == 2) measure(bytes, times);
  }
  MPI_Finalize();
  return 0;
}
