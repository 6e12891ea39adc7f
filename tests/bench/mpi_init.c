/* The start and the end of an MPI program: MPI_Init, a sum that shows that all ranks met, MPI_Finalize.
 * Prints "rank=R sum=N" when called with an argument. */
#include <mpi.h>
#include <stdio.h>

int main(int argc, char** argv) {
  int rank, one = 1, sum = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (argc > 1) printf("rank=%d sum=%d\n", rank, sum);
  MPI_Finalize();
  return 0;
}
