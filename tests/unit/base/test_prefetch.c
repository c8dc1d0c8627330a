/* SPDX-License-Identifier: BSD-3-Clause */
#include "kvr_prefetch.h"

#include "kvr_test.h"

#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

/* A function that only prefetches. tools/check/all verifies that its calls are kept. */
static __attribute__((noinline)) void fetch_lines(const char *p, int n)
{
	for (int i = 0; i < n; i += 64)
		kvr_prefetch(&p[i]);
}

static void any_address_is_allowed(void)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	char *p = mmap(NULL, page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CU_ASSERT_PTR_NOT_EQUAL_FATAL(p, MAP_FAILED);
	fetch_lines(p, (int)page);
	CU_ASSERT_EQUAL(munmap(p, page), 0);
	fetch_lines(p, (int)page);
	kvr_prefetch(NULL);
	kvr_prefetch((const void *)UINTPTR_MAX);
}

static void memory_is_not_changed(void)
{
	uint64_t v[64];

	for (uint32_t i = 0; i < 64; i++)
		v[i] = i;
	fetch_lines((const char *)v, sizeof(v));
	for (uint32_t i = 0; i < 64; i++)
		CU_ASSERT_EQUAL(v[i], i);
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(any_address_is_allowed), KVR_CASE(memory_is_not_changed),
			       CU_TEST_INFO_NULL};

	return kvr_test_run("prefetch", tests);
}
