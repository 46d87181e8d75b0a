/* SPDX-License-Identifier: Apache-2.0 */
/* The job id that a launcher tells, or that stands for one that tells none. */
#include "mpi/launcher.h"
#include "test.h"
#include <stdlib.h>
#include <string.h>

static const char *const variables[] = {"BW_JOB", "SLURM_JOB_ID", "SLURM_CLUSTER_NAME", "PBS_JOBID", "LSB_JOBID"};

static int forget(void **unused) {
    (void)unused;
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) unsetenv(variables[i]);
    return 0;
}

static void check_job(const char *expected) {
    char job[BWI_MPI_ID_BYTES];
    bwi_mpi_job(job);
    assert_string_equal(job, expected);
}

static void a_launcher_that_has_unique_ids_is_believed(void **unused) {
    (void)unused;
    setenv("LSB_JOBID", "5", 1);
    check_job("lsf-5");
    setenv("PBS_JOBID", "17.server-1", 1);
    check_job("pbs-17.server-1");
    setenv("SLURM_JOB_ID", "4711", 1);
    check_job("slurm--4711");
    setenv("SLURM_CLUSTER_NAME", "big", 1);
    check_job("slurm-big-4711");
    setenv("BW_JOB", "mine", 1);
    check_job("mine");
    setenv("BW_JOB", "", 1); /* as good as none */
    check_job("slurm-big-4711");
}

static void where_none_tells_the_job_is_who_has_started_it(void **unused) {
    (void)unused;
    char first[BWI_MPI_ID_BYTES], second[BWI_MPI_ID_BYTES];
    bwi_mpi_job(first);
    bwi_mpi_job(second);
    assert_string_equal(first, second);
    assert_int_equal(strncmp(first, "parent-", 7), 0);
}

static void every_text_becomes_an_id_of_its_own(void **unused) {
    (void)unused;
    char a[BWI_MPI_ID_BYTES], b[BWI_MPI_ID_BYTES], text[400];
    bwi_mpi_as_id("Fits-1._", a);
    assert_string_equal(a, "Fits-1._");
    bwi_mpi_as_id("a/b", a);
    bwi_mpi_as_id("a:b", b);
    assert_int_equal(strncmp(a, "a_b-", 4), 0);
    assert_int_equal(strlen(a), 4 + 16);
    assert_string_not_equal(a, b);
    bwi_mpi_as_id("-x", a);
    assert_int_equal(strncmp(a, "xx-", 3), 0);
    memset(text, 'y', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    bwi_mpi_as_id(text, a);
    text[sizeof text - 2] = 'z';
    bwi_mpi_as_id(text, b);
    assert_int_equal(strlen(a), BWI_MPI_ID_BYTES - 1);
    assert_string_not_equal(a, b);
}

static void no_launch_is_drawn_twice(void **unused) {
    (void)unused;
    char a[BWI_MPI_ID_BYTES], b[BWI_MPI_ID_BYTES];
    assert_int_equal(bwi_mpi_draw_launch(a), 0);
    assert_int_equal(bwi_mpi_draw_launch(b), 0);
    assert_int_equal(strlen(a), 20);
    assert_string_not_equal(a, b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_launcher_that_has_unique_ids_is_believed, forget),
        cmocka_unit_test_setup(where_none_tells_the_job_is_who_has_started_it, forget),
        cmocka_unit_test(every_text_becomes_an_id_of_its_own),
        cmocka_unit_test(no_launch_is_drawn_twice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
