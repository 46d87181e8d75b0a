/* SPDX-License-Identifier: Apache-2.0 */
/* Which kernels are trusted with write-protection, and what a mapping is told to be. */
#include "os/protect.h"
#include "test.h"
#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

static void kernels_that_forget_are_not_trusted(void **state) {
    (void)state;
    const char *sound[] = {"6.4.0",           "6.8.0-45-generic", "6.11.9",    "6.18.0",
                           "6.18.44-fc-v657", "6.20.1",           "7.0.0-rc1", "5.15.0"};
    const char *not_sound[] = {"6.12.0", "6.12.48+deb13-amd64", "6.13.2", "6.17.0", "6.17.12", "", "six"};
    for (size_t i = 0; i < sizeof sound / sizeof *sound; i++) assert_true(bwi_protect_kernel_is_sound(sound[i]));
    for (size_t i = 0; i < sizeof not_sound / sizeof *not_sound; i++)
        assert_false(bwi_protect_kernel_is_sound(not_sound[i]));
}

static void check_mapping(int maps, const void *at, size_t bytes, bool plain) {
    struct bwi_protect *os = bwi_protect_system();
    struct bwi_mapping m;
    assert_int_equal(os->mapping(os, maps, (uint64_t)(uintptr_t)at, &m), 0);
    assert_true(m.start <= (uint64_t)(uintptr_t)at && m.end >= (uint64_t)(uintptr_t)at + bytes);
    assert_int_equal(m.plain, plain);
}

static void only_private_memory_without_a_file_is_plain(void **state) {
    struct bwi_protect *os = bwi_protect_system();
    const size_t bytes = 64 * BWI_PAGE;
    (void)state;
    const int maps = os->open_maps(os);
    assert_true(maps >= 0);
    const int fd = memfd_create("file", 0);
    assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
    const struct {
        int flags, fd;
        bool plain;
    } kinds[] = {{MAP_PRIVATE | MAP_ANONYMOUS, -1, true},
                 {MAP_SHARED | MAP_ANONYMOUS, -1, false},
                 {MAP_SHARED, fd, false},
                 {MAP_PRIVATE, fd, false}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, kinds[i].flags, kinds[i].fd, 0);
        assert_true(p != MAP_FAILED);
        check_mapping(maps, p, bytes, kinds[i].plain);
        (void)munmap(p, bytes);
    }
    void *own = bwi_protect_alloc(bytes);
    check_mapping(maps, own, bytes, false);
    bwi_protect_free(own, bytes);
    struct bwi_mapping m;
    assert_int_equal(os->mapping(os, maps, UINT64_MAX - BWI_PAGE, &m), -ENOENT);
    (void)close(fd);
    os->close(os, maps);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kernels_that_forget_are_not_trusted),
        cmocka_unit_test(only_private_memory_without_a_file_is_plain),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
