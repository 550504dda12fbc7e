/* `test_x NAME` runs one test of a file alone; the table of mutants (mutants.txt) names them so. */
#ifndef WAL_TEST_ONE_TEST_H
#define WAL_TEST_ONE_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static inline void one_test(int count, char **arguments)
{
    if (count > 1) {
        cmocka_set_test_filter(arguments[1]);
    }
}

#endif
