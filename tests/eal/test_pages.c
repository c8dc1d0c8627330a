/* SPDX-License-Identifier: BSD-3-Clause */
/* Large pages for an EAL without huge pages: app/router/start/pages.h. */
#include "start/pages.h"

#include <CUnit/Basic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_malloc.h>
#include <rte_memory.h>

#include "kvr_eal.h"

#define OBJECTS 200u
#define BYTES	5000u

/* Kilobytes in large pages, of the mapping that has this address; -1: it is a file's. */
static long large_kb(const void *at)
{
	FILE *f = fopen("/proc/self/smaps", "r");
	unsigned long long from, to;
	long kb = -1, inode = -1;
	bool here = false;
	char line[512];

	while (f != NULL && fgets(line, sizeof(line), f) != NULL) {
		if (sscanf(line, "%llx-%llx %*s %*s %*s %ld", &from, &to, &inode) == 3)
			here = (uintptr_t)at >= from && (uintptr_t)at < to;
		else if (here && inode == 0)
			sscanf(line, "AnonHugePages: %ld", &kb);
	}
	if (f != NULL)
		fclose(f);
	return kb;
}

static bool kernel_has_them(void)
{
	FILE *f = fopen("/sys/kernel/mm/transparent_hugepage/enabled", "r");
	char line[100] = "[never]";

	if (f != NULL && fgets(line, sizeof(line), f) == NULL)
		line[0] = '\0';
	if (f != NULL)
		fclose(f);
	return f != NULL && strstr(line, "[never]") == NULL;
}

static void what_is_there_stays(void)
{
	uint8_t *p[OBJECTS], *later;

	for (uint32_t i = 0; i < OBJECTS; i++) {
		p[i] = rte_malloc("before", BYTES, 0);
		CU_ASSERT_PTR_NOT_NULL_FATAL(p[i]);
		memset(p[i], (int)i, BYTES);
	}
	pages_wish();
	for (uint32_t i = 0; i < OBJECTS; i++) {
		for (uint32_t k = 0; k < BYTES; k++)
			CU_ASSERT_EQUAL_FATAL(p[i][k], (uint8_t)i);
		rte_free(p[i]);
	}
	later = rte_zmalloc("later", 16 << 20, 0);
	CU_ASSERT_PTR_NOT_NULL_FATAL(later);
	memset(later, 1, 16 << 20);
	CU_ASSERT(large_kb(later) >= 0); /* nobody's file any more */
	if (kernel_has_them())
		printf("large pages: %ld kB ", large_kb(later));
	rte_free(later);
	pages_wish(); /* once more does no harm */
	later = rte_zmalloc("again", 1 << 20, 0);
	CU_ASSERT_PTR_NOT_NULL(later);
	rte_free(later);
}

int main(void)
{
	CU_TestInfo tests[] = {{"contents", what_is_there_stays}, CU_TEST_INFO_NULL};
	CU_SuiteInfo suites[] = {{"pages", NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};

	kvr_eal_start("64");
	if (CU_initialize_registry() != CUE_SUCCESS || CU_register_suites(suites) != CUE_SUCCESS)
		return 1;
	CU_basic_run_tests();
	return CU_get_number_of_failures() > 0; /* CUnit itself exits 0 on failure */
}
