/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory of the process that routers allocate. The linker redirects their calls here (meson.build),
 * and they are counted while a router runs. A packet lcore allocates nothing, control little, and a
 * router that has ended has freed everything. Memory of the EAL is allocated at start and stays.
 */
#include "sim.h"

#include <errno.h>
#include <inttypes.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include <rte_malloc.h>

/* Registry views, several at a time while one replaces another, and workers: 16 workers of 3 ranks
 * take 56 KB with two routers, with snapshots and without. */
#define GROWS (64u << 10)

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t size);
void *__real_aligned_alloc(size_t align, size_t size);
char *__real_strdup(const char *s);
void __real_free(void *p);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t size);
void *__wrap_aligned_alloc(size_t align, size_t size);
char *__wrap_strdup(const char *s);
void __wrap_free(void *p);

static struct memory *owner; /* NULL: not counted */

struct memory *memory_of(struct memory *m)
{
	struct memory *was = owner;

	owner = m;
	return was;
}

static void count_alloc(void *p)
{
	if (owner == NULL || p == NULL)
		return;
	owner->bytes += (int64_t)malloc_usable_size(p);
	owner->most = RTE_MAX(owner->most, owner->bytes);
	owner->in_turns += owner->turn;
}

static void count_free(void *p)
{
	if (owner == NULL || p == NULL)
		return;
	owner->bytes -= (int64_t)malloc_usable_size(p);
	owner->in_turns += owner->turn;
}

void *__wrap_malloc(size_t size)
{
	void *p = __real_malloc(size);

	count_alloc(p);
	return p;
}

void *__wrap_calloc(size_t n, size_t size)
{
	void *p = __real_calloc(n, size);

	count_alloc(p);
	return p;
}

void *__wrap_realloc(void *old, size_t size)
{
	void *p;

	count_free(old);
	p = __real_realloc(old, size);
	count_alloc(p);
	return p;
}

void *__wrap_aligned_alloc(size_t align, size_t size)
{
	void *p = __real_aligned_alloc(align, size);

	count_alloc(p);
	return p;
}

char *__wrap_strdup(const char *s)
{
	char *p = __real_strdup(s);

	count_alloc(p);
	return p;
}

void __wrap_free(void *p)
{
	count_free(p);
	__real_free(p);
}

/* ---- bounds ---- */

uint64_t memory_eal(void)
{
	struct rte_malloc_socket_stats st;
	uint64_t n = 0;

	for (int i = 0; i < RTE_MAX_NUMA_NODES; i++)
		if (rte_malloc_get_socket_stats(i, &st) == 0)
			n += st.heap_allocsz_bytes;
	return n;
}

void memory_begun(struct memory *m, uint64_t file)
{
	m->beginning = m->most;
	m->start = m->most = m->bytes;
	m->file = file;
}

/* A snapshot is read as a whole, and a rejected one is freed before the start completes. */
static void check_bounds(struct sim *s, uint32_t i)
{
	const struct memory *m = &s->host[i].memory;

	if (m->most > m->start + GROWS)
		sim_fail(s,
			 "router %u has allocated up to %" PRId64
			 " bytes; after its start: %" PRId64,
			 i, m->most, m->start);
	if (m->beginning > m->start + (int64_t)m->file + GROWS)
		sim_fail(s,
			 "router %u allocated up to %" PRId64
			 " bytes during its start; after it: %" PRId64 "; its snapshot: %" PRIu64,
			 i, m->beginning, m->start, m->file);
}

void memory_check(struct sim *s)
{
	const uint64_t eal = memory_eal();

	for (uint32_t i = 0; i < s->plan.routers; i++) {
		const struct memory *m = &s->host[i].memory;

		if (m->in_turns != 0)
			sim_fail(s, "packet lcores of router %u called the allocator %u times", i,
				 m->in_turns);
		if (s->host[i].up)
			check_bounds(s, i);
	}
	if (eal != s->eal_bytes)
		sim_fail(s,
			 "routers have allocated %" PRIu64
			 " bytes of the EAL; after their start: %" PRIu64,
			 eal, s->eal_bytes);
}

void memory_given_back(struct sim *s, uint32_t i)
{
	const struct memory *m = &s->host[i].memory;

	if (m->bytes != 0)
		sim_fail(s, "router %u has ended without freeing %" PRId64 " bytes", i, m->bytes);
}
