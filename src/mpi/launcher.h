/* SPDX-License-Identifier: Apache-2.0 */
/* Who has started this job: the only file of a library that reads the environment, because what a launcher keeps over
 * its restarts stands nowhere else. Knows no MPI. */
#ifndef BWI_MPI_LAUNCHER_H
#define BWI_MPI_LAUNCHER_H

#include <stddef.h>

#define BWI_MPI_ID_BYTES 129u /* of a job or a launch, NUL included */

/* What the launcher keeps over its restarts, as an id. */
void bwi_mpi_job(char ret[BWI_MPI_ID_BYTES]);
/* One start of all ranks: random. 0, or an errno value. */
int bwi_mpi_draw_launch(char ret[BWI_MPI_ID_BYTES]);
/* A text in the form of an id; what had to be changed for that is told apart by a hash. */
void bwi_mpi_as_id(const char *text, char ret[BWI_MPI_ID_BYTES]);

#endif
