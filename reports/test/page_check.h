/* page_check.h: a strict look at the pages and pictures of a report. */
#ifndef SLUICE_REPORTS_TEST_PAGE_CHECK_H
#define SLUICE_REPORTS_TEST_PAGE_CHECK_H

#include <stdbool.h>
#include <stddef.h>

/* true: every byte of the page (an SVG, or compare.html) is one of the elements and attributes that
 * the report makes, properly nested and quoted, or text in which nothing can mean more than itself;
 * links lead nowhere but to files beside it and https. false: why says what is wrong, and where. */
bool page_check(const char *page, char *why, size_t why_bytes);

#endif
