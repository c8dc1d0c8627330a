/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What routers take of the process's memory. The linker sends their calls here (meson.build); they
 * are counted while one of them runs. A packet lcore takes none, control little, and a router that
 * has ended has given all of it back. What the EAL gives is of the start, and stays as it is.
 */
#include "sim.h"

#include <errno.h>
#include <inttypes.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include <rte_malloc.h>

/* Views of who is there, several at a time while one replaces the other, and workers: 16 of 3 ranks
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

static struct memory *whose; /* NULL: nobody's */

struct memory *memory_of(struct memory *m)
{
	struct memory *was = whose;

	whose = m;
	return was;
}

static void took(void *p)
{
	if (whose == NULL || p == NULL)
		return;
	whose->bytes += (int64_t)malloc_usable_size(p);
	whose->most = RTE_MAX(whose->most, whose->bytes);
	whose->in_turns += whose->turn;
}

static void gave(void *p)
{
	if (whose == NULL || p == NULL)
		return;
	whose->bytes -= (int64_t)malloc_usable_size(p);
	whose->in_turns += whose->turn;
}

void *__wrap_malloc(size_t size)
{
	void *p = __real_malloc(size);

	took(p);
	return p;
}

void *__wrap_calloc(size_t n, size_t size)
{
	void *p = __real_calloc(n, size);

	took(p);
	return p;
}

void *__wrap_realloc(void *old, size_t size)
{
	void *p;

	gave(old);
	p = __real_realloc(old, size);
	took(p);
	return p;
}

void *__wrap_aligned_alloc(size_t align, size_t size)
{
	void *p = __real_aligned_alloc(align, size);

	took(p);
	return p;
}

char *__wrap_strdup(const char *s)
{
	char *p = __real_strdup(s);

	took(p);
	return p;
}

void __wrap_free(void *p)
{
	gave(p);
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

/* A snapshot is read whole, and one that is refused is given back before it has begun. */
static void check_bounds(struct sim *s, uint32_t i)
{
	const struct memory *m = &s->host[i].memory;

	if (m->most > m->start + GROWS)
		sim_fail(s, "router %u has %" PRId64 " bytes; %" PRId64 " when it began", i,
			 m->most, m->start);
	if (m->beginning > m->start + (int64_t)m->file + GROWS)
		sim_fail(s,
			 "router %u began with %" PRId64 " bytes at most, and has %" PRId64
			 "; its file %" PRIu64,
			 i, m->beginning, m->start, m->file);
}

void memory_check(struct sim *s)
{
	const uint64_t eal = memory_eal();

	for (uint32_t i = 0; i < s->plan.routers; i++) {
		const struct memory *m = &s->host[i].memory;

		if (m->in_turns != 0)
			sim_fail(s, "packet lcores of router %u have taken memory %u times", i,
				 m->in_turns);
		if (s->host[i].up)
			check_bounds(s, i);
	}
	if (eal != s->eal_bytes)
		sim_fail(s,
			 "routers have %" PRIu64 " bytes of the EAL; %" PRIu64 " when they began",
			 eal, s->eal_bytes);
}

void memory_given_back(struct sim *s, uint32_t i)
{
	const struct memory *m = &s->host[i].memory;

	if (m->bytes != 0)
		sim_fail(s, "router %u has ended and keeps %" PRId64 " bytes", i, m->bytes);
}
