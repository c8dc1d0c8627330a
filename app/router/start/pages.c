/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Larger pages without huge pages of the kernel: see pages.h. The EAL's memory is a file without a
 * name, which the kernel rarely gives large pages; memory of nobody else's it does.
 */
#include "start/pages.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <rte_common.h>
#include <rte_memory.h>

#define LARGE (UINT64_C(1) << 21)

/* @p len bytes at an address that lies in its large page as @p like does in its own; NULL: none.
 * Addresses are reserved, memory is not. */
static uint8_t *room(const void *like, size_t len)
{
	const size_t all = len + LARGE;
	uint8_t *p = mmap(NULL, all, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	size_t before;

	if (p == MAP_FAILED)
		return NULL;
	before = ((uintptr_t)like - (uintptr_t)p) & (LARGE - 1);
	if (before != 0)
		munmap(p, before);
	munmap(p + before + len, all - before - len);
	return p + before;
}

/* The pages that there are; the others are zeros in both. */
static int copy(uint8_t *to, const uint8_t *from, size_t len, size_t page)
{
	const size_t n = len / page;
	unsigned char *there = malloc(n);
	int rc = 0;

	if (there == NULL || mincore((void *)(uintptr_t)from, len, there) < 0)
		rc = there == NULL ? -ENOMEM : -errno;
	for (size_t i = 0; rc == 0 && i < n; i++)
		if ((there[i] & 1) != 0)
			memcpy(to + i * page, from + i * page, page);
	free(there);
	return rc;
}

static int replace(const struct rte_memseg_list *l, void *arg)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	uint8_t *fresh;

	RTE_SET_USED(arg);
	if (l->external || l->page_sz >= LARGE || l->len < LARGE || l->len % page != 0)
		return 0;
	fresh = room(l->base_va, l->len);
	if (fresh == NULL)
		return 0;
	if (madvise(fresh, l->len, MADV_HUGEPAGE) < 0 ||
	    copy(fresh, l->base_va, l->len, page) < 0 ||
	    mremap(fresh, l->len, l->len, MREMAP_MAYMOVE | MREMAP_FIXED, l->base_va) == MAP_FAILED)
		munmap(fresh, l->len);
	return 0;
}

void pages_wish(void)
{
	rte_memseg_list_walk(replace, NULL);
}
